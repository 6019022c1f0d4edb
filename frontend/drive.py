"""Where sessions meet the world: WebSocket, engine, worker threads and clock, for every protocol the same."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import aclosing, suppress
from functools import partial
from typing import Any

import orjson
from fastapi import WebSocket, WebSocketDisconnect

from frontend.engine.base import Engine
from frontend.protocol.session import Cancel, Close, Send, Session, Start, Work
from omni.contract.errors import OmniError
from omni.contract.job import Job

log = logging.getLogger(__name__)

INBOX = 64
"""Happenings that may wait for the session; when it is full, the socket and the engine are read more slowly."""
SLOW_CLIENT = Close(1013, "slow consumer")

LAST_WORDS_S = 10.0
"""How long a client may take to read what was sent before the connection is closed."""

Generate = Callable[[Job], Any]


class Outbox:
    """What waits to be written to the socket, bounded in bytes."""

    def __init__(self, budget: int) -> None:
        self._queue: asyncio.Queue[bytes | Close] = asyncio.Queue()
        self._budget = budget
        self.waiting = 0
        """Bytes that the socket has yet to take."""

    def put(self, event: bytes) -> bool:
        """False when the client is too slow: the event isn't taken."""
        if self.waiting + len(event) > self._budget and self.waiting:
            return False
        self.waiting += len(event)
        self._queue.put_nowait(event)
        return True

    def close(self, close: Close) -> None:
        self._queue.put_nowait(close)

    async def write(self, ws: WebSocket, flushed: Callable[[], None]) -> None:
        """Write until told to close; returns when the socket is closed."""
        while True:
            item = await self._queue.get()
            if isinstance(item, Close):
                await ws.close(item.code, item.reason)
                return
            await ws.send({"type": "websocket.send", "text": item.decode()})
            self.waiting -= len(item)
            if not self.waiting:
                flushed()


async def drive(
    ws: WebSocket,
    session: Session,
    engine: Engine,
    workers: Executor,
    *,
    send_budget: int,
    generate: Generate | None = None,
) -> None:
    """Run `session` over an accepted socket until either side ends it.

    `send_budget` is how many bytes may wait for a slow client before it is dropped with 1013. `generate` may wrap the
    engine's, for admission and metrics; it must return an async generator of chunks.
    """
    loop = asyncio.get_running_loop()
    clock = loop.time
    generate = generate or engine.generate
    inbox: asyncio.Queue[Callable[..., None] | None] = asyncio.Queue(INBOX)
    outbox = Outbox(send_budget)
    turns: dict[int, asyncio.Task[None]] = {}
    timer = _Timer(inbox, session)
    closing = False

    def flushed() -> None:
        session.flushed(now=clock())
        timer.arm(clock())

    async def read() -> None:
        try:
            while True:
                message = await ws.receive()
                if message["type"] == "websocket.disconnect":
                    break
                text = message.get("text")
                await inbox.put(partial(session.receive, message["bytes"] if text is None else text))
        except (WebSocketDisconnect, RuntimeError):
            pass
        await inbox.put(None)

    async def run_turn(turn: int, job: Job) -> None:
        error: OmniError | None = None
        try:
            async with aclosing(generate(job)) as chunks:
                async for chunk in chunks:
                    await inbox.put(partial(session.feed, turn, chunk))
        except OmniError as failure:
            error = failure
        except Exception:
            log.exception("a turn broke")
            error = OmniError("The request failed.")
        turns.pop(turn, None)
        await inbox.put(partial(session.ended, turn, error))

    async def run_work(work: Work) -> None:
        result: Any
        try:
            result = await loop.run_in_executor(workers, work.function)
        except Exception as failure:
            result = failure
        await inbox.put(partial(session.worked, work.key, result))

    async with asyncio.TaskGroup() as group:
        tasks: set[asyncio.Task[None]] = set()

        def spawn(coroutine: Any, name: str) -> asyncio.Task[None]:
            task: asyncio.Task[None] = group.create_task(coroutine, name=name)
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            return task

        def act() -> bool:
            """Do what the session asks; False when it wants to end."""
            for action in session.actions():
                match action:
                    case Send(event):
                        data = event if isinstance(event, bytes) else orjson.dumps(event)
                        if not outbox.put(data):
                            log.warning("a client read too slowly and was dropped")
                            outbox.close(SLOW_CLIENT)
                            return False
                    case Work():
                        spawn(run_work(action), "session work")
                    case Start(turn, job):
                        turns[turn] = spawn(run_turn(turn, job), f"turn {turn}")
                    case Cancel(turn):
                        if (task := turns.pop(turn, None)) is not None:
                            task.cancel()
                    case Close():
                        outbox.close(action)
                        return False
            return True

        spawn(read(), "session reader")
        writer = spawn(_quietly(outbox.write(ws, flushed)), "session writer")
        try:
            alive = act()
            while alive:
                timer.arm(clock())
                happened = await inbox.get()
                if happened is None:
                    session.lost(now=clock())
                    act()
                    closing = True
                    return
                happened(now=clock())
                alive = act()
        finally:
            timer.stop()
            for task in list(turns.values()):
                task.cancel()
            if not closing:
                await asyncio.wait((writer,), timeout=LAST_WORDS_S)
            for task in list(tasks):
                task.cancel()


async def _quietly(writing: Any) -> None:
    """A client that left while we wrote is noticed by the reader."""
    with suppress(WebSocketDisconnect, RuntimeError, OSError):
        await writing


class _Timer:
    """One timer that puts `handle_timer` into the inbox when the session wants it."""

    def __init__(self, inbox: asyncio.Queue[Callable[..., None] | None], session: Session) -> None:
        self._inbox = inbox
        self._session = session
        self._handle: asyncio.TimerHandle | None = None
        self._at: float | None = None

    def arm(self, now: float) -> None:
        at = self._session.next_timer()
        if at == self._at:
            return
        self.stop()
        self._at = at
        if at is not None:
            self._handle = asyncio.get_running_loop().call_at(max(at, now), self._fire)

    def _fire(self) -> None:
        self._at = None
        try:
            self._inbox.put_nowait(self._session.handle_timer)
        except asyncio.QueueFull:
            # Something else is about to happen; the timer is armed again after it.
            return

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._handle = self._at = None
