from __future__ import annotations

import pytest

from frontend.protocol.lane import Lane

pytestmark = pytest.mark.pure


def test_steps_run_in_their_order_when_they_are_ready() -> None:
    ran: list[object] = []
    lane: Lane[str] = Lane()
    lane.add(ran.append, result=1)
    lane.hold("a", ran.append, "frame a")
    lane.add(ran.append, result=2)
    lane.hold("b", ran.append, "frame b")
    lane.run()
    assert ran == [1]
    lane.release("b", "B")
    lane.run()
    assert (ran, len(lane)) == ([1], 3)
    lane.release("a", "A")
    lane.release("nobody", "?")
    lane.run()
    assert (ran, len(lane)) == ([1, "A", 2, "B"], 0)


def test_a_step_may_add_others() -> None:
    ran: list[int] = []
    lane: Lane[str] = Lane()
    lane.add(lambda _: lane.add(lambda _: ran.append(1)))
    lane.run()
    assert ran == [1]


def test_what_was_carried_is_given_back() -> None:
    lane: Lane[str] = Lane()
    lane.hold(1, lambda _: None, "one")
    lane.add(lambda _: None)
    lane.add(lambda _: None, "two")
    assert list(lane.clear()) == ["one", "two"]
    lane.release(1, None)
    lane.run()
    assert len(lane) == 0


def test_a_step_may_clear_the_lane() -> None:
    lane: Lane[str] = Lane()
    lane.add(lambda _: lane.clear())
    lane.add(lambda _: pytest.fail("it was cleared"))
    lane.run()
    assert len(lane) == 0
