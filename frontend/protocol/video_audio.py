"""What a session has heard since its last question: PCM16, mono, 16 kHz, bounded."""

from __future__ import annotations

from typing import Literal

from frontend.protocol.budget import Budget
from frontend.protocol.pcm import BYTES_PER_SAMPLE, PcmBuffer

Overflow = Literal["clear", "drop_oldest"]


class Hearing:
    """Sound that waits for the question that it belongs to."""

    def __init__(self, most: int, overflow: Overflow, budget: Budget) -> None:
        """`most` is bytes. When more comes, `clear` lets go of everything, also of what came, `drop_oldest` only of
        what came first."""
        self._most = most - most % BYTES_PER_SAMPLE
        self._overflow = overflow
        self._budget = budget
        self._counted = 0
        self._pcm = PcmBuffer()

    @property
    def nbytes(self) -> int:
        return self._pcm.nbytes

    def append(self, data: bytes) -> bool:
        """Take in what came; False when some of what was heard is lost for it."""
        fits = self.nbytes + len(data) <= self._most
        if fits or self._overflow == "drop_oldest":
            self._pcm.append(data)
            self._trim()
        else:
            self._pcm.clear()
        fits &= self._count()
        return fits

    def take(self) -> bytes:
        """Everything, for a question."""
        pcm = self._pcm.take()
        self._count()
        return pcm

    def give_back(self, pcm: bytes) -> None:
        """A question that wasn't answered returns its sound, in front of what came since; the limit still holds."""
        self._pcm.give_back(pcm)
        self._trim()
        self._count()

    def clear(self) -> None:
        self._pcm.clear()
        self._count()

    def _trim(self) -> None:
        self._pcm.drop(self._pcm.end - self._most // BYTES_PER_SAMPLE)

    def _count(self) -> bool:
        """Settle with the budget; without room in it everything is let go of, and the result is False."""
        self._budget.give(self._counted)
        self._counted = 0
        room = self._budget.take(self.nbytes)
        if not room:
            self._pcm.clear()
        self._counted = self.nbytes
        return room
