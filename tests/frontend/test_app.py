from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI, Request, WebSocket
from pydantic import BaseModel
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send
from support.asgi import call, scope
from support.front import client, front

from frontend.access import Access
from frontend.errors import STATUS
from frontend.metrics import VERSION
from omni.contract.errors import BY_CODE, StageFailed, UnknownModel
from omni.profile import ProfileError

pytestmark = [pytest.mark.process, pytest.mark.anyio]

SECRET = "rosebud"


class Question(BaseModel):
    n: int


@pytest.fixture
def app() -> FastAPI:
    """A front door with routes that fail in every way."""
    app = front()

    async def typed(code: str) -> None:
        raise BY_CODE[code]("What happened.", param="x")

    async def untyped() -> None:
        raise ValueError(SECRET)

    async def validated(question: Question) -> int:
        return question.n

    async def broken_stream() -> StreamingResponse:
        async def body() -> AsyncIterator[bytes]:
            yield b"one"
            raise ValueError(SECRET)

        return StreamingResponse(body())

    async def reads(request: Request) -> int:
        return len(await request.body())

    async def socket(websocket: WebSocket) -> None:
        await websocket.accept()
        raise ValueError(SECRET)

    app.add_api_route("/typed/{code}", typed)
    app.add_api_route("/untyped", untyped)
    app.add_api_route("/validated", validated, methods=["POST"])
    app.add_api_route("/broken-stream", broken_stream)
    app.add_api_route("/reads", reads, methods=["POST"])
    app.add_api_websocket_route("/socket", socket)
    return app


def error(response: httpx2.Response) -> dict[str, Any]:
    body = response.json()
    assert body.keys() == {"error"}
    assert body["error"].keys() == {"message", "type", "param", "code"}
    assert response.headers["x-request-id"]
    return dict(body["error"])


@pytest.mark.parametrize("code", sorted(BY_CODE))
async def test_a_typed_error_of_a_route_gets_its_status(app: FastAPI, code: str) -> None:
    async with client(app) as http:
        response = await http.get(f"/typed/{code}")
    assert response.status_code == STATUS[code]
    assert (error(response)["code"], error(response)["param"]) == (code, "x")


async def test_a_refused_client_is_told_when_to_come_back() -> None:
    app = front(retry_after_s=9, max_in_flight=1)

    async def busy() -> None:
        app.state.admission.admit("generation")
        app.state.admission.admit("generation")

    app.add_api_route("/busy", busy)
    async with client(app) as http:
        response = await http.get("/busy")
        assert (response.status_code, response.headers["retry-after"]) == (503, "9")
        assert error(response)["type"] == "overloaded_error"
        assert 'omni_admission_rejections_total{reason="generation"} 1.0' in (await http.get("/metrics")).text


async def test_an_untyped_error_is_a_500_that_tells_nothing(app: FastAPI, caplog: pytest.LogCaptureFixture) -> None:
    async with client(app) as http:
        response = await http.get("/untyped")
    assert response.status_code == 500
    assert error(response)["code"] == "internal_error"
    assert SECRET not in response.text
    logged = [one for one in caplog.records if one.exc_info]
    assert [one.name for one in logged] == ["frontend.access"]
    assert SECRET not in logged[0].getMessage()


@pytest.mark.parametrize(
    ("body", "param", "message"),
    [
        (b"{", None, "The body isn't valid JSON."),
        (b"[]", None, "The body must be an object."),
        (b'{"n": "rosebud"}', "n", "n must be an integer."),
        (b"{}", "n", "n is required."),
    ],
)
async def test_a_body_that_does_not_fit_is_a_400(app: FastAPI, body: bytes, param: str | None, message: str) -> None:
    async with client(app) as http:
        response = await http.post("/validated", content=body, headers={"content-type": "application/json"})
    assert response.status_code == 400
    assert (error(response)["param"], error(response)["message"]) == (param, message)
    assert error(response)["type"] == "invalid_request_error"


async def test_errors_of_the_framework_have_our_shape(app: FastAPI) -> None:
    async with client(app) as http:
        missing, method = await http.get("/nowhere"), await http.post("/v1/models")
    assert (missing.status_code, error(missing)["code"]) == (404, "not_found")
    assert (method.status_code, error(method)["code"], method.headers["allow"]) == (405, "method_not_allowed", "GET")


async def test_a_stream_that_breaks_ends_without_its_end(app: FastAPI, caplog: pytest.LogCaptureFixture) -> None:
    sent = await call(app, scope("/broken-stream"), {"type": "http.request", "body": b"", "more_body": False})
    assert [message.get("body") for message in sent[1:]] == [b"one"]
    assert sent[1]["more_body"] is True
    assert any(one.exc_info for one in caplog.records)


async def test_a_socket_that_breaks_is_closed(app: FastAPI) -> None:
    sent = await call(app, scope("/socket", kind="websocket"), {"type": "websocket.connect"})
    assert [message["type"] for message in sent] == ["websocket.accept", "websocket.close"]
    assert sent[1]["code"] == 1011


async def test_a_request_is_logged_and_counted_once(app: FastAPI, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with client(app) as http:
        await http.get("/typed/stage_failed?secret=rosebud")
        await http.get("/health")
        text = (await http.get("/metrics")).text
    (line,) = [one for one in caplog.records if one.name == "frontend.access"]
    logged = vars(line)
    assert (logged["method"], logged["path"], logged["status"]) == ("GET", "/typed/stage_failed", 500)
    assert (logged["outcome"], logged["error"]) == ("server_error", "stage_failed")
    assert SECRET not in str(logged)
    assert 'omni_requests_total{endpoint="/typed/{code}",outcome="server_error"} 1.0' in text
    assert "omni_requests_in_progress 1.0" in text


async def test_a_client_that_leaves_while_it_sends_is_a_cancellation(
    app: FastAPI, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    await call(
        app,
        scope("/reads", {"content-length": "9"}, method="POST"),
        {"type": "http.request", "body": b"x", "more_body": True},
        stay=False,
    )
    (line,) = [one for one in caplog.records if one.name == "frontend.access"]
    assert vars(line)["outcome"] == "cancelled"
    assert line.exc_info is None


@pytest.mark.parametrize(("pieces", "outcome"), [([b"one"], "ok"), ([b"one", b""], "cancelled")])
async def test_a_client_that_leaves_a_stream_is_a_cancellation(
    pieces: list[bytes], outcome: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def stream(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for n, piece in enumerate(pieces, 1):
            await send({"type": "http.response.body", "body": piece, "more_body": n < len(pieces) or n > 1})
        await receive()

    await call(Access(stream, front().state.metrics), scope("/stream"), stay=False)
    (line,) = [one for one in caplog.records if one.name == "frontend.access"]
    assert vars(line)["outcome"] == outcome


async def test_failures_of_the_stages_reach_the_health_check(app: FastAPI) -> None:
    async with client(app) as http:
        await http.get("/typed/model_not_found")
        assert app.state.health.status == "ready"
        app.state.health.report(UnknownModel("No."))
        assert app.state.health.status == "ready"
        await http.get("/typed/stage_failed")
        assert app.state.health.error == StageFailed.code


async def test_the_models(app: FastAPI) -> None:
    async with client(app) as http:
        listed = (await http.get("/v1/models")).json()
        (model,) = listed["data"]
        assert listed["object"] == "list"
        assert (model["id"], model["object"], model["created"]) == ("qwen3-omni", "model", int(app.state.created))
        assert (await http.get("/v1/models/qwen3-omni")).json() == model
        unknown = await http.get("/v1/models/gpt")
        assert unknown.status_code == 404
        assert (error(unknown)["code"], error(unknown)["param"]) == ("model_not_found", "model")


async def test_a_model_may_have_other_names() -> None:
    async with client(front(served_model_name=("org/omni", "omni"))) as http:
        assert [one["id"] for one in (await http.get("/v1/models")).json()["data"]] == ["org/omni", "omni"]
        assert (await http.get("/v1/models/org/omni")).json()["id"] == "org/omni"
        assert (await http.get("/v1/models/qwen3-omni")).status_code == 404


async def test_the_version(app: FastAPI) -> None:
    async with client(app) as http:
        assert (await http.get("/version")).json() == {"version": VERSION, "model": "qwen3-omni", "profile": "dummy"}


async def test_probes_may_ask_for_the_head_alone(app: FastAPI) -> None:
    async with client(app) as http:
        for path in ("/live", "/health", "/health/ready"):
            response = await http.head(path)
            assert (response.status_code, response.content) == (200, b"")


async def test_the_docs_can_be_switched_off(app: FastAPI) -> None:
    paths = ("/docs", "/redoc", "/openapi.json")
    async with client(app) as http:
        assert [(await http.get(path)).status_code for path in paths] == [200] * 3
    async with client(front(disable_docs=True)) as http:
        assert [(await http.get(path)).status_code for path in paths] == [404] * 3


async def test_browsers_of_other_origins_are_not_let_in_by_default(app: FastAPI) -> None:
    async with client(app) as http:
        response = await http.get("/v1/models", headers={"origin": "https://a.example"})
    assert "access-control-allow-origin" not in response.headers


async def test_allowed_origins_see_also_refusals() -> None:
    app = front(allowed_origins=("https://a.example",), api_keys=("sk",))
    async with client(app) as http:
        refused = await http.get("/v1/models", headers={"origin": "https://a.example"})
        assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, "https://a.example")
        other = await http.get("/v1/models", headers={"origin": "https://b.example"})
        assert "access-control-allow-origin" not in other.headers
        asked = {"origin": "https://a.example", "access-control-request-method": "POST"}
        preflight = await http.options("/v1/models", headers=asked)
        assert preflight.status_code == 200


async def test_an_unknown_profile_is_told() -> None:
    with pytest.raises(ProfileError, match="there is no profile 'nope'"):
        front(profile="nope")
