"""Messages in the order in which they were sent."""

from __future__ import annotations

from typing import Generic, TypeVar

from omni.contract.errors import OmniError

T = TypeVar("T")

MAX_HELD = 1024
"""Messages that may wait for an earlier one; more means that one was lost."""


class InOrder(Generic[T]):
    """Gives messages out by their number, from 0 without a gap, whatever order they arrive in.

    Triton runs each message between stages as its own request and promises no order among them.
    """

    def __init__(self) -> None:
        self._next = 0
        self._held: dict[int, T] = {}

    def push(self, seq: int, message: T) -> list[T]:
        """What can be given out now. Raises `OmniError` when a number comes twice or never."""
        if seq < self._next or seq in self._held or len(self._held) >= MAX_HELD:
            raise OmniError("Messages between stages were lost or repeated.")
        self._held[seq] = message
        out: list[T] = []
        while (ready := self._held.pop(self._next, None)) is not None:
            out.append(ready)
            self._next += 1
        return out
