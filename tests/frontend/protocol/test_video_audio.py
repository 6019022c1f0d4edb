from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontend.protocol.budget import Budget
from frontend.protocol.video_audio import Hearing

pytestmark = pytest.mark.pure


def test_more_than_fits_clears_everything() -> None:
    hearing = Hearing(8, "clear", Budget(99))
    assert hearing.append(b"aabbccdd")
    assert not hearing.append(b"ee")
    assert hearing.take() == b""
    assert hearing.append(b"ff")
    assert hearing.take() == b"ff"


def test_or_only_what_came_first() -> None:
    hearing = Hearing(8, "drop_oldest", Budget(99))
    assert hearing.append(b"aabbccdd")
    assert not hearing.append(b"eeff")
    assert hearing.take() == b"ccddeeff"
    assert not hearing.append(b"aabbccddee")
    assert hearing.take() == b"bbccddee"


def test_what_is_given_back_comes_first_and_the_newest_stays() -> None:
    hearing = Hearing(8, "clear", Budget(99))
    hearing.append(b"aabbcc")
    taken = hearing.take()
    hearing.append(b"ddee")
    hearing.give_back(taken)
    assert hearing.take() == b"bbccddee"


def test_without_room_in_the_budget_nothing_is_held() -> None:
    budget = Budget(10)
    assert budget.take(6)
    hearing = Hearing(8, "drop_oldest", budget)
    assert hearing.append(b"aabb")
    assert not hearing.append(b"cc")
    assert (hearing.nbytes, budget.held) == (0, 6)


@given(
    st.integers(1, 20),
    st.sampled_from(["clear", "drop_oldest"]),
    st.lists(st.one_of(st.binary(max_size=12), st.sampled_from(["take", "back", "clear"]))),
)
def test_the_budget_knows_what_is_held(most: int, overflow: str, steps: list[bytes | str]) -> None:
    budget = Budget(16)
    hearing = Hearing(most, overflow, budget)  # type: ignore[arg-type]
    taken = b""
    for step in steps:
        if isinstance(step, bytes):
            hearing.append(step)
        elif step == "take":
            taken = hearing.take()
        elif step == "back":
            hearing.give_back(taken)
        else:
            hearing.clear()
        assert budget.held == hearing.nbytes <= most
    hearing.clear()
    assert budget.held == 0
