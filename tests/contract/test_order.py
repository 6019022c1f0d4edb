from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omni.contract.errors import OmniError
from omni.contract.order import MAX_HELD, InOrder

pytestmark = pytest.mark.pure


@given(st.integers(0, 40).flatmap(lambda n: st.permutations(range(n))))
def test_any_arrival_comes_out_in_order(arrival: list[int]) -> None:
    order: InOrder[int] = InOrder()
    assert [out for seq in arrival for out in order.push(seq, seq)] == sorted(arrival)


@pytest.mark.parametrize("again", [0, 1, 5])
def test_a_number_that_comes_twice_is_an_error(again: int) -> None:
    order: InOrder[str] = InOrder()
    for seq in (0, 1, 5):
        order.push(seq, "x")
    with pytest.raises(OmniError):
        order.push(again, "x")


def test_a_hole_that_never_fills_is_an_error() -> None:
    order: InOrder[str] = InOrder()
    for seq in range(1, MAX_HELD + 1):
        order.push(seq, "x")
    with pytest.raises(OmniError):
        order.push(MAX_HELD + 1, "x")
