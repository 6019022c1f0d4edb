"""Coroutines that begin at once, in the caller's step; most of those that write to a socket also end there.

It saves a task and a turn of the event loop per write. asyncio has eager tasks of its own from Python 3.12 on.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from typing import Any


class Begun:
    """A coroutine that has begun and waits for something; awaiting this lets it go on."""

    __slots__ = ("_coroutine", "_waits_for")

    def __init__(self, coroutine: Coroutine[Any, Any, None], waits_for: Any) -> None:
        self._coroutine = coroutine
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, None]:
        step, value = self._coroutine.send, None
        waits_for = self._waits_for
        while True:
            try:
                value = yield waits_for
            except GeneratorExit:
                self._coroutine.close()
                raise
            except BaseException as error:
                thrown = error
            else:
                thrown = None
            try:
                waits_for = step(value) if thrown is None else self._coroutine.throw(thrown)
            except StopIteration:
                return


def begin(coroutine: Coroutine[Any, Any, None]) -> Begun | None:
    """Run `coroutine` up to where it has to wait; None when it never had to. What it raises is raised here."""
    try:
        waits_for = coroutine.send(None)
    except StopIteration:
        return None
    return Begun(coroutine, waits_for)
