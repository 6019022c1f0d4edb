#!/usr/bin/env python3
"""Compares an exported part with torch on random input, and fails when they differ too much.

    python build/verify.py CHECKPOINT code2wav code2wav.onnx
    python build/verify.py CHECKPOINT code_predictor code_predictor.engine --device cuda:0

code2wav decodes streams of random frames that begin at different times, in chunks of 1 to 16 frames; what counts is the
signal-to-noise ratio of the worst stream, in decibels. The code predictor draws random frames, half of them sampled;
what counts is the share of frames of which every code is the same. Torch computes in float32, without TF32.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from export_onnx import CODE2WAV, PARTS, load
from torch import Tensor

from omni.stages.qwen3_omni.engines import load_engine, load_predictor, step_names
from omni.stages.qwen3_omni.streams import Step, Streams

MOST_FRAMES = 16
"""Of a chunk."""
LEAST_SNR = 40.0
"""Decibels. 16 bits have 98; what float32 loses to the order of sums leaves about 90."""
LEAST_EQUAL = 0.97
"""Share of frames. A code that differs isn't wrong, but another draw: torch itself has 98 to 99 % in bfloat16."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Between a part and torch."""

    max_error: float
    """Largest difference of a sample, or of an embedding whose codes are the same."""
    snr: float | None = None
    """Of the worst stream, decibels."""
    equal: float | None = None
    """Share of frames with the same codes."""

    def __str__(self) -> str:
        first = f"signal to noise {self.snr:.1f} dB" if self.snr is not None else f"{self.equal:.2%} of frames equal"
        return f"{first}, largest error {self.max_error:.2e}"


def _decode(
    step: Step, decoder: Any, chunks: list[tuple[list[int], Tensor]], streams: int, device: str
) -> list[Tensor]:
    """The samples of each stream."""
    running = Streams(step, decoder.config.states(streams, device=device))
    waves: list[list[Tensor]] = [[] for _ in range(streams)]
    for rows, codes in chunks:
        for row, wave in zip(rows, running.decode(rows, codes.to(device)).clone(), strict=True):
            waves[row].append(wave)
    return [torch.cat(parts).double() for parts in waves]


def compare_code2wav(decoder: Any, engine: Step, streams: int, frames: int, seed: int, device: str) -> Difference:
    generator = torch.Generator().manual_seed(seed)
    config = decoder.config
    left = [frames] * streams
    chunks = []
    while any(left):
        count = 1 << int(torch.randint(0, MOST_FRAMES.bit_length(), (1,), generator=generator))
        able = [row for row in range(streams) if left[row] >= count]
        if not able:
            continue
        chosen = torch.rand(len(able), generator=generator) < 0.7
        rows = [row for row, taken in zip(able, chosen.tolist(), strict=True) if taken] or able[:1]
        shape = len(rows), count, config.num_quantizers
        chunks.append((rows, torch.randint(0, config.codebook_size, shape, generator=generator)))
        for row in rows:
            left[row] -= count
    expected, made = (_decode(step, decoder, chunks, streams, device) for step in (decoder, engine))
    pairs = [(mine[config.lead :], theirs[config.lead :]) for mine, theirs in zip(expected, made, strict=True)]
    errors = [(mine - theirs).abs().max() for mine, theirs in pairs]
    ratios = [mine.square().sum() / (mine - theirs).square().sum().clamp_min(1e-30) for mine, theirs in pairs]
    return Difference(float(max(errors)), snr=float(10 * torch.log10(min(ratios))))


def compare_code_predictor(torchs: Any, engine: Any, rows: int, rounds: int, seed: int, device: str) -> Difference:
    generator = torch.Generator().manual_seed(seed)
    equal, error = 0, 0.0
    for _ in range(rounds):
        given = (
            torch.randn(rows, torchs.hidden, generator=generator),
            torch.randint(0, torchs.codebook, (rows,), generator=generator),
            torch.empty(rows, torchs.groups - 1, torchs.codebook).exponential_(generator=generator),
            torch.arange(rows) % 2 == 1,
        )
        with torch.inference_mode():
            (codes, summed), (mine, embedding) = (one(*(part.to(device) for part in given)) for one in (torchs, engine))
        same = (codes == mine).all(1)
        equal += int(same.sum())
        if bool(same.any()):
            error = max(error, float((summed - embedding)[same].abs().max()))
    return Difference(error, equal=equal / (rows * rounds))


def compare(
    checkpoint: Path, part: str, file: Path, *, streams: int = 8, frames: int = 64, seed: int = 0, device: str = "cpu"
) -> Difference:
    """`file` against `part` of `checkpoint`. Raises OSError and ValueError."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    model: Any = load(checkpoint, part).to(device)
    if part == CODE2WAV:
        config = model.config
        states = [(streams, *shape) for shape in config.state_shapes]
        largest = [(streams, MOST_FRAMES, config.num_quantizers), (streams,), *states]
        engine = load_engine(file, step_names(len(states)), largest, device)
        return compare_code2wav(model, engine, streams, frames, seed, device)
    predictor = load_predictor(file, (streams, model.hidden, model.groups, model.codebook), device)
    return compare_code_predictor(model, predictor, streams, frames, seed, device)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("file", type=Path)
    parser.add_argument("--device", help="cpu for .onnx and cuda:0 for an engine unless given")
    parser.add_argument("--streams", type=int, default=8, help="at once (8)")
    parser.add_argument("--frames", type=int, default=64, help="of each (64)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--snr", type=float, default=LEAST_SNR, help=f"least of code2wav, dB ({LEAST_SNR:.0f})")
    parser.add_argument("--equal", type=float, default=LEAST_EQUAL, help=f"least of code_predictor ({LEAST_EQUAL})")
    asked = parser.parse_args(arguments)
    device = asked.device or ("cpu" if asked.file.suffix == ".onnx" else "cuda:0")
    try:
        found = compare(
            asked.checkpoint, asked.part, asked.file, streams=asked.streams, frames=asked.frames, seed=asked.seed,
            device=device,
        )  # fmt: skip
    except (OSError, ValueError) as problem:
        sys.stderr.write(f"{problem}\n")
        return 1
    enough = found.snr >= asked.snr if found.snr is not None else (found.equal or 0.0) >= asked.equal
    sys.stdout.write(f"{asked.file} against torch: {found}: {'good' if enough else 'TOO FAR'}\n")
    return 0 if enough else 1


if __name__ == "__main__":
    sys.exit(main())
