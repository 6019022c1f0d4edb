"""The way out: new work is refused while what runs may finish, then the server stops."""

from __future__ import annotations

import logging
import math
import socket
from collections.abc import Callable
from time import monotonic
from types import FrameType
from typing import Final

import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from frontend.admission import Admission
from frontend.auth import is_open
from frontend.errors import refuse
from omni.contract.errors import Unavailable

log = logging.getLogger(__name__)

FLUSH_S: Final = 2
"""Seconds that answers which are complete have to reach their clients, once no generation runs."""


class Refusal:
    """ASGI middleware: once `admission` is closed, refuses all but the open paths and has connections closed."""

    def __init__(self, app: ASGIApp, admission: Admission, retry_after_s: int) -> None:
        self.app = app
        self._admission = admission
        self._retry_after_s = retry_after_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket") or not self._admission.closed:
            return await self.app(scope, receive, send)

        async def closing(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
            await send(message)

        if is_open(scope):
            return await self.app(scope, receive, closing)
        error = Unavailable("The server is shutting down. Please try again elsewhere or later.")
        await refuse(error, scope, receive, closing, self._retry_after_s)
        return None


class Server(uvicorn.Server):
    """uvicorn with a drain before its shutdown.

    The first SIGTERM or SIGINT closes admission; the listener stays open, so that probes and balancers get their 503.
    uvicorn's shutdown follows when no generation runs, or `shutdown_timeout` later: then the engine is closed, which
    ends each running generation with a typed error. A second signal skips the wait.
    """

    def __init__(self, config: uvicorn.Config, app: FastAPI, on_started: Callable[[], None] = lambda: None) -> None:
        super().__init__(config)
        config.timeout_graceful_shutdown = FLUSH_S
        self._state = app.state
        self._on_started = on_started
        self._signals = 0
        self._deadline = math.inf

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_started()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._signals += 1

    async def on_tick(self, counter: int) -> bool:
        """Called by uvicorn every 100 ms; whether it is time for its shutdown."""
        if await super().on_tick(counter):
            return True
        if not self._signals:
            return False
        admission, engine = self._state.admission, self._state.engine
        if not admission.closed:
            self._deadline = monotonic() + self._state.settings.shutdown_timeout
            admission.close()
            log.info("draining", extra={"in_flight": admission.in_flight})
        if not admission.in_flight:
            return True
        if monotonic() < self._deadline and self._signals == 1:
            return False
        log.warning("generations cut short by the shutdown", extra={"in_flight": admission.in_flight})
        await engine.close()
        return True
