"""Awaitables that begin at once, in the caller's step. Most writes to a socket also end there.

It saves a task and a turn of the event loop per write. asyncio has eager tasks of its own from Python 3.12 on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Generator
from typing import Any


class Begun:
    """What has begun and now waits for something; awaiting this lets it go on."""

    __slots__ = ("_steps", "_waits_for")

    def __init__(self, steps: Generator[Any, Any, None], waits_for: Any) -> None:
        self._steps = steps
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, None]:
        waits_for, sent = self._waits_for, None
        while True:
            thrown: BaseException | None = None
            try:
                sent = yield waits_for
            except BaseException as error:
                thrown = error
            try:
                waits_for = self._steps.send(sent) if thrown is None else self._steps.throw(thrown)
            except StopIteration:
                return


def begin(work: Awaitable[None]) -> Begun | None:
    """Run `work` up to where it has to wait; None when it never had to. What it raises is raised here."""
    steps = work.__await__()
    try:
        return Begun(steps, next(steps))
    except StopIteration:
        return None
