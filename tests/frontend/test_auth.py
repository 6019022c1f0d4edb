from __future__ import annotations

import json
from pathlib import Path

import pytest
from starlette.types import Receive, Scope, Send
from support.asgi import call, header, scope
from support.front import client, front, serving
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from frontend.auth import OPEN_PATHS, Auth, load_keys
from frontend.settings import Settings, SettingsError

pytestmark = [pytest.mark.process, pytest.mark.anyio]

KEY = "sk-one"


async def inner(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "let in"})


guarded = Auth(inner, [KEY, "sk-two"])


async def lets_in(path: str, headers: dict[str, str], kind: str = "http") -> bool:
    return bool((await call(guarded, scope(path, headers, kind=kind)))[0]["type"] == "let in")


@pytest.mark.parametrize("kind", ["http", "websocket"])
@pytest.mark.parametrize(
    ("headers", "allowed"),
    [
        ({"authorization": "Bearer sk-one"}, True),
        ({"authorization": "bearer  sk-two"}, True),
        ({}, False),
        ({"authorization": "Bearer "}, False),
        ({"authorization": "Bearer sk-on"}, False),
        ({"authorization": "Bearer sk-one1"}, False),
        ({"authorization": "Basic sk-one"}, False),
        ({"authorization": "sk-one"}, False),
        ({"authorization": "Bearer \xff"}, False),
    ],
)
async def test_a_request_needs_a_key_that_we_know(kind: str, headers: dict[str, str], allowed: bool) -> None:
    assert await lets_in("/v1/models", headers, kind) is allowed


@pytest.mark.parametrize(
    ("offer", "allowed"),
    [
        ("realtime, openai-insecure-api-key.sk-one", True),
        ("openai-insecure-api-key.sk-two,realtime", True),
        ("realtime, openai-insecure-api-key.sk-three", False),
        ("realtime, sk-one", False),
    ],
)
async def test_a_browser_shows_its_key_as_a_subprotocol(offer: str, allowed: bool) -> None:
    headers = {"sec-websocket-protocol": offer}
    assert await lets_in("/v1/realtime", headers, "websocket") is allowed
    assert not await lets_in("/v1/realtime", headers, "http")


@pytest.mark.parametrize("path", sorted(OPEN_PATHS))
async def test_probes_and_pages_are_open(path: str) -> None:
    assert await lets_in(path, {})


@pytest.mark.parametrize("path", ["/v1/models", "/V1/models", "//v1/models", "/live/", "/anything", ""])
async def test_everything_else_is_not(path: str) -> None:
    assert not await lets_in(path, {})


async def test_the_prefix_of_a_proxy_changes_nothing() -> None:
    for path, open_ in (("/omni/live", True), ("/omni/v1/models", False), ("/omni/omni/live", False)):
        sent = await call(guarded, {**scope(path), "root_path": "/omni"})
        assert (sent[0]["type"] == "let in") is open_


async def test_a_refusal_is_an_openai_error_with_a_request_id() -> None:
    async with client(front(api_keys=(KEY,))) as http:
        refused = await http.get("/v1/models", headers={"authorization": "Bearer sk-guess"})
        assert refused.status_code == 401
        assert refused.headers["www-authenticate"] == "Bearer"
        assert refused.headers["x-request-id"].startswith("req_")
        error = refused.json()["error"]
        assert (error["type"], error["code"]) == ("authentication_error", "invalid_api_key")
        assert "sk-guess" not in refused.text
        assert (await http.get("/v1/models", headers={"authorization": f"Bearer {KEY}"})).status_code == 200
        assert (await http.get("/metrics")).status_code == 200


async def test_without_keys_the_server_is_open() -> None:
    async with client(front()) as http:
        assert (await http.get("/v1/models")).status_code == 200


async def test_a_websocket_is_refused_before_it_is_accepted() -> None:
    async with serving(front(api_keys=(KEY,))) as running:
        url = running.url.replace("http", "ws") + "/v1/realtime"
        with pytest.raises(InvalidStatus) as refused:
            await connect(url)
    response = refused.value.response
    assert response.status_code == 401
    assert response.headers["x-request-id"].startswith("req_")
    assert json.loads(response.body or b"")["error"]["code"] == "invalid_api_key"


async def test_a_server_that_cannot_refuse_with_a_body_closes() -> None:
    sent = await call(guarded, scope("/v1/realtime", kind="websocket"))
    assert sent == [{"type": "websocket.close", "code": 1008}]
    assert header(sent[0], "x-request-id") is None


async def test_keys_come_from_the_settings_and_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# ours\nsk-a\n\n  sk-b \n")
    assert load_keys(Settings(api_keys=("sk-c",), api_key_file=file)) == ("sk-c", "sk-a", "sk-b")


@pytest.mark.parametrize("text", [None, "", "# nothing but words\n"])
async def test_a_file_without_keys_does_not_leave_the_server_open(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "keys"
    if text is not None:
        file.write_text(text)
    with pytest.raises(SettingsError, match="api_key_file"):
        load_keys(Settings(api_key_file=file))
