"""The vocoder without the voice: any spectrum will do to show that chunking changes nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omni.contract.errors import StageFailed
from omni.stages.demo.frames import GROUPS, HOP, NUMBERS, Codes, Frames, pack, unpack
from omni.stages.demo.vocoder import BINS, Pulses, Spectrum, Vocoder

pytestmark = pytest.mark.pure


def some(count: int, seed: int = 0) -> Codes:
    random = np.random.default_rng(seed)
    pitch = random.uniform(80, 250, count) * (random.random(count) > 0.3)
    return pack(
        Frames(
            random.integers(0, 256, (count, NUMBERS)).astype(np.uint8),
            np.full(count, 86, np.uint8),
            np.full(count, 0.05, np.float32),
            pitch.astype(np.float32),
        )
    )


def spread(frames: Frames) -> Spectrum:
    """A spectrum that depends on every frame for itself."""
    values = np.resize(frames.numbers.astype(np.float32) / 64 - 4, (len(frames.numbers), 5, BINS))
    for at, numbers in enumerate(frames.numbers):
        values[at] = np.resize(numbers.astype(np.float32) / 64 - 4, (5, BINS))
    return Spectrum(*np.ascontiguousarray(values.transpose(1, 0, 2)))


@settings(max_examples=40)
@given(st.integers(1, 60), st.lists(st.integers(0, 20), max_size=30))
def test_every_chunking_gives_the_samples_of_the_whole(count: int, sizes: list[int]) -> None:
    codes = some(count)
    whole = Vocoder(spread).feed(unpack(codes), last=True)
    assert whole.shape == (count * HOP,)
    assert np.abs(whole).max() > 0.01
    stream, at, parts = Vocoder(spread), 0, []
    for size in sizes:
        parts.append(stream.feed(unpack(codes[at : at + size])))
        at += size
    parts.append(stream.feed(unpack(codes[at:]), last=True))
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_nothing_to_say_makes_no_sound() -> None:
    assert Vocoder(spread).feed(unpack(some(0)), last=True).shape == (0,)


def test_samples_come_as_soon_as_they_are_final() -> None:
    """Four frames of look-ahead: two of pulses, two of the window."""
    stream = Vocoder(spread)
    assert [len(stream.feed(unpack(some(1)))) // HOP for _ in range(8)] == [0, 0, 0, 0, 1, 1, 1, 1]


def test_pulses_have_the_pitch_and_stop_where_there_is_none() -> None:
    pulses = Pulses().feed(np.array([200.0] * 20 + [0.0] * 20, np.float32), last=True)
    train = pulses[:19].reshape(-1)
    peaks = np.flatnonzero(train > 0.9 * train.max())
    assert np.diff(peaks[np.insert(np.diff(peaks) > 1, 0, True)]).mean() == pytest.approx(24_000 / 200, abs=0.5)
    assert not pulses[21:].any()


def test_codes_keep_what_is_packed() -> None:
    codes = some(9)
    assert (codes.shape, codes.dtype) == ((9, GROUPS), np.int32)
    np.testing.assert_array_equal(pack(unpack(codes)), codes)


@pytest.mark.parametrize(
    "codes",
    [
        np.zeros((2, 16), np.int32),
        np.zeros(GROUPS, np.int32),
        np.full((2, GROUPS), 256, np.int32),
        np.full((2, GROUPS), -1, np.int32),
        np.hstack([np.zeros((1, GROUPS - 1), np.int32), [[0x7FC0_0000]]]).astype(np.int32),
    ],
    ids=["groups", "dimensions", "large", "negative", "no number"],
)
def test_what_is_no_frame_is_refused(codes: Codes) -> None:
    with pytest.raises(StageFailed):
        unpack(codes)
