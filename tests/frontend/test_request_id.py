from __future__ import annotations

import re

import pytest
from starlette.types import Receive, Scope, Send
from support.asgi import call, header, scope
from support.front import client, front

from frontend import request_id
from frontend.request_id import MAX_LENGTH, RequestId

pytestmark = [pytest.mark.process, pytest.mark.anyio]


async def inner(scope: Scope, receive: Receive, send: Send) -> None:
    start = "http.response.start" if scope["type"] == "http" else "websocket.accept"
    await send({"type": start, "status": 200, "headers": [], "seen": request_id.current()})
    await send({"type": "something else"})


@pytest.mark.parametrize("kind", ["http", "websocket"])
@pytest.mark.parametrize("given", ["abc", "A-b_c.9", "x" * MAX_LENGTH])
async def test_a_sane_id_of_the_client_is_kept(kind: str, given: str) -> None:
    first, second = await call(RequestId(inner), scope("/", {"x-request-id": given}, kind=kind))
    assert first["seen"] == header(first, "x-request-id") == given
    assert "headers" not in second


@pytest.mark.parametrize("kind", ["http", "websocket"])
@pytest.mark.parametrize("given", [None, "", "x" * (MAX_LENGTH + 1), "a b", "a\r\nset-cookie: x", "\xe9", "{}"])
async def test_otherwise_we_make_one(kind: str, given: str | None) -> None:
    headers = {} if given is None else {"x-request-id": given}
    first, _ = await call(RequestId(inner), scope("/", headers, kind=kind))
    assert re.fullmatch(r"req_[0-9a-f]{32}", first["seen"])
    assert header(first, "x-request-id") == first["seen"]


async def test_two_requests_have_two_ids() -> None:
    async with client(front()) as http:
        ids = {(await http.get("/live")).headers["x-request-id"] for _ in range(3)}
    assert len(ids) == 3


async def test_there_is_none_outside_of_requests() -> None:
    assert request_id.current() == ""
