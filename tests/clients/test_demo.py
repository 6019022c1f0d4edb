# ruff: noqa: E402  (what needs the models is imported after asking for them)
"""The demo profile from end to end: real questions, spoken, shown and typed, answered in text and in speech."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from typing import Any

import av
import grpc
import numpy as np
import pytest
import soxr
from openai import OpenAI
from PIL import Image
from support.demo import need_demo, packaged, photograph, wav, word_errors
from support.launched import Launched

need_demo()

from omni.launch.liveness import answers
from omni.stages.demo.code2wav import Head
from omni.stages.demo.frames import unpack
from omni.stages.demo.hearing import Hearing
from omni.stages.demo.talker import Voice
from omni.stages.demo.vocoder import Vocoder
from omni.stages.media.limits import unchecked

pytestmark = pytest.mark.client
MODEL = "omni-demo"


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launched]:
    with Launched("serve", tmp_path_factory.mktemp("demo"), "--profile", "demo") as launched:
        launched.until(lambda: " is ready at " in launched.said, 240)
        yield launched


@pytest.fixture(scope="module")
def client(demo: Launched) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{demo.url}/v1", api_key="none", max_retries=0, timeout=120) as client:
        yield client


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def sound(file: bytes) -> dict[str, Any]:
    return {"type": "input_audio", "input_audio": {"data": base64.b64encode(file).decode(), "format": "wav"}}


def image(name: str) -> dict[str, Any]:
    return {
        "type": "image_url",
        "image_url": {"url": f"data:image/png;base64,{base64.b64encode(photograph(name)).decode()}"},
    }


def ask(client: OpenAI, *parts: dict[str, Any]) -> str:
    answer = client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": list(parts)}])
    return answer.choices[0].message.content or ""


def speak(client: OpenAI, *parts: dict[str, Any]) -> tuple[str, np.ndarray]:
    """The streamed answer: its text, and its speech as int16 at 24 kHz."""
    stream = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": list(parts)}],
        modalities=["text", "audio"],
        audio={"voice": "heart", "format": "pcm16"},
        stream=True,
    )
    said, speech = "", b""
    for chunk in stream:
        delta: Any = chunk.choices[0].delta
        said += delta.content or ""
        if audio := getattr(delta, "audio", None):
            data = audio["data"] if isinstance(audio, dict) else audio.data
            speech += base64.b64decode(data or "")
    return said, np.frombuffer(speech, "<i2")


def hear(samples: np.ndarray) -> str:
    return Hearing().write_down(soxr.resample(samples / np.float32(32768), 24_000, 16_000), unchecked)


def voice(said: str) -> np.ndarray:
    """A question in the demo's own voice."""
    codes = Voice().speak(said)
    assert codes is not None
    return (Vocoder(Head()).feed(unpack(codes), last=True) * 32767).astype(np.int16)


def test_the_capital_of_france_is_named(client: OpenAI) -> None:
    assert "Paris" in ask(client, text("What is the capital of France?"))


def test_a_recording_is_answered_on_its_subject(client: OpenAI) -> None:
    """Samuel Beckett, read aloud: "Ever tried. Ever failed. No matter. Try again. Fail again. Fail better." """
    answer = ask(client, sound(packaged("moonshine_voice", "assets/beckett.wav")), text("What is it about?")).lower()
    assert any(word in answer for word in ("persever", "try", "tried", "fail", "success", "persist")), answer


def test_a_spoken_question_is_answered_and_the_answer_can_be_understood(client: OpenAI) -> None:
    question = "What is the capital of Germany?"
    answer, speech = speak(client, sound(wav(voice(question))))
    assert "Berlin" in answer
    assert word_errors(answer, hear(speech)) < 0.15


def test_a_longer_answer_can_be_understood(client: OpenAI) -> None:
    answer, speech = speak(client, text("Why is the sky blue?"))
    assert len(speech) > 24_000
    assert word_errors(answer, hear(speech)) < 0.15


def test_the_main_thing_of_a_photograph_is_named(client: OpenAI) -> None:
    assert "cat" in ask(client, image("chelsea.png"), text("What do you see?"))
    assert "tripod" in ask(client, image("camera.png"), text("What do you see?"))


def test_a_spoken_question_about_a_photograph(client: OpenAI) -> None:
    assert "cat" in ask(client, image("chelsea.png"), sound(wav(voice("What do you see in this picture?"))))


def test_a_clip_is_seen(client: OpenAI) -> None:
    out = io.BytesIO()
    with av.open(out, "w", format="mp4") as file:
        film = file.add_stream("libx264", rate=4)
        film.width, film.height, film.pix_fmt = 320, 224, "yuv420p"
        shown = Image.open(io.BytesIO(photograph("chelsea.png"))).convert("RGB").resize((320, 224))
        for _ in range(8):
            file.mux(film.encode(av.VideoFrame.from_image(shown)))
        file.mux(film.encode())
    url = f"data:video/mp4;base64,{base64.b64encode(out.getvalue()).decode()}"
    assert "cat" in ask(client, {"type": "video_url", "video_url": {"url": url}}, text("What do you see?"))


def test_streamed_text_is_the_text(client: OpenAI) -> None:
    question = text("Who wrote Hamlet?")
    assert speak(client, question)[0] == ask(client, question)


def test_a_busy_server_is_a_healthy_one(demo: Launched, client: OpenAI) -> None:
    """All places are taken for a minute or more, and yet the health check is answered at once."""
    asked = [{"role": "user", "content": "Count to a thousand."}]
    more: Any = {"max_tokens": 1500, "stream": True, "extra_body": {"ignore_eos": True}}
    streams = [client.chat.completions.create(model=MODEL, messages=asked, **more) for _ in range(3)]
    with grpc.insecure_channel(f"127.0.0.1:{demo.grpc_port}") as channel:
        assert answers(channel, 45.0)
    for stream in streams:
        stream.close()


def test_memory(demo: Launched) -> None:
    """All processes of the server together, each page counted once for every process that maps it."""
    total = sum(process.memory_info().rss for process in demo.descendants())
    assert total < 1.5e9
