"""Every request and every WebSocket has an id: the client's own when it is a sane one, or one that we make."""

from __future__ import annotations

import re
import secrets
from collections.abc import Awaitable
from contextvars import ContextVar

from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADER = b"x-request-id"
MAX_LENGTH = 128

_current: ContextVar[str] = ContextVar("request_id", default="")
_SANE = re.compile(rb"[A-Za-z0-9._-]{1,%d}" % MAX_LENGTH)
_RESPONSES = frozenset({"http.response.start", "websocket.accept", "websocket.http.response.start"})


def current() -> str:
    """The id of the request that is being served, or an empty string outside of requests."""
    return _current.get()


class RequestId:
    """ASGI middleware: sets `current()` and sends the id back as `x-request-id`."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            return await self.app(scope, receive, send)
        given = next((value for name, value in scope["headers"] if name == HEADER), b"")
        id = given if _SANE.fullmatch(given) else b"req_" + secrets.token_hex(16).encode()
        _current.set(id.decode())

        def with_id(message: Message) -> Awaitable[None]:  # no coroutine of its own: it is called per delta
            if message["type"] in _RESPONSES:
                message = {**message, "headers": [*message.get("headers", ()), (HEADER, id)]}
            return send(message)

        await self.app(scope, receive, with_id)
        return None
