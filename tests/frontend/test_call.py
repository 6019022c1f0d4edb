"""Who leaves the stream of a generation doesn't cancel it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest

from frontend.engine import call as module
from frontend.engine.call import AHEAD, Call
from omni.contract.errors import TimedOut

pytestmark = [pytest.mark.process, pytest.mark.anyio]


@dataclass
class Server:
    """Streams the numbers that the test lets go, and notes how each stream ended."""

    numbers: asyncio.Queue[int | None] = field(default_factory=asyncio.Queue)
    ended: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    fails: bool = False

    async def stream(self, requests: Any, context: Any) -> AsyncIterator[bytes]:
        try:
            while (number := await self.numbers.get()) is not None:
                yield b"%d" % number
            if self.fails:
                await context.abort(grpc.StatusCode.UNAVAILABLE)
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
        call = Call(channel.stream_stream("/test/stream")(iter([b"go"])), "a stream")
        server.numbers.put_nowait(0)
        assert await call.read() == b"0"
        yield call
    await grpc_server.stop(None)


async def stop_waiting(call: Call) -> None:
    """Somebody waits for the next response, and is cancelled."""
    reader = asyncio.create_task(call.read())
    await asyncio.sleep(0.02)
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader


async def test_a_call_that_is_left_ends_by_itself() -> None:
    server = Server()
    async with called(server) as call:
        await stop_waiting(call)
        call.leave()
        for number in (*range(3 * AHEAD), None):
            server.numbers.put_nowait(number)
        await asyncio.wait_for(call.stream, 5)
        assert server.ended.get_nowait() == "by itself"


async def test_the_next_reader_misses_nothing() -> None:
    server = Server()
    async with called(server) as call:
        await stop_waiting(call)
        for number in (1, 2, None):
            server.numbers.put_nowait(number)
        assert [await call.read() for _ in range(3)] == [b"1", b"2", grpc.aio.EOF]


@pytest.mark.parametrize("left", [False, True])
async def test_who_reads_slowly_is_read_ahead_for_a_little(left: bool) -> None:
    server = Server()
    async with called(server) as call:
        for number in (*range(5 * AHEAD), None):
            server.numbers.put_nowait(number)
        for _ in range(500):
            if len(call._responses) >= AHEAD:
                break
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        assert len(call._responses) == AHEAD
        assert not call.stream.done()
        if left:
            call.leave()
            await asyncio.wait_for(call.stream, 5)
        else:
            assert [await call.read() for _ in range(5 * AHEAD)] == [b"%d" % number for number in range(5 * AHEAD)]
            assert await call.read() is grpc.aio.EOF


async def test_waiting_is_measured_while_somebody_waits() -> None:
    server = Server()
    async with called(server) as call:
        await asyncio.sleep(0.05)
        assert call.waited() == 0
        reader = asyncio.create_task(call.read())
        await asyncio.sleep(0.05)
        assert call.waited() > 0.02
        server.numbers.put_nowait(1)
        await reader
        assert call.waited() == 0
        call.leave()
        server.numbers.put_nowait(None)
        await asyncio.wait_for(call.stream, 5)


async def test_a_failure_reaches_the_reader_and_not_the_call() -> None:
    server = Server()
    async with called(server) as call:
        reader = asyncio.create_task(call.read())
        await asyncio.sleep(0.02)
        call.fail(TimedOut("first"))
        call.fail(TimedOut("second"))
        for waiting in (reader, call.read()):
            with pytest.raises(TimedOut, match="first"):
                await waiting
        server.numbers.put_nowait(None)
        call.leave()
        await asyncio.wait_for(call.stream, 5)
        assert server.ended.get_nowait() == "by itself"


async def test_a_stream_that_stays_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DRAIN_S", 0.05)
    server = Server()
    async with called(server) as call:
        call.leave()
        await asyncio.wait([call.stream], timeout=5)
        assert await asyncio.wait_for(server.ended.get(), 5) == "cancelled"


async def test_a_reader_learns_that_the_server_is_gone() -> None:
    server = Server()
    async with called(server) as call:
        reader = asyncio.create_task(call.read())
        await asyncio.sleep(0.02)
        server.fails = True
        server.numbers.put_nowait(None)
        with pytest.raises(grpc.aio.AioRpcError):
            await reader
        assert await call.read() is grpc.aio.EOF


async def test_a_closed_channel_ends_the_stream() -> None:
    server = Server()
    async with called(server) as call:
        reader = asyncio.create_task(call.read())
        await asyncio.sleep(0.02)
    with suppress(grpc.aio.AioRpcError):
        assert await asyncio.wait_for(reader, 5) is grpc.aio.EOF
    await asyncio.wait([call.stream], timeout=5)
    assert call.stream.done()
