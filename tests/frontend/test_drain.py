from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from contextlib import aclosing

import httpx2
import pytest
from fastapi import FastAPI
from starlette.responses import StreamingResponse
from support.front import Running, front, serving, until
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from frontend.engine.fake import Beat, FakeEngine
from frontend.health import synthetic_job
from omni.contract.chunk import Chunk
from omni.contract.errors import OmniError

pytestmark = [pytest.mark.process, pytest.mark.anyio]


def streaming(*beats: Beat, shutdown_timeout: float = 30.0) -> FastAPI:
    """A front door with a route that streams a generation, and says how that ended."""
    app = front(FakeEngine(beats), shutdown_timeout=shutdown_timeout, retry_after_s=4)

    async def stream() -> StreamingResponse:
        ticket = app.state.admission.admit("generation")

        async def body() -> AsyncIterator[bytes]:
            with ticket:
                try:
                    async with aclosing(app.state.engine.generate(synthetic_job(False))) as chunks:
                        async for chunk in chunks:
                            yield chunk.text.encode()
                except OmniError as error:
                    yield error.code.encode()
                yield b" end"

        return StreamingResponse(body())

    app.add_api_route("/v1/stream", stream, methods=["POST"])
    return app


@contextlib.asynccontextmanager
async def running_stream(running: Running) -> AsyncIterator[tuple[httpx2.AsyncClient, AsyncIterator[bytes]]]:
    """A client, and its stream after the first piece."""
    async with (
        httpx2.AsyncClient(base_url=running.url, timeout=20) as http,
        http.stream("POST", "/v1/stream") as response,
    ):
        pieces = response.aiter_raw()
        assert await anext(pieces) == b"a"
        yield http, pieces


async def begin_drain(running: Running, app: FastAPI) -> None:
    running.server.handle_exit(signal.SIGTERM, None)
    await until(lambda: app.state.admission.closed)


async def test_what_runs_is_finished_and_what_is_new_is_refused() -> None:
    app = streaming(Chunk(text="a"), 1.0, Chunk(text="b"))
    async with serving(app) as running, running_stream(running) as (http, pieces):
        await begin_drain(running, app)
        refused = await http.post("/v1/stream")
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "unavailable")
        assert (refused.headers["retry-after"], refused.headers["connection"]) == ("4", "close")
        assert refused.headers["x-request-id"]
        async with httpx2.AsyncClient(base_url=running.url) as another:
            health = await another.get("/health")
            assert (health.status_code, health.json()["status"]) == (503, "draining")
            assert (await another.get("/live")).status_code == 200
        with pytest.raises(InvalidStatus) as closed:
            await connect(running.url.replace("http", "ws") + "/v1/realtime")
        assert closed.value.response.status_code == 503
        assert b"".join([piece async for piece in pieces]) == b"b end"
        await asyncio.wait_for(running.task, 10)
    assert app.state.engine.runs[0].outcome == "completed"


async def test_an_idle_server_stops_at_once() -> None:
    app = streaming()
    async with serving(app) as running:
        running.server.handle_exit(signal.SIGINT, None)
        await asyncio.wait_for(running.task, 10)


async def test_what_takes_too_long_ends_with_a_typed_error() -> None:
    app = streaming(Chunk(text="a"), 600.0, shutdown_timeout=0.3)
    async with serving(app) as running, running_stream(running) as (_, pieces):
        await begin_drain(running, app)
        assert b"".join([piece async for piece in pieces]) == b"unavailable end"
        await asyncio.wait_for(running.task, 10)
    assert app.state.engine.runs[0].outcome == "failed"
    assert app.state.admission.in_flight == 0


async def test_a_second_signal_skips_the_wait() -> None:
    app = streaming(Chunk(text="a"), 600.0)
    async with serving(app) as running, running_stream(running) as (_, pieces):
        await begin_drain(running, app)
        running.server.handle_exit(signal.SIGTERM, None)
        assert b"".join([piece async for piece in pieces]) == b"unavailable end"
        await asyncio.wait_for(running.task, 10)
