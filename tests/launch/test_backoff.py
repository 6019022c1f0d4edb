from __future__ import annotations

import pytest

from omni.launch.backoff import Backoff

pytestmark = pytest.mark.pure


def test_the_first_restart_is_immediate_and_the_next_wait_longer_and_longer() -> None:
    backoff = Backoff(base=1.0, longest=30.0)
    assert [backoff.after(0.0) for _ in range(8)] == [0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]


def test_a_calm_time_breaks_the_row() -> None:
    backoff = Backoff(calm=60.0)
    for _ in range(4):
        backoff.after(59.0)
    assert backoff.in_a_row == 4
    assert backoff.after(60.0) == 0.0
    assert (backoff.in_a_row, backoff.total) == (1, 5)


def test_the_wait_stays_bounded_for_ever() -> None:
    backoff = Backoff(longest=30.0)
    assert max(backoff.after(0.0) for _ in range(2000)) == 30.0
