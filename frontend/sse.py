"""Server-sent events: a stream of bytes that says something also when there is nothing to say."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import ExitStack, suppress

from starlette.requests import ClientDisconnect

from frontend.stream import ByteStream

KEEP_ALIVE = b": keep-alive\n\n"


class EventStream(ByteStream):
    """Sends whole events, one or several at a time, and a comment after `keep_alive_s` of silence."""

    def __init__(
        self,
        events: AsyncGenerator[bytes, None],
        failed: Callable[[Exception], bytes],
        *,
        held: ExitStack | None = None,
        keep_alive_s: float = 15.0,
        buffer_bytes: int = 16 << 20,
    ) -> None:
        media_type = "text/event-stream; charset=utf-8"
        super().__init__(events, failed, media_type=media_type, held=held, buffer_bytes=buffer_bytes)
        self._keep_alive_s = keep_alive_s
        self._loop = asyncio.get_running_loop()
        self._spoke_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def _begin(self) -> None:
        super()._begin()
        self._spoke()
        self._arm()

    def _spoke(self) -> None:
        self._spoke_at = self._loop.time()

    def _stopped(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self) -> None:
        """One timer, that asks when it fires how long the silence has been: no timer per event."""
        self._timer = self._loop.call_at(self._spoke_at + self._keep_alive_s, self._keep_alive)

    def _keep_alive(self) -> None:
        if self._loop.time() >= self._spoke_at + self._keep_alive_s:
            self._spoke()
            if self._behind is None:
                with suppress(ClientDisconnect):  # the reader will learn of it
                    self._put(KEEP_ALIVE)
        self._arm()
