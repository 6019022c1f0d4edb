"""The stages on a GPU that isn't there, with graphs, streams and pinned copies: they say what they say on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.device import DEVICE
from support.pretended_gpu import GPU, pretended_gpu
from support.qwen3_omni import of_kind

from omni.contract.job import Job
from omni.contract.names import STAGES, TALKER, THINKER
from omni.contract.params import SamplingParams, Settings
from omni.stages.chain import Chain, Said

pytestmark = [pytest.mark.fidelity, pytest.mark.skipif(DEVICE != "cpu", reason="they are on a GPU already")]

TOKENS, FRAMES = 6, 6


def asked() -> list[Job]:
    """Two that speak at once: greedy over everything, and sampled by every rule."""
    length = {THINKER: {"max_tokens": TOKENS}, TALKER: {"max_tokens": FRAMES, "ignore_eos": True}}
    rules: dict[str, Any] = {"temperature": 0.9, "top_k": 20, "top_p": 0.9, "repetition_penalty": 1.1, "seed": 5}
    sampled = {THINKER: {**rules, "frequency_penalty": 0.1, "min_tokens": 3, "logprobs": 2}, TALKER: rules}
    return [
        replace(
            job, settings=Settings(speech=True, sampling={s: SamplingParams(**length[s], **how[s]) for s in length})
        )
        for job, how in (
            (of_kind("image+audio+video"), {stage: {"temperature": 0.0} for stage in length}),
            (of_kind("text"), sampled),
        )
    ]


def answers(checkpoint: Path, started: Callable[[], None] = lambda: None, **options: Any) -> list[Said]:
    """What is said to both; `started` is called when both have begun to speak."""
    everywhere = {
        "implementation": "qwen3_omni", "checkpoint": str(checkpoint), "max_generations": 2, "kv_tokens": 2048,
        "video": {"min_pixels": 4096}, **options,
    }  # fmt: skip
    with Chain(dict.fromkeys(STAGES, everywhere)) as chain:
        jobs = asked()
        for job in jobs:
            chain.ask(job)
        said = [chain.said[job.id] for job in jobs]
        while not all(one.codes for one in said):
            chain.step()
        started()
        chain.run()
    return said


@pytest.mark.parametrize(
    "place",
    [{"dtype": "float32", "experts": "batched_mm"}, {"dtype": "bfloat16"}],
    ids=["float32", "bfloat16 with grouped experts"],
)
def test_a_gpu_says_what_the_cpu_says_and_never_waits_in_a_step(checkpoint: Path, place: dict[str, Any]) -> None:
    expected = answers(checkpoint, **place)
    with pretended_gpu() as gpu:
        said = answers(checkpoint, gpu.waits.clear, device=str(GPU), **place)
    for ours, theirs in zip(said, expected, strict=True):
        assert ours.error is None
        assert len(ours.tokens) == TOKENS
        assert ours.tokens == theirs.tokens
        assert len(ours.codes) > 3
        assert ours.codes == theirs.codes
        assert np.abs(ours.audio.astype(int) - theirs.audio).max() <= 4
    assert gpu.waits == []
