"""The life of an answer, for every session protocol the same: it begins, it speaks, and it ends exactly once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from omni.contract.chunk import Chunk, FinishReason, Usage

Outcome = Literal["completed", "cancelled", "failed"]


@dataclass(slots=True)
class Turn:
    """One answer, from the question on."""

    number: int
    """What the driver knows it by: `Start.turn`. A turn that is asked for again gets another number."""
    id: str
    """What the client knows it by."""
    started: bool = False
    """Whether the client was told that it began."""
    samples: int = 0
    """Samples of speech so far."""
    finish: FinishReason | None = None
    """Why the text ended; None while it goes on."""
    usage: Usage = field(default_factory=Usage)
    outcome: Outcome | None = None
    """How the turn ended; None while it lives."""
    _pieces: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The text so far: all pieces, each once."""
        return "".join(self._pieces)

    @property
    def spoke(self) -> bool:
        """Whether speech has begun."""
        return self.samples > 0

    @property
    def over(self) -> bool:
        return self.outcome is not None

    def feed(self, chunk: Chunk) -> None:
        """Take in a piece of the answer."""
        if chunk.text:
            self._pieces.append(chunk.text)
        self.samples += len(chunk.audio) // 2
        self.finish = chunk.finish or self.finish
        self.usage = chunk.usage or self.usage

    def end(self, outcome: Outcome) -> bool:
        """True the first time, when the terminator is due; False ever after."""
        if self.over:
            return False
        self.outcome = outcome
        return True


class Turns:
    """The turns of a session, of which at most one lives.

    It also hands out the numbers, each once, so that what still comes of a turn that was given up is told apart.
    """

    def __init__(self) -> None:
        self._last = 0
        self._live: Turn | None = None

    @property
    def live(self) -> Turn | None:
        """The turn that lives."""
        return self._live

    def number(self) -> int:
        """A number for `Start` that was never used before."""
        self._last += 1
        return self._last

    def begin(self, id: str) -> Turn:
        """A new turn. The one before must be over."""
        assert self._live is None, "two turns at a time"
        self._live = Turn(self.number(), id)
        return self._live

    def find(self, number: int) -> Turn | None:
        """The living turn when it has this number; None for a straggler."""
        return self._live if self._live is not None and self._live.number == number else None

    def end(self, outcome: Outcome) -> Turn | None:
        """The turn that lived until now, to say its terminator; None when there was none."""
        turn, self._live = self._live, None
        return turn if turn is not None and turn.end(outcome) else None
