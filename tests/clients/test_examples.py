"""What the users of omni servers are told to type: one test for each example of the usage page of SGLang-Omni.

Each sends the same request in the same way (curl, requests, the SDK), to our address and with our sample files.
"""

from __future__ import annotations

import base64
import io
import json
import subprocess
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import requests
from openai import OpenAI
from support.launched import Launched
from support.samples import film, picture, sound

from omni.stages.dummy import tones

pytestmark = pytest.mark.client

MODEL = "qwen3-omni"
CARS = "How many cars are there in the picture?"
SUMMARY = "Summarize the plot in one sentence."
FRIENDLY = "Say one friendly sentence."


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launched]:
    """The whole server, with a folder in which `tests/data/cars.jpg` and the others lie."""
    folder = tmp_path_factory.mktemp("media")
    data = folder / "tests" / "data"
    data.mkdir(parents=True)
    (data / "cars.jpg").write_bytes(picture(format="JPEG"))
    (data / "query_to_cars.wav").write_bytes(sound(1.5))
    (data / "query_to_draw.wav").write_bytes(sound(2.5))
    (data / "draw.mp4").write_bytes(film(20))
    env = {"OMNI_MEDIA_FOLDER": str(folder)}
    with Launched("serve", tmp_path_factory.mktemp("server"), "--profile", "dummy", env=env) as launched:
        yield launched.ready()


@pytest.fixture(scope="module")
def url(server: Launched) -> str:
    return f"{server.url}/v1/chat/completions"


def ask(content: Any, **fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": [{"role": "user", "content": content}], **fields}


def curl(url: str, body: dict[str, Any], *options: str) -> str:
    run = ["curl", "--silent", "--show-error", "--fail-with-body", *options, "-X", "POST", url]
    run += ["-H", "Content-Type: application/json", "-d", json.dumps(body)]
    done = subprocess.run(run, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout
    return done.stdout


def said(text: str) -> str:
    return str(json.loads(text)["choices"][0]["message"]["content"])


def spoken(files: list[bytes]) -> str:
    """What the dummy speech in WAV files says."""
    pcm = b""
    for data in files:
        with wave.open(io.BytesIO(data)) as file:
            pcm += file.readframes(file.getnframes())
    return tones.decode(np.frombuffer(pcm, np.int16))


TEXT = ask(SUMMARY, modalities=["text"], max_tokens=128)


def test_text_output_with_curl(url: str) -> None:
    assert SUMMARY in said(curl(url, TEXT))


def test_text_output_with_requests(url: str) -> None:
    response = requests.post(url, json=TEXT, timeout=60)
    response.raise_for_status()
    assert SUMMARY in response.json()["choices"][0]["message"]["content"]


def test_text_output_with_the_sdk(server: Launched) -> None:
    with OpenAI(base_url=f"{server.url}/v1", api_key="EMPTY") as client:
        response = client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": SUMMARY}], modalities=["text"], max_tokens=128
        )
    assert SUMMARY in (response.choices[0].message.content or "")


def test_media_in_content_parts(url: str) -> None:
    image = {"type": "image_url", "image_url": {"url": "tests/data/cars.jpg"}}
    text = said(curl(url, ask([image, {"type": "text", "text": CARS}])))
    assert text.index("image 64x48") < text.index(CARS)


def test_image_and_text_input(url: str) -> None:
    body = ask(CARS, images=["tests/data/cars.jpg"], modalities=["text"], max_tokens=16)
    text = said(curl(url, body))
    assert text.index(CARS) < text.index("image 64x48")


def test_audio_and_image_input(url: str) -> None:
    media = {"images": ["tests/data/cars.jpg"], "audios": ["tests/data/query_to_cars.wav"]}
    text = said(curl(url, ask("", modalities=["text"], max_tokens=16, **media)))
    assert text.index("image 64x48") < text.index("audio 1.50s")


def test_video_and_audio_input(url: str) -> None:
    media = {"videos": ["tests/data/draw.mp4"], "audios": ["tests/data/query_to_draw.wav"]}
    text = said(curl(url, ask("", modalities=["text"], max_tokens=16, **media)))
    assert text.index("video 64x48") < text.index("audio 2.50s")


SPEECH = ask(CARS, images=["tests/data/cars.jpg"], modalities=["text", "audio"], audio={"format": "wav"}, max_tokens=16)


def test_speech_output_with_curl(url: str) -> None:
    message = json.loads(curl(url, SPEECH))["choices"][0]["message"]
    assert spoken([base64.b64decode(message["audio"]["data"])]) == message["content"]


def test_speech_output_with_requests(url: str, tmp_path: Path) -> None:
    response = requests.post(url, json=SPEECH, timeout=60)
    response.raise_for_status()
    message = response.json()["choices"][0]["message"]
    reply = tmp_path / "reply.wav"
    reply.write_bytes(base64.b64decode(message["audio"]["data"]))
    assert spoken([reply.read_bytes()]) == message["content"]
    assert CARS in message["content"]


STREAM = ask(FRIENDLY, modalities=["text", "audio"], audio={"format": "wav"}, stream=True, max_tokens=64)


def test_streaming_with_curl(url: str) -> None:
    lines = curl(url, STREAM, "-N").splitlines()
    assert [line for line in lines if line][-1] == "data: [DONE]"


def test_streaming_with_requests(url: str) -> None:
    text, files = "", []
    with requests.post(url, json=STREAM, stream=True, timeout=60) as response:
        response.raise_for_status()
        for line in response.iter_lines(decode_unicode=True):
            if not line or not line.startswith("data: "):
                continue
            payload = line.removeprefix("data: ")
            if payload == "[DONE]":
                break
            event = json.loads(payload)
            assert "error" not in event
            if not event.get("choices"):
                continue
            delta = event["choices"][0].get("delta", {})
            text += delta.get("content") or ""
            if (delta.get("audio") or {}).get("data"):
                files.append(base64.b64decode(delta["audio"]["data"]))
        else:
            pytest.fail("the stream has no end")
    assert FRIENDLY in text
    assert files
    assert spoken(files) == text


def test_each_parameter_of_the_table_is_taken(url: str) -> None:
    fields = {
        "max_completion_tokens": 40, "temperature": 0.5, "top_p": 0.9, "top_k": 20, "min_p": 0.1,
        "repetition_penalty": 1.1, "stop": ["unheard of"], "seed": 7,
        "stage_sampling": {"thinker": {"temperature": 0.8}, "talker": {"top_k": 5}},
        "stage_params": {"code2wav": {"max_chunk_frames": 10}}, "use_audio_in_video": False, "video_fps": 2.0,
        "video_max_frames": 4, "video_min_pixels": 16, "video_max_pixels": 1_000_000, "video_total_pixels": 4_000_000,
        "return_spec_tokens_details": True,
    }  # fmt: skip
    body = json.loads(curl(url, ask(CARS, videos=["tests/data/draw.mp4"], **fields)))
    assert "4 frames" in body["choices"][0]["message"]["content"]
    assert body["sglext"]["spec_tokens_details"]["spec_verify_ct"] == 0


@pytest.mark.parametrize(
    "source", ["../tests/data/cars.jpg", "/etc/passwd", "file:///etc/passwd", "tests/data/none.jpg"]
)
def test_other_files_stay_unread(url: str, source: str) -> None:
    response = requests.post(url, json=ask(CARS, images=[source]), timeout=60)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "images.0"
    assert source not in response.json()["error"]["message"]


# -- and the other endpoints, through the same stages


def test_transcription_and_speech(server: Launched) -> None:
    with OpenAI(base_url=f"{server.url}/v1", api_key="EMPTY") as client:
        text = client.audio.transcriptions.create(model=MODEL, file=("a.wav", sound(1.5)), language="en").text
        assert text.index("audio 1.50s") < text.index("The language is English.")
        read = client.audio.speech.create(model=MODEL, input=FRIENDLY, voice="Ethan", response_format="pcm").content
    assert tones.decode(np.frombuffer(read, np.int16)).endswith(f"text: {FRIENDLY}")
