from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, MutableMapping
from contextlib import ExitStack
from typing import Any

import pytest

from frontend.disconnect import while_connected
from frontend.sse import KEEP_ALIVE, EventStream
from omni.contract.errors import Cancelled, InvalidRequest, OmniError

pytestmark = [pytest.mark.process, pytest.mark.anyio]

Message = MutableMapping[str, Any]
Events = AsyncGenerator[bytes, None]


class Client:
    """The other end of an ASGI response. `slow` blocks its reading, `leave` disconnects it."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.left = asyncio.Event()
        self.reads = asyncio.Event()
        self.reads.set()
        self.got = asyncio.Event()

    async def receive(self) -> Message:
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        await self.reads.wait()
        self.messages.append(message)
        self.got.set()

    @property
    def bodies(self) -> list[bytes]:
        return [message["body"] for message in self.messages if message["type"] == "http.response.body"]

    @property
    def complete(self) -> bool:
        return bool(self.messages) and not self.messages[-1].get("more_body", True)

    async def until(self, count: int) -> None:
        async with asyncio.timeout(10):
            while len(self.messages) < count:
                self.got.clear()
                await self.got.wait()

    async def run(self, response: EventStream) -> None:
        async with asyncio.timeout(20):
            await response({"type": "http"}, self.receive, self.send)


def failed(error: Exception) -> bytes:
    return b"failed " + type(error).__name__.encode()


class Source:
    """Events to stream, and what became of their generator."""

    def __init__(self, *script: bytes | float | Exception) -> None:
        self.script = script
        self.outcome = "never began"
        self.taken = 0
        self.began = asyncio.Event()
        self.ended = asyncio.Event()

    async def events(self) -> Events:
        self.outcome = "running"
        self.began.set()
        try:
            for step in self.script:
                if isinstance(step, Exception):
                    raise step
                if isinstance(step, bytes):
                    self.taken += 1
                    yield step
                else:
                    await asyncio.sleep(step)
            self.outcome = "completed"
        except Exception:
            self.outcome = "failed"
            raise
        finally:
            if self.outcome == "running":
                self.outcome = "closed"
            self.ended.set()


FOREVER = 1000.0


async def test_events_go_out_whole_and_in_order_with_the_headers_that_proxies_need() -> None:
    client, source = Client(), Source(b"a", 0.0, b"b", b"", 0.0, b"c")
    await client.run(EventStream(source.events(), failed))
    start = client.messages[0]
    assert start["status"] == 200
    assert dict(start["headers"]) == {
        b"content-type": b"text/event-stream; charset=utf-8",
        b"cache-control": b"no-cache",
        b"x-accel-buffering": b"no",
    }
    assert b"".join(client.bodies) == b"abc"
    assert client.complete
    assert source.outcome == "completed"


async def test_headers_wait_for_the_first_event() -> None:
    client = Client()
    running = asyncio.create_task(client.run(EventStream(Source(b"", FOREVER).events(), failed)))
    await asyncio.sleep(0.05)
    assert client.messages == []
    client.left.set()
    await running


@pytest.mark.parametrize("error", [InvalidRequest("no", param="x"), RuntimeError("bug")])
async def test_an_error_before_the_first_event_is_raised_before_any_header(error: Exception) -> None:
    client, held, closed = Client(), ExitStack(), []
    held.callback(closed.append, True)
    with pytest.raises(type(error)) as raised:
        await client.run(EventStream(Source(b"", error).events(), failed, held=held))
    assert raised.value is error
    assert client.messages == []
    assert closed == [True]


@pytest.mark.parametrize("error", [OmniError("no"), RuntimeError("bug")])
async def test_a_later_error_is_the_last_event(error: Exception) -> None:
    client = Client()
    await client.run(EventStream(Source(b"a", error).events(), failed))
    assert b"".join(client.bodies) == b"afailed " + type(error).__name__.encode()
    assert client.complete


async def test_a_stream_without_events_is_an_empty_answer() -> None:
    client = Client()
    await client.run(EventStream(Source().events(), failed))
    assert client.messages[0]["status"] == 200
    assert client.complete
    assert b"".join(client.bodies) == b""


@pytest.mark.parametrize("script", [(FOREVER,), (b"a", FOREVER)])
async def test_a_client_that_leaves_closes_the_source_at_once(script: tuple[bytes | float, ...]) -> None:
    client, source, held, closed = Client(), Source(*script), ExitStack(), []
    held.callback(lambda: closed.append(source.outcome))
    running = asyncio.create_task(client.run(EventStream(source.events(), failed, held=held)))
    await source.began.wait()
    await asyncio.sleep(0.02)
    client.left.set()
    await running
    assert source.outcome == "closed"
    assert closed == ["closed"]
    assert not client.complete


async def test_a_response_that_is_cancelled_closes_its_source() -> None:
    client, source = Client(), Source(b"a", FOREVER)
    running = asyncio.create_task(client.run(EventStream(source.events(), failed)))
    await client.until(2)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert source.outcome == "closed"


async def test_a_server_that_fails_to_write_has_no_client() -> None:
    source = Source(b"a", FOREVER)

    async def send(message: Message) -> None:
        raise OSError

    async with asyncio.timeout(10):
        await EventStream(source.events(), failed)({"type": "http"}, Client().receive, send)
    assert source.outcome == "closed"


async def test_silence_is_filled_with_comments() -> None:
    client = Client()
    running = asyncio.create_task(client.run(EventStream(Source(b"a", FOREVER).events(), failed, keep_alive_s=0.03)))
    await client.until(5)
    client.left.set()
    await running
    assert client.bodies[:4] == [b"a", KEEP_ALIVE, KEEP_ALIVE, KEEP_ALIVE]


async def test_what_piles_up_goes_out_in_one_write() -> None:
    client, source = Client(), Source(b"a", b"b", b"c", 0.05, b"d", b"e")
    client.reads.clear()
    running = asyncio.create_task(client.run(EventStream(source.events(), failed)))
    await source.ended.wait()
    client.reads.set()
    await running
    assert b"".join(client.bodies) == b"abcde"
    assert len(client.bodies) <= 2


async def test_a_slow_reader_is_dropped_and_never_holds_the_source_up(caplog: pytest.LogCaptureFixture) -> None:
    client, source, held, closed = Client(), Source(*[b"x" * 100] * 1000), ExitStack(), []
    client.reads.clear()
    held.callback(lambda: closed.append(source.outcome))
    with caplog.at_level(logging.WARNING):
        await client.run(EventStream(source.events(), failed, held=held, buffer_bytes=1000))
    assert source.taken == 11
    assert source.outcome == "closed"
    assert closed == ["closed"]
    assert not client.complete
    assert [record.message for record in caplog.records] == ["dropped a client that reads too slowly"]


async def test_one_event_may_be_larger_than_the_buffer() -> None:
    client = Client()
    await client.run(EventStream(Source(b"x" * 500, 0.05, b"y" * 500).events(), failed, buffer_bytes=100))
    assert sum(map(len, client.bodies)) == 1000


async def test_a_source_that_never_pauses_lets_the_writer_write() -> None:
    client = Client()
    await client.run(EventStream(Source(*[b"x" * 100] * 5000).events(), failed, buffer_bytes=100_000))
    assert sum(map(len, client.bodies)) == 500_000
    assert client.complete


async def test_no_task_is_left_behind() -> None:
    before = asyncio.all_tasks()
    client = Client()
    await client.run(EventStream(Source(b"a").events(), failed))
    assert asyncio.all_tasks() == before


# -- work for a client


async def test_work_for_a_client_that_stays() -> None:
    async def work() -> int:
        await asyncio.sleep(0)
        return 5

    assert await while_connected(Client().receive, work()) == 5


async def test_work_that_fails() -> None:
    async def work() -> None:
        raise InvalidRequest("no")

    with pytest.raises(InvalidRequest):
        await while_connected(Client().receive, work())


async def test_work_for_a_client_that_leaves_is_cancelled() -> None:
    client, stopped = Client(), []

    async def work() -> None:
        try:
            await asyncio.sleep(FOREVER)
        finally:
            stopped.append(True)

    running = asyncio.create_task(while_connected(client.receive, work()))
    await asyncio.sleep(0.01)
    client.left.set()
    with pytest.raises(Cancelled):
        await running
    assert stopped == [True]
