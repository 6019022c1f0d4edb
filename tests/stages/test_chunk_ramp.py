"""The chunk ramp, with a player that plays in real time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omni.stages.chunk_ramp import ChunkRamp

pytestmark = pytest.mark.pure

FRAME = 0.08
"""Seconds of speech per frame."""


def test_chunks_double_up_to_the_cap() -> None:
    ramp = ChunkRamp(most=25, margin_s=0.1)
    sizes = []
    ready = 100
    while ready:
        sizes.append(ramp.frames(ready, True, 0.0))
        ready -= sizes[-1]
        ramp.sent(sizes[-1], sizes[-1] * FRAME, 0.0)
    assert sizes == [1, 2, 4, 8, 16, 25, 25, 19]


def test_a_chunk_waits_only_while_the_player_has_something() -> None:
    ramp = ChunkRamp(most=25, margin_s=0.03)
    assert ramp.frames(0, False, 0.0) == 0
    assert ramp.due(0) is None
    assert ramp.frames(1, False, 0.0) == 1
    ramp.sent(1, FRAME, 0.0)
    assert ramp.frames(1, False, 0.049) == 0
    assert ramp.due(1) == pytest.approx(0.05)
    assert ramp.frames(1, False, 0.05) == 1
    ramp.sent(1, FRAME, 0.05)
    assert ramp.size == 2, "a chunk that wasn't full doesn't let the ramp grow"
    assert ramp.plays_until == pytest.approx(0.16)
    ramp.sent(2, 2 * FRAME, 1.0)
    assert ramp.plays_until == pytest.approx(1.16), "who ran dry begins anew"


def test_a_larger_first_chunk_is_not_waited_for() -> None:
    ramp = ChunkRamp(most=80, margin_s=0.1, full=16)
    assert ramp.size == 16
    assert ramp.frames(9, False, 0.0) == 9
    ramp.sent(9, 9 * FRAME, 0.0)
    assert ramp.frames(15, False, 0.0) == 0
    assert ramp.frames(40, False, 0.0) == 16
    ramp.sent(16, 16 * FRAME, 0.0)
    assert ramp.size == 32


def test_an_end_lets_go_of_what_is_left() -> None:
    ramp = ChunkRamp(most=8, margin_s=0.0)
    ramp.sent(1, FRAME, 0.0)
    assert ramp.frames(1, False, 0.0) == 0
    assert ramp.frames(1, True, 0.0) == 1
    assert ramp.frames(0, True, 0.0) == 0


@given(
    gaps=st.lists(st.floats(0.0, 0.3), min_size=1, max_size=60),
    most=st.integers(1, 32),
    margin=st.floats(0.0, 0.2),
)
def test_nothing_is_held_back_from_a_player_that_runs_dry(gaps: list[float], most: int, margin: float) -> None:
    """However frames come, none waits for others when the player has played all that it got."""
    ramp = ChunkRamp(most, margin)
    arrivals, now = [], 0.0
    for gap in gaps:
        now += gap
        arrivals.append(now)
    ready, sent, now = 0, 0, 0.0
    while sent < len(gaps):
        moments = [moment for moment in (arrivals[0] if arrivals else None, ramp.due(ready)) if moment is not None]
        now = max(now, min(moments, default=now))
        while arrivals and arrivals[0] <= now:
            arrivals.pop(0)
            ready += 1
        while count := ramp.frames(ready, not arrivals, now):
            assert 1 <= count <= min(ready, most)
            ready -= count
            sent += count
            ramp.sent(count, count * FRAME, now)
        if ready and ramp.plays_until is not None:
            assert ramp.plays_until > now
    assert ready == 0
