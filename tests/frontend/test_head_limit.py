from __future__ import annotations

import asyncio
import socket

import pytest
import uvicorn
from support.front import front

from frontend.drain import Server
from frontend.head_limit import bounded

pytestmark = [pytest.mark.process, pytest.mark.anyio]
LIMIT = 4096


async def talk(*requests: bytes) -> bytes:
    """What comes back on one connection until the server hangs up, or is silent for a second."""
    app = front()
    sock = socket.create_server(("127.0.0.1", 0))
    started = asyncio.Event()
    config = uvicorn.Config(app, http=bounded(LIMIT), lifespan="on", log_config=None, access_log=False)
    server = Server(config, app, on_started=started.set)
    task = asyncio.create_task(server.serve([sock]), name="server")
    await asyncio.wait_for(started.wait(), 10)
    reader, writer = await asyncio.open_connection(*sock.getsockname())
    out = b""
    try:
        for request in requests:
            writer.write(request)
            await asyncio.sleep(0.05)
        while data := await asyncio.wait_for(reader.read(1 << 16), 1):
            out += data
    except (ConnectionError, TimeoutError):
        pass
    finally:
        writer.close()
        server.should_exit = True
        await asyncio.wait_for(task, 20)
    return out


def get(*headers: bytes, close: bool = True) -> bytes:
    lines = [b"GET /live HTTP/1.1", b"Host: x", *headers, *([b"Connection: close"] if close else [])]
    return b"\r\n".join(lines) + b"\r\n\r\n"


async def test_a_head_within_the_limit() -> None:
    assert (await talk(get(b"X: " + b"a" * (LIMIT - 200)))).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("headers", [[b"X: " + b"a" * LIMIT], [b"X-%d: 1" % n for n in range(1000)]])
async def test_a_head_over_the_limit(headers: list[bytes]) -> None:
    assert b"200 OK" not in await talk(get(*headers))


async def test_a_head_without_an_end() -> None:
    pieces = [b"GET /live HTTP/1.1\r\nX: ", *[b"a" * 1024] * 8, b"\r\n\r\n"]
    assert b"200 OK" not in await talk(*pieces)


async def test_many_requests_on_one_connection_count_one_by_one() -> None:
    one = get(b"X: " + b"a" * 1000, close=False)
    assert (await talk(*[one] * 8, get())).count(b"200 OK") == 9


async def test_a_body_does_not_count() -> None:
    body = b"x" * (4 * LIMIT)
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(
        body
    )
    assert b" 400 " in await talk(head, body[:LIMIT], body[LIMIT:])
