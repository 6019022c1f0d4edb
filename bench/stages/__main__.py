"""`python -m bench.stages [--json FILE]`: the stages of Qwen3-Omni beside `generate()` of `transformers`."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch

from bench.stages import ours
from bench.stages.floors import Sizes, bandwidth
from bench.stages.theirs import Theirs
from omni.stages.qwen3_omni.checkpoint import DTYPES

ROOT = Path(__file__).resolve().parents[2]


def asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.stages", description=__doc__)
    parser.add_argument("--checkpoint", type=Path, default=ROOT / ".omni" / "tiny")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32", choices=DTYPES)
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--steps", type=int, default=60, help="timed steps per batch size")
    parser.add_argument("--rounds", type=int, default=3, help="alternate rounds of theirs and ours")
    parser.add_argument("--requests", type=int, default=8, help="requests side by side")
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--frames", type=int, default=48)
    parser.add_argument("--prefix-frames", type=int, default=32)
    parser.add_argument("--json", type=Path, help="file to write the figures to")
    return parser.parse_args()


def versus(arguments: argparse.Namespace, options: ours.Options) -> dict[str, Any]:
    """Alternate rounds of `generate()` and of the stages on the same requests; medians."""
    theirs = Theirs(arguments.checkpoint, arguments.device, DTYPES[arguments.dtype])
    tokens, frames, count = arguments.tokens, arguments.frames, arguments.requests
    rounds: list[dict[str, float]] = []
    with ours.chain(options) as stages:
        for number in range(arguments.rounds + 1):
            # New questions in each round, of which the stages know nothing from the last one.
            questions = [f"{number}.{n}: {ours.QUESTION}" for n in range(count)]
            spoken = [theirs.speak(question, tokens, frames) for question in questions]
            together = ours.side_by_side(stages, questions, tokens, frames)
            first = ours.first_sound(stages, f"{number}: {ours.QUESTION}", tokens, frames)
            one_by_one = sum(one.seconds for one in spoken)
            made = sum(one.frames for one in spoken)
            if together["frames"] != made:
                raise SystemExit("the stages said something else than generate(): the figures would mean nothing")
            rounds.append(
                {
                    "generate_tokens_per_s": sum(one.tokens for one in spoken) / sum(o.thinker_seconds for o in spoken),
                    "generate_frames_per_s": made / sum(one.talker_seconds for one in spoken),
                    "generate_code2wav_frames_per_s": made / sum(one.code2wav_seconds for one in spoken),
                    "generate_requests_per_s": count / one_by_one,
                    "generate_first_audio_s": spoken[0].seconds,
                    "requests_per_s": count / together["seconds"],
                    "first_text_s": first["first_text"],
                    "first_audio_s": first["first_audio"],
                    "throughput_ratio": one_by_one / together["seconds"],
                    "first_audio_ratio": spoken[0].seconds / first["first_audio"],
                }
            )
    return {key: round(statistics.median(one[key] for one in rounds[1:]), 4) for key in rounds[0]}


def main() -> None:
    arguments = asked()
    torch.set_num_threads(arguments.threads)
    options: ours.Options = {
        "implementation": "qwen3_omni",
        "checkpoint": str(arguments.checkpoint),
        "device": arguments.device,
        "dtype": arguments.dtype,
        "threads": arguments.threads,
        "max_generations": max(*arguments.batches, arguments.requests),
        "speak_last_token_on_length": False,
    }
    batches, steps = arguments.batches, arguments.steps
    figures: dict[str, Any] = {
        "machine": {"cpus": os.cpu_count(), "processor": platform.machine(), "torch": torch.__version__},
        "settings": {key: str(value) for key, value in vars(arguments).items() if key != "json"},
        **ours.steps(options, batches, steps, Sizes.of(arguments.checkpoint), bandwidth(arguments.device)),
        "versus": versus(arguments, options),
    }
    prefix = ours.first_token_after_prefix(options, arguments.prefix_frames, arguments.rounds)
    figures["prefix"] = {
        **{key: round(value, 4) for key, value in prefix.items()},
        "ratio": round(prefix["cold"] / prefix["prefilled"], 1),
    }
    text = json.dumps(figures, indent=1)
    print(text)
    if arguments.json is not None:
        arguments.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
