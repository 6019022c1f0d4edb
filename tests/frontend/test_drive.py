"""The driver, with a session that does what the test tells it to."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import uvicorn
import websockets
from fastapi import FastAPI, WebSocket
from websockets.asyncio.client import ClientConnection

from frontend.drive import MAX_WORK, drive
from frontend.engine.fake import FakeEngine
from frontend.protocol.session import Action, Cancel, Close, Send, Start, Work
from omni.contract.chunk import Chunk
from omni.contract.errors import OmniError, StageFailed
from omni.contract.job import Job

pytestmark = [pytest.mark.process, pytest.mark.anyio]


@dataclass
class Scripted:
    """Does what `on` says when it receives a message; keeps what it is told."""

    on: Callable[[str | bytes], list[Action]]
    first: list[Action] = field(default_factory=list)
    timer: float | None = None
    told: list[Any] = field(default_factory=list)
    flushes: int = 0
    over: asyncio.Event = field(default_factory=asyncio.Event)

    def receive(self, message: str | bytes, now: float) -> None:
        self.told.append(message)
        self.first += self.on(message)

    def worked(self, key: Hashable, result: Any, now: float) -> None:
        self.told.append((key, result))
        self.first.append(Send({"worked": str(key)}))

    def feed(self, turn: int, chunk: Chunk, now: float) -> None:
        self.told.append((turn, chunk.text))
        self.first.append(Send({"text": chunk.text}))

    def ended(self, turn: int, error: OmniError | None, now: float) -> None:
        self.told.append((turn, error))
        self.first.append(Send({"ended": turn, "error": error.code if error else None}))

    def flushed(self, now: float) -> None:
        self.flushes += 1

    def handle_timer(self, now: float) -> None:
        assert self.timer is not None
        assert now >= self.timer
        self.timer = None
        self.first.append(Send({"timer": True}))

    def next_timer(self) -> float | None:
        return self.timer

    def actions(self) -> list[Action]:
        out, self.first = self.first, []
        return out

    def lost(self, now: float) -> None:
        self.told.append("lost")
        self.over.set()


async def soon(true: Callable[[], object]) -> None:
    for _ in range(1000):
        if true():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never happened")


@asynccontextmanager
async def driven(
    session: Scripted, engine: Any = None, *, send_budget: int = 1 << 20, workers: int = 2
) -> AsyncIterator[ClientConnection]:
    """A client of `session` over a real socket."""
    app = FastAPI()
    pool = ThreadPoolExecutor(workers)

    @app.websocket("/")
    async def route(ws: WebSocket) -> None:
        await ws.accept()
        await drive(ws, session, engine or FakeEngine(), pool, send_budget=send_budget)

    server = uvicorn.Server(
        uvicorn.Config(app, port=0, log_config=None, ws="websockets-sansio", ws_per_message_deflate=False)
    )
    serving = asyncio.create_task(server.serve())
    await soon(lambda: server.started)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        async with websockets.connect(f"ws://127.0.0.1:{port}/", max_queue=None, ping_interval=None) as ws:
            yield ws
        await asyncio.wait_for(session.over.wait(), 20)
        assert session.told[-1] == "lost"
        assert session.told.count("lost") == 1
    finally:
        server.should_exit = True
        await serving
        pool.shutdown()


def job() -> Job:
    return Job(id="x", messages=())


async def test_messages_and_events_go_through_in_order() -> None:
    session = Scripted(lambda message: [Send({"echo": str(message)}), Send(b'{"raw":1}')])
    async with driven(session) as ws:
        for n in range(100):
            await ws.send(str(n))
        got = [await ws.recv() for _ in range(200)]
    assert got == [text for n in range(100) for text in (f'{{"echo":"{n}"}}', '{"raw":1}')]
    assert session.flushes > 0


async def test_binary_messages_are_bytes() -> None:
    session = Scripted(lambda message: [Send({"echo": type(message).__name__})])
    async with driven(session) as ws:
        await ws.send(b"\0")
        assert await ws.recv() == '{"echo":"bytes"}'
        await ws.send("")
        assert await ws.recv() == '{"echo":"str"}'


async def test_what_a_session_wants_first() -> None:
    async with driven(Scripted(lambda _: [], [Send({"hello": 1})])) as ws:
        assert await ws.recv() == '{"hello":1}'


async def test_a_turn() -> None:
    engine = FakeEngine([Chunk("a"), Chunk("b")])
    async with driven(Scripted(lambda _: [Start(1, job())]), engine) as ws:
        await ws.send("go")
        got = [await ws.recv() for _ in range(3)]
    assert got == ['{"text":"a"}', '{"text":"b"}', '{"ended":1,"error":null}']


@pytest.mark.parametrize(
    ("failure", "code"), [(StageFailed("Broken."), "stage_failed"), (ValueError("secret"), "internal_error")]
)
async def test_a_turn_that_fails(failure: Exception, code: str) -> None:
    class Engine:
        async def generate(self, job: Job) -> AsyncGenerator[Chunk, None]:
            yield Chunk("a")
            raise failure

    async with driven(Scripted(lambda _: [Start(1, job())]), Engine()) as ws:
        await ws.send("go")
        assert [await ws.recv() for _ in range(2)] == ['{"text":"a"}', f'{{"ended":1,"error":"{code}"}}']


async def test_a_cancelled_turn_is_stopped_and_not_heard_of_again() -> None:
    engine = FakeEngine([Chunk("a"), 60.0, Chunk("b")])
    session = Scripted(lambda message: [Start(1, job())] if message == "go" else [Cancel(1), Cancel(7)])
    async with driven(session, engine) as ws:
        await ws.send("go")
        await ws.recv()
        await ws.send("stop")
        await soon(lambda: engine.runs[0].outcome == "aborted")
    assert (1, None) not in session.told


async def test_a_turn_may_be_cancelled_by_its_own_chunk() -> None:
    session = Scripted(lambda _: [Start(1, job())])
    engine = FakeEngine([Chunk("a"), Chunk("b")])

    def feed(turn: int, chunk: Chunk, now: float) -> None:
        session.first.append(Cancel(turn))

    session.feed = feed  # type: ignore[method-assign]
    async with driven(session, engine) as ws:
        await ws.send("go")
        await soon(lambda: engine.runs and engine.runs[0].outcome == "aborted")


async def test_work_comes_back_or_its_failure_does() -> None:
    def fail() -> None:
        raise ValueError("no")

    session = Scripted(lambda _: [Work("sum", lambda: 1 + 1), Work("bad", fail)])
    async with driven(session) as ws:
        await ws.send("go")
        assert sorted([await ws.recv(), await ws.recv()]) == ['{"worked":"bad"}', '{"worked":"sum"}']
    results = dict(one for one in session.told if isinstance(one, tuple))
    assert results["sum"] == 2
    assert isinstance(results["bad"], ValueError)


async def test_a_client_isnt_read_while_there_is_too_much_work() -> None:
    go = threading.Event()
    session = Scripted(lambda message: [Work(message, go.wait)])
    async with driven(session) as ws:
        for n in range(MAX_WORK * 3):
            await ws.send(str(n))
        await soon(lambda: len(session.told) >= MAX_WORK)
        await asyncio.sleep(0.1)
        assert len(session.told) == MAX_WORK
        go.set()
        for _ in range(MAX_WORK * 3):
            await ws.recv()


async def test_the_session_closes() -> None:
    async with driven(Scripted(lambda _: [Send({"bye": 1}), Close(4408, "idle")])) as ws:
        await ws.send("go")
        assert await ws.recv() == '{"bye":1}'
        await ws.wait_closed()
        assert (ws.close_code, ws.close_reason) == (4408, "idle")


async def test_closing_stops_turns() -> None:
    engine = FakeEngine([60.0])
    session = Scripted(lambda _: [Start(1, job()), Close(1000)])
    async with driven(session, engine) as ws:
        await ws.send("go")
        await ws.wait_closed()
        await asyncio.wait_for(session.over.wait(), 10)
    assert all(run.outcome == "aborted" for run in engine.runs)


@pytest.mark.parametrize("how", ["close", "abort"])
async def test_a_client_that_leaves_stops_everything(how: str) -> None:
    engine = FakeEngine([Chunk("a"), 60.0])
    session = Scripted(lambda _: [Start(1, job())])
    async with driven(session, engine) as ws:
        await ws.send("go")
        await ws.recv()
        if how == "close":
            await ws.close()
        else:
            ws.transport.abort()
        await soon(lambda: engine.runs[0].outcome == "aborted")


async def test_a_broken_session_is_closed_with_1011(caplog: pytest.LogCaptureFixture) -> None:
    def broken(message: str | bytes) -> list[Action]:
        raise RuntimeError("secret")

    async with driven(Scripted(broken)) as ws:
        await ws.send("go")
        await ws.wait_closed()
        assert ws.close_code == 1011
        assert "secret" not in ws.close_reason
    assert "a session broke" in caplog.text


async def test_a_client_that_reads_too_slowly_is_dropped_with_1013() -> None:
    session = Scripted(lambda _: [Start(1, job())])
    engine = FakeEngine([Chunk("x" * 100_000) for _ in range(400)])
    async with driven(session, engine, send_budget=1 << 20) as ws:
        ws.transport.pause_reading()
        await ws.send("go")
        await soon(lambda: engine.runs and engine.runs[0].outcome == "aborted")
        ws.transport.resume_reading()
        await ws.wait_closed()
        assert ws.close_code == 1013
    assert engine.runs[0].chunks < 400


async def test_one_event_may_be_larger_than_the_budget() -> None:
    async with driven(Scripted(lambda _: [Send({"x": "x" * 5000})]), send_budget=1000) as ws:
        await ws.send("go")
        assert len(await ws.recv()) > 5000


async def test_the_timer() -> None:
    session = Scripted(lambda _: [])
    session.timer = asyncio.get_running_loop().time() + 0.1
    async with driven(session) as ws:
        assert await ws.recv() == '{"timer":true}'


@pytest.mark.parametrize("seconds", [[1.0, 1.5], [60.0, 0.1]])
async def test_a_timer_that_is_put_off_or_brought_forward(seconds: list[float]) -> None:
    """The session checks that it isn't called early."""
    session = Scripted(lambda _: [])

    def set_timer(message: str | bytes) -> list[Action]:
        session.timer = asyncio.get_running_loop().time() + float(message)
        return [Send({"ok": 1})]

    session.on = set_timer
    async with driven(session) as ws:
        for one in seconds:
            await ws.send(str(one))
        got = [await asyncio.wait_for(ws.recv(), 20) for _ in range(3)]
        assert got == ['{"ok":1}', '{"ok":1}', '{"timer":true}']


async def test_many_messages_leave_room_for_others() -> None:
    session = Scripted(lambda _: [])
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with driven(session) as ws:
        task = asyncio.create_task(other())
        for _ in range(2000):
            await ws.send("x")
        await soon(lambda: len(session.told) == 2000)
        task.cancel()
    assert turns > 20
