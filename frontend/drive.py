"""Where sessions meet the world: WebSocket, engine, worker threads and clock, for every protocol the same.

A session is told one thing at a time, on the event loop, and what it asks for is done before it is told the next. So
there is no queue before it: a client is read when what it said before is dealt with, an engine likewise. Behind it is
one, of what waits for the socket, bounded in bytes.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from concurrent.futures import Executor
from contextlib import aclosing
from typing import Any, Final

import orjson
from fastapi import WebSocket, WebSocketDisconnect

from frontend.engine.base import Engine
from frontend.hearing import Hearing
from frontend.protocol.session import Cancel, Close, Hear, Send, Session, Start, Work
from omni.contract.chunk import Chunk
from omni.contract.errors import OmniError
from omni.contract.job import Job

log = logging.getLogger(__name__)

MAX_WORK: Final = 8
"""Pieces of work under way or waiting for a worker, for one session, at which its client isn't read on."""
BURST: Final = 32
"""Messages of a client that are taken in at a go; then others have their turn."""
LAST_WORDS_S: Final = 10.0
"""How long a client may take to read what was sent before the connection is closed."""
EVENT_OVERHEAD: Final = 128
"""Bytes that each waiting event counts for besides its own."""

SLOW_CLIENT: Final = Close(1013, "The client reads too slowly.")
BROKEN: Final = Close(1011, "The server failed.")

Generate = Callable[[Job], AsyncGenerator[Chunk, None]]


async def drive(
    ws: WebSocket,
    session: Session,
    engine: Engine,
    workers: Executor,
    *,
    send_budget: int,
    generate: Generate | None = None,
    hearing: Hearing | None = None,
) -> None:
    """Run `session` over an accepted socket until either side ends it; when this returns, nothing of it runs any more.

    `send_budget` is how many bytes may wait for a slow client before it is dropped with 1013. `generate` may wrap the
    engine's, for admission and metrics. Sessions that `Hear` need `hearing`.
    """
    await _Drive(ws, session, workers, send_budget, generate or engine.generate, hearing).run()


class Outbox:
    """What waits to be written to the socket, bounded in bytes."""

    def __init__(self, budget: int) -> None:
        self._events: deque[bytes] = deque()
        self._close: Close | None = None
        self._budget = budget
        self._wake = asyncio.Event()
        self.waiting = 0
        """Bytes that the socket has yet to take."""

    def put(self, event: bytes) -> bool:
        """False when the client is too slow: the event isn't taken. One event alone may have any size."""
        size = len(event) + EVENT_OVERHEAD
        if self.waiting and self.waiting + size > self._budget:
            return False
        self.waiting += size
        self._events.append(event)
        self._wake.set()
        return True

    def close(self, close: Close) -> None:
        """The last thing that is written; to a client that is too slow, instead of everything that waits."""
        if close is SLOW_CLIENT:
            self._events.clear()
        self._close = close
        self._wake.set()

    async def write(self, ws: WebSocket, flushed: Callable[[], None]) -> None:
        """Write until told to close; `flushed` hears each time that nothing waits any more."""
        while True:
            while self._events:
                event = self._events.popleft()
                await ws.send({"type": "websocket.send", "text": event.decode()})
                self.waiting -= len(event) + EVENT_OVERHEAD
                if not self._events and self._close is None:
                    flushed()
            if self._close is not None:
                await ws.close(self._close.code, self._close.reason)
                return
            self._wake.clear()
            await self._wake.wait()


class _Drive:
    def __init__(
        self,
        ws: WebSocket,
        session: Session,
        workers: Executor,
        send_budget: int,
        generate: Generate,
        hearing: Hearing | None,
    ) -> None:
        self._ws = ws
        self._session = session
        self._workers = workers
        self._generate = generate
        self._hearing = hearing
        self._loop = asyncio.get_running_loop()
        self._over: asyncio.Future[Close | None] = self._loop.create_future()
        """How it ends: what to close with, or None when the client is gone."""
        self._outbox = Outbox(send_budget)
        self._turns: dict[int, asyncio.Task[None]] = {}
        self._work: set[asyncio.Future[Any]] = set()
        self._room = asyncio.Event()
        self._room.set()
        self._timer: asyncio.TimerHandle | None = None
        self._group = asyncio.TaskGroup()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        try:
            async with self._group:
                writer = self._spawn(self._write(), "session writer")
                self._spawn(self._read(), "session reader")
                self._tell(lambda now: None)
                try:
                    close = await self._over
                    self._stop()
                    if close is not None:
                        self._outbox.close(close)
                        await asyncio.wait((writer,), timeout=LAST_WORDS_S)
                finally:
                    self._stop()
                    for task in list(self._tasks):
                        task.cancel()
        finally:
            self._session.lost(now=self._loop.time())

    def _stop(self) -> None:
        """Nothing more comes of turns, work and time."""
        if not self._over.done():
            self._over.set_result(None)
        if self._timer is not None:
            self._timer.cancel()
        for task in self._turns.values():
            task.cancel()
        for work in self._work:
            work.cancel()

    # -- the session

    def _tell(self, happened: Callable[..., None], *arguments: Any) -> None:
        """Tell the session what happened, and do what it asks for."""
        if self._over.done():
            return
        try:
            happened(*arguments, now=self._loop.time())
            self._act()
        except Exception:
            log.exception("a session broke")
            self._end(BROKEN)

    def _act(self) -> None:
        for action in self._session.actions():
            match action:
                case Send(event):
                    if not self._outbox.put(event if isinstance(event, bytes) else orjson.dumps(event)):
                        log.warning("a client read too slowly and was dropped")
                        self._end(SLOW_CLIENT)
                case Work(key, function):
                    self._await_work(key, self._loop.run_in_executor(self._workers, function))
                case Hear(key, ear, pcm):
                    assert self._hearing is not None
                    self._await_work(key, self._hearing.submit(ear, pcm))
                case Start(turn, job):
                    self._turns[turn] = self._spawn(self._run_turn(turn, job), f"turn {turn}")
                case Cancel(turn):
                    if (task := self._turns.pop(turn, None)) is not None:
                        task.cancel()
                case Close():
                    self._end(action)
            if self._over.done():
                return
        self._arm()

    def _end(self, close: Close | None) -> None:
        if not self._over.done():
            self._over.set_result(close)

    # -- the socket

    async def _read(self) -> None:
        count = 0
        try:
            while True:
                await self._room.wait()
                message = await self._ws.receive()
                if message["type"] == "websocket.disconnect":
                    break
                text = message.get("text")
                self._tell(self._session.receive, message["bytes"] if text is None else text)
                count += 1
                if count % BURST == 0:
                    await asyncio.sleep(0)
        except (WebSocketDisconnect, RuntimeError):
            pass
        self._end(None)

    async def _write(self) -> None:
        """A client that leaves while it is written to ends the session; so does the last word."""
        try:
            await self._outbox.write(self._ws, lambda: self._tell(self._session.flushed))
        except (WebSocketDisconnect, RuntimeError, OSError):
            self._end(None)

    # -- turns and work

    async def _run_turn(self, turn: int, job: Job) -> None:
        error: OmniError | None = None
        try:
            async with aclosing(self._generate(job)) as chunks:
                async for chunk in chunks:
                    self._tell(self._session.feed, turn, chunk)
        except OmniError as failure:
            error = failure
        except Exception:
            log.exception("a turn broke")
            error = OmniError("The request failed.")
        if self._turns.pop(turn, None) is not None:
            self._tell(self._session.ended, turn, error)

    def _await_work(self, key: Any, future: asyncio.Future[Any]) -> None:
        self._work.add(future)
        if len(self._work) >= MAX_WORK:
            self._room.clear()

        def done(future: asyncio.Future[Any]) -> None:
            self._work.discard(future)
            self._room.set()
            if not future.cancelled():
                self._tell(self._session.worked, key, future.exception() or future.result())

        future.add_done_callback(done)

    def _spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = self._group.create_task(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # -- time

    def _arm(self) -> None:
        """See to it that the timer fires no later than the session wants; it may fire early, and is then set anew."""
        at = self._session.next_timer()
        if at is None or (self._timer is not None and self._timer.when() <= at):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(at, self._fire)

    def _fire(self) -> None:
        self._timer = None
        at = self._session.next_timer()
        if at is not None and self._loop.time() >= at:
            self._tell(self._session.handle_timer)
        elif not self._over.done():
            self._arm()
