"""Through the real Triton: what clients of the ensembles and of the HTTP API receive, against `generate()` of
`transformers`."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
import yaml
from support.ask import answer
from support.front import serving
from support.qwen3_omni import KINDS, Reference, of_kind

import frontend.settings
from frontend.app import create_app
from frontend.engine.triton import TritonEngine
from omni.contract.job import Job, TextPart
from omni.contract.names import STAGES, TALKER, THINKER
from omni.contract.params import SamplingParams, Settings
from omni.launch.server import EmbeddedTriton

pytestmark = [pytest.mark.fidelity, pytest.mark.anyio]
TEXT_TOKENS, FRAMES = 16, 12


Said = Callable[[str], tuple[str, np.ndarray[Any, Any]]]


@pytest.fixture(scope="module")
def profile(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    everywhere = {"implementation": "qwen3_omni", "checkpoint": str(checkpoint), "threads": 1}
    stages = {stage: dict(everywhere) for stage in STAGES}
    stages["preprocess"]["video"] = {"min_pixels": 4096}
    stages[TALKER]["speak_last_token_on_length"] = False
    file = tmp_path_factory.mktemp("omni") / "qwen.yaml"
    file.write_text(yaml.safe_dump({"model": "qwen3-omni", "voices": ["Ethan"], "stages": stages}))
    return file


@pytest.fixture(scope="module")
def qwen(profile: Path) -> Iterator[EmbeddedTriton]:
    """The ensembles on the tiny checkpoint."""
    with EmbeddedTriton(profile=str(profile), home=profile.parent, start_timeout=300) as server:
        yield server


@pytest.fixture(scope="module")
def generated(reference: Reference) -> Said:
    """What `generate` says to each kind of input: text, and samples as 16-bit numbers that aren't rounded."""

    @cache
    def of(kind: str) -> tuple[str, np.ndarray[Any, Any]]:
        said = reference.speak(of_kind(kind), thinker_max_new_tokens=TEXT_TOKENS, talker_max_new_tokens=FRAMES)
        text = reference.processor.tokenizer.decode(said.text, skip_special_tokens=True)
        return text, said.wav.numpy() * 32767

    return of


def assert_same_sound(pcm: np.ndarray[Any, Any], wave: np.ndarray[Any, Any]) -> None:
    assert pcm.shape == wave.shape
    # Rounding to 16 bits, and what single precision is good for in a decoder of so many layers: 1e-4 of full scale.
    assert np.abs(pcm - wave).max() < 0.5 + 1e-4 * 32767


async def test_text_and_sound_of_all_kinds_at_once_are_those_of_generate(qwen: EmbeddedTriton, generated: Said) -> None:
    sampling = {
        THINKER: SamplingParams(temperature=0.0, max_tokens=TEXT_TOKENS),
        TALKER: SamplingParams(temperature=0.0, max_tokens=FRAMES),
    }
    engine = TritonEngine(qwen.grpc_url, connect_timeout_s=30)
    await engine.start()
    try:
        written, spoken = (
            [replace(of_kind(kind), settings=Settings(speech=speech, sampling=sampling)) for kind in KINDS]
            for speech in (False, True)
        )
        read = await asyncio.gather(*(answer(engine, job) for job in written))
        heard = await asyncio.gather(*(answer(engine, job) for job in spoken))
    finally:
        await engine.close()
    for kind, text_only, said in zip(KINDS, read, heard, strict=True):
        text, wave = generated(kind)
        assert text_only.text == said.text == text, kind
        assert text_only.finish == said.finish == "length"
        assert_same_sound(said.pcm, wave)


def _asked(job: Job, stream: bool) -> dict[str, Any]:
    """The job as a client of the chat API writes it."""

    def part(one: Any) -> dict[str, Any]:
        if isinstance(one, TextPart):
            return {"type": "text", "text": one.text}
        data = base64.b64encode(one.data or b"").decode()
        if one.kind == "audio":
            return {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}
        url = f"data:{'image/png' if one.kind == 'image' else 'video/x-matroska'};base64,{data}"
        return {"type": f"{one.kind}_url", f"{one.kind}_url": {"url": url}}

    return {
        "model": "qwen3-omni", "temperature": 0, "max_tokens": TEXT_TOKENS, "talker_temperature": 0,
        "talker_max_new_tokens": FRAMES, "use_audio_in_video": job.video.use_audio, "stream": stream,
        "modalities": ["text", "audio"], "audio": {"voice": "Ethan", "format": "pcm16"},
        "messages": [{"role": one.role, "content": [part(p) for p in one.parts]} for one in job.messages],
    }  # fmt: skip


async def _over_http(http: httpx2.AsyncClient, job: Job, stream: bool) -> tuple[str, bytes]:
    """Text and sound that a client receives."""
    response = await http.post("/v1/chat/completions", json=_asked(job, stream), timeout=300)
    assert response.status_code == 200, response.text
    if not stream:
        audio = response.json()["choices"][0]["message"]["audio"]
        return audio["transcript"], base64.b64decode(audio["data"])
    lines = [line.removeprefix("data: ") for line in response.text.splitlines() if line.startswith("data: ")]
    assert lines.pop() == "[DONE]"
    deltas = [choice["delta"].get("audio") or {} for line in lines for choice in json.loads(line)["choices"]]
    text = "".join(delta.get("transcript", "") for delta in deltas)
    return text, b"".join(base64.b64decode(delta.get("data", "")) for delta in deltas)


async def test_clients_of_the_http_api_receive_what_generate_says(
    qwen: EmbeddedTriton, profile: Path, generated: Said
) -> None:
    settings = frontend.settings.Settings(profile=str(profile), triton_url=[qwen.grpc_url], warmup=False)
    cases = [(kind, stream) for kind in ("text", "image+audio+video", "audio-in-video") for stream in (False, True)]
    async with serving(create_app(settings)) as door, httpx2.AsyncClient(base_url=door.url) as http:
        got = await asyncio.gather(*(_over_http(http, of_kind(kind), stream) for kind, stream in cases))
    for (kind, _), (text, sound) in zip(cases, got, strict=True):
        expected, wave = generated(kind)
        assert text == expected, kind
        assert_same_sound(np.frombuffer(sound, np.int16), wave)
