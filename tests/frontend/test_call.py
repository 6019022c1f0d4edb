"""Who leaves the stream of a generation doesn't cancel it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest

from frontend.engine import call as module
from frontend.engine.call import Call
from omni.contract.errors import TimedOut

pytestmark = [pytest.mark.process, pytest.mark.anyio]


@dataclass
class Server:
    """Streams the numbers that the test lets go, and notes how each stream ended."""

    numbers: asyncio.Queue[int | None] = field(default_factory=asyncio.Queue)
    ended: asyncio.Queue[str] = field(default_factory=asyncio.Queue)

    async def stream(self, requests: Any, context: Any) -> AsyncIterator[bytes]:
        try:
            while (number := await self.numbers.get()) is not None:
                yield b"%d" % number
            self.ended.put_nowait("by itself")
        except asyncio.CancelledError:
            self.ended.put_nowait("cancelled")
            raise


@asynccontextmanager
async def called(server: Server) -> AsyncIterator[Call]:
    """A call of a real server, which has sent the first number."""
    handler = grpc.stream_stream_rpc_method_handler(server.stream)
    grpc_server = grpc.aio.server()
    grpc_server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("test", {"stream": handler})])
    port = grpc_server.add_insecure_port("127.0.0.1:0")
    await grpc_server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = Call(channel.stream_stream("/test/stream")(iter([b"go"])))
        server.numbers.put_nowait(0)
        assert await call.read() == b"0"
        yield call
    await grpc_server.stop(None)


async def leave(call: Call) -> None:
    """Somebody waits for the next response, and stops waiting."""
    reader = asyncio.create_task(call.read())
    await asyncio.sleep(0.02)
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader


async def test_a_reader_that_leaves_does_not_cancel_the_call() -> None:
    server = Server()
    async with called(server) as call:
        await leave(call)
        draining = asyncio.create_task(call.drain())
        for number in (1, 2, None):
            server.numbers.put_nowait(number)
        await draining
        assert await asyncio.wait_for(server.ended.get(), 5) == "by itself"


async def test_the_next_reader_misses_nothing() -> None:
    server = Server()
    async with called(server) as call:
        await leave(call)
        for number in (1, 2, None):
            server.numbers.put_nowait(number)
        assert [await call.read() for _ in range(3)] == [b"1", b"2", grpc.aio.EOF]


async def test_a_failure_reaches_the_reader_and_not_the_call() -> None:
    server = Server()
    async with called(server) as call:
        reader = asyncio.create_task(call.read())
        await asyncio.sleep(0.02)
        call.fail(TimedOut("first"))
        call.fail(TimedOut("second"))
        for _ in range(2):
            with pytest.raises(TimedOut, match="first"):
                await reader
            reader = asyncio.create_task(call.read())
        await asyncio.wait([reader])
        assert reader.exception() is not None
        server.numbers.put_nowait(None)
        await call.drain()
        assert await asyncio.wait_for(server.ended.get(), 5) == "by itself"


async def test_a_stream_that_stays_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DRAIN_S", 0.05)
    server = Server()
    async with called(server) as call:
        await leave(call)
        await call.drain()
        assert await asyncio.wait_for(server.ended.get(), 5) == "cancelled"


async def test_draining_is_over_at_once_when_the_server_is_gone() -> None:
    server = Server()
    async with called(server) as call:
        await leave(call)
    await asyncio.wait_for(call.drain(), 5)
