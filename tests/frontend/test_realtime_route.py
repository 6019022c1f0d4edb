"""Who may open a realtime session, and how it begins; over real sockets, with a scripted engine."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import httpx2
import pytest
from openai.types.realtime import ClientSecretCreateResponse
from support.front import Running, front, serving, until
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus
from websockets.typing import Subprotocol

from frontend.client_secrets import ClientSecrets
from frontend.engine.fake import FakeEngine

pytestmark = [pytest.mark.process, pytest.mark.anyio]
KEY = "sk-test"


def opened(
    running: Running, query: str = "", key: str | None = None, protocols: Sequence[str] = ()
) -> AbstractAsyncContextManager[ClientConnection]:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    offered = [Subprotocol(one) for one in protocols] or None
    url = f"{running.url.replace('http', 'ws')}/v1/realtime{query}"
    return connect(url, additional_headers=headers, subprotocols=offered, compression=None)


async def hear(ws: ClientConnection) -> dict[str, Any]:
    async with asyncio.timeout(10):
        return json.loads(await ws.recv())  # type: ignore[no-any-return]


async def refused(running: Running, *args: Any, **options: Any) -> tuple[int, dict[str, Any]]:
    with pytest.raises(InvalidStatus) as caught:
        async with opened(running, *args, **options):
            pass
    response = caught.value.response
    return response.status_code, json.loads(response.body)["error"]


async def test_it_opens_and_answers(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "frontend")
    engine = FakeEngine()
    async with serving(front(engine)) as running, opened(running, "?model=qwen3-omni") as ws:
        assert ws.subprotocol is None
        assert (await hear(ws))["type"] == "session.created"
        item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "one two"}]}
        await ws.send(json.dumps({"type": "conversation.item.create", "item": item}))
        await ws.send(json.dumps({"type": "response.create"}))
        while (event := await hear(ws))["type"] != "response.done":
            pass
        assert event["response"]["output"][0]["content"][0]["transcript"] == "one two"
        await until(lambda: any(record.message == "turn" for record in caplog.records))
    (line,) = [vars(record) for record in caplog.records if record.message == "turn"]
    assert (line["endpoint"], line["outcome"]) == ("realtime", "completed")
    assert line["generation"]


async def test_a_browser_shows_its_key_as_a_subprotocol() -> None:
    async with serving(front(api_keys=(KEY,))) as running:
        assert (await refused(running))[0] == 401
        assert (await refused(running, protocols=["realtime", "openai-insecure-api-key.wrong"]))[0] == 401
        for protocols in (
            ["realtime", f"openai-insecure-api-key.{KEY}"],
            [f"openai-insecure-api-key.{KEY}", "realtime"],
        ):
            async with opened(running, protocols=protocols) as ws:
                assert ws.subprotocol == "realtime"
                assert (await hear(ws))["type"] == "session.created"
        async with opened(running, key=KEY) as ws:
            assert (await hear(ws))["type"] == "session.created"


async def test_client_secrets() -> None:
    async with serving(front(api_keys=(KEY,))) as running, httpx2.AsyncClient(base_url=running.url) as http:
        body = {
            "expires_after": {"anchor": "created_at", "seconds": 60},
            "session": {"type": "realtime", "instructions": "Be brief."},
        }
        path = "/v1/realtime/client_secrets"
        assert (await http.post(path, json=body)).status_code == 401
        answer = await http.post(path, json=body, headers={"authorization": f"Bearer {KEY}"})
        assert answer.status_code == 200
        made = ClientSecretCreateResponse.model_validate(answer.json())
        assert made.value.startswith("ek_")
        for protocols in (["realtime", f"openai-insecure-api-key.{made.value}"],):
            async with opened(running, protocols=protocols) as ws:
                session = (await hear(ws))["session"]
                assert session["instructions"] == "Be brief."
        # It opens sessions, and nothing else.
        models = await http.get("/v1/models", headers={"authorization": f"Bearer {made.value}"})
        assert models.status_code == 401


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ('{"session": {"type": "realtime", "colour": 1}}', "session.colour"),
        ('{"expires_after": {"seconds": 1}}', "expires_after.seconds"),
        ('{"session": []}', "session"),
        ("nonsense", None),
    ],
)
async def test_client_secrets_that_cannot_be(body: str, param: str | None) -> None:
    async with serving(front()) as running, httpx2.AsyncClient(base_url=running.url) as http:
        answer = await http.post("/v1/realtime/client_secrets", content=body)
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == param


def test_client_secrets_end() -> None:
    now = 100.0
    secrets = ClientSecrets(lambda: now, most=2)
    value, secret = secrets.make(10, {})
    assert abs(secret.expires_at - time.time() - 10) < 5
    assert secret.until == 110.0
    assert secrets.find(value.encode()) is secret
    assert secrets.find(b"ek_other") is None
    now = 110.0
    assert secrets.find(value.encode()) is None
    for _ in range(5):
        secrets.make(10, {})
    assert len(secrets) == 2


async def test_refusals_before_the_upgrade() -> None:
    async with serving(front(max_sessions=1)) as running:
        assert await refused(running, "?model=gpt-realtime") == (
            404,
            {
                "message": "This server has no such model; GET /v1/models lists what it has.",
                "type": "invalid_request_error",
                "param": "model",
                "code": "model_not_found",
            },
        )
        assert (await refused(running, "?dialect=klingon"))[1]["param"] == "dialect"
        assert (await refused(running, "?intent=transcription"))[1]["param"] == "intent"
        async with opened(running) as ws:
            await hear(ws)
            status, error = await refused(running)
            assert (status, error["code"]) == (503, "overloaded")
        async with asyncio.timeout(10):
            while True:
                try:
                    async with opened(running) as ws:
                        await hear(ws)
                    break
                except InvalidStatus:
                    await asyncio.sleep(0.02)


async def test_beta_names_when_asked_for() -> None:
    async with serving(front()) as running:
        url = f"{running.url.replace('http', 'ws')}/v1/realtime"
        async with connect(url, additional_headers={"OpenAI-Beta": "realtime=v1"}) as ws:
            session = (await hear(ws))["session"]
            assert session["input_audio_format"] == "pcm16"
            assert session["modalities"] == ["text", "audio"]


async def test_a_client_that_leaves_stops_its_answer() -> None:
    engine = FakeEngine([30.0])
    async with serving(front(engine)) as running:
        async with opened(running) as ws:
            await ws.send(json.dumps({"type": "response.create"}))
            while (await hear(ws))["type"] != "response.created":
                pass
        await until(lambda: engine.runs[-1].outcome == "aborted")


async def test_the_session_profile() -> None:
    async with serving(front()) as running, httpx2.AsyncClient(base_url=running.url) as http:
        said = (await http.get("/v1/realtime/capabilities")).json()
        assert said["dialect"] == "sglang-session"
        assert (await refused(running, "?session_id=old"))[1]["param"] == "session_id"
        for query, param in (("&session_id=old", "session_id"), ("&model=other", "model")):
            async with opened(running, f"?dialect=sglang-session{query}") as ws:
                told = await hear(ws)
                assert (told["error"]["param"], told["sglang"]) == (param, {"fatal": True})
                await asyncio.wait_for(ws.wait_closed(), 10)
                assert ws.close_code == 1008
        async with opened(running, "?dialect=sglang-session") as ws:
            assert (await hear(ws))["session"]["sglang"] == {"granted": None}
            await ws.send(json.dumps({"type": "session.update", "event_id": "1", "session": {"type": "realtime"}}))
            granted = (await hear(ws))["session"]["sglang"]["granted"]
            assert granted["limits"] == said["limits"]
            await ws.send(json.dumps({"type": "session.close", "event_id": "2"}))
            assert (await hear(ws))["type"] == "session.closed"
            await asyncio.wait_for(ws.wait_closed(), 10)
            assert ws.close_code == 1000


async def test_the_default_dialect_is_a_setting() -> None:
    async with serving(front(realtime_dialect="sglang")) as running, opened(running) as ws:
        assert (await hear(ws))["session"]["modalities"] == ["text"]
