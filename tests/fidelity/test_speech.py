"""All four stages in a row by plain calls, against `generate()` of `transformers`: text, codes and sound."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.qwen3_omni import KINDS, Reference, of_kind

from omni.contract.job import Job
from omni.contract.names import CODE2WAV, PREPROCESS, TALKER, THINKER
from omni.contract.params import SamplingParams, Settings
from omni.stages.chain import Chain

pytestmark = pytest.mark.fidelity

TEXT_TOKENS, FRAMES, SEED = 16, 20, 11
VIDEO = {"fps": 2.0, "min_pixels": 4096, "max_pixels": 1 << 22}


@pytest.fixture(scope="module")
def chain(checkpoint: Path) -> Iterator[Chain]:
    options: dict[str, dict[str, Any]] = {
        PREPROCESS: {"video": VIDEO},
        THINKER: {"max_generations": 5},
        TALKER: {"max_generations": 4, "speak_last_token_on_length": False},
        CODE2WAV: {"max_generations": 4},
    }
    everywhere = {"implementation": "qwen3_omni", "checkpoint": str(checkpoint)}
    with Chain({stage: {**everywhere, **own} for stage, own in options.items()}) as chain:
        yield chain


def speaking(kind: str, sampled: bool) -> Job:
    job = of_kind(kind)
    talker = SamplingParams(temperature=0.9 if sampled else 0.0, max_tokens=FRAMES, seed=SEED)
    thinker = SamplingParams(temperature=0.0, max_tokens=TEXT_TOKENS)
    return replace(job, settings=Settings(speech=True, sampling={THINKER: thinker, TALKER: talker}))


def test_all_kinds_at_once_are_said_as_generate_says_them_one_by_one(chain: Chain, reference: Reference) -> None:
    jobs = {kind: speaking(kind, sampled=n % 2 == 1) for n, kind in enumerate(KINDS)}
    for job in jobs.values():
        chain.ask(job)
    chain.run()
    for n, (kind, job) in enumerate(jobs.items()):
        expected = reference.speak(
            job,
            thinker_max_new_tokens=TEXT_TOKENS,
            talker_max_new_tokens=FRAMES,
            talker_do_sample=n % 2 == 1,
            seed=SEED,
        )
        said = chain.said[job.id]
        assert said.error is None
        assert said.tokens == expected.text, kind
        assert said.codes == expected.codes.tolist(), kind
        assert len(said.audio) == len(expected.wav) == 1920 * len(expected.codes) - 555, kind
        # Rounding of float32, which random weights amplify to 1e-4, and half a step of 16 bits.
        assert np.abs(said.audio / 32767 - expected.wav.numpy()).max() < 1e-4 + 0.5 / 32767, kind
    assert all(len(stage) == 0 for stage in chain.stages.values())  # type: ignore[arg-type]


def test_the_first_sound_is_made_before_the_text_is_whole(chain: Chain) -> None:
    job = speaking("text", sampled=False)
    chain.ask(job)
    said = chain.said[job.id]
    while not said.chunks:
        chain.step()
    assert len(said.tokens) < TEXT_TOKENS / 2
    chain.run()
    assert len(said.tokens) == TEXT_TOKENS
