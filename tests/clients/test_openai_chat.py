"""The `openai` package against the whole server."""

from __future__ import annotations

import base64
import io
import wave
from collections.abc import Iterator
from typing import Any

import numpy as np
import openai
import pytest
from openai import OpenAI
from PIL import Image
from support.launched import Launched

from omni.stages.dummy import tones

pytestmark = pytest.mark.client
MODEL = "qwen3-omni"
WORDS = "one two two two 1000000 three\n\n three \U0001f600 end"


@pytest.fixture(scope="module")
def client(server: Launched) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def data_url(width: int, height: int, colour: str) -> str:
    out = io.BytesIO()
    Image.new("RGB", (width, height), colour).save(out, "JPEG", quality=95)
    return "data:image/jpeg;base64," + base64.b64encode(out.getvalue()).decode()


def tone(seconds: float, rate: int = 22_050) -> str:
    out = io.BytesIO()
    samples = (np.sin(np.arange(int(seconds * rate)) * 2 * np.pi * 440 / rate) * 8000).astype("<i2")
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples.tobytes())
    return base64.b64encode(out.getvalue()).decode()


def say(text: Any) -> list[Any]:
    return [{"role": "user", "content": text}]


def test_models_are_listed(client: OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).id == MODEL


def test_text(client: OpenAI) -> None:
    answer = client.chat.completions.create(model=MODEL, messages=say(WORDS))
    assert WORDS in (answer.choices[0].message.content or "")
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_streamed_text_is_whole_and_counts_its_tokens(client: OpenAI) -> None:
    stream = client.chat.completions.create(
        model=MODEL, messages=say(WORDS), stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert WORDS in text
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason] == ["stop"]


def test_an_image_and_a_sound_are_described_in_order(client: OpenAI) -> None:
    content = [
        {"type": "text", "text": "first"},
        {"type": "image_url", "image_url": {"url": data_url(640, 480, "#ff8040")}},
        {"type": "input_audio", "input_audio": {"data": tone(1.5), "format": "wav"}},
        {"type": "text", "text": "last"},
    ]
    text = client.chat.completions.create(model=MODEL, messages=say(content)).choices[0].message.content or ""
    places = [text.index(word) for word in ("first", "image 640x480", "audio 1.50s", "last")]
    assert places == sorted(places)


def test_speech_says_exactly_the_text(client: OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL, messages=say(WORDS), modalities=["text", "audio"], audio={"voice": "Ethan", "format": "wav"}
    )
    message = answer.choices[0].message
    assert message.audio is not None
    with wave.open(io.BytesIO(base64.b64decode(message.audio.data))) as file:
        pcm = np.frombuffer(file.readframes(file.getnframes()), np.int16)
    assert tones.decode(pcm) == message.audio.transcript
    assert WORDS in message.audio.transcript


@pytest.mark.parametrize("format", ["wav", "pcm16"])
def test_streamed_speech_says_exactly_the_text(client: OpenAI, format: Any) -> None:
    stream = client.chat.completions.create(
        model=MODEL,
        messages=say(WORDS * 3),
        modalities=["text", "audio"],
        audio={"voice": "Chelsie", "format": format},
        stream=True,
    )
    text, pcm = "", b""
    for chunk in stream:
        delta: Any = chunk.choices[0].delta
        text += delta.content or ""
        if delta.audio and delta.audio.data:
            data = base64.b64decode(delta.audio.data)
            if format == "wav":
                with wave.open(io.BytesIO(data)) as file:
                    data = file.readframes(file.getnframes())
            pcm += data
    assert WORDS * 3 in text
    assert tones.decode(np.frombuffer(pcm, np.int16)) == text


BAD: list[tuple[dict[str, Any], type[openai.APIStatusError], str | None]] = [
    ({"model": "gpt-none"}, openai.NotFoundError, "model"),
    ({"messages": []}, openai.BadRequestError, "messages"),
    ({"messages": say([{"type": "smell"}])}, openai.BadRequestError, "messages.0.content.0.type"),
    ({"temperature": 3}, openai.BadRequestError, "temperature"),
    ({"max_tokens": 0}, openai.BadRequestError, "max_tokens"),
    ({"n": 2}, openai.BadRequestError, "n"),
    ({"modalities": ["smell"]}, openai.BadRequestError, None),
    ({"modalities": ["text", "audio"], "audio": {"voice": "nobody", "format": "wav"}}, openai.BadRequestError, None),
    (
        {"messages": say([{"type": "image_url", "image_url": {"url": "data:image/png;base64,!!!!"}}])},
        openai.BadRequestError,
        "messages.0.content.0.image_url.url",
    ),
    (
        {"messages": say([{"type": "image_url", "image_url": {"url": data_url(32, 32, "red")[:200]}}])},
        openai.BadRequestError,
        "messages.0.content.0.image_url.url",
    ),
    ({"messages": say([{"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}])},
     openai.BadRequestError, "messages.0.content.0.input_audio.data"),
]  # fmt: skip


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("fields", "kind", "param"), BAD)
def test_bad_input_is_one_clear_error(
    client: OpenAI, fields: dict[str, Any], kind: type[openai.APIStatusError], param: str | None, stream: bool
) -> None:
    with pytest.raises(kind) as caught:
        client.chat.completions.create(**{"model": MODEL, "messages": say("x"), "stream": stream, **fields})
    body: Any = caught.value.body
    assert body["message"]
    if param is not None:
        assert body["param"] == param
    assert caught.value.request_id
    assert client.chat.completions.create(model=MODEL, messages=say("still there")).choices
