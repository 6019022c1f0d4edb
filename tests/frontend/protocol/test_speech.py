"""When turns begin and end, over windows that are given."""

from __future__ import annotations

from collections import deque
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontend.protocol.realtime_config import Detection
from frontend.protocol.speech import PATIENCE_MS, Split, Started, Stopped, TurnDetector, Window, completeness

pytestmark = pytest.mark.pure
RATE = 16_000
SIZE = 512


def detector(most_s: float = 60, origin: int = 0, **options: object) -> TurnDetector:
    return TurnDetector(Detection(**options), RATE, origin, int(most_s * RATE))  # type: ignore[arg-type]


def run(found: TurnDetector, voices: list[float]) -> list[object]:
    return [happened for voice in voices if (happened := found.feed(Window(voice))) is not None]


def test_a_turn() -> None:
    happened = run(detector(), [0.0] * 20 + [0.9] * 30 + [0.0] * 20)
    assert happened == [Started(20 * SIZE - 300 * 16), Stopped(20 * SIZE - 300 * 16, (50 + 16) * SIZE)]


def test_a_click_is_no_turn() -> None:
    assert run(detector(), [0.0, 0.9, 0.0, 0.9, 0.0] * 20) == []


def test_a_voice_may_get_less_sure_once_it_speaks() -> None:
    happened = run(detector(), [0.9] * 3 + [0.4] * 50 + [0.3] * 16)
    assert happened[1:] == [Stopped(0, 69 * SIZE)]


def test_padding_never_reaches_into_the_turn_before() -> None:
    found = detector(silence_duration_ms=32)
    happened = run(found, [0.9] * 5 + [0.0] + [0.9] * 5 + [0.0])
    assert happened == [Started(0), Stopped(0, 6 * SIZE), Started(6 * SIZE), Stopped(6 * SIZE, 12 * SIZE)]


def test_no_silence_at_all_ends_a_turn_at_once() -> None:
    assert len(run(detector(silence_duration_ms=0), [0.9] * 5 + [0.0])) == 2


def test_a_long_turn_is_split_without_a_gap() -> None:
    happened = run(detector(most_s=1), [0.9] * 100)
    splits = [one for one in happened if isinstance(one, Split)]
    assert len(splits) == 3
    assert all(one.at == two.start for one, two in pairwise(splits))


def test_what_is_needed_starts_with_the_padding() -> None:
    found = detector(prefix_padding_ms=100, origin=8_000)
    assert found.needed_from == 8_000
    run(found, [0.0] * 100)
    assert found.needed_from == 8_000 + 100 * SIZE - 1_600
    run(found, [0.9])
    assert found.needed_from == 8_000 + 100 * SIZE - 1_600


@given(st.lists(st.sampled_from([0.0, 0.4, 0.9]), max_size=300), st.integers(0, 600), st.integers(0, 600))
def test_turns_follow_each_other(voices: list[float], silence: int, padding: int) -> None:
    found = detector(silence_duration_ms=silence, prefix_padding_ms=padding, most_s=2)
    reached, speaking = 0, False
    for voice in voices:
        needed = found.needed_from
        happened = found.feed(Window(voice))
        match happened:
            case Started(at):
                assert not speaking
                assert needed <= at
                assert at >= reached
                speaking = True
            case Stopped(start, at) | Split(start, at):
                assert speaking
                assert reached <= start < at == found.position
                reached, speaking = at, isinstance(happened, Split)


# The heuristic of semantic_vad


def voice(levels: list[float], pitches: list[float]) -> deque[Window]:
    return deque(Window(0.9, level, pitch) for level, pitch in zip(levels, pitches, strict=True))


LEVEL = [-20.0] * 30
MELODY = [120.0, 130.0, 125.0, 118.0, 128.0, 122.0] * 5


def test_falling_and_fading_sounds_finished() -> None:
    assert completeness(voice([-20.0] * 26 + [-28.0] * 4, MELODY[:24] + [100.0] * 6)) > 0.8


def test_a_question_sounds_finished() -> None:
    assert completeness(voice([-20.0] * 26 + [-27.0] * 4, MELODY[:24] + [160.0] * 6)) > 0.8


def test_level_and_loud_sounds_unfinished() -> None:
    assert completeness(voice(LEVEL, MELODY)) < 0.35


def test_a_held_sound_is_a_filler() -> None:
    held = MELODY[:14] + [124.0] * 16
    assert completeness(voice(LEVEL, held)) < completeness(voice(LEVEL, MELODY))


def test_little_says_nothing() -> None:
    assert completeness(voice([-20.0] * 5, [100.0] * 5)) == 0.5


@pytest.mark.parametrize("eagerness", ["low", "medium", "auto", "high"])
def test_patience_is_within_the_bounds_of_its_eagerness(eagerness: str) -> None:
    least, most = PATIENCE_MS[eagerness]
    for end in ([100.0] * 6, MELODY[:6]):
        found = detector(type="semantic_vad", eagerness=eagerness)
        for n in range(30):
            found.feed(Window(0.9, -20.0 if n < 26 else -30.0, (MELODY[:24] + end)[n]))
        silent = 0
        while not isinstance(found.feed(Window(0.0)), Stopped):
            silent += 32
            assert silent <= most
        assert silent >= least - 64
