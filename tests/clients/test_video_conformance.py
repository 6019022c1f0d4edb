"""What the protocol's first server does on the wire, C1 to C21, and where we do better on purpose."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import wave
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from support.front import front, serving
from support.video_client import Client, connected, half, picture, types

from frontend.engine.fake import Beat, FakeEngine
from omni.contract.chunk import Chunk, Usage
from omni.contract.errors import StageFailed
from omni.contract.job import Job, TextPart

pytestmark = [pytest.mark.process, pytest.mark.anyio]

TEXT = {"modalities": ["text"]}
PLAIN = {"modalities": ["text"], "enable_frame_filter": False}
SECONDS = 0.05


def said(job: Job) -> Iterator[Beat]:
    """Answers with the words of the question. `slow` takes long, `break` fails in the middle."""
    question = job.messages[-1].text
    yield Chunk(event={"type": "prompt"})
    for word in question.split():
        yield SECONDS
        yield Chunk(word + " ", tokens=1)
        if word == "slow":
            yield 30.0
        if word == "break":
            raise StageFailed("The thinker broke.")
        if job.settings.speech:
            yield Chunk(audio=b"\1\0" * 1920)
    yield Chunk(finish="stop", usage=Usage(prompt_tokens=7, completion_tokens=2))


@asynccontextmanager
async def server(script: Any = said, **settings: Any) -> AsyncIterator[tuple[str, FakeEngine]]:
    engine = FakeEngine(script)
    async with serving(front(engine, **{"video_prefill": False, **settings})) as running:
        yield running.url, engine


def images(job: Job) -> int:
    return sum(part.kind == "image" for part in job.media)


def heard(job: Job) -> int:
    """Samples of sound in a job."""
    audio = [part.data or b"" for part in job.media if part.kind == "audio"]
    if not audio:
        return 0
    with wave.open(io.BytesIO(audio[0])) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (16_000, 1, 2)
        return file.getnframes()


async def consumed(client: Client) -> dict[str, Any]:
    await client.query()
    events = await client.until("response.done")
    (event,) = [one for one in events if one["type"] == "video.frames.consumed"]
    return event


@pytest.mark.parametrize(
    ("message", "answer"),
    [
        ("{", "Invalid JSON in session.config"),
        (json.dumps({"type": "video.frame", "data": ""}), "Expected session.config, got: video.frame"),
        ("{}", "Expected session.config, got: None"),
        ("[1]", "Expected session.config, got: list"),
        (json.dumps({"type": "session.config", "num_frames": 129}), "Invalid session config: num_frames"),
        (json.dumps({"type": "session.config", "modalities": "text"}), "Invalid session config: modalities"),
        (json.dumps({"type": "session.config", "frame_filter_threshold": 1.5}), "Invalid session config: frame_filter"),
        (b"\0", "Expected session.config, got: bytes"),
    ],
)
async def test_c1_configuration_errors(message: str | bytes, answer: str) -> None:
    async with server() as (url, _), connected(url) as client:
        await client.ws.send(message)
        (event,) = await client.rest()
        assert event["message"].startswith(answer)
        assert "pydantic" not in event["message"]
        assert client.code == 1008


async def test_c1_configuration_timeout() -> None:
    async with server(video_config_timeout=0.1) as (url, _), connected(url) as client:
        assert (await client.rest())[0]["message"] == "Timeout waiting for session.config"
        assert client.code == 1008


async def test_c2_aliases_and_precedence() -> None:
    async with server() as (url, engine):
        for config, count in (({"num_sample_frames": 2}, 2), ({"num_sample_frames": 2, "num_frames": 3}, 3)):
            async with connected(url, {**TEXT, **config, "evs_enabled": False}) as client:
                for n in range(6):
                    await client.frame(n)
                await client.query()
                await client.until("response.done")
                assert images(engine.runs[-1].job) == count
        async with connected(url, {"evs_threshold": 1.1}) as client:
            assert "frame_filter_threshold" in await client.error()


async def test_c3_messages_that_mean_nothing() -> None:
    async with server() as (url, _), connected(url, TEXT) as client:
        for message, answer in (
            ("{", "Invalid JSON"),
            ("[]", "Messages must be JSON objects"),
            ("{}", "Unknown type: None"),
            ('{"type":"session.config"}', "Unknown type: session.config"),
            ('{"type":"_internal.frame_decode_failed"}', "Unknown type: _internal.frame_decode_failed"),
            (b"\0", "Binary messages are not supported"),
        ):
            await client.ws.send(message)
            assert await client.error() == answer
        await client.send("ping")
        assert await client.next() == {"type": "pong"}
        await client.send("video.done")
        assert types(await client.rest()) == ["session.done"]
        assert client.code == 1000


@pytest.mark.parametrize("filter", [True, False])
async def test_c4_frame_variants(filter: bool) -> None:
    async with (
        server(video_frame_chars=40_000) as (url, engine),
        connected(url, {**TEXT, "enable_frame_filter": filter, "num_frames": 9}) as client,
    ):
        for data in (None, "", 0):
            await client.send("video.frame", data=data, frame_id="x")
        assert await client.sync() == []
        for data, answer in (
            (5, "Invalid image data"),
            ("@@@@", "Invalid image data"),
            ("A" * 40_001, "Frame too large"),
        ):
            await client.send("video.frame", data=data, frame_id="x")
            assert await client.error() == answer
        for n, format in enumerate(("PNG", "WEBP", "BMP", "GIF")):
            await client.send("video.frame", data=picture(80 * n, format), frame_id=format)
        acks = await client.sync()
        assert [ack["frame_id"] for ack in acks] == ["PNG", "WEBP", "BMP", "GIF"]
        assert all(ack["accepted"] for ack in acks)
        await client.query()
        await client.until("response.done")
        assert images(engine.runs[-1].job) == 4


async def test_c5_acknowledgement_and_eviction() -> None:
    async with server() as (url, _), connected(url, {**PLAIN, "max_frames": 2}) as client:
        for n in range(3):
            await client.frame(n, frame_id=f"f{n}", pts_ms=n * 10, capture_ts_ms=n)
        acks = await client.sync()
        keys = {
            "type", "frame_id", "pts_ms", "capture_ts_ms", "accepted", "buffered_frames", "server_receive_ts_ms",
        }  # fmt: skip
        assert set(acks[0]) == keys
        assert set(acks[2]) == {*keys, "dropped_frame_id"}
        assert acks[2]["dropped_frame_id"] == "f0"
        assert [ack["buffered_frames"] for ack in acks] == [1, 2, 2]
        await client.frame(9, frame_id="")
        await client.frame(9, frame_id=7)
        await client.frame(9)
        assert await client.sync() == []


@pytest.mark.parametrize(
    ("threshold", "levels", "kept"),
    [
        (0.95, [100, 157, 100, 158], [True, False, False, True]),
        (0.99, [100, 125, 126], [True, False, True]),
        (1.0, [100, 100, 101], [True, False, True]),
        (0.0, [0, 255], [True, False]),
    ],
)
async def test_c6_thresholds(threshold: float, levels: list[int], kept: list[bool]) -> None:
    async with server() as (url, _), connected(url, {**TEXT, "frame_filter_threshold": threshold}) as client:
        for n, level in enumerate(levels):
            await client.send("video.frame", data=picture(level, "PNG"), frame_id=str(n))
        acks = await client.sync()
        assert [ack["accepted"] for ack in acks] == kept
        assert all(("reason" in ack) is not ack["accepted"] for ack in acks)


@pytest.mark.parametrize(
    ("count", "wanted", "places"),
    [
        (5, 2, [0, 4]),
        (3, 1, [2]),
        (3, 4, [0, 1, 2]),
        (10, 4, [0, 2, 4, 9]),
        (7, 4, [0, 1, 2, 6]),
        (50, 4, [0, 12, 24, 49]),
    ],
)
async def test_c7_selection(count: int, wanted: int, places: list[int]) -> None:
    async with server() as (url, _), connected(url, {**PLAIN, "num_frames": wanted}) as client:
        for n in range(count):
            await client.frame(n, frame_id=str(n), pts_ms=n)
        event = await consumed(client)
        assert event["frame_ids"] == [str(place) for place in places]
        assert event["latest_pts_ms"] == places[-1]


async def test_c8_frames_that_cant_be_decoded() -> None:
    broken = half(picture(5, "PNG"))
    async with server() as (url, _):
        async with connected(url, TEXT) as client:
            await client.send("video.frame", data=broken, frame_id="a")
            assert await client.error() == "Invalid image data"
            await client.query()
            assert await client.error() == "No frames buffered"
        async with connected(url, PLAIN) as client:
            await client.send("video.frame", data=broken, frame_id="a")
            ack = await client.next()
            assert ack["accepted"]
            assert await client.error() == "Frame decode failed"
            await client.query()
            assert await client.error() == "No frames buffered"


async def test_c9_frames_consumed() -> None:
    async with server() as (url, _):
        async with connected(url, {**PLAIN, "num_frames": 9}) as client:
            for id in ("a", 7, "", None):
                await client.frame(1, frame_id=id, pts_ms=3, source_pts_ms="s", quality_profile=[1])
            event = await consumed(client)
            assert set(event) == {
                "type", "request_id", "model_selected_ts_ms", "frame_ids", "frames", "latest_pts_ms",
            }  # fmt: skip
            assert event["frame_ids"] == ["a", ""]
            assert [frame["frame_id"] for frame in event["frames"]] == ["a", 7, "", None]
            frame = event["frames"][0]
            assert (frame["pts_ms"], frame["source_pts_ms"], frame["quality_profile"]) == (3, "s", [1])
            ready, selected = frame["decoded_ready_ts_ms"], event["model_selected_ts_ms"]
            assert frame["receiver_received_ts_ms"] <= ready <= selected
            order = types(client.events)
            start, at = order.index("response.start"), order.index("video.frames.consumed")
            assert start < at < order.index("response.text.delta")
        async with connected(url, PLAIN) as client:
            await client.frame(1, pts_ms=3)
            await client.query()
            assert "video.frames.consumed" not in types(await client.until("response.done"))


async def test_c10_limits() -> None:
    async with server(ws_max_size=16 << 20) as (url, engine), connected(url, PLAIN) as client:
        await client.send("video.frame", data="A" * (10 * 1024 * 1024 + 1))
        assert await client.error() == "Frame too large"
        await client.frame(1)
        part = base64.b64encode(bytes(2 << 20)).decode()
        for _ in range(2):
            await client.send("audio.chunk", data=part)
        await client.send("audio.chunk", data=base64.b64encode(bytes(2)).decode())
        assert await client.error() == "Audio buffer overflow"
        await client.query()
        await client.until("response.done")
        assert heard(engine.runs[-1].job) == 0


async def test_c10_a_message_that_is_too_big() -> None:
    async with server() as (url, _), connected(url, PLAIN) as client:
        await client.send("ping", padding="x" * (17 << 20))
        await client.rest()
        assert client.code == 1009


@pytest.mark.parametrize("fields", [{}, {"text": ""}, {"text": None}])
async def test_c11_a_query_without_text(fields: dict[str, Any]) -> None:
    async with server() as (url, engine), connected(url, PLAIN) as client:
        await client.frame(1)
        await client.send("video.query", **fields)
        events = await client.until("response.done")
        assert types(events) == ["response.start", "response.text.done", "response.done"]
        assert not any(isinstance(part, TextPart) for part in engine.runs[-1].job.messages[-1].parts)


async def test_c12_a_query_during_an_answer() -> None:
    async with server() as (url, engine), connected(url, {"enable_frame_filter": False}) as client:
        await client.frame(1)
        await client.query("one slow two")
        await client.until("response.output_audio.delta")
        await client.query("last words")
        events = await client.until("response.start")
        ends = [one for one in types(events) if one.endswith("done")]
        assert ends == ["response.text.done", "response.output_audio.done", "response.done"]
        assert events[-2]["status"] == "cancelled"
        events = await client.until("response.done")
        assert events[-1]["status"] == "completed"
        assert [run.outcome for run in engine.runs] == ["aborted", "completed"]


async def test_c12_three_queries_at_once() -> None:
    async with server() as (url, _), connected(url, PLAIN) as client:
        await client.frame(1)
        for text in ("slow", "slow", "end"):
            await client.query(text)
        await client.send("video.done")
        events = await client.rest()
        assert [one["status"] for one in events if one["type"] == "response.done"][-1] == "completed"
        assert [one["text"] for one in events if one["type"] == "response.text.done"][-1] == "end "
        starts = [one["request_id"] for one in events if one["type"] == "response.start"]
        assert len(starts) == len(set(starts)) == types(events).count("response.text.done")


async def test_c13_done_during_an_answer() -> None:
    async with server() as (url, _), connected(url, PLAIN) as client:
        await client.frame(1)
        await client.query("one two three")
        await client.send("video.done")
        await client.send("ping")
        events = await client.rest()
        assert types(events)[-3:] == ["response.text.done", "response.done", "session.done"]
        assert "pong" not in types(events)
        assert client.code == 1000


async def test_c14_frames_while_answering() -> None:
    async with server() as (url, engine), connected(url, PLAIN) as client:
        await client.frame(1)
        await client.query("one two three four")
        await client.until("response.start")
        await client.frame(2, frame_id="during")
        await client.until("video.frame.ack")
        await client.until("response.done")
        await client.query()
        await client.until("response.done")
        assert [images(run.job) for run in engine.runs] == [1, 2]


async def test_c15_sound_stays_without_frames() -> None:
    async with server() as (url, engine), connected(url, PLAIN) as client:
        await client.send("audio.chunk", data=base64.b64encode(bytes(200)).decode())
        await client.query()
        assert await client.error() == "No frames buffered"
        await client.frame(1)
        await client.query(audio_data=base64.b64encode(bytes(20)).decode())
        await client.until("response.done")
        assert heard(engine.runs[-1].job) == 110


async def test_c16_speech() -> None:
    async with server() as (url, _), connected(url, {"enable_frame_filter": False}) as client:
        await client.frame(1)
        await client.query("one two three")
        events = await client.until("response.done")
        pcm = b""
        for event in events:
            if event["type"] == "response.output_audio.delta":
                assert event["format"] == "wav"
                with wave.open(io.BytesIO(base64.b64decode(event["data"]))) as file:
                    assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (24_000, 1, 2)
                    pcm += file.readframes(1 << 30)
        assert pcm == b"\1\0" * 1920 * 3
        kinds = types(events)
        assert kinds.count("response.output_audio.done") == kinds.count("response.text.done") == 1
        assert kinds[-2:] == ["response.output_audio.done", "response.done"]


async def test_c17_a_failure_in_the_middle() -> None:
    async with server() as (url, _), connected(url, PLAIN) as client:
        await client.frame(1)
        await client.query("one break")
        events = await client.until("response.done")
        kinds = [one for one in types(events) if one != "response.text.delta"]
        assert kinds == ["response.start", "error", "response.text.done", "response.done"]
        assert next(one for one in events if one["type"] == "error")["message"] == "Query processing failed"
        assert (events[-2]["text"], events[-1]["status"]) == ("one break ", "failed")
        await client.query("fine")
        assert (await client.until("response.done"))[-1]["status"] == "completed"


async def test_c18_sampling_parameters() -> None:
    async with server() as (url, engine):
        async with connected(url, {**PLAIN, "sampling_params_list": [{"bogus": 1}]}) as client:
            await client.frame(1)
            await client.query()
            assert (await client.error()).startswith("Failed to build request: ")
            await client.query()
            assert (await client.error()).startswith("Failed to build request: ")
        async with connected(url, {**PLAIN, "sampling_params_list": [{"temperature": 0.2}]}) as client:
            await client.frame(1)
            await client.query()
            await client.until("response.done")
            sampling = engine.runs[-1].job.settings.sampling
            assert list(sampling) == ["thinker"]
            assert (sampling["thinker"].temperature, sampling["thinker"].max_tokens) == (0.2, 16)


async def test_c19_off(monkeypatch: pytest.MonkeyPatch) -> None:
    async with server() as (url, _), connected(url, {"enable_frame_filter": False}) as client:
        await client.frame(1, frame_id="a")
        await client.until("video.frame.ack")
        kinds = []
        for value in (" OFF ", "on", "nonsense"):
            monkeypatch.setenv("VLLM_VIDEO_ASYNC_CHUNK", value)
            await client.query("one two")
            kinds.append(types(await client.until("response.done")))
        assert kinds[0] == [
            "response.start", "video.frames.consumed", "response.text.done", "response.output_audio.delta",
            "response.output_audio.done", "response.done",
        ]  # fmt: skip
        assert kinds[1].count("response.text.delta") == 2
        assert sorted(kinds[2]) == sorted(kinds[1])


@pytest.mark.parametrize("after_done", [False, True])
async def test_c20_a_client_that_leaves(after_done: bool) -> None:
    async with server() as (url, engine):
        async with connected(url, PLAIN) as client:
            await client.frame(1)
            await client.query("slow")
            await client.until("response.text.delta")
            if after_done:
                await client.send("video.done")
                await asyncio.sleep(0.05)
            client.ws.transport.abort()
        for _ in range(400):
            if engine.runs[-1].outcome != "running":
                break
            await asyncio.sleep(0.01)
        assert engine.runs[-1].outcome == "aborted"


async def test_c21_idle() -> None:
    async with server(video_idle_timeout=0.6) as (url, _), connected(url, PLAIN) as client:
        for _ in range(4):
            await asyncio.sleep(0.25)
            await client.send("ping")
            assert await client.next() == {"type": "pong"}
        assert (await client.rest())[0]["message"] == "Idle timeout"
        assert client.code == 4408


async def test_c21_answering_is_not_idle() -> None:
    def script(job: Job) -> Iterator[Beat]:
        yield 1.5
        yield Chunk("late", finish="stop")

    async with server(script, video_idle_timeout=0.4) as (url, _), connected(url, PLAIN) as client:
        await client.frame(1)
        await client.query()
        assert (await client.until("response.done"))[-1]["status"] == "completed"


async def test_the_example_clients_pattern() -> None:
    async with server() as (url, engine), connected(url) as client:
        await client.send(
            "session.config", model="x", modalities=["text"], max_frames=64, num_frames=16,
            enable_frame_filter=True, frame_filter_threshold=0.95, use_audio_in_video=True,
        )  # fmt: skip
        for n in range(20):
            await client.frame(0 if n % 2 else 255)
        for _ in range(3):
            await client.send("audio.chunk", data=base64.b64encode(bytes(32_000)).decode())
        await client.query("one two")
        await client.send("video.done")
        events = await client.rest()
        assert "error" not in types(events)
        assert types(events)[-1] == "session.done"
        assert images(engine.runs[-1].job) == 16
        assert heard(engine.runs[-1].job) == 48_000


async def test_text_is_lossless() -> None:
    pieces = ["1", "0", "0", "0", " a", " and", " and", "\n", "\n"]

    def script(job: Job) -> Iterator[Beat]:
        yield from (Chunk(piece, tokens=1) for piece in pieces)
        yield Chunk(finish="stop")

    async with server(script) as (url, _), connected(url, PLAIN) as client:
        await client.frame(1)
        await client.query()
        events = await client.until("response.done")
        assert [one["delta"] for one in events if one["type"] == "response.text.delta"] == pieces
        assert events[-2]["text"] == "".join(pieces)


async def test_too_many_sessions() -> None:
    async with server(max_sessions=1) as (url, _), connected(url, PLAIN) as first:
        await first.sync()
        async with connected(url) as second:
            (event,) = await second.rest()
            assert (event["code"], event["fatal"], second.code) == ("overloaded", True, 1013)
        assert await first.sync() == []


async def test_too_many_generations() -> None:
    async with server(max_in_flight=1) as (url, _), connected(url, PLAIN) as first, connected(url, PLAIN) as second:
        for client in (first, second):
            await client.frame(1)
        await first.query("slow")
        await first.until("response.text.delta")
        await second.query()
        error, done = await second.until("response.done")
        assert (error["message"], error["code"], done["status"]) == ("Query processing failed", "overloaded", "failed")
        await second.sync()


async def test_a_browser_gets_a_subprotocol_back() -> None:
    async with server() as (url, _):
        offers = ["openai-insecure-api-key.x", "video"]
        async with connected(url, PLAIN, subprotocols=offers) as client:
            assert client.ws.subprotocol == "video"


async def test_frames_are_counted() -> None:
    import httpx2

    async with server() as (url, _), connected(url, TEXT) as client:
        for level in (0, 1, 255):
            await client.frame(level)
        await client.sync()
        async with httpx2.AsyncClient() as http:
            text = (await http.get(f"{url}/metrics")).text
        assert 'omni_frames_total{outcome="kept"} 2.0' in text
        assert 'omni_frames_total{outcome="filtered"} 1.0' in text
        assert 'omni_sessions_active{protocol="video"} 1.0' in text
