"""Bytes go once: what waits for what, and what is stopped when."""

from __future__ import annotations

import pytest

from frontend.protocol import delivery
from frontend.protocol.delivery import Delivery
from frontend.protocol.session import Action, Cancel, Start
from omni.contract.chunk import KEPT, Chunk
from omni.contract.job import Job, MediaPart, Message, TextPart

pytestmark = pytest.mark.pure


HELD = Chunk(event=KEPT)


def mark(part: MediaPart) -> str:
    """What was sent; `-` for what was only named, `=` for what the thinker has read, too."""
    if part.data is not None:
        return part.data.decode()
    return "=" if part.read else "-"


class Sent:
    """A `Delivery` and what it asked for: a started generation as its number and which media came with bytes."""

    def __init__(self) -> None:
        self.actions: list[Action] = []
        self.delivery = Delivery(self.actions.append)

    def start(self, number: int, *media: bytes) -> None:
        parts = [MediaPart.of("image", data, "p") for data in media]
        self.delivery.start(number, Job(id=str(number), messages=(Message("user", (*parts, TextPart("?"))),)))

    def did(self) -> list[tuple[int, str] | int]:
        """Since the last call; a cancelled generation is its number alone."""
        out: list[tuple[int, str] | int] = []
        for action in self.actions:
            if isinstance(action, Start):
                media = action.job.media
                out.append((action.turn, "".join(mark(part) for part in media)))
            elif isinstance(action, Cancel):
                out.append(action.turn)
        self.actions.clear()
        return out


def test_what_arrived_is_named() -> None:
    sent = Sent()
    sent.start(1, b"a", b"b")
    sent.delivery.heard(1, HELD)
    sent.start(2, b"a", b"c", b"b")
    assert sent.did() == [(1, "ab"), (2, "-c-")]


def test_a_job_waits_for_what_it_shares_with_one_under_way_and_for_nothing_else() -> None:
    sent = Sent()
    sent.start(1, b"a")
    sent.start(2, b"a", b"b")
    sent.start(3, b"c")
    sent.start(4)
    assert sent.did() == [(1, "a"), (3, "c"), (4, "")]
    sent.delivery.heard(1, HELD)
    assert sent.did() == [(2, "-b")]


def test_one_that_is_cancelled_is_stopped_when_its_bytes_have_arrived() -> None:
    sent = Sent()
    sent.start(1, b"a")
    sent.delivery.cancel(1)
    sent.start(2, b"a")
    assert sent.did() == [(1, "a")]
    sent.delivery.heard(1, HELD)
    assert sent.did() == [1, (2, "-")]


def test_without_bytes_under_way_it_is_stopped_at_once() -> None:
    sent = Sent()
    sent.start(1, b"a")
    sent.delivery.heard(1, HELD)
    sent.delivery.cancel(1)
    sent.start(2, b"a")
    sent.delivery.cancel(2)
    assert sent.did() == [(1, "a"), 1, (2, "-"), 2]


def test_one_that_waits_is_never_begun_when_it_is_cancelled() -> None:
    sent = Sent()
    sent.start(1, b"a")
    sent.start(2, b"a")
    sent.delivery.cancel(2)
    sent.delivery.heard(1, HELD)
    assert sent.did() == [(1, "a")]


def test_what_ended_well_has_arrived() -> None:
    sent = Sent()
    sent.start(1, b"a")
    sent.delivery.ended(1, failed=False)
    sent.start(2, b"a")
    assert sent.did() == [(1, "a"), (2, "=")]


def test_the_thinker_has_read_it_when_more_is_heard() -> None:
    sent = Sent()
    sent.start(1, b"a")
    sent.delivery.heard(1, HELD)
    sent.start(2, b"a", b"b")
    sent.delivery.heard(2, HELD)
    sent.delivery.cancel(2)
    sent.delivery.heard(2, Chunk(text="late"))
    sent.start(3, b"a", b"b")
    sent.delivery.heard(1, Chunk(event={"type": "prompt"}))
    sent.delivery.heard(3, Chunk(text="So"))
    sent.start(4, b"a", b"b")
    assert sent.did() == [(1, "a"), (2, "-b"), 2, (3, "--"), (4, "==")]


def test_what_failed_unheard_is_sent_again() -> None:
    sent = Sent()
    sent.start(1, b"a")
    sent.delivery.cancel(1)
    sent.start(2, b"a")
    sent.delivery.ended(1, failed=True)
    assert sent.did() == [(1, "a"), (2, "a")]


def test_what_the_stages_lost_is_sent_again() -> None:
    sent = Sent()
    sent.start(1, b"a")
    sent.delivery.heard(1, HELD)
    sent.delivery.forget()
    sent.start(2, b"a")
    assert sent.did() == [(1, "a"), (2, "a")]


def test_dropped_everything_is_stopped_and_nothing_begins() -> None:
    sent = Sent()
    sent.start(1, b"a")
    sent.start(2, b"a")
    sent.delivery.drop()
    sent.delivery.heard(1, HELD)
    assert sent.did() == [(1, "a"), 1]


def test_only_so_many_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "KNOWN", 2)
    sent = Sent()
    for number, data in enumerate((b"a", b"b", b"c")):
        sent.start(number, data)
        sent.delivery.heard(number, HELD)
    sent.did()
    sent.start(9, b"a", b"b", b"c")
    assert sent.did() == [(9, "a--")]
