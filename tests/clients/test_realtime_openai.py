"""The realtime client of the `openai` package against the whole server: what it sends and expects, unchanged."""

from __future__ import annotations

import asyncio
import base64
import io
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from openai import AsyncOpenAI
from openai.resources.realtime.realtime import AsyncRealtimeConnection
from openai.types.realtime import RealtimeServerEvent
from PIL import Image
from pydantic import TypeAdapter
from support.launched import Launched

from bench.voice import silence, speak
from frontend.media import g711
from omni.contract.names import SAMPLE_RATE
from omni.stages.dummy import tones

pytestmark = [pytest.mark.client, pytest.mark.anyio]
MODEL = "qwen3-omni"
EVENT: TypeAdapter[Any] = TypeAdapter(RealtimeServerEvent)
QUESTION = "Hello there, how many cars are in the picture?"
SLOW = {"thinker": {"token_interval_ms": 50}, "code2wav": {"max_chunk_frames": 1}}


@asynccontextmanager
async def connected(server: Launched, **session: Any) -> AsyncIterator[AsyncRealtimeConnection]:
    client = AsyncOpenAI(base_url=f"{server.url}/v1", websocket_base_url=server.url.replace("http", "ws") + "/v1",
                         api_key="none")  # fmt: skip
    async with client, client.realtime.connect(model=MODEL) as connection:
        assert (await connection.recv()).type == "session.created"
        assert (await connection.recv()).type == "conversation.created"
        if session:
            await connection.session.update(session={"type": "realtime", **session})
            assert (await connection.recv()).type == "session.updated"
        yield connection


async def until(connection: AsyncRealtimeConnection, last: str, seconds: float = 20) -> list[Any]:
    """Events up to the first of the type `last`, each held against the package's own types."""
    got: list[Any] = []
    try:
        async with asyncio.timeout(seconds):
            while not got or got[-1].type != last:
                event = EVENT.validate_json(await connection.recv_bytes())
                assert event.type != "error", event
                got.append(event)
    except TimeoutError:
        pytest.fail(f"no {last} within {seconds:g} s after {[event.type for event in got]}")
    return got


def speech(events: list[Any]) -> np.ndarray[Any, np.dtype[np.int16]]:
    deltas = [base64.b64decode(event.delta) for event in events if event.type == "response.output_audio.delta"]
    return np.frombuffer(b"".join(deltas), np.int16)


async def say(connection: AsyncRealtimeConnection, pcm: bytes, rate: int = SAMPLE_RATE, size: int = 2) -> None:
    """Append sound in pieces of 100 ms, as fast as it goes."""
    step = rate // 10 * size
    for at in range(0, len(pcm), step):
        await connection.input_audio_buffer.append(audio=base64.b64encode(pcm[at : at + step]).decode())


async def write(connection: AsyncRealtimeConnection, text: str) -> None:
    item: Any = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
    await connection.conversation.item.create(item=item)
    await until(connection, "conversation.item.done")


def picture(colour: str) -> str:
    out = io.BytesIO()
    Image.new("RGB", (64, 48), colour).save(out, "PNG")
    return "data:image/png;base64," + base64.b64encode(out.getvalue()).decode()


async def test_a_text_turn(server: Launched) -> None:
    async with connected(server, output_modalities=["text"]) as connection:
        await write(connection, "Say hello!")
        await connection.response.create()
        events = await until(connection, "response.done")
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == "Received text: Say hello!"
    assert [event.type for event in events if not event.type.endswith("delta")] == [
        "response.created",
        "response.output_item.added",
        "conversation.item.added",
        "response.content_part.added",
        "response.output_text.done",
        "response.content_part.done",
        "conversation.item.done",
        "response.output_item.done",
        "response.done",
    ]
    usage = events[-1].response.usage
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens


async def test_a_committed_audio_turn_is_answered_in_speech(server: Launched) -> None:
    async with connected(server, audio={"input": {"turn_detection": None}}) as connection:
        await say(connection, silence(1.5))
        await connection.input_audio_buffer.commit()
        await until(connection, "conversation.item.done")
        await connection.response.create()
        events = await until(connection, "response.done")
    transcript = events[-1].response.output[0].content[0].transcript
    assert transcript.startswith("Received audio 1.50s")
    assert tones.decode(speech(events)) == transcript


async def test_turns_are_found_in_speech(server: Launched) -> None:
    spoken = speak(QUESTION)
    seconds = len(spoken.pcm) / 2 / SAMPLE_RATE
    async with connected(server, audio={"input": {"transcription": {"model": "qwen3-omni"}}}) as connection:
        await say(connection, silence(1.0) + spoken.pcm + silence(1.2))
        events = await until(connection, "conversation.item.input_audio_transcription.completed")
        if "response.done" not in [event.type for event in events]:
            events += await until(connection, "response.done")
    of = {event.type: event for event in events}
    assert of["input_audio_buffer.speech_started"].audio_start_ms == pytest.approx(1000 - 300, abs=150)
    assert of["input_audio_buffer.speech_stopped"].audio_end_ms == pytest.approx((1 + seconds) * 1000 + 500, abs=150)
    order = [event.type for event in events]
    assert order.index("response.created") < order.index("conversation.item.input_audio_transcription.delta")
    assert of["response.done"].response.output[0].content[0].transcript.startswith("Received audio ")


async def test_no_sample_is_lost_between_turns(server: Launched) -> None:
    """Every item holds exactly the samples between its start and its end, and they lie close behind each other."""
    one, two = speak(QUESTION).pcm, speak("And which of them is the red one?").pcm
    stream = silence(0.5) + one + silence(0.9) + two + silence(0.7) + one + silence(1.2)
    detection: Any = {"type": "server_vad", "create_response": False, "silence_duration_ms": 400}
    async with connected(server, audio={"input": {"turn_detection": detection}}) as connection:
        for at in range(0, len(stream), 4_800):  # 100 ms every 10 ms
            await connection.input_audio_buffer.append(audio=base64.b64encode(stream[at : at + 4_800]).decode())
            await asyncio.sleep(0.01)
        turns = []
        for _ in range(3):
            of = {event.type: event for event in await until(connection, "conversation.item.done")}
            begin = of["input_audio_buffer.speech_started"].audio_start_ms
            end = of["input_audio_buffer.speech_stopped"].audio_end_ms
            turns.append((of["input_audio_buffer.committed"].item_id, begin, end))
        place, edges = 0.5, []
        for pcm, pause in ((one, 0.9), (two, 0.7), (one, 1.2)):
            edges.append((place, place := place + len(pcm) / 2 / SAMPLE_RATE))
            place += pause
        for (item, begin, end), (spoken, quiet) in zip(turns, edges, strict=True):
            await connection.conversation.item.retrieve(item_id=item)
            (event,) = await until(connection, "conversation.item.retrieved")
            data = base64.b64decode(event.item.content[0].audio)
            assert data == stream[begin * 48 : end * 48]
            assert begin == pytest.approx(spoken * 1000 - 300, abs=150)
            assert end == pytest.approx(quiet * 1000 + 400, abs=150)
        assert all(second[1] >= first[2] for first, second in pairwise(turns))


@pytest.mark.parametrize("codec", ["audio/pcmu", "audio/pcma"])
async def test_telephone_sound(server: Launched, codec: str) -> None:
    ulaw = codec == "audio/pcmu"
    encode, decode = (g711.encode_ulaw, g711.decode_ulaw) if ulaw else (g711.encode_alaw, g711.decode_alaw)
    heard = np.frombuffer(speak(QUESTION, rate=8_000).pcm + silence(1, 8_000), np.int16)
    audio: Any = {"input": {"format": {"type": codec}}, "output": {"format": {"type": codec}}}
    async with connected(server, audio=audio) as connection:
        await say(connection, encode(heard), 8_000, 1)
        events = await until(connection, "response.done")
    data = b"".join(base64.b64decode(event.delta) for event in events if event.type == "response.output_audio.delta")
    loud = np.frombuffer(decode(data), np.int16).astype(float)
    frames = events[-1].response.usage.output_token_details.audio_tokens
    assert len(loud) == pytest.approx(frames * 0.08 * 8_000, abs=80)
    assert np.sqrt(np.square(loud).mean()) > 1_000


async def test_barge_in_and_truncation(server: Launched) -> None:
    async with connected(server, stage_params=SLOW) as connection:
        await write(connection, "one two three four five six seven eight nine ten " * 6)
        await connection.response.create()
        events: list[Any] = []
        while sum(event.type == "response.output_audio.delta" for event in events) < 6:
            events += await until(connection, "response.output_audio.delta")
        await say(connection, speak(QUESTION).pcm[:48_000])
        began = time.monotonic()
        events += await until(connection, "input_audio_buffer.speech_started")
        events += await until(connection, "response.done")
        assert time.monotonic() - began < 5
        done = events[-1].response
        assert (done.status, done.status_details.reason) == ("cancelled", "turn_detected")
        whole = speech(events)
        item, heard = done.output[0].id, len(whole) // 2
        ms = heard * 1000 // SAMPLE_RATE
        await connection.conversation.item.truncate(item_id=item, content_index=0, audio_end_ms=ms)
        await until(connection, "conversation.item.truncated")
        await connection.conversation.item.retrieve(item_id=item)
        (event,) = await until(connection, "conversation.item.retrieved")
    part = event.item.content[0]
    kept = np.frombuffer(base64.b64decode(part.audio), np.int16)
    assert np.array_equal(kept, whole[: len(kept)])
    assert len(kept) == ms * SAMPLE_RATE // 1000
    assert part.transcript == tones.align(whole, len(kept))
    assert done.output[0].content[0].transcript.startswith(part.transcript)


async def test_pictures(server: Launched) -> None:
    async with connected(server, output_modalities=["text"]) as connection:
        content: Any = [
            {"type": "input_image", "image_url": picture("#ff0000")},
            {"type": "input_text", "text": "What colour?"},
        ]
        await connection.conversation.item.create(item={"type": "message", "role": "user", "content": content})
        await until(connection, "conversation.item.done")
        await connection.response.create()
        events = await until(connection, "response.done")
    assert events[-1].response.output[0].content[0].text == "Received image 64x48 #ff0000\ntext: What colour?"


async def test_a_response_outside_of_the_conversation(server: Launched) -> None:
    async with connected(server, output_modalities=["text"]) as connection:
        await write(connection, "Remember this.")
        inputs: Any = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Aside"}]}]
        aside: Any = {"conversation": "none", "input": inputs, "metadata": {"topic": "aside"}}
        await connection.response.create(response=aside)
        events = await until(connection, "response.done")
        assert events[-1].response.metadata == {"topic": "aside"}
        assert events[-1].response.output[0].content[0].text == "Received text: Aside"
        await connection.response.create()
        events = await until(connection, "response.done")
    assert events[-1].response.output[0].content[0].text == "Received text: Remember this."


async def test_the_conversation_stays_prefilled(server: Launched) -> None:
    last = 0
    async with connected(server, output_modalities=["text"]) as connection:
        for turn in range(3):
            await write(connection, f"Question {turn}")
            await connection.response.create()
            done = (await until(connection, "response.done"))[-1].response
            assert done.usage.input_token_details.cached_tokens >= last - 2
            last = done.usage.input_tokens
