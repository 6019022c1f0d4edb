"""What every session protocol has in common: what it may be told, and what it may ask of the world.

A session is synchronous. The driver tells it what happened and then takes its `actions`; it never awaits, never reads a
clock and never touches a socket. `now` is seconds of one steady clock.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from omni.contract.chunk import Chunk
from omni.contract.errors import OmniError
from omni.contract.job import Job


@dataclass(frozen=True, slots=True)
class Send:
    """One event to the client, in the order in which it was asked for."""

    event: Mapping[str, Any] | bytes
    """A JSON object, or one that is encoded already (the hot path)."""


@dataclass(frozen=True, slots=True)
class Work:
    """Something that takes too long for the event loop: run `function` elsewhere, then call `Session.worked`.

    Pieces of work run side by side; a session that needs an order asks for one piece at a time.
    """

    key: Hashable
    function: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Hear:
    """Have an ear hear what came next, then call `Session.worked`. Ears of many sessions hear in one go."""

    key: Hashable
    ear: Any
    """A `frontend.protocol.listening.Ear`."""
    pcm: bytes


@dataclass(frozen=True, slots=True)
class Start:
    """Begin a generation; what comes of it is told through `Session.feed` and `Session.ended`."""

    turn: int
    job: Job


@dataclass(frozen=True, slots=True)
class Cancel:
    """Stop a generation in every stage; `Session.ended` isn't called for it."""

    turn: int


@dataclass(frozen=True, slots=True)
class Close:
    """End the connection after everything that was sent before."""

    code: int = 1000
    reason: str = ""


Action = Send | Work | Hear | Start | Cancel | Close


class Session(Protocol):
    """A protocol's state machine. No method raises on anything that a client or a stage can do."""

    def receive(self, message: str | bytes, now: float) -> None:
        """A text or binary message of the client."""

    def worked(self, key: Hashable, result: Any, now: float) -> None:
        """A piece of work is done; `result` is what it returned, or the exception that it raised."""

    def feed(self, turn: int, chunk: Chunk, now: float) -> None:
        """A piece of a turn's answer. A turn that was cancelled may still be draining: ignore it."""

    def ended(self, turn: int, error: OmniError | None, now: float) -> None:
        """A turn's answer is complete, or failed."""

    def flushed(self, now: float) -> None:
        """Everything that was sent so far has left for the client."""

    def handle_timer(self, now: float) -> None:
        """`next_timer` has come."""

    def next_timer(self) -> float | None:
        """When `handle_timer` wants to be called; None for never."""

    def actions(self) -> list[Action]:
        """What is to be done, in order; each action is given out once."""

    def lost(self, now: float) -> None:
        """The connection is over, whichever side ended it; nothing else is told after this. Ask only for `Cancel`."""
