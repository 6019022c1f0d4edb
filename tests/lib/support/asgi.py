"""One call of an ASGI application without any server, for what a client library can't say or see."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from starlette.types import ASGIApp, Message

Headers = dict[str, str]


def scope(path: str, headers: Headers | None = None, *, kind: str = "http", method: str = "GET") -> dict[str, Any]:
    raw = [(name.lower().encode(), value.encode("latin-1")) for name, value in (headers or {}).items()]
    out: dict[str, Any] = {
        "type": kind,
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": raw,
        "client": ("127.0.0.1", 1),
        "server": ("front", 80),
    }
    if kind == "http":
        out["method"] = method
    else:
        out["subprotocols"] = []
    return out


async def call(app: ASGIApp, scope: dict[str, Any], *received: Message, stay: bool = True) -> list[Message]:
    """What `app` sends when it receives these messages; afterwards the client stays, or leaves."""
    sent: list[Message] = []
    pending: Iterable[Message] = iter(received)

    async def receive() -> Message:
        for message in pending:
            return message
        if stay:
            await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return sent


def header(message: Message, name: str) -> str | None:
    return next((value.decode() for key, value in message.get("headers", ()) if key == name.encode()), None)
