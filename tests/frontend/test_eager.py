from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from frontend.eager import begin

pytestmark = [pytest.mark.process, pytest.mark.anyio]


async def test_what_never_waits_is_done_at_once() -> None:
    done = []

    async def work() -> None:
        done.append(True)

    assert begin(work()) is None
    assert done == [True]


async def test_what_waits_goes_on_where_it_is_awaited_also_in_another_task() -> None:
    gate, steps = asyncio.Event(), []

    async def work() -> None:
        steps.append("began")
        await gate.wait()
        await asyncio.sleep(0)
        steps.append("ended")

    begun = begin(work())
    assert begun is not None
    assert steps == ["began"]

    async def finish(rest: Awaitable[None]) -> None:
        await rest

    finishing = asyncio.create_task(finish(begun))
    await asyncio.sleep(0)
    gate.set()
    await finishing
    assert steps == ["began", "ended"]


async def test_it_may_wait_for_what_is_over_before_anybody_awaits_it() -> None:
    gate = asyncio.Event()

    async def work() -> None:
        await gate.wait()

    begun = begin(work())
    assert begun is not None
    gate.set()
    await begun


async def test_failures_come_from_begin_or_from_the_rest() -> None:
    async def at_once() -> None:
        raise OSError

    async def later() -> None:
        await asyncio.sleep(0)
        raise OSError

    with pytest.raises(OSError):  # noqa: PT011
        begin(at_once())
    begun = begin(later())
    assert begun is not None
    with pytest.raises(OSError):  # noqa: PT011
        await begun


async def test_a_cancellation_reaches_the_inside() -> None:
    cleaned = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append(True)

    begun = begin(work())
    assert begun is not None

    async def rest() -> None:
        await begun

    task = asyncio.create_task(rest())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cleaned == [True]
