from __future__ import annotations

import pytest

from omni.contract.errors import Overloaded
from omni.stages.slots import Slots

pytestmark = pytest.mark.pure


def running(slots: Slots[int]) -> list[str]:
    return [name for name, _ in slots]


def test_who_waits_runs_in_order_and_more_are_refused() -> None:
    slots: Slots[int] = Slots(2, 2)
    for name in "abcd":
        slots.add(name, 0)
    assert running(slots) == ["a", "b"]
    with pytest.raises(Overloaded):
        slots.add("e", 0)
    assert slots.get("c") == 0
    assert slots.get("e") is None
    slots.remove("a")
    assert running(slots) == ["b", "c"]
    slots.remove("d")
    slots.remove("b")
    assert (running(slots), len(slots)) == (["c"], 1)
    assert slots.remove("nobody") is None


def test_priority_goes_before_age() -> None:
    slots: Slots[int] = Slots(1, 3, priority=lambda own: own)
    for name, priority in (("a", 0), ("low", -1), ("first", 0), ("second", 0)):
        slots.add(name, priority)
    order = []
    while names := running(slots):
        order += names
        slots.remove(names[0])
    assert order == ["a", "first", "second", "low"]


def test_who_is_in_a_hurry_runs_as_one_more() -> None:
    slots: Slots[int] = Slots(1, 2)
    for name in "abc":
        slots.add(name, 0)
    slots.hurry("c")
    slots.hurry("nobody")
    assert running(slots) == ["a", "c"]
    slots.remove("c")
    assert running(slots) == ["a"]
    slots.remove("a")
    assert running(slots) == ["b"]


def test_the_served_go_last() -> None:
    slots: Slots[int] = Slots(3, 0)
    for name in "abc":
        slots.add(name, 0)
    slots.served("a")
    assert running(slots) == ["b", "c", "a"]
