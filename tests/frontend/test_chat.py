"""The route, over ASGI and over real sockets, with a scripted engine."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import wave
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import openai
import pytest
from fastapi import FastAPI
from support.asgi import call, scope
from support.front import Running, client, front, serving

from frontend.engine.fake import FakeEngine, frame
from frontend.openai.from_chunks import DONE
from omni.contract.chunk import Chunk
from omni.contract.errors import ContextExceeded, InvalidMedia, OmniError, Overloaded, StageFailed, TimedOut
from omni.contract.job import Job, MediaPart, TextPart
from omni.contract.names import SAMPLE_RATE

pytestmark = [pytest.mark.process, pytest.mark.anyio]

PATH = "/v1/chat/completions"
GIF = b"GIF89a\1\0\1\0\0\0\0,\0\0\0\0\1\0\1\0\0\2\2D\1\0;"
GIF_URL = "data:image/gif;base64," + base64.b64encode(GIF).decode()
FOREVER = 1000.0


def ask(text: str = "one two three", **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], **fields}


def objects(stream: str) -> list[dict[str, Any]]:
    """The events of a stream that ends as it should."""
    assert stream.endswith("data: [DONE]\n\n")
    return [json.loads(one.removeprefix("data: ")) for one in stream.split("\n\n")[:-2] if not one.startswith(":")]


async def until(condition: Any) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


def idle(app: FastAPI) -> bool:
    """Whether nothing of a request is left."""
    admission, metrics = app.state.admission, app.state.metrics
    return bool(
        admission.in_flight == 0
        and admission.media_bytes == 0
        and metrics.registry.get_sample_value("omni_turns_in_progress") == 0
    )


def turns(app: FastAPI, outcome: str) -> float:
    labels = {"endpoint": "chat", "outcome": outcome}
    return app.state.metrics.registry.get_sample_value("omni_turns_total", labels) or 0.0


# -- answers


async def test_a_whole_answer() -> None:
    app = front()
    async with client(app) as http:
        response = await http.post(PATH, json=ask())
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    body = response.json()
    assert body["choices"][0]["message"]["content"] == "one two three"
    assert body["usage"]["completion_tokens"] == 3
    assert idle(app)
    assert turns(app, "completed") == 1


async def test_a_stream() -> None:
    app = front()
    async with client(app) as http:
        response = await http.post(PATH, json=ask(stream=True, stream_options={"include_usage": True}))
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert response.headers["cache-control"] == "no-cache"
    assert response.headers["x-accel-buffering"] == "no"
    events = objects(response.text)
    assert "".join(one["choices"][0]["delta"].get("content", "") for one in events[:-1]) == "one two three"
    assert events[-1]["usage"]["total_tokens"] == 6
    assert idle(app)
    assert turns(app, "completed") == 1


async def test_every_answer_has_an_id_of_its_own_which_is_the_jobs() -> None:
    engine = FakeEngine()
    async with client(front(engine)) as http:
        first, second = [(await http.post(PATH, json=ask())).json()["id"] for _ in range(2)]
    assert first != second
    assert [f"chatcmpl-{run.job.id}" for run in engine.runs] == [first, second]


@pytest.mark.parametrize("format", ["wav", "mp3"])
@pytest.mark.parametrize("stream", [False, True])
async def test_speech(format: str, stream: bool) -> None:
    asked = ask(modalities=["text", "audio"], audio={"format": format, "voice": "chelsie"}, stream=stream)
    engine = FakeEngine()
    async with client(front(engine)) as http:
        response = await http.post(PATH, json=asked)
    assert engine.runs[0].job.settings.stage == {"talker": {"voice": "Chelsie"}}
    if stream:
        audio = [one["choices"][0]["delta"].get("audio", {}) for one in objects(response.text)]
        files = [base64.b64decode(one["data"]) for one in audio if "data" in one]
        assert "".join(one.get("transcript", "") for one in audio) == "one two three"
    else:
        spoken = response.json()["choices"][0]["message"]["audio"]
        files = [base64.b64decode(spoken["data"])]
        assert spoken["transcript"] == "one two three"
    if format == "wav":
        assert b"".join(file[44:] for file in files) == frame() * 3
    else:
        assert len(b"".join(files)) > 1000


async def test_the_job_has_the_media_at_their_places() -> None:
    engine = FakeEngine()
    content = [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": GIF_URL}}]
    async with client(front(engine)) as http:
        response = await http.post(PATH, json={"messages": [{"role": "user", "content": content}], "images": [GIF_URL]})
    assert response.status_code == 200
    assert engine.runs[0].job.messages[0].parts == (
        TextPart("see"),
        MediaPart.of("image", GIF, "messages.0.content.1.image_url.url"),
        MediaPart.of("image", GIF, "images.0"),
    )


async def test_a_large_upload_in_pieces_without_a_length() -> None:
    sound = b"RIFF\x24\0\0\0WAVEfmt " + bytes(300_000)
    data = base64.b64encode(sound).decode()
    part = {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}
    body = json.dumps({"messages": [{"role": "user", "content": [part]}]}).encode()

    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(body), 50_000):
            yield body[at : at + 50_000]

    engine = FakeEngine()
    app = front(engine)
    async with client(app) as http:
        assert (await http.post(PATH, content=pieces())).status_code == 200
        assert (await http.post(PATH, content=body)).status_code == 200
        assert idle(app)
    assert [run.job.media[0].data == sound for run in engine.runs] == [True, True]


# -- errors


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"messages": []}, "messages", "invalid_request"),
        ({"max_tokens": 0}, "max_tokens", "invalid_request"),
        ({"temperature": "hot"}, "temperature", "invalid_request"),
        ({"n": 2}, "n", "unsupported"),
        ({"images": ["data:image/png;base64,AAAA"]}, "images.0", "invalid_media"),
        ({"images": ["data:image/png;base64,?"]}, "images.0", "invalid_media"),
        ({"images": ["http://127.0.0.1/x.png"]}, "images.0", "unsupported"),
        ({"images": ["/etc/passwd"]}, "images.0", "unsupported"),
    ],
)
async def test_bad_input_is_one_clear_400(fields: dict[str, Any], param: str, code: str, stream: bool) -> None:
    app = front()
    async with client(app) as http:
        response = await http.post(PATH, json=ask(stream=stream, **fields) | fields)
        assert response.status_code == 400
        error = response.json()["error"]
        assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", param, code)
        assert param in error["message"]
        assert idle(app)
        assert (turns(app, "refused"), turns(app, "failed")) == (1, 0)
        assert (await http.post(PATH, json=ask())).status_code == 200


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b'"x"', b"null"])
async def test_a_body_that_is_no_json_object(body: bytes) -> None:
    async with client(front()) as http:
        response = await http.post(PATH, content=body)
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"


async def test_an_unknown_model() -> None:
    async with client(front()) as http:
        response = await http.post(PATH, json=ask(model="gpt-4o"))
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "model_not_found"


async def test_limits_are_settings() -> None:
    app = front(max_media_parts=1, max_media_item_bytes=100, max_image_pixels=16)
    async with client(app) as http:
        assert (await http.post(PATH, json=ask(images=[GIF_URL]))).status_code == 200
        for fields, param in (
            ({"images": [GIF_URL] * 2}, "images.1"),
            ({"images": [GIF_URL + "AAAA" * 30]}, "images.0"),
            ({"images": [GIF_URL.replace("R0lGODlhAQAB", "R0lGODlhAgAJ")]}, "images.0"),
        ):
            response = await http.post(PATH, json=ask(**fields))
            assert response.status_code == 400, fields
            assert response.json()["error"]["code"] == "too_large"
            assert response.json()["error"]["param"] == param


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": [{"role": "user", "content": "x"}] * 11}, "messages"),
        ({"messages": [{"role": "user", "content": ["x"] * 5}] * 2}, "messages.1"),
        ({"messages": [{"role": "user", "content": "x"}], "images": [""] * 11}, "images"),
        ({"messages": [{"role": "user", "content": "x"}], "logit_bias": {str(n): 0 for n in range(11)}}, "logit_bias"),
        ({"messages": [{"role": "user", "content": "x"}], "unknown": [[]] * 1000}, None),
    ],
)
async def test_many_small_things_are_refused_before_each_is_looked_at(body: dict[str, Any], param: str | None) -> None:
    async with client(front(max_message_parts=10, max_json_bytes=2000)) as http:
        response = await http.post(PATH, json=body)
        assert response.status_code == 400
        assert response.json()["error"]["code"] == "too_large"
        assert response.json()["error"]["param"] == param
        assert (await http.post(PATH, json=ask("x" * 100_000))).status_code == 200


async def test_a_body_over_the_limit_is_a_413() -> None:
    async with client(front(max_body_bytes=1000)) as http:
        response = await http.post(PATH, json=ask("x" * 1000))
    assert response.status_code == 413
    assert response.json()["error"]["code"] == "too_large"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InvalidMedia("images.0 can't be decoded.", param="images.0"), 400),
        (ContextExceeded("Too long: 5 and 6.", param="messages"), 400),
        (Overloaded("Full."), 503),
        (StageFailed("Broken."), 500),
        (TimedOut("Nothing was heard."), 504),
    ],
)
async def test_an_error_before_the_first_word_has_its_status(error: OmniError, status: int, stream: bool) -> None:
    app = front(FakeEngine([Chunk(event={"type": "prompt", "prompt_tokens": 3}), error]))
    async with client(app) as http:
        response = await http.post(PATH, json=ask(stream=stream))
    assert response.status_code == status
    assert response.json()["error"]["message"] == error.message
    assert response.json()["error"]["code"] == error.code
    assert ("retry-after" in response.headers) == (status == 503)
    assert idle(app)
    assert turns(app, "refused" if status == 400 else "failed") == 1


@pytest.mark.parametrize(("error", "code"), [(StageFailed("Broken."), 500), (Overloaded("Full."), 503)])
async def test_a_later_error_is_an_event(error: OmniError, code: int) -> None:
    app = front(FakeEngine([Chunk(text="one", tokens=1), error]))
    async with client(app) as http:
        response = await http.post(PATH, json=ask(stream=True))
    assert response.status_code == 200
    events = objects(response.text)
    assert events[0]["choices"][0]["delta"]["content"] == "one"
    assert events[1] == {"error": {"message": error.message, "type": "server_error", "param": None, "code": code}}
    assert len(events) == 2
    assert turns(app, "failed") == 1
    if isinstance(error, StageFailed):
        assert app.state.health.status == "unavailable"


async def test_a_failure_of_ours_says_nothing_of_itself() -> None:
    def script(job: Job) -> Any:
        yield Chunk(text="one", tokens=1)
        raise RuntimeError("secret")

    app = front(FakeEngine(script))
    async with client(app) as http:
        response = await http.post(PATH, json=ask(stream=True))
        assert "secret" not in response.text
        assert objects(response.text)[-1]["error"]["code"] == 500
        response = await http.post(PATH, json=ask())
        assert response.status_code == 500
        assert "secret" not in response.text
    assert idle(app)
    assert turns(app, "failed") == 2


async def test_a_full_server_refuses_at_once() -> None:
    app = front(FakeEngine([Chunk(text="x"), FOREVER]), max_in_flight=1)
    async with serving(app) as server, httpx2.AsyncClient(base_url=server.url) as http:
        async with http.stream("POST", PATH, json=ask(stream=True)) as first:
            assert first.status_code == 200
            for stream in (False, True):
                second = await http.post(PATH, json=ask(stream=stream))
                assert second.status_code == 503
                assert second.headers["retry-after"] == "1"
                assert second.json()["error"]["code"] == "overloaded"
        await until(lambda: idle(app))


async def test_media_are_admitted_until_they_are_delivered() -> None:
    sound = "data:;base64," + base64.b64encode(b"RIFF\x24\0\0\0WAVEfmt " + bytes(200_000)).decode()
    engine = FakeEngine([0.2, Chunk(text="x"), FOREVER])
    app = front(engine, max_media_bytes=400_000)
    async with serving(app) as server, httpx2.AsyncClient(base_url=server.url) as http:
        first = asyncio.create_task(http.post(PATH, json=ask(audios=[sound])))
        await until(lambda: engine.runs)
        assert app.state.admission.media_bytes > 250_000
        assert (await http.post(PATH, json=ask(audios=[sound]))).status_code == 503
        await until(lambda: app.state.admission.media_bytes == 0)
        assert app.state.admission.in_flight == 1
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        await until(lambda: idle(app))


# -- clients that leave, or dawdle


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("script", [(FOREVER,), (Chunk(text="a", tokens=1), FOREVER)])
async def test_a_client_that_leaves_stops_the_engine(script: tuple[Chunk | float, ...], stream: bool) -> None:
    engine = FakeEngine(script)
    app = front(engine)
    body = json.dumps(ask(stream=stream)).encode()
    request = scope(PATH, {"content-length": str(len(body))}, method="POST")
    messages = await call(app, request, {"type": "http.request", "body": body}, stay=False)
    assert engine.runs[0].outcome == "aborted"
    status = next((message["status"] for message in messages if message["type"] == "http.response.start"), None)
    assert status in ((None, 200) if stream else (499,))
    assert b"[DONE]" not in b"".join(message.get("body", b"") for message in messages)
    assert idle(app)
    assert turns(app, "cancelled") == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_a_connection_that_breaks_stops_the_engine(stream: bool) -> None:
    engine = FakeEngine([Chunk(text="a", tokens=1), FOREVER])
    app = front(engine)
    async with serving(app) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        body = json.dumps(ask(stream=stream)).encode()
        writer.write(b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (PATH.encode(), len(body)) + body)
        await until(lambda: engine.runs and engine.runs[0].chunks)
        if stream:
            await reader.readuntil(b'"content":"a"')
        writer.close()
        await until(lambda: engine.runs[0].outcome == "aborted")
        await until(lambda: idle(app))
    assert turns(app, "cancelled") == 1


async def test_a_client_that_leaves_in_the_middle_of_its_upload() -> None:
    engine = FakeEngine()
    app = front(engine)
    async with serving(app) as server:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n{" % PATH.encode())
        await until(lambda: app.state.admission.media_bytes)
        writer.close()
        await until(lambda: idle(app))
    assert not engine.runs


async def test_a_reader_that_is_too_slow_is_dropped_and_others_are_not() -> None:
    words = [Chunk(text="x" * 10_000, tokens=1), 0.0] * 2000

    def script(job: Job) -> Any:
        return words if job.messages[0].text == "much" else [Chunk(text="little", tokens=1)]

    engine = FakeEngine(script)
    app = front(engine, sse_buffer_bytes=100_000)
    async with serving(app) as server, httpx2.AsyncClient(base_url=server.url) as http:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1024)
        body = json.dumps(ask("much", stream=True)).encode()
        writer.write(b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (PATH.encode(), len(body)) + body)
        await until(lambda: engine.runs and engine.runs[0].outcome == "aborted")
        assert "little" in (await http.post(PATH, json=ask("few", stream=True))).text
        got = b""
        async with asyncio.timeout(10):
            while piece := await reader.read(1 << 16):
                got += piece
        assert DONE not in got
        assert not got.endswith(b"0\r\n\r\n")
        writer.close()
        await until(lambda: idle(app))


async def test_a_reader_in_time_gets_much_more_than_the_buffer_holds() -> None:
    app = front(FakeEngine([Chunk(text="x" * 10_000, tokens=1)] * 500), sse_buffer_bytes=200_000)
    async with serving(app) as server, httpx2.AsyncClient(base_url=server.url) as http:
        events = objects((await http.post(PATH, json=ask(stream=True))).text)
    assert sum(len(one["choices"][0]["delta"].get("content", "")) for one in events) == 5_000_000


async def test_silence_is_filled() -> None:
    app = front(FakeEngine([Chunk(text="a"), 0.3, Chunk(text="b")]), sse_keep_alive=0.05)
    async with client(app) as http:
        text = (await http.post(PATH, json=ask(stream=True))).text
    assert ": keep-alive\n\n" in text
    assert "".join(one["choices"][0]["delta"].get("content", "") for one in objects(text)) == "ab"


async def test_many_streams_at_once_each_whole_and_in_order() -> None:
    app = front()
    words = " ".join(f"w{n}" for n in range(50))

    async def one(http: httpx2.AsyncClient) -> str:
        response = await http.post(PATH, json=ask(words, stream=True, modalities=["text", "audio"]))
        return "".join(one["choices"][0]["delta"].get("content", "") for one in objects(response.text))

    limits = httpx2.Limits(max_connections=64)
    async with serving(app) as server, httpx2.AsyncClient(base_url=server.url, limits=limits, timeout=60) as http:
        assert await asyncio.gather(*(one(http) for _ in range(64))) == [words] * 64
        await until(lambda: idle(app))


async def test_streams_get_on_together() -> None:
    slowest: list[int] = []

    def script(job: Job) -> Any:
        yield 0.3  # until all have begun
        for _ in range(300):
            yield Chunk(text="x", tokens=1)
        slowest.append(min(run.chunks for run in engine.runs))

    engine = FakeEngine(script)
    limits = httpx2.Limits(max_connections=16)
    app = front(engine)
    async with serving(app) as server, httpx2.AsyncClient(base_url=server.url, limits=limits, timeout=60) as http:
        await asyncio.gather(*(http.post(PATH, json=ask(stream=True)) for _ in range(16)))
    assert len(slowest) == 16
    assert slowest[0] > 200


# -- the OpenAPI document


async def test_the_document_tells_of_the_route() -> None:
    async with client(front()) as http:
        route = (await http.get("/openapi.json")).json()["paths"][PATH]["post"]
    assert set(route["responses"]) == {"200", "400", "401", "404", "413", "500", "503", "504"}
    schema = route["requestBody"]["content"]["application/json"]["schema"]
    assert "messages" in schema["properties"]
    assert set(route["responses"]["200"]["content"]) == {"application/json", "text/event-stream"}


# -- the SDK that everybody has


@asynccontextmanager
async def sdk(app: FastAPI) -> AsyncIterator[tuple[openai.AsyncOpenAI, Running]]:
    async with (
        serving(app) as server,
        openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="EMPTY", max_retries=0) as api,
    ):
        yield api, server


USER: Any = [{"role": "user", "content": "one two three"}]


async def test_sdk_chat() -> None:
    async with sdk(front()) as (api, _):
        answer = await api.chat.completions.create(model="qwen3-omni", messages=USER, max_tokens=2)
    assert answer.choices[0].message.content == "one two"
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.total_tokens == 5
    assert answer.usage.prompt_tokens_details is not None
    assert answer._request_id


async def test_sdk_stream() -> None:
    text, usage = "", None
    async with sdk(front()) as (api, _):
        events = await api.chat.completions.create(
            model="qwen3-omni", messages=USER, stream=True, stream_options={"include_usage": True}
        )
        async for event in events:
            usage = event.usage or usage
            text += "".join(choice.delta.content or "" for choice in event.choices)
    assert text == "one two three"
    assert usage is not None
    assert usage.completion_tokens == 3


async def test_sdk_streaming_helper() -> None:
    async with (
        sdk(front()) as (api, _),
        api.chat.completions.stream(model="qwen3-omni", messages=USER) as stream,
    ):
        deltas = [event.delta async for event in stream if event.type == "content.delta"]
        final = await stream.get_final_completion()
    assert "".join(deltas) == "one two three"
    assert final.choices[0].message.content == "one two three"


async def test_sdk_image_and_audio_in() -> None:
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(16_000)
        out.writeframes(bytes(3200))
    content: Any = [
        {"type": "text", "text": "what?"},
        {"type": "image_url", "image_url": {"url": GIF_URL, "detail": "low"}},
        {"type": "input_audio", "input_audio": {"data": base64.b64encode(file.getvalue()).decode(), "format": "wav"}},
    ]
    engine = FakeEngine()
    async with sdk(front(engine)) as (api, _):
        await api.chat.completions.create(model="qwen3-omni", messages=[{"role": "user", "content": content}])
    assert [part.kind for part in engine.runs[0].job.media] == ["image", "audio"]
    assert engine.runs[0].job.media[1].data == file.getvalue()


async def test_sdk_audio_out() -> None:
    async with sdk(front()) as (api, _):
        answer = await api.chat.completions.create(
            model="qwen3-omni", messages=USER, modalities=["text", "audio"], audio={"voice": "Ethan", "format": "wav"}
        )
    audio = answer.choices[0].message.audio
    assert audio is not None
    assert audio.transcript == "one two three"
    assert audio.expires_at == answer.created
    with wave.open(io.BytesIO(base64.b64decode(audio.data))) as file:
        assert file.getframerate() == SAMPLE_RATE
        assert file.readframes(file.getnframes()) == frame() * 3


async def test_sdk_audio_out_streamed() -> None:
    transcript, sound, expires = "", b"", None
    async with sdk(front()) as (api, _):
        events = await api.chat.completions.create(
            model="qwen3-omni",
            messages=USER,
            modalities=["text", "audio"],
            audio={"voice": "Ethan", "format": "pcm16"},
            stream=True,
        )
        async for event in events:
            for choice in event.choices:
                if (audio := choice.delta.audio) is not None:
                    transcript += audio.transcript or ""
                    sound += base64.b64decode(audio.data or "")
                    expires = audio.expires_at or expires
    assert transcript == "one two three"
    assert sound == frame() * 3
    assert expires


@pytest.mark.parametrize("stream", [False, True])
async def test_sdk_errors(stream: bool) -> None:
    async with sdk(front()) as (api, _):
        with pytest.raises(openai.BadRequestError) as bad:
            await api.chat.completions.create(model="qwen3-omni", messages=USER, temperature=9, stream=stream)
        assert (bad.value.param, bad.value.code) == ("temperature", "invalid_request")
        with pytest.raises(openai.NotFoundError):
            await api.chat.completions.create(model="gpt-4o", messages=USER, stream=stream)
    async with sdk(front(FakeEngine([Overloaded("Full.")]))) as (api, _):
        with pytest.raises(openai.InternalServerError) as full:
            await api.chat.completions.create(model="qwen3-omni", messages=USER, stream=stream)
        assert full.value.status_code == 503


async def test_sdk_error_in_the_middle_of_a_stream() -> None:
    async with sdk(front(FakeEngine([Chunk(text="a"), StageFailed("The talker broke.")]))) as (api, _):
        events = await api.chat.completions.create(model="qwen3-omni", messages=USER, stream=True)
        with pytest.raises(openai.APIError, match="The talker broke"):
            _ = [event async for event in events]


async def test_sdk_that_stops_reading_stops_the_engine() -> None:
    engine = FakeEngine([Chunk(text="a"), FOREVER])
    async with sdk(front(engine)) as (api, _):
        events = await api.chat.completions.create(model="qwen3-omni", messages=USER, stream=True)
        await anext(aiter(events))
        await events.close()
        await until(lambda: engine.runs[0].outcome == "aborted")
