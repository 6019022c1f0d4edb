"""A response in pieces, whose status waits for the first of them, and that no reader can hold up.

Pieces are written as they come, in the step in which they come, for as long as the client keeps up. When it doesn't,
another task waits for it, and pieces gather in a buffer that is bounded in bytes; then they go out in one write.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import ExitStack, aclosing

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from frontend.disconnect import disconnected
from frontend.eager import Begun, begin
from omni.contract.errors import OmniError

log = logging.getLogger(__name__)

BURST = 64
"""Pieces that may gather before the client's task gets its turn."""

_HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}


class SlowReader(Exception):
    """The client reads more slowly than the answer is made, and the buffer is full."""


class _Cut(Exception):
    """The response ends without its end, since there is no way to tell of a failure in it."""


class ByteStream(Response):
    """Sends what `pieces` yields; an empty piece is none.

    An error that `pieces` raises before its first piece is raised by the response, before any header: it gets a status
    of its own. A later one becomes what `failed` makes of it, as the last piece; None breaks the connection. `pieces`
    is closed as soon as the client leaves, or reads so slowly that `buffer_bytes` aren't enough. `held` is closed at
    the end, whatever it was.
    """

    def __init__(
        self,
        pieces: AsyncGenerator[bytes, None],
        failed: Callable[[Exception], bytes | None],
        *,
        media_type: str,
        held: ExitStack | None = None,
        buffer_bytes: int = 16 << 20,
    ) -> None:
        self.status_code = 200
        self.background = None
        self.init_headers({"content-type": media_type, **_HEADERS})
        self._pieces = pieces
        self._failed = failed
        self._held = held or ExitStack()
        self._room = buffer_bytes
        self._behind: Begun | None = None
        """The write that the client has yet to take; None while it keeps up."""
        self._in_flight = 0
        """Bytes of that write."""
        self._waiting: list[bytes] = []
        """Pieces that come after it."""
        self._size = 0
        """Bytes of all that."""
        self._fell_behind = asyncio.Event()
        self._caught_up = asyncio.Event()
        self._began = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._send = send
        with self._held:
            reader = asyncio.create_task(self._read(), name="stream reader")
            writer = asyncio.create_task(self._catch_up(), name="stream writer")
            leaving = asyncio.create_task(disconnected(receive), name="client's disconnect")
            try:
                done, _ = await asyncio.wait((reader, writer, leaving), return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            except SlowReader:
                # Returning from here without an end tells the server to cut the connection.
                log.warning("dropped a client that reads too slowly", extra={"waiting_bytes": self._size})
            except (ClientDisconnect, _Cut):
                pass
            finally:
                self._stopped()
                for task in (reader, writer, leaving):
                    task.cancel()
                await asyncio.gather(reader, writer, leaving, return_exceptions=True)

    async def _read(self) -> None:
        """Returns when all is sent."""
        async with aclosing(self._pieces) as pieces:
            try:
                async for piece in pieces:
                    if piece:
                        self._put(piece)
                    if len(self._waiting) > BURST:
                        await asyncio.sleep(0)
            except (SlowReader, ClientDisconnect):
                raise
            except Exception as error:
                if not self._began:
                    raise
                if not isinstance(error, OmniError):
                    log.error("a stream failed unexpectedly", exc_info=error)
                if (last := self._failed(error)) is None:
                    raise _Cut from None
                self._put(last)
        if not self._began:
            self._begin()
        if self._behind is not None:
            await self._caught_up.wait()
        self._stopped()
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    def _put(self, piece: bytes) -> None:
        if not self._began:
            self._begin()
        if self._behind is None:
            self._write({"type": "http.response.body", "body": piece, "more_body": True})
            if self._behind is None:
                self._spoke()
            else:
                self._size = self._in_flight = len(piece)
            return
        if self._size and self._size + len(piece) > self._room:
            raise SlowReader
        self._waiting.append(piece)
        self._size += len(piece)

    def _begin(self) -> None:
        self._began = True
        self._write({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})

    def _write(self, message: Message) -> None:
        try:
            self._behind = begin(self._send(message))
        except OSError:  # how some servers tell of a client that left
            raise ClientDisconnect from None
        if self._behind is not None:
            self._caught_up.clear()
            self._fell_behind.set()

    async def _catch_up(self) -> None:
        try:
            while True:
                await self._fell_behind.wait()
                self._fell_behind.clear()
                if self._behind is not None:
                    await self._behind
                    await self._write_waiting()
                self._behind = None
                self._caught_up.set()
        except OSError:
            raise ClientDisconnect from None

    async def _write_waiting(self) -> None:
        self._size -= self._in_flight
        while self._waiting:
            body, self._waiting = b"".join(self._waiting), []
            await self._send({"type": "http.response.body", "body": body, "more_body": True})
            self._size -= len(body)
        self._in_flight = 0
        self._spoke()

    def _spoke(self) -> None:
        """Called when the client has taken something."""

    def _stopped(self) -> None:
        """Called when nothing more will be sent but the end."""
