"""The stages on a device, with random weights of a checkpoint's sizes."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch

from bench.stages import ours
from bench.stages.floors import Sizes, bandwidth
from bench.stages.theirs import Theirs
from omni.stages.qwen3_omni.checkpoint import DTYPES

T = TypeVar("T")


def speed(checkpoint: Path, device: str, dtype: str, batches: list[int], steps: int) -> dict[str, Any]:
    """`steps` of every stage and batch size, then answers of a third as many tokens and two thirds as many frames, and
    prompts of a third as many pictures. By part, how long it took and the memory at its peak."""
    options: ours.Options = {
        "implementation": "qwen3_omni",
        "checkpoint": str(checkpoint),
        "weights": "random",
        "device": device,
        "dtype": dtype,
        "max_generations": max(batches),
        "kv_tokens": 65_536,
        "speak_last_token_on_length": False,
    }
    figures: dict[str, Any] = {"dtype": dtype}

    def part(name: str, run: Callable[[], T]) -> T:
        """Runs a part by itself, so that no two models are there at once."""
        gc.collect()
        if on_gpu := device != "cpu":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(device)
        began = time.perf_counter()
        out = run()
        took = figures.setdefault("parts", {})[name] = {"seconds": round(time.perf_counter() - began, 1)}
        if on_gpu:
            took["peak_gb"] = round(torch.cuda.max_memory_allocated(device) / 1e9, 1)
        return out

    sizes = part("sizes", lambda: Sizes.of(checkpoint))
    per_second = bandwidth(device)
    figures |= part("steps", lambda: ours.steps(options, batches, steps, sizes, per_second))
    figures["together"] = part("together", lambda: together(options, max(batches), steps // 3, 2 * steps // 3))
    figures["prefix"] = part("prefix", lambda: ours.first_token_after_prefix(options, steps // 3, 2))
    figures["generate"] = part("generate", lambda: generate(checkpoint, device, dtype, steps // 3, 2 * steps // 3))
    return figures


def together(options: ours.Options, most: int, tokens: int, frames: int) -> dict[str, Any]:
    """First text and sound of one request, and of `most` at once how many are answered per second."""
    with ours.chain(options) as stages:
        for number in range(3):
            alone = ours.first_sound(stages, f"{number}: {ours.QUESTION}", tokens, frames)
        asked = [f"{number} of all: {ours.QUESTION}" for number in range(most)]
        ours.side_by_side(stages, asked, tokens, frames)
        many = ours.side_by_side(stages, [f"again {question}" for question in asked], tokens, frames)
    return {
        **{key: round(value, 4) for key, value in alone.items()},
        "requests": most,
        "requests_per_s": round(most / many["seconds"], 3),
        "frames_per_s": round(many["frames"] / many["seconds"], 1),
    }


def generate(checkpoint: Path, device: str, dtype: str, tokens: int, frames: int) -> dict[str, float]:
    """`generate()` of `transformers`: the second of two equally long answers to one request."""
    theirs = Theirs(checkpoint, device, DTYPES[dtype], random=True)
    theirs.speak(ours.QUESTION, tokens, frames)
    said = theirs.speak(ours.QUESTION, tokens, frames)
    return {
        "seconds": round(said.seconds, 3),
        "tokens_per_s": round(said.tokens / said.thinker_seconds, 1),
        "frames_per_s": round(said.frames / said.talker_seconds, 1),
    }
