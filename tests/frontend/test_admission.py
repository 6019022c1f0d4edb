from __future__ import annotations

import pytest

from frontend.admission import Admission, Kind
from omni.contract.errors import Overloaded, TooLarge, Unavailable

pytestmark = pytest.mark.pure


@pytest.fixture
def refusals() -> list[str]:
    return []


@pytest.fixture
def admission(refusals: list[str]) -> Admission:
    return Admission(generations=2, sessions=1, media_bytes=100, on_refusal=refusals.append)


@pytest.mark.parametrize(("kind", "limit"), [("generation", 2), ("session", 1)])
def test_what_is_over_a_limit_is_refused_at_once(
    admission: Admission, refusals: list[str], kind: Kind, limit: int
) -> None:
    tickets = [admission.admit(kind) for _ in range(limit)]
    with pytest.raises(Overloaded, match=f"all {limit} {kind}s"):
        admission.admit(kind)
    assert refusals == [kind]
    tickets[0].release()
    admission.admit(kind)


def test_generations_and_sessions_are_counted_apart(admission: Admission) -> None:
    admission.admit("session")
    with admission.admit("generation"), admission.admit("generation"):
        assert (admission.in_flight, admission.sessions) == (2, 1)
    assert (admission.in_flight, admission.sessions) == (0, 1)


def test_a_ticket_counts_once_however_often_it_is_released(admission: Admission) -> None:
    first, _second = admission.admit("generation"), admission.admit("generation")
    first.release()
    first.release()
    with first:
        pass
    assert admission.in_flight == 1


def test_a_ticket_is_given_back_when_its_work_fails(admission: Admission) -> None:
    with pytest.raises(KeyError), admission.admit("generation"):
        raise KeyError
    assert admission.in_flight == 0


def test_media_share_one_budget(admission: Admission, refusals: list[str]) -> None:
    first = admission.admit_media(60)
    with pytest.raises(Overloaded):
        admission.admit_media(41)
    assert refusals == ["media"]
    with admission.admit_media(40):
        assert admission.media_bytes == 100
    first.release()
    assert admission.media_bytes == 0


def test_media_that_would_never_fit_are_too_large(admission: Admission, refusals: list[str]) -> None:
    with pytest.raises(TooLarge):
        admission.admit_media(101)
    assert refusals == []


def test_once_closed_nothing_new_is_taken_and_what_runs_goes_on(admission: Admission, refusals: list[str]) -> None:
    ticket = admission.admit("generation")
    admission.close()
    for kind in ("generation", "session"):
        with pytest.raises(Unavailable):
            admission.admit(kind)
    assert refusals == ["draining", "draining"]
    assert admission.closed
    admission.admit_media(1).release()
    ticket.release()
    assert admission.in_flight == 0
