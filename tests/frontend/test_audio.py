"""/v1/audio over ASGI and with the SDK, on a scripted engine."""

from __future__ import annotations

import base64
import io
import json
import math
import wave
from typing import Any

import av
import numpy as np
import openai
import pytest
from support.front import client, front, serving, until

from frontend.engine.fake import FakeEngine, frame
from omni.contract.chunk import Chunk, Usage
from omni.contract.errors import StageFailed
from omni.contract.job import MediaPart, TextPart
from omni.contract.names import SAMPLE_RATE

pytestmark = [pytest.mark.process, pytest.mark.anyio]

TRANSCRIPTIONS = "/v1/audio/transcriptions"
SPEECH = "/v1/audio/speech"
USAGE = Usage(prompt_tokens=30, completion_tokens=2, audio_tokens=13)
LOGPROBS = [
    {"token": word, "logprob": -0.5, "bytes": list(word.encode()), "top_logprobs": []} for word in ("well", " said")
]
SAID = [
    Chunk(event={"type": "prompt", "prompt_tokens": 30}),
    Chunk(text="well", tokens=1, logprobs=(LOGPROBS[0],)),
    Chunk(text=" said", tokens=1, logprobs=(LOGPROBS[1],), finish="stop", usage=USAGE),
]


def tone(seconds: float = 1.0, rate: int = 16_000) -> bytes:
    out = io.BytesIO()
    samples = (8000 * np.sin(np.arange(int(seconds * rate)) * 2 * math.pi * 440 / rate)).astype("<i2")
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples.tobytes())
    return out.getvalue()


WAV = tone()


def events(stream: str) -> list[dict[str, Any]]:
    assert stream.endswith("data: [DONE]\n\n")
    return [json.loads(one.removeprefix("data: ")) for one in stream.split("\n\n")[:-2]]


def decode(data: bytes) -> np.ndarray[Any, Any]:
    with av.open(io.BytesIO(data)) as file:
        resampler = av.AudioResampler("s16", "mono", SAMPLE_RATE)
        frames = [out for one in file.decode(audio=0) for out in resampler.resample(one)]
        frames += resampler.resample(None)
    return np.concatenate([one.to_ndarray()[0] for one in frames])


# -- transcriptions


async def transcribe(
    fields: dict[str, Any], engine: FakeEngine | None = None, file: bytes = WAV, **settings: Any
) -> Any:
    async with client(front(engine or FakeEngine(SAID), **settings)) as http:
        return await http.post(TRANSCRIPTIONS, data=fields, files={"file": ("a.wav", file)})


async def test_the_job_is_the_sound_and_a_request() -> None:
    engine = FakeEngine(SAID)
    fields = {
        "model": "qwen3-omni",
        "language": "de",
        "prompt": "Said before.",
        "temperature": "0.4",
        "chunking": "auto",
    }
    assert (await transcribe(fields, engine)).status_code == 200
    job = engine.runs[0].job
    [message] = job.messages
    assert message.role == "user"
    assert message.parts[0] == MediaPart.of("audio", WAV, "file")
    assert isinstance(message.parts[1], TextPart)
    assert "The language is German." in message.parts[1].text
    assert "Said before." in message.parts[1].text
    assert job.settings.sampling["thinker"].temperature == 0.4
    assert job.settings.sampling["thinker"].logprobs is None
    assert not job.settings.speech


async def test_a_long_sound_gets_room_for_a_long_transcript() -> None:
    engine = FakeEngine(SAID)
    await transcribe({}, engine, tone(1000, 8000))
    assert engine.runs[0].job.settings.sampling["thinker"].max_tokens == 8000


async def test_json() -> None:
    response = await transcribe({})
    assert response.headers["content-type"] == "application/json"
    assert response.json() == {
        "text": "well said",
        "usage": {
            "type": "tokens",
            "input_tokens": 30,
            "output_tokens": 2,
            "total_tokens": 32,
            "input_token_details": {"audio_tokens": 13, "text_tokens": 17},
        },
    }


async def test_logprobs() -> None:
    engine = FakeEngine(SAID)
    body = (await transcribe({"include[]": "logprobs"}, engine)).json()
    assert engine.runs[0].job.settings.sampling["thinker"].logprobs == 0
    assert [one["token"] for one in body["logprobs"]] == ["well", " said"]
    assert body["logprobs"][0] == {"token": "well", "logprob": -0.5, "bytes": list(b"well")}


async def test_text() -> None:
    response = await transcribe({"response_format": "text"})
    assert response.headers["content-type"] == "text/plain; charset=utf-8"
    assert response.text == "well said\n"


async def test_verbose_json() -> None:
    fields = {"response_format": "verbose_json", "language": "en", "timestamp_granularities[]": "segment"}
    body = (await transcribe(fields)).json()
    assert (body["text"], body["language"], body["task"]) == ("well said", "english", "transcribe")
    assert body["duration"] == pytest.approx(1.0, abs=0.01)
    [segment] = body["segments"]
    assert (segment["text"], segment["avg_logprob"], segment["start"]) == ("well said", -0.5, 0.0)


async def test_stream() -> None:
    response = await transcribe({"stream": "true"})
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    *deltas, done = events(response.text)
    assert [one["delta"] for one in deltas] == ["well", " said"]
    assert (done["type"], done["text"]) == ("transcript.text.done", "well said")
    assert done["usage"]["total_tokens"] == 32


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"model": "whisper-1"}, "model", "model_not_found"),
        ({"response_format": "srt"}, "response_format", "unsupported"),
        ({"response_format": "poem"}, "response_format", "invalid_request"),
        ({"timestamp_granularities[]": ["segment", "word"]}, "timestamp_granularities", "unsupported"),
        ({"language": "the best"}, "language", "invalid_request"),
        ({"prompt": "x" * 5000}, "prompt", "invalid_request"),
        ({"temperature": "hot"}, "temperature", "invalid_request"),
        ({"temperature": "3"}, "temperature", "invalid_request"),
        ({"temperature": "nan"}, "temperature", "invalid_request"),
        ({"stream": "perhaps"}, "stream", "invalid_request"),
    ],
)
async def test_what_a_form_may_not_say(fields: dict[str, Any], param: str, code: str) -> None:
    engine = FakeEngine(SAID)
    response = await transcribe(fields, engine)
    assert response.status_code == (404 if code == "model_not_found" else 400)
    error = response.json()["error"]
    assert (error["param"], error["code"]) == (param, code)
    assert not engine.runs


@pytest.mark.parametrize(
    ("file", "code"),
    [
        (b"", "invalid_media"),
        (b"nothing that is known", "invalid_media"),
        (b"\x89PNG\r\n\x1a\n" + bytes(100), "invalid_media"),
        (WAV[:30], "invalid_media"),
        (WAV[:44], "invalid_media"),
        (b"OggS" + bytes(500), "invalid_media"),
        (WAV + bytes(100_000), "too_large"),
    ],
)
async def test_files_that_are_no_good(file: bytes, code: str) -> None:
    response = await transcribe({}, file=file, max_media_item_bytes=60_000)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "file"
    assert response.json()["error"]["code"] == code


async def test_forms_that_are_none() -> None:
    app = front(FakeEngine(SAID))
    async with client(app) as http:
        bodies: list[dict[str, Any]] = [
            {"json": {"file": "x"}},
            {"data": {"file": "a text"}, "files": {"other": ("x", b"x")}},
            {"content": b"x", "headers": {"content-type": "multipart/form-data"}},
            {"content": b"--x\r\nnonsense", "headers": {"content-type": "multipart/form-data; boundary=x"}},
            {"data": {f"f{n}": "x" for n in range(100)}, "files": {"file": ("a.wav", WAV)}},
            {"data": {"prompt": "x" * 100_000}, "files": {"file": ("a.wav", WAV)}},
            {"files": [("file", ("a.wav", WAV)), ("file", ("b.wav", WAV))]},
        ]
        for body in bodies:
            response = await http.post(TRANSCRIPTIONS, **body)
            assert response.status_code == 400, body.keys()
            assert response.json()["error"]["type"] == "invalid_request_error"
    assert app.state.admission.in_flight == 0
    assert app.state.admission.media_bytes == 0


async def test_a_failure_has_its_status_before_the_first_word() -> None:
    for stream in ("true", "false"):
        response = await transcribe({"stream": stream}, FakeEngine([StageFailed("Broken.")]))
        assert response.status_code == 500
        assert response.json()["error"]["code"] == "stage_failed"


# -- speech


async def speak(body: dict[str, Any], engine: FakeEngine | None = None, **settings: Any) -> Any:
    async with client(front(engine or FakeEngine(), **settings)) as http:
        return await http.post(SPEECH, json={"input": "one two three", **body})


async def test_the_job_reads_the_text() -> None:
    engine = FakeEngine()
    body = {"model": "qwen3-omni", "voice": "chelsie", "instructions": "Whisper.", "speed": 1.0, "unknown": 1}
    assert (await speak(body, engine)).status_code == 200
    job = engine.runs[0].job
    assert [message.role for message in job.messages] == ["system", "user"]
    assert "Whisper." in job.messages[0].text
    assert job.messages[1].text == "one two three"
    assert job.settings.speech
    assert job.settings.stage == {"talker": {"voice": "Chelsie"}}


async def test_voices_may_be_objects_or_left_out() -> None:
    for voice in ({"id": "Ethan"}, "ETHAN", None):
        engine = FakeEngine()
        assert (await speak({"voice": voice}, engine)).status_code == 200
        assert engine.runs[0].job.settings.stage == ({} if voice is None else {"talker": {"voice": "Ethan"}})


@pytest.mark.parametrize(
    ("format", "media_type"),
    [("mp3", "audio/mpeg"), ("opus", "audio/ogg; codecs=opus"), ("aac", "audio/aac"), ("flac", "audio/flac"),
     ("wav", "audio/wav"), ("pcm", "audio/pcm; rate=24000"), (None, "audio/mpeg")],
)  # fmt: skip
async def test_each_format_is_one_file(format: str | None, media_type: str) -> None:
    response = await speak({"response_format": format} if format else {})
    assert response.status_code == 200
    assert response.headers["content-type"] == media_type
    spoken = np.frombuffer(frame() * 3, np.int16)
    if format == "pcm":
        assert np.array_equal(np.frombuffer(response.content, np.int16), spoken)
    elif format in ("wav", "flac"):
        assert np.array_equal(decode(response.content), spoken)
    else:
        assert len(decode(response.content)) >= len(spoken) - 1200


async def test_sound_comes_as_it_is_made() -> None:
    engine = FakeEngine([Chunk(text="a", tokens=1), Chunk(audio=frame()), 1000.0])
    app = front(engine)
    async with client(app) as _, serving(app) as server:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="x", max_retries=0) as api:
            streaming = api.audio.speech.with_streaming_response
            async with streaming.create(
                model="qwen3-omni", input="x", voice="Ethan", response_format="pcm"
            ) as response:
                async for piece in response.iter_bytes():
                    assert piece == frame()
                    break
        await until(lambda: engine.runs[0].outcome == "aborted")
        await until(lambda: app.state.admission.in_flight == 0)


async def test_events() -> None:
    response = await speak({"stream_format": "sse", "response_format": "pcm"})
    *deltas, done = events(response.text)
    assert b"".join(base64.b64decode(one["audio"]) for one in deltas) == frame() * 3
    assert done["type"] == "speech.audio.done"
    assert done["usage"]["output_tokens"] == 3


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({"model": "tts-1"}, "model", "model_not_found"),
        ({"input": " "}, "input", "invalid_request"),
        ({"input": 1}, "input", "invalid_request"),
        ({"input": "x" * 4097}, "input", "too_large"),
        ({"instructions": "x" * 4097}, "instructions", "too_large"),
        ({"voice": "nobody"}, "voice", "invalid_request"),
        ({"voice": 3}, "voice", "invalid_request"),
        ({"response_format": "midi"}, "response_format", "invalid_request"),
        ({"stream_format": "carrier pigeon"}, "stream_format", "invalid_request"),
        ({"speed": 2}, "speed", "unsupported"),
    ],
)
async def test_what_may_not_be_asked(body: dict[str, Any], param: str, code: str) -> None:
    response = await speak(body)
    assert response.status_code == (404 if code == "model_not_found" else 400)
    error = response.json()["error"]
    assert (error["param"], error["code"]) == (param, code)


async def test_the_longest_text_is_a_setting() -> None:
    assert (await speak({"input": "x" * 10}, max_speech_chars=10)).status_code == 200
    assert (await speak({"input": "x" * 11}, max_speech_chars=10)).status_code == 400


async def test_a_failure_after_the_first_sound_breaks_the_connection() -> None:
    app = front(FakeEngine([Chunk(audio=frame()), 0.05, StageFailed("Broken.")]))
    async with serving(app) as server:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="x", max_retries=0) as api:
            with pytest.raises(openai.APIConnectionError):
                await api.audio.speech.create(model="qwen3-omni", input="x", voice="Ethan", response_format="pcm")
        await until(lambda: app.state.admission.in_flight == 0)
    assert app.state.health.status == "unavailable"


async def test_a_failure_before_it_has_its_status() -> None:
    for body in ({}, {"stream_format": "sse"}):
        response = await speak(body, FakeEngine([Chunk(text="x", tokens=1), StageFailed("Broken.")]))
        assert response.status_code == 500
        assert response.json()["error"]["code"] == "stage_failed"


# -- the SDK


async def test_the_sdk_transcribes_and_speaks() -> None:
    async with serving(front(FakeEngine(SAID))) as server:
        url = f"{server.url}/v1"
        async with openai.AsyncOpenAI(base_url=url, api_key="x", max_retries=0) as api:
            whole = await api.audio.transcriptions.create(model="qwen3-omni", file=("a.wav", WAV))
            assert whole.text == "well said"
            plain = await api.audio.transcriptions.create(
                model="qwen3-omni", file=("a.wav", WAV), response_format="text"
            )
            assert str(plain) == "well said\n"
            verbose = await api.audio.transcriptions.create(
                model="qwen3-omni", file=("a.wav", WAV), response_format="verbose_json"
            )
            assert verbose.segments is not None
            stream = await api.audio.transcriptions.create(model="qwen3-omni", file=("a.wav", WAV), stream=True)
            assert [one.type async for one in stream] == ["transcript.text.delta"] * 2 + ["transcript.text.done"]
            with pytest.raises(openai.NotFoundError):
                await api.audio.transcriptions.create(model="whisper-1", file=("a.wav", WAV))
