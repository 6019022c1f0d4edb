#!/usr/bin/env python3
"""What a checkpoint of Qwen3-Omni holds, and the memory that a profile takes to serve it.

    python build/inspect_checkpoint.py /models/Qwen3-Omni-30B-A3B-Instruct
    python build/inspect_checkpoint.py FOLDER --profile qwen3-omni-1xH200 --profile my.yaml

Reads the headers of the files of weights and config.json, nothing else: it takes a second, and neither torch nor a
GPU. With profiles, the exit status is 1 when one of them doesn't fit the GPUs that it is for.
"""

from __future__ import annotations

import argparse
import json
import math
import struct
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omni.profile import Profile, ProfileError, load_profile

HEADER_LIMIT = 100 << 20
"""Bytes; what the format's own library reads at most."""
SIZES = {"float32": 4, "bfloat16": 2}
"""Bytes per value of a stage's `dtype`."""
RUNTIME = 2 << 30
"""What a stage's process takes on a GPU beside what is computed here: context, libraries, activations. An estimate."""

PARTS = {
    "thinker.audio_tower.": "thinker: sounds",
    "thinker.visual.": "thinker: pictures",
    "thinker.model.embed_tokens.": "thinker: token table",
    "thinker.lm_head.": "thinker: head",
    "thinker.": "thinker: text model",
    "talker.code_predictor.": "talker: code predictor",
    "talker.": "talker: language model",
    "code2wav.": "code2wav",
    "": "other",
}
"""How names of tensors begin, longer ones first, and what they are a part of."""
SIDE = ("_scale", "_scale_inv", "_zero_point", "_shape", "_g_idx", ".scales", ".qzeros", ".g_idx")
"""How names end that are no parameters but tell how quantised ones are meant."""
PACKED = ("weight_packed", "qweight")


class CheckpointError(Exception):
    """What is wrong with the checkpoint, in one line."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A tensor as a file's header has it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int

    @property
    def part(self) -> str:
        return next(part for prefix, part in PARTS.items() if self.name.startswith(prefix))

    def parameters(self, bits: int) -> int:
        """How many it holds, of `bits` each when they are packed."""
        if self.name.endswith(SIDE):
            return 0
        count = math.prod(self.shape)
        return count * 32 // bits if self.name.endswith(PACKED) and self.dtype == "I32" else count


@dataclass(frozen=True, slots=True)
class Checkpoint:
    config: Mapping[str, Any]
    entries: Sequence[Entry]
    files: int

    @property
    def bits(self) -> int:
        """Of a packed weight; 4 when nothing says so."""
        quantised = self.quantisation
        groups = [one.get("weights") or {} for one in quantised.get("config_groups", {}).values()]
        return int(next((one["num_bits"] for one in groups if "num_bits" in one), quantised.get("bits", 4)))

    @property
    def quantisation(self) -> Mapping[str, Any]:
        """What the configuration says of it; empty when the weights are plain."""
        thinker = self.config.get("thinker_config") or {}
        places = (self.config, thinker, thinker.get("text_config") or {})
        return next((one["quantization_config"] for one in places if one.get("quantization_config")), {})

    def parameters(self, prefix: str = "") -> int:
        return sum(one.parameters(self.bits) for one in self.entries if one.name.startswith(prefix))


def read_header(file: Path) -> list[Entry]:
    """The tensors of a file of safetensors. Raises `CheckpointError`."""
    try:
        with file.open("rb") as data:
            (length,) = struct.unpack("<Q", data.read(8))
            if length > HEADER_LIMIT:
                raise ValueError
            header = json.loads(data.read(length))
        size = file.stat().st_size
        out = []
        for name, one in header.items():
            if name != "__metadata__":
                start, end = one["data_offsets"]
                out.append(Entry(name, one["dtype"], tuple(one["shape"]), end - start))
        whole = 8 + length + sum(one.bytes for one in out)
    except OSError:
        raise CheckpointError(f"{file} isn't there: fetch the checkpoint again (build/fetch.py)") from None
    except (ValueError, KeyError, TypeError, AttributeError, struct.error):
        raise CheckpointError(f"{file} isn't a file of safetensors") from None
    if size != whole:
        raise CheckpointError(f"{file} has {size} bytes and should have {whole}: fetch it again (build/fetch.py)")
    return out


def read_checkpoint(folder: Path) -> Checkpoint:
    """Raises `CheckpointError`."""
    try:
        config = json.loads((folder / "config.json").read_text("utf-8"))
    except (OSError, ValueError):
        raise CheckpointError(f"{folder} has no config.json that can be read: it isn't a checkpoint") from None
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        files = sorted({folder / name for name in json.loads(index.read_text("utf-8"))["weight_map"].values()})
    else:
        files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise CheckpointError(f"{folder} has no weights in the format safetensors")
    return Checkpoint(config, [entry for file in files for entry in read_header(file)], len(files))


@dataclass(frozen=True, slots=True)
class Need:
    """Memory of a stage, bytes."""

    stage: str
    device: str
    weights: int
    past: int
    """Keys and values, and the states of streams."""
    caches: int

    @property
    def total(self) -> int:
        return self.weights + self.past + self.caches + (RUNTIME if self.device.startswith("cuda") else 0)


def _kv(text: Mapping[str, Any], tokens: int, size: int) -> int:
    """Keys and values of `tokens` in a decoder with the configuration `text`."""
    head = text.get("head_dim") or text["hidden_size"] // text["num_attention_heads"]
    return int(2 * text["num_hidden_layers"] * text["num_key_value_heads"] * head * tokens * size)


def stream_bytes(config: Mapping[str, Any]) -> int:
    """The states of one stream of code2wav: keys and values of a window, and the last inputs of convolutions."""
    hidden, kernel = config["hidden_size"], 7
    values = _kv(config, config["sliding_window"] - 1, 1) + (len(config["upsampling_ratios"]) + 1) * hidden * (
        kernel - 1
    )
    channels = config["decoder_dim"]
    for _ in config["upsample_rates"]:
        values += channels
        channels //= 2
        values += channels * (kernel - 1) * (1 + 3 + 9)
    return 4 * int(values + channels * (kernel - 1))


def needs(profile: Profile, checkpoint: Checkpoint) -> list[Need]:
    """What each stage of the model takes; weights that are quantised are so only on the disk. Raises
    `CheckpointError`."""
    config = checkpoint.config
    out = []
    try:
        for stage, options in profile.stages.items():
            if options.get("implementation") != "qwen3_omni":
                continue
            size = SIZES[str(options.get("dtype", "float32"))]
            device = str(options.get("device", "cpu"))
            weights = past = caches = 0
            if stage == "preprocess":
                device = "cpu"
                caches = int(options.get("store_bytes", 256 << 20)) + int(options.get("cache_bytes", 256 << 20))
            elif stage == "thinker":
                text = config["thinker_config"]["text_config"]
                weights = checkpoint.parameters("thinker.") * size
                past = _kv(text, int(options.get("kv_tokens", 32_768)), size)
                caches = int(options.get("encoder_cache_bytes", 256 << 20))
            elif stage == "talker":
                text = config["talker_config"]["text_config"]
                table = config["thinker_config"]["text_config"]["vocab_size"] * text["hidden_size"]
                weights = (checkpoint.parameters("talker.") + table) * size
                past = _kv(text, int(options.get("kv_tokens", 262_144)), size)
            else:
                weights = checkpoint.parameters("code2wav.") * SIZES["float32"]
                past = stream_bytes(config["code2wav_config"]) * int(options.get("max_generations", 64))
            out.append(Need(stage, device, weights, past, caches))
    except KeyError as missing:
        raise CheckpointError(f"config.json lacks {missing}: it isn't a checkpoint of Qwen3-Omni") from None
    return out


def by_device(needed: Iterable[Need]) -> Counter[str]:
    out: Counter[str] = Counter()
    for one in needed:
        out[one.device] += one.total
    return out


def fits(profile: Profile, needed: Iterable[Need]) -> bool:
    """Whether each GPU is large enough; it is when the profile doesn't say how large its GPUs are."""
    most = math.inf if profile.gpu_memory_gib is None else profile.gpu_memory_gib * 2**30
    return all(size <= most for device, size in by_device(needed).items() if device.startswith("cuda"))


def _size(size: float) -> str:
    return f"{size / 1e9:.2f} GB" if size >= 1e7 else f"{size / 1e6:.2f} MB"


def _table(rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as they have to be, all but the first to the right."""
    first, *others = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join([row[0].ljust(first), *(cell.rjust(width) for cell, width in zip(row[1:], others, strict=True))])
        for row in rows
    ]
    return "\n".join(line.rstrip() for line in lines)


def describe(checkpoint: Checkpoint) -> str:
    def row(part: str, entries: Sequence[Entry]) -> list[str]:
        count = sum(one.parameters(checkpoint.bits) for one in entries)
        dtypes = " ".join(sorted({one.dtype for one in entries}))
        return [part, f"{count / 1e6:.2f} M", _size(sum(one.bytes for one in entries)), dtypes]

    rows = [["part", "parameters", "on the disk", "dtypes"]]
    for part in PARTS.values():
        if mine := [one for one in checkpoint.entries if one.part == part]:
            rows.append(row(part, mine))
    rows.append(row("all", checkpoint.entries))
    quantised = checkpoint.quantisation
    kinds = [str(quantised[key]) for key in ("quant_method", "format") if key in quantised]
    said = f"quantised: {', '.join(kinds)}" if quantised else "not quantised"
    return f"{_table(rows)}\n{checkpoint.files} files, {said}"


def describe_needs(profile: Profile, needed: Sequence[Need]) -> str:
    rows = [[f"profile {profile.name}", "device", "weights", "keys, values, states", "caches", "all"]]
    for one in needed:
        rows.append([one.stage, one.device, *map(_size, (one.weights, one.past, one.caches, one.total))])
    lines = [_table(rows)]
    for device, size in sorted(by_device(needed).items()):
        line = f"{device}: {_size(size)}"
        if device.startswith("cuda"):
            line += f", of which {_size(RUNTIME)} per stage for what a process itself takes"
            if profile.gpu_memory_gib is not None:
                most = profile.gpu_memory_gib * 2**30
                line += f"; it has {_size(most)}: {'fits' if size <= most else 'TOO LITTLE'}"
        lines.append(line)
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--profile", action="append", default=[], help="by name, or a .yaml file; may be repeated")
    asked = parser.parse_args(arguments)
    fit = True
    try:
        checkpoint = read_checkpoint(asked.folder)
        sys.stdout.write(describe(checkpoint) + "\n")
        for name in asked.profile:
            profile = load_profile(name)
            needed = needs(profile, checkpoint)
            fit = fit and fits(profile, needed)
            sys.stdout.write("\n" + describe_needs(profile, needed) + "\n")
    except (CheckpointError, ProfileError) as problem:
        sys.stderr.write(f"{problem}\n")
        return 1
    return 0 if fit else 1


if __name__ == "__main__":
    sys.exit(main())
