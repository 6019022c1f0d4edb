"""Quantised checkpoints: weights of 8 or 4 bits, brought back to plain numbers when they are loaded.

What is saved is disk and download; on the device the weights have the stage's `dtype`, as those of a plain checkpoint.
A layer's weight lies beside what tells how it is meant, told apart by how their names end.

`fp8`: `weight` in float8, times `weight_scale_inv` of its block of `weight_block_size`.
`compressed-tensors` (https://github.com/vllm-project/compressed-tensors): `weight` in float8 or int8, times
`weight_scale` of the tensor, of the row or of a block; or `weight_packed`, numbers of 4 or 8 bits in words of 32, the
first in the lowest bits, each with half its range added; less `weight_zero_point`, packed down the rows, and times
`weight_scale`, of which a row has one per group of columns, or per `weight_g_idx` of the column.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

FORMATS: Final = {
    "fp8": frozenset({""}),
    "compressed-tensors": frozenset({"float-quantized", "int-quantized", "naive-quantized", "pack-quantized"}),
}
"""What can be read: by method the formats."""

SIDE: Final = ("_scale", "_scale_inv", "_zero_point", "_shape", "_g_idx")
"""How names end of what belongs to a weight or to activations."""

_DTYPES: Final = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


def quantisation_of(checkpoint: Path) -> Mapping[str, Any] | None:
    """What a checkpoint's configuration says of its quantisation; None when its weights are plain. Raises OSError, and
    ValueError for a format that can't be read."""
    config = json.loads((checkpoint / "config.json").read_text("utf-8"))
    found: Mapping[str, Any] | None = next(
        (q for part in _parts(config) if (q := part.get("quantization_config"))), None
    )
    if found is None:
        return None
    method, kind = str(found.get("quant_method", "")), str(found.get("format", ""))
    wrong = method not in FORMATS or kind not in FORMATS[method]
    if wrong or any(_bits(weights) not in (4, 8) for weights in _groups(found)):
        said = " ".join(part for part in (method or "no known method", kind) if part)
        raise ValueError(
            f"the checkpoint is quantised by {said}, which can't be read: take the plain checkpoint, or one in fp8, or "
            "one in compressed-tensors with float-quantized, int-quantized or pack-quantized weights of 4 or 8 bits"
        )
    dtype = next((str(part[key]) for part in _parts(config) for key in ("dtype", "torch_dtype") if part.get(key)), "")
    return {**found, "dtype": dtype}


def _parts(config: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The places where something may be said for the whole."""
    thinker = config.get("thinker_config") or {}
    yield from (config, thinker, thinker.get("text_config") or {})


def _groups(found: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What `compressed-tensors` says of weights, by groups of layers."""
    return [one["weights"] for one in (found.get("config_groups") or {}).values() if one.get("weights")]


def _bits(weights: Mapping[str, Any]) -> int:
    return int(weights.get("num_bits", 8))


def _block(found: Mapping[str, Any]) -> tuple[int, int] | None:
    """Rows and columns that a scale is for, where scales are for blocks."""
    sizes = found.get("weight_block_size") or next(
        (weights["block_structure"] for weights in _groups(found) if weights.get("block_structure")), None
    )
    return None if sizes is None else (int(sizes[0]), int(sizes[1]))


def dequantise(weights: dict[str, Tensor], found: Mapping[str, Any]) -> dict[str, Tensor]:
    """`weights` as plain ones, quantised as `quantisation_of` found; layers that weren't stay as they are.

    They are taken out of `weights` on the way, to save memory. Raises ValueError when something is missing.
    """
    dtype = _DTYPES.get(found["dtype"], torch.bfloat16)
    block = _block(found)
    out: dict[str, Tensor] = {}
    for name in [name for name in weights if not name.endswith(SIDE)]:
        weight = weights.pop(name)
        layer = name.removesuffix("_packed")
        scale = weights.get(f"{layer}_scale", weights.get(f"{layer}_scale_inv"))
        if layer == name and weight.dtype not in (torch.float8_e4m3fn, torch.float8_e5m2, torch.int8):
            out[name] = weight
            continue
        if scale is None:
            raise ValueError(f"the checkpoint has no scale of {layer}")
        if layer == name:
            numbers = weight.float()
            zeros = weights.get(f"{layer}_zero_point")
        else:
            rows, columns = (int(size) for size in weights[f"{layer}_shape"].tolist())
            bits = 4 if weight.shape[1] == -(-columns // 8) else 8
            numbers = unpack(weight, bits)[:, :columns].float()
            packed = weights.get(f"{layer}_zero_point")
            zeros = None if packed is None else unpack(packed.T, bits).T[:rows]
        order = weights.get(f"{layer}_g_idx")
        if zeros is not None:
            numbers -= _spread(zeros.float(), numbers, block, order)
        out[layer] = (numbers * _spread(scale.float(), numbers, block, order)).to(dtype)
    return out


def unpack(words: Tensor, bits: int) -> Tensor:
    """The numbers in int32 `words` [rows, n], int32 [rows, n * 32 / bits]."""
    places = torch.arange(0, 32, bits, dtype=torch.int32)
    values = (words[..., None] >> places) & ((1 << bits) - 1)
    return values.flatten(-2) - (1 << (bits - 1))


def _spread(grid: Tensor, like: Tensor, block: tuple[int, int] | None, order: Tensor | None) -> Tensor:
    """`grid`, of one number or of one per row, per block, or per group of columns, so that it goes with `like`."""
    if grid.numel() == 1:
        return grid.reshape(1, 1)
    rows, columns = like.shape
    if grid.dim() == 1:
        grid = grid[:, None]
    if order is not None and int(order.min()) >= 0:
        return grid[:, order.long()]
    high, wide = block or (-(-rows // grid.shape[0]), -(-columns // grid.shape[1]))
    return grid.repeat_interleave(high, 0)[:rows].repeat_interleave(wide, 1)[:, :columns]
