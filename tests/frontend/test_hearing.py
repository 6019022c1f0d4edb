"""One thread hears for all sessions, several in a go."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest

from frontend.hearing import TOGETHER, Asked, Hearing

pytestmark = [pytest.mark.process, pytest.mark.anyio]


class Echo:
    """Hears the sound's length; holds the first go until it is let on."""

    def __init__(self) -> None:
        self.goes: list[int] = []
        self.first = threading.Event()
        self.on = threading.Event()

    def __call__(self, asked: Sequence[Asked]) -> list[int]:
        self.goes.append(len(asked))
        self.first.set()
        assert self.on.wait(10)
        if any(pcm == b"bad" for _, pcm in asked):
            raise RuntimeError("deaf")
        return [len(pcm) for _, pcm in asked]


async def test_what_came_meanwhile_is_heard_in_one_go() -> None:
    echo = Echo()
    hearing = Hearing(echo)
    first = hearing.submit("ear", b"x")
    await asyncio.to_thread(echo.first.wait, 10)
    others = [hearing.submit(f"ear {n}", b"y" * n) for n in range(TOGETHER + 3)]
    others[1].cancel()
    echo.on.set()
    assert await first == 1
    assert await asyncio.gather(*(one for one in others if not one.cancelled())) == [0, *range(2, TOGETHER + 3)]
    assert echo.goes == [1, TOGETHER, 3]
    hearing.close()


async def test_a_failure_is_told_and_survived() -> None:
    echo = Echo()
    echo.on.set()
    hearing = Hearing(echo)
    with pytest.raises(RuntimeError, match="deaf"):
        await hearing.submit("ear", b"bad")
    assert await hearing.submit("ear", b"good") == 4
    hearing.close()


async def test_closing_ends_the_thread_and_what_waits() -> None:
    echo = Echo()
    hearing = Hearing(echo)
    running = hearing.submit("ear", b"x")
    await asyncio.to_thread(echo.first.wait, 10)
    waiting = hearing.submit("other", b"y")
    threading.Timer(0.05, echo.on.set).start()
    hearing.close()
    assert waiting.cancelled()
    assert await running == 1
    assert "hearing" not in [thread.name for thread in threading.enumerate()]
    Hearing(echo).close()
