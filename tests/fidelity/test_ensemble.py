"""Through the real Triton: what a client of the ensembles receives, against `generate()` of `transformers`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from support.ask import answer
from support.qwen3_omni import KINDS, Reference, of_kind

from frontend.engine.triton import TritonEngine
from omni.contract.names import STAGES, TALKER, THINKER
from omni.contract.params import SamplingParams, Settings
from omni.launch.server import EmbeddedTriton

pytestmark = [pytest.mark.fidelity, pytest.mark.anyio]
TEXT_TOKENS, FRAMES = 16, 12


@pytest.fixture(scope="module")
def qwen(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedTriton]:
    """The ensembles on the tiny checkpoint."""
    home = tmp_path_factory.mktemp("omni")
    everywhere = {"implementation": "qwen3_omni", "checkpoint": str(checkpoint), "threads": 1}
    stages = {stage: dict(everywhere) for stage in STAGES}
    stages["preprocess"]["video"] = {"min_pixels": 4096}
    stages[TALKER]["speak_last_token_on_length"] = False
    profile = home / "qwen.yaml"
    profile.write_text(yaml.safe_dump({"model": "qwen3-omni", "voices": ["Ethan"], "stages": stages}))
    with EmbeddedTriton(profile=str(profile), home=home, start_timeout=300) as server:
        yield server


async def test_text_and_sound_of_all_kinds_at_once_are_those_of_generate(
    qwen: EmbeddedTriton, reference: Reference
) -> None:
    sampling = {
        THINKER: SamplingParams(temperature=0.0, max_tokens=TEXT_TOKENS),
        TALKER: SamplingParams(temperature=0.0, max_tokens=FRAMES),
    }
    jobs = {kind: of_kind(kind) for kind in KINDS}
    engine = TritonEngine(qwen.grpc_url, connect_timeout_s=30)
    await engine.start()
    try:
        text = {kind: replace(job, settings=Settings(sampling=sampling)) for kind, job in jobs.items()}
        read = await asyncio.gather(*(answer(engine, job) for job in text.values()))
        spoken = [replace(of_kind(kind), settings=Settings(speech=True, sampling=sampling)) for kind in KINDS]
        heard = await asyncio.gather(*(answer(engine, job) for job in spoken))
    finally:
        await engine.close()
    for kind, job, written, said in zip(KINDS, jobs.values(), read, heard, strict=True):
        expected = reference.speak(job, thinker_max_new_tokens=TEXT_TOKENS, talker_max_new_tokens=FRAMES)
        whole = reference.processor.tokenizer.decode(expected.text, skip_special_tokens=True)
        assert written.text == said.text == whole, kind
        assert written.finish == said.finish == "length"
        wave = expected.wav.numpy() * 32767
        assert said.pcm.shape == wave.shape, kind
        # Rounding to 16 bits, and what single precision is good for in a decoder of so many layers: 1e-4 of full scale.
        assert np.abs(said.pcm - wave).max() < 0.5 + 1e-4 * 32767, kind
