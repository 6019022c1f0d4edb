"""The front door in a test: over ASGI without sockets, or on a real port in the same event loop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
import uvicorn
from fastapi import FastAPI

from frontend.app import create_app
from frontend.drain import Server
from frontend.engine.fake import FakeEngine
from frontend.settings import Settings

URL = "http://front"


def front(engine: FakeEngine | None = None, **settings: Any) -> FastAPI:
    """An application over a fake engine, ready at once unless `settings` say otherwise."""
    return create_app(Settings(**{"engine": "fake", "warmup": False, **settings}), engine or FakeEngine())


@asynccontextmanager
async def client(app: FastAPI, **options: Any) -> AsyncIterator[httpx2.AsyncClient]:
    """A client without sockets; the application's lifespan runs around it."""
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(app.router.lifespan_context(app))
        transport = httpx2.ASGITransport(app, raise_app_exceptions=False)
        yield await stack.enter_async_context(httpx2.AsyncClient(transport=transport, base_url=URL, **options))


@dataclass
class Running:
    """A server in this event loop."""

    server: Server
    task: asyncio.Task[None]
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@asynccontextmanager
async def serving(app: FastAPI) -> AsyncIterator[Running]:
    """`app` behind uvicorn on a free port, stopped at the end if it still runs."""
    sock = socket.create_server(("127.0.0.1", 0))
    started = asyncio.Event()
    config = uvicorn.Config(app, ws="websockets-sansio", lifespan="on", log_config=None, access_log=False)
    server = Server(config, app, on_started=started.set)
    task = asyncio.create_task(server.serve([sock]), name="server")
    try:
        await asyncio.wait_for(started.wait(), 10)
        yield Running(server, task, sock.getsockname()[1])
    finally:
        server.should_exit = True
        await asyncio.wait_for(task, 20)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what the event loop will bring about. Raises `TimeoutError` after 10 s."""
    async with asyncio.timeout(10):
        while True:
            if condition():
                return
            await asyncio.sleep(0.005)
