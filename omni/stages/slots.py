"""Who runs and who waits: the bounded set of generations in a stage."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from omni.contract.errors import Overloaded

T = TypeVar("T")


class Slots(Generic[T]):
    """Up to `most` generations run; up to `queue` more wait, the highest `priority` first, then the oldest."""

    def __init__(self, most: int, queue: int, priority: Callable[[T], int] = lambda _: 0) -> None:
        self._most = most
        self._queue = queue
        self._priority = priority
        self._running: dict[str, T] = {}
        self._waiting: dict[str, T] = {}

    def __len__(self) -> int:
        """All that are held, running or waiting."""
        return len(self._running) + len(self._waiting)

    def __iter__(self) -> Iterator[tuple[str, T]]:
        """The running ones, the longest unserved first; they may be removed and served on the way."""
        return iter(tuple(self._running.items()))

    def get(self, generation: str) -> T | None:
        """The generation, running or waiting."""
        return self._running.get(generation, self._waiting.get(generation))

    def add(self, generation: str, item: T) -> None:
        """Raises `Overloaded` when no more may wait."""
        if len(self._running) < self._most:
            self._running[generation] = item
        elif len(self._waiting) < self._queue:
            self._waiting[generation] = item
        else:
            raise Overloaded("Too many generations are waiting; try again later.")

    def hurry(self, generation: str) -> None:
        """Lets a waiting generation run at once, as one more than `most`."""
        if (item := self._waiting.pop(generation, None)) is not None:
            self._running[generation] = item

    def served(self, generation: str) -> None:
        """Puts a running generation behind all others."""
        self._running[generation] = self._running.pop(generation)

    def remove(self, generation: str) -> T | None:
        """Forgets a generation and lets the next one run; None when it isn't held."""
        item = self.get(generation)
        self._running.pop(generation, None)
        self._waiting.pop(generation, None)
        while self._waiting and len(self._running) < self._most:
            first = max(self._waiting, key=lambda one: self._priority(self._waiting[one]))
            self._running[first] = self._waiting.pop(first)
        return item

    def clear(self) -> None:
        self._running.clear()
        self._waiting.clear()
