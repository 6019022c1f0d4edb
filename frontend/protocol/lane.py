"""Messages that take effect in the order in which they came, though some have to wait for a worker."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _Step(Generic[T]):
    run: Callable[[Any], None]
    cargo: T | None
    ready: bool
    result: Any


class Lane(Generic[T]):
    """Steps, of which each runs when all before it have run. `T` is what a step may carry."""

    def __init__(self) -> None:
        self._steps: deque[_Step[T]] = deque()
        self._waiting: dict[Hashable, _Step[T]] = {}

    def __len__(self) -> int:
        """Steps that have yet to run."""
        return len(self._steps)

    def add(self, run: Callable[[Any], None], cargo: T | None = None, result: Any = None) -> None:
        """A step that waits for nothing but those before it; it is run with `result`."""
        self._steps.append(_Step(run, cargo, True, result))

    def hold(self, key: Hashable, run: Callable[[Any], None], cargo: T) -> None:
        """A step that also waits for `release`."""
        step = _Step(run, cargo, False, None)
        self._waiting[key] = step
        self._steps.append(step)

    def release(self, key: Hashable, result: Any) -> None:
        """What a step waited for is there; it will be run with `result`. Unknown keys are ignored."""
        if (step := self._waiting.pop(key, None)) is not None:
            step.ready, step.result = True, result

    def run(self) -> None:
        """Run what can be run. A step may add others, and may clear the lane."""
        while self._steps and self._steps[0].ready:
            step = self._steps.popleft()
            step.run(step.result)

    def clear(self) -> Iterator[T]:
        """Let go of all steps; what they carried."""
        cargo = [step.cargo for step in self._steps if step.cargo is not None]
        self._steps.clear()
        self._waiting.clear()
        return iter(cargo)
