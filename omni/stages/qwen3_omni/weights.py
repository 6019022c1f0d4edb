"""Reading one part of a checkpoint: the tensors under a prefix, from whichever files hold them."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

from omni.stages.qwen3_omni.quantised import dequantise, quantisation_of

_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"


def read_weights(directory: Path, prefix: str) -> dict[str, Tensor]:
    """All tensors whose name starts with `prefix`, without it; quantised ones as plain numbers.

    Raises OSError when a file is missing, and ValueError for weights that are quantised in a way that can't be read.
    """
    found = quantisation_of(directory)
    index = directory / _INDEX
    files = {_SINGLE}
    if index.exists():
        places: dict[str, str] = json.loads(index.read_text("utf-8"))["weight_map"]
        files = {file for name, file in places.items() if name.startswith(prefix)}
    out: dict[str, Tensor] = {}
    for file in sorted(files):
        with safe_open(directory / file, "pt") as data:
            for name in data.keys():  # noqa: SIM118 - it isn't a mapping
                if name.startswith(prefix):
                    out[name.removeprefix(prefix)] = data.get_tensor(name)
    return out if found is None else dequantise(out, found)


def fuse_experts(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """`weights` with the experts of each layer in one tensor, as `transformers` computes them.

    `experts.N.gate_proj`, `up_proj` and `down_proj` of all N become `experts.gate_up_proj` [experts, 2 * inner, hidden]
    and `experts.down_proj` [experts, hidden, inner]. The single ones are taken out on the way, to save memory.
    """
    out = {name: tensor for name, tensor in weights.items() if ".experts." not in name}
    layers: dict[str, int] = {}
    for name in weights.keys() - out.keys():
        layer, _, rest = name.partition(".experts.")
        layers[layer] = max(layers.get(layer, 0), int(rest.split(".")[0]) + 1)
    for layer, count in layers.items():
        gates, ups, downs = (
            [weights.pop(f"{layer}.experts.{expert}.{part}.weight") for expert in range(count)]
            for part in ("gate_proj", "up_proj", "down_proj")
        )
        pairs = [torch.cat(pair) for pair in zip(gates, ups, strict=True)]
        out[f"{layer}.experts.gate_up_proj"] = torch.stack(pairs)
        out[f"{layer}.experts.down_proj"] = torch.stack(downs)
    return out
