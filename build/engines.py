#!/usr/bin/env python3
"""Builds a TensorRT engine of a part that `build/export_onnx.py` wrote.

    python build/engines.py code2wav.onnx --batch 1,8,32 --frames 1,4,16
    python build/engines.py code_predictor.onnx --batch 1,8,32 [FILE]

FILE is that of the ONNX with the suffix .engine. Ranges are the least, the most frequent and the largest size; the
largest are the stage's `max_batch` and the largest power of two in its `max_chunk_frames` for code2wav, and
`max_generations` for the talker. An engine is for one kind of GPU and one version of TensorRT: build it where it is to
run, in the image that is to run it, and compare it with torch by `build/verify.py`.

Each layer has the precision that it has in the ONNX file (`--precision` and `--keep` of the export): TensorRT chooses
none, and what is float32 there is computed so, without TF32.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from omni.stages.qwen3_omni.engines import tensorrt

Range = tuple[int, int, int]
"""The least, the most frequent and the largest size."""


class BuildError(Exception):
    """What TensorRT doesn't do, in one line."""


@dataclass(frozen=True, slots=True)
class Built:
    layers: int
    """Of the network, before TensorRT fuses them."""
    bytes: int


def build(source: Path, into: Path, ranges: Mapping[str, Range]) -> Built:
    """`ranges` are those of the free sizes, by their name in the file. Raises `BuildError`, OSError, and ValueError
    without TensorRT."""
    trt = tensorrt()
    logger = trt.Logger(trt.Logger.ERROR)
    builder = trt.Builder(logger)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(network, logger)
    if not source.is_file():
        raise FileNotFoundError(f"there is no {source}: make it with build/export_onnx.py")
    if not parser.parse_from_file(str(source)):
        problems = [parser.get_error(number).desc() for number in range(parser.num_errors)]
        raise BuildError(f"TensorRT can't read {source}: {'; '.join(problems)[:500]}")
    config = builder.create_builder_config()
    config.clear_flag(trt.BuilderFlag.TF32)
    profile = builder.create_optimization_profile()
    for number in range(network.num_inputs):
        tensor = network.get_input(number)
        free = [tensor.get_dimension_name(axis) if size < 0 else "" for axis, size in enumerate(tensor.shape)]
        if missing := {name for name in free if name and name not in ranges}:
            raise BuildError(f"{source} wants a range of {', '.join(sorted(missing))}")
        shapes = [
            tuple(ranges[name][which] if name else size for name, size in zip(free, tensor.shape, strict=True))
            for which in range(3)
        ]
        profile.set_shape(tensor.name, *shapes)
    config.add_optimization_profile(profile)
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise BuildError(f"TensorRT can't build {source}; what it printed above says why")
    written = into.write_bytes(memoryview(plan))
    return Built(network.num_layers, written)


def _range(text: str) -> Range:
    try:
        least, usual, most = (int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError("three numbers with commas: least, most frequent, largest") from None
    if not 1 <= least <= usual <= most:
        raise argparse.ArgumentTypeError("the numbers must grow and begin with 1 at least")
    return least, usual, most


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, metavar="ONNX")
    parser.add_argument("file", type=Path, nargs="?")
    parser.add_argument("--batch", type=_range, default=(1, 8, 32), metavar="N,N,N", help="1,8,32 unless given")
    parser.add_argument("--frames", type=_range, default=(1, 4, 16), metavar="N,N,N", help="1,4,16 unless given")
    asked = parser.parse_args()
    file = asked.file or asked.source.with_suffix(".engine")
    try:
        built = build(asked.source, file, {"batch": asked.batch, "frames": asked.frames})
    except (BuildError, OSError, ValueError) as problem:
        sys.stderr.write(f"{problem}\n")
        return 1
    sys.stdout.write(f"{file}: {built.layers} layers, {built.bytes / 1e6:.1f} MB\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
