from __future__ import annotations

import io
import wave

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontend.protocol.pcm import PcmBuffer, wav, wav_header

pytestmark = pytest.mark.pure


@given(st.lists(st.binary(max_size=9)))
def test_messages_may_end_within_a_sample(pieces: list[bytes]) -> None:
    buffer = PcmBuffer()
    for piece in pieces:
        buffer.append(piece)
    whole = b"".join(pieces)
    assert buffer.read(0, 1 << 30) == whole[: len(whole) // 2 * 2]
    assert len(buffer) == buffer.end == len(whole) // 2
    assert buffer.nbytes == 2 * len(buffer)


def test_positions_are_absolute() -> None:
    buffer = PcmBuffer()
    buffer.append(np.arange(10, dtype="<i2").tobytes())
    buffer.drop(4)
    assert (buffer.start, buffer.end, len(buffer)) == (4, 10, 6)
    assert np.frombuffer(buffer.read(3, 6), "<i2").tolist() == [4, 5]
    buffer.drop(2)
    assert buffer.start == 4
    buffer.drop(99)
    assert (buffer.start, buffer.end) == (10, 10)


def test_what_is_taken_can_be_given_back() -> None:
    buffer = PcmBuffer()
    buffer.append(b"aabb")
    taken = buffer.take()
    assert (taken, len(buffer), buffer.start) == (b"aabb", 0, 2)
    buffer.append(b"cc")
    buffer.give_back(taken)
    assert buffer.read(0, 3) == b"aabbcc"
    assert (buffer.start, buffer.end) == (0, 3)


def test_another_recording_begins_with_a_whole_sample() -> None:
    buffer = PcmBuffer()
    buffer.append(b"aab")
    buffer.take()
    buffer.append(b"cc")
    assert buffer.take() == b"cc"


def test_half_a_sample_cannot_be_given_back() -> None:
    with pytest.raises(AssertionError):
        PcmBuffer().give_back(b"a")


def test_views_may_be_appended() -> None:
    buffer = PcmBuffer()
    buffer.append(memoryview(b"abc"))
    buffer.append(bytearray(b"def"))
    assert buffer.take() == b"abcdef"


@pytest.mark.parametrize("rate", [16_000, 24_000])
def test_wav_is_a_file_that_others_read(rate: int) -> None:
    pcm = np.arange(-50, 50, dtype="<i2").tobytes()
    assert len(wav_header(len(pcm), rate)) == 44
    with wave.open(io.BytesIO(wav(pcm, rate))) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (rate, 1, 2)
        assert file.readframes(1000) == pcm
