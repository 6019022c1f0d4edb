"""A client of the streaming video protocol over a real socket, and pictures for it."""

from __future__ import annotations

import asyncio
import base64
import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import websockets
from PIL import Image
from websockets.asyncio.client import ClientConnection

PATH = "/v1/video/chat/stream"
TIMEOUT = 20.0
"""Seconds that anything may take; the machine may be busy."""


def picture(color: tuple[int, int, int] | int, format: str = "JPEG", size: tuple[int, int] = (96, 64)) -> str:
    """An image of one colour, in base64."""
    file = io.BytesIO()
    rgb = (color, color, color) if isinstance(color, int) else color
    Image.new("RGB", size, rgb).save(file, format)
    return base64.b64encode(file.getvalue()).decode()


def half(text: str) -> str:
    """A file of which the second half is missing."""
    data = base64.b64decode(text)
    return base64.b64encode(data[: len(data) // 2]).decode()


@dataclass
class Client:
    ws: ClientConnection
    events: list[dict[str, Any]] = field(default_factory=list)
    """Everything that came."""

    async def send(self, type: str, **fields: Any) -> None:
        await self.ws.send(json.dumps({"type": type, **fields}))

    async def frame(self, color: Any, **fields: Any) -> None:
        await self.send("video.frame", data=picture(color), **fields)

    async def query(self, text: str = "What?", **fields: Any) -> None:
        await self.send("video.query", text=text, **fields)

    async def next(self) -> dict[str, Any]:
        async with asyncio.timeout(TIMEOUT):
            event: dict[str, Any] = json.loads(await self.ws.recv())
        self.events.append(event)
        return event

    async def until(self, *types: str) -> list[dict[str, Any]]:
        """Events up to the first of one of these types, that one too."""
        got = []
        while not got or got[-1]["type"] not in types:
            got.append(await self.next())
        return got

    async def rest(self) -> list[dict[str, Any]]:
        """Events until the server closes."""
        got = []
        with suppress(websockets.ConnectionClosed):
            async with asyncio.timeout(TIMEOUT):
                while True:
                    got.append(json.loads(await self.ws.recv()))
        self.events += got
        return got

    async def error(self) -> str:
        """The message of the next event, an error."""
        event = await self.next()
        assert event["type"] == "error", event
        return str(event["message"])

    async def sync(self) -> list[dict[str, Any]]:
        """Everything that came of what was sent so far."""
        await self.send("ping")
        return (await self.until("pong"))[:-1]

    @property
    def code(self) -> int | None:
        """The close code, once the connection is closed."""
        return self.ws.close_code


@asynccontextmanager
async def connected(url: str, config: dict[str, Any] | None = None, **options: Any) -> AsyncIterator[Client]:
    """A session at a server's http URL; `config` None sends no `session.config`."""
    address = url.replace("http", "ws", 1) + PATH
    async with websockets.connect(address, max_size=None, ping_interval=None, **options) as ws:
        client = Client(ws)
        if config is not None:
            await client.send("session.config", **config)
        yield client


def types(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"] for event in events]
