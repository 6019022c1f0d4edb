"""Server-sent events: a response whose status waits for its first event, and that no reader can hold up.

One task reads the events as fast as they come, another writes them as fast as the client takes them, and between
them is a buffer bounded in bytes. Events that pile up go out in one write.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import ExitStack, aclosing

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from frontend.disconnect import disconnected
from omni.contract.errors import OmniError

log = logging.getLogger(__name__)

KEEP_ALIVE = b": keep-alive\n\n"
BURST = 64
"""Events that may be ready at once before the writer gets its turn."""

_HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",
}


class SlowReader(Exception):
    """The client reads more slowly than the answer is made, and the buffer is full."""


class EventStream(Response):
    """Sends what `events` yields: whole events, one or several at a time; an empty piece is no event.

    An error that `events` raises before its first event is raised by the response, before any header: it gets a status
    of its own. A later one becomes what `failed` makes of it, as the last event. `events` is closed as soon as the
    client leaves, or reads so slowly that `buffer_bytes` aren't enough. `held` is closed at the end, whatever it was.
    """

    def __init__(
        self,
        events: AsyncGenerator[bytes, None],
        failed: Callable[[Exception], bytes],
        *,
        held: ExitStack | None = None,
        keep_alive_s: float = 15.0,
        buffer_bytes: int = 16 << 20,
    ) -> None:
        self.status_code = 200
        self.background = None
        self.init_headers(_HEADERS)
        self._events = events
        self._failed = failed
        self._held = held or ExitStack()
        self._keep_alive_s = keep_alive_s
        self._room = buffer_bytes
        self._waiting: list[bytes] = []
        self._size = 0
        """Bytes that the client has yet to take."""
        self._began = False
        self._over = False
        self._wake = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._spoke_at = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._held:
            reader = asyncio.create_task(self._read(), name="sse reader")
            writer = asyncio.create_task(self._write(send), name="sse writer")
            leaving = asyncio.create_task(disconnected(receive), name="client's disconnect")
            running = {reader, writer, leaving}
            try:
                while writer in running and leaving in running:
                    done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                    for task in done:
                        task.result()
            except SlowReader:
                # Returning from here without an end tells the server to cut the connection.
                log.warning("dropped a client that reads too slowly", extra={"waiting_bytes": self._size})
            finally:
                for task in (reader, writer, leaving):
                    task.cancel()
                await asyncio.gather(reader, writer, leaving, return_exceptions=True)

    async def _read(self) -> None:
        async with aclosing(self._events) as events:
            try:
                async for event in events:
                    if event:
                        self._put(event)
                    if len(self._waiting) > BURST:
                        await asyncio.sleep(0)
            except SlowReader:
                raise
            except Exception as error:
                if not self._began:
                    raise
                if not isinstance(error, OmniError):
                    log.error("a stream failed unexpectedly", exc_info=error)
                self._put(self._failed(error))
        self._over = True
        self._wake.set()

    def _put(self, event: bytes) -> None:
        if self._size and self._size + len(event) > self._room:
            raise SlowReader
        self._began = True
        self._waiting.append(event)
        self._size += len(event)
        self._wake.set()

    async def _write(self, send: Send) -> None:
        await self._wake.wait()
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            self._arm()
            await self._write_events(send)
        except OSError:
            pass  # some servers tell of a client that left when they are asked to write
        finally:
            if self._timer is not None:
                self._timer.cancel()

    async def _write_events(self, send: Send) -> None:
        over = False
        while not over:
            await self._wake.wait()
            self._wake.clear()
            waiting, self._waiting, over = self._waiting, [], self._over
            if not waiting and not over:
                continue
            body = waiting[0] if len(waiting) == 1 else b"".join(waiting)
            await send({"type": "http.response.body", "body": body, "more_body": not over})
            self._size -= len(body)
            self._spoke_at = self._loop.time()

    def _arm(self) -> None:
        """One timer, that asks when it fires how long the silence has been: no timer per event."""
        self._timer = self._loop.call_at(self._spoke_at + self._keep_alive_s, self._keep_alive)

    def _keep_alive(self) -> None:
        if self._loop.time() >= self._spoke_at + self._keep_alive_s and not self._over:
            self._spoke_at = self._loop.time()
            if not self._size:
                self._put(KEEP_ALIVE)
        self._arm()
