"""The streaming video protocol on the real ensembles."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from support.front import serving
from support.stages import seconds_until, until_held
from support.video_client import Client, connected, picture, types

from frontend.app import create_app
from frontend.engine.triton import TritonEngine
from frontend.settings import Settings
from omni.contract.chunk import Chunk
from omni.contract.job import Job, Part, TextPart
from omni.contract.names import CODE2WAV, THINKER
from omni.launch.server import EmbeddedTriton
from omni.stages.dummy.tones import decode

pytestmark = [pytest.mark.triton, pytest.mark.anyio]

LIMIT_S = 0.25
PLAIN = {"modalities": ["text"], "enable_frame_filter": False}
COLORS = [(200, 0, 0), (0, 200, 0), (0, 0, 200), (120, 120, 120)]


@asynccontextmanager
async def server(triton: EmbeddedTriton, engine: Any = None, **settings: Any) -> AsyncIterator[str]:
    app = create_app(Settings(triton_url=triton.grpc_url, warmup=False, probe_interval=0, **settings), engine)
    async with serving(app) as running:
        async with asyncio.timeout(20):
            await app.state.engine._leased.wait()
        yield running.url


async def ask(client: Client, text: str = "What?", **fields: Any) -> list[dict[str, Any]]:
    await client.query(text, **fields)
    return await client.until("response.done")


def text_of(events: list[dict[str, Any]]) -> str:
    (done,) = [event for event in events if event["type"] == "response.text.done"]
    deltas = "".join(event["delta"] for event in events if event["type"] == "response.text.delta")
    assert done["text"] == deltas
    return deltas


def speech_of(events: list[dict[str, Any]]) -> np.ndarray[Any, np.dtype[np.int16]]:
    deltas = [event for event in events if event["type"] == "response.output_audio.delta"]
    return np.frombuffer(b"".join(base64.b64decode(event["data"])[44:] for event in deltas), "<i2")


def shown(color: tuple[int, int, int]) -> str:
    return "image 96x64 #{:02x}{:02x}{:02x}".format(*color)


async def test_frames_sound_and_text_arrive_in_order(triton: EmbeddedTriton) -> None:
    async with server(triton) as url, connected(url, PLAIN) as client:
        for color in COLORS:
            await client.send("video.frame", data=picture(color, "PNG"))
        sound = base64.b64encode(np.full(24_000, 8192, "<i2").tobytes()).decode()
        events = await ask(client, "What do you see?", audio_data=sound)
        lines = text_of(events).splitlines()
        assert lines[0] == f"Received {shown(COLORS[0])}"
        assert lines[1:4] == [shown(color) for color in COLORS[1:]]
        assert lines[4].startswith("audio 1.50s")
        assert lines[5:] == ["text: What do you see?"]
        assert (events[-1]["status"], events[-1]["usage"]["audio_tokens"]) == ("completed", 20)


async def test_speech_is_whole(triton: EmbeddedTriton) -> None:
    async with server(triton) as url, connected(url, {}) as client:
        await client.frame((200, 0, 0))
        events = await ask(client, "Tell me everything, word by word, without a loss: 1000 1000 very very.")
        assert decode(speech_of(events)) == text_of(events)
        assert types(events)[-2:] == ["response.output_audio.done", "response.done"]


async def test_barge_in(triton: EmbeddedTriton) -> None:
    async with server(triton) as url, connected(url, {}) as client:
        await client.frame((200, 0, 0))
        await client.query("word " * 3000)
        await client.until("response.output_audio.delta")
        await client.query("short")
        events = await client.until("response.start")
        assert types(events)[-4:] == [
            "response.text.done", "response.output_audio.done", "response.done", "response.start",
        ]  # fmt: skip
        events = await client.until("response.done")
        assert text_of(events).endswith("text: short")
        assert decode(speech_of(events)) == text_of(events)


@pytest.mark.parametrize("prefill", [False, True])
async def test_a_frame_that_only_the_stages_find_broken_is_left_out(triton: EmbeddedTriton, prefill: bool) -> None:
    whole = base64.b64decode(picture((1, 2, 3), "PNG", (200, 200)))
    damaged = bytearray(whole)
    damaged[60:80] = bytes(20)
    async with server(triton, video_prefill=prefill) as url, connected(url, PLAIN) as client:
        await client.send("video.frame", data=picture(COLORS[0], "PNG"), frame_id="good")
        await client.send("video.frame", data=base64.b64encode(damaged).decode(), frame_id="bad")
        events = await ask(client)
        kinds = types(events)
        if not prefill:
            assert "error" in kinds
        (consumed,) = [event for event in events if event["type"] == "video.frames.consumed"]
        assert consumed["frame_ids"] == ["good"]
        assert text_of(events).splitlines() == [f"Received {shown(COLORS[0])}", "text: What?"]


async def test_prefilled_frames_are_not_paid_for_again(triton: EmbeddedTriton) -> None:
    for modalities in (["text"], ["text", "audio"]):
        config = {"modalities": modalities, "enable_frame_filter": False, "max_frames": 64}
        async with server(triton) as url, connected(url, config) as client:
            for n in range(16):
                await client.frame((n * 15, 7, len(modalities)))
            await client.sync()
            await asyncio.sleep(0.5)
            first = await ask(client)
            usage = first[-1]["usage"]
            assert usage["cached_tokens"] >= 16 * 64
            assert usage["prompt_tokens"] - usage["cached_tokens"] <= 4
            assert text_of(first).count("image") == 16
            if "audio" in modalities:
                assert decode(speech_of(first)) == text_of(first)
            await asyncio.sleep(0.5)
            second = (await ask(client))[-1]["usage"]
            assert second["prompt_tokens"] - second["cached_tokens"] <= 4


async def test_answers_are_the_same_as_without_prefill(triton: EmbeddedTriton) -> None:
    answers = []
    for prefill in (False, True):
        async with server(triton, video_prefill=prefill) as url, connected(url, {**PLAIN, "num_frames": 64}) as client:
            for color in COLORS:
                await client.frame(color)
            await client.sync()
            await asyncio.sleep(0.3 if prefill else 0)
            answers.append([text_of(await ask(client)), text_of(await ask(client, "And now?"))])
    assert answers[0] == answers[1]


class Strange(TritonEngine):
    """Names parts without bytes by digests that the stages never heard of, as if they had been restarted."""

    missed = 0

    def generate(self, job: Job) -> AsyncGenerator[Chunk, None]:
        def strange(part: Part) -> Part:
            if isinstance(part, TextPart) or part.data is not None:
                return part
            self.missed += 1
            return replace(part, digest="0" * 64)

        messages = tuple(replace(m, parts=tuple(strange(part) for part in m.parts)) for m in job.messages)
        return super().generate(replace(job, messages=messages))


async def test_bytes_that_the_stages_lost_are_sent_again(triton: EmbeddedTriton) -> None:
    engine = Strange(triton.grpc_url)
    async with server(triton, engine, video_prefill=False) as url, connected(url, PLAIN) as client:
        for color in COLORS:
            await client.send("video.frame", data=picture(color, "PNG"))
        first = text_of(await ask(client))
        events = await ask(client)
        assert engine.missed == len(COLORS)
        assert "error" not in types(events)
        assert text_of(events).splitlines()[1:] == first.splitlines()[1:]


class Slow(TritonEngine):
    """Has the stages take their time: `speech` those that speak, otherwise the thinker."""

    speech = False

    def generate(self, job: Job) -> AsyncGenerator[Chunk, None]:
        slow = (
            {CODE2WAV: {"chunk_delay_ms": 2 * LIMIT_S * 1000}}
            if self.speech
            else {THINKER: {"token_interval_ms": 20.0}}
        )
        stage = {**job.settings.stage, **slow}
        return super().generate(replace(job, settings=replace(job.settings, stage=stage)))


@pytest.mark.parametrize(
    ("moment", "speech"), [*product(("answering", "done", "barge-in"), (False, True)), ("speaking", True)]
)
async def test_stop_means_stop(triton: EmbeddedTriton, speech: bool, moment: str) -> None:
    """`speaking` is after the end of the text, when the session is done but for its sound."""
    config = {"enable_frame_filter": False, "modalities": ["text", "audio"] if speech else ["text"]}
    took = []
    engine = Slow(triton.grpc_url)
    engine.speech = moment == "speaking"
    async with server(triton, engine, video_prefill=False) as url:
        for _ in range(3):
            async with connected(url, config) as client:
                await client.frame((1, 2, 3))
                await client.query("word " * 2000)
                await client.until("response.text.done" if moment == "speaking" else "response.text.delta")
                if moment in ("done", "speaking"):
                    await client.send("video.done")
                    await asyncio.sleep(0.02)
                await asyncio.to_thread(until_held, triton.metrics_url)
                began = time.monotonic()
                if moment == "barge-in":
                    await client.send("video.query", text=5)  # stops the answer, and can't be asked
                else:
                    client.ws.transport.abort()
                await asyncio.to_thread(seconds_until, triton.metrics_url)
                took.append(time.monotonic() - began)
    assert min(took) < LIMIT_S
