"""The largest HTTP body that is read, whatever its length claims to be."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from frontend.errors import too_large_body


class BodyLimit:
    """ASGI middleware: 413 before anything is read when the announced length is too large, otherwise as soon as too
    much has arrived. A response that has begun is left alone."""

    def __init__(self, app: ASGIApp, limit: int) -> None:
        self.app = app
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        if _announced(scope) > self._limit:
            return await too_large_body(self._limit)(scope, receive, send)
        seen = 0

        async def limited() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self._limit:
                raise HTTPException(413)  # the one kind of exception that the framework's body parser lets through
            return message

        await self.app(scope, limited, send)
        return None


def _announced(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value)
    return 0
