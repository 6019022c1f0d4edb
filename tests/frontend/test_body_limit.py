from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

import httpx2
import pytest
from fastapi import Body, FastAPI, Request
from support.front import client, front, serving

pytestmark = [pytest.mark.process, pytest.mark.anyio]

LIMIT = 1000


@pytest.fixture
def app() -> FastAPI:
    app = front(max_body_bytes=LIMIT)

    async def raw(request: Request) -> int:
        return len(await request.body())

    async def parsed(body: Annotated[dict[str, Any], Body()]) -> int:
        return len(body)

    async def ignored() -> str:
        return "not read"

    for path, endpoint in (("/raw", raw), ("/parsed", parsed), ("/ignored", ignored)):
        app.add_api_route(path, endpoint, methods=["POST"])
    return app


async def pieces(size: int) -> AsyncIterator[bytes]:
    """A body whose length nobody knows before it ends."""
    for start in range(0, size, 100):
        yield b"x" * min(100, size - start)


def assert_too_large(response: httpx2.Response) -> None:
    assert response.status_code == 413
    assert response.headers["x-request-id"].startswith("req_")
    assert response.json()["error"] == {
        "message": f"The request body is larger than the {LIMIT} bytes that this server takes.",
        "type": "invalid_request_error",
        "param": None,
        "code": "too_large",
    }


@pytest.mark.parametrize("path", ["/raw", "/parsed", "/ignored", "/nowhere"])
async def test_an_announced_body_over_the_limit_is_refused(app: FastAPI, path: str) -> None:
    async with serving(app) as running, httpx2.AsyncClient(base_url=running.url) as http:
        assert_too_large(await http.post(path, content=b"x" * (LIMIT + 1)))
        assert (await http.get("/live")).status_code == 200


@pytest.mark.parametrize("path", ["/raw", "/parsed"])
async def test_so_is_one_that_grows_over_it(app: FastAPI, path: str) -> None:
    async with serving(app) as running, httpx2.AsyncClient(base_url=running.url) as http:
        assert_too_large(await http.post(path, content=pieces(LIMIT + 1)))


async def test_a_body_at_the_limit_passes(app: FastAPI) -> None:
    async with client(app) as http:
        assert (await http.post("/raw", content=b"x" * LIMIT)).json() == LIMIT
        assert (await http.post("/raw", content=pieces(LIMIT))).json() == LIMIT


async def test_an_announced_body_is_refused_before_it_is_sent(app: FastAPI) -> None:
    async with serving(app) as running:
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        writer.write(b"POST /raw HTTP/1.1\r\nhost: x\r\ncontent-length: 100000000000\r\n\r\n")
        assert (await asyncio.wait_for(reader.readline(), 5)).startswith(b"HTTP/1.1 413")
        writer.close()
