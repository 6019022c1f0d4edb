"""Quantised checkpoints against plain ones that hold the same numbers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from omni.stages.qwen3_omni.checkpoint import Place, load_thinker
from omni.stages.qwen3_omni.quantised import quantisation_of
from omni.stages.qwen3_omni.talker_model import TalkerModel
from omni.stages.qwen3_omni.weights import read_weights

pytestmark = pytest.mark.fidelity

Parts = dict[str, Tensor]
Quantise = Callable[[Tensor], tuple[Parts, Tensor]]
"""Of a weight [rows, columns], what a checkpoint has of it, by the ends of names, and the numbers that it means."""


def fp8_blocks(weight: Tensor) -> tuple[Parts, Tensor]:
    """Blocks of 32 x 16, of which the last ones may be cut."""
    meant, quantised = torch.empty_like(weight), torch.empty_like(weight, dtype=torch.float8_e4m3fn)
    grid = torch.zeros(-(-weight.shape[0] // 32), -(-weight.shape[1] // 16))
    for i in range(grid.shape[0]):
        for j in range(grid.shape[1]):
            block = slice(32 * i, 32 * i + 32), slice(16 * j, 16 * j + 16)
            grid[i, j] = weight[block].abs().max() / 448
            quantised[block] = (weight[block] / grid[i, j]).to(torch.float8_e4m3fn)
            meant[block] = quantised[block].float() * grid[i, j]
    return {"weight": quantised, "weight_scale_inv": grid}, meant


def fp8_tensor(weight: Tensor) -> tuple[Parts, Tensor]:
    scale = weight.abs().max() / 448
    quantised = (weight / scale).to(torch.float8_e4m3fn)
    return {
        "weight": quantised,
        "weight_scale": scale.reshape(1),
        "input_scale": scale.clone(),
    }, quantised.float() * scale


def int8_rows(weight: Tensor) -> tuple[Parts, Tensor]:
    scale = weight.abs().amax(1, keepdim=True) / 127
    quantised = (weight / scale).round().to(torch.int8)
    return {"weight": quantised, "weight_scale": scale}, quantised.float() * scale


def _words(numbers: Tensor, bits: int) -> Tensor:
    """Words of 32 bits along the last dimension, one number after the other."""
    each = 32 // bits
    rows, columns = numbers.shape
    out = torch.zeros(rows, -(-columns // each), dtype=torch.int64)
    for column in range(columns):
        out[:, column // each] |= (numbers[:, column].long() + (1 << bits - 1)) << (bits * (column % each))
    return torch.where(out >= 1 << 31, out - (1 << 32), out).to(torch.int32)


def int4_groups(weight: Tensor) -> tuple[Parts, Tensor]:
    """A scale for 8 columns of a row, and zero in the middle."""
    rows, columns = weight.shape
    groups = weight.reshape(rows, -1, 8)
    scale = groups.abs().amax(2) / 7
    quantised = (groups / scale[..., None]).round().clamp(-8, 7)
    parts = {"weight_packed": _words(quantised.reshape(rows, columns), 4), "weight_scale": scale}
    return parts | {"weight_shape": torch.tensor([rows, columns])}, (quantised * scale[..., None]).reshape(
        rows, columns
    )


def int4_zeros(weight: Tensor) -> tuple[Parts, Tensor]:
    """The same with a zero of its own for each group, and the groups' columns in another order."""
    rows, columns = weight.shape
    order = torch.arange(columns).flip(0) // 8
    scale, zeros = torch.empty(2, rows, columns // 8)
    quantised, meant = torch.empty(2, rows, columns)
    for group in range(columns // 8):
        mine = weight[:, order == group]
        low, high = mine.amin(1), mine.amax(1)
        scale[:, group] = (high - low) / 15
        zeros[:, group] = (-8 - low / scale[:, group]).round().clamp(-8, 7)
        q = (mine / scale[:, group, None] + zeros[:, group, None]).round().clamp(-8, 7)
        quantised[:, order == group] = q
        meant[:, order == group] = (q - zeros[:, group, None]) * scale[:, group, None]
    parts = {
        "weight_packed": _words(quantised, 4), "weight_scale": scale, "weight_zero_point": _words(zeros.T, 4).T,
        "weight_g_idx": order, "weight_shape": torch.tensor([rows, columns]),
    }  # fmt: skip
    return parts, meant


def compressed(kind: str, **weights: Any) -> dict[str, Any]:
    groups = {"group_0": {"targets": ["Linear"], "weights": weights}}
    return {"quant_method": "compressed-tensors", "format": kind, "config_groups": groups}


FORMATS: Mapping[str, tuple[Quantise, dict[str, Any]]] = {
    "fp8 in blocks": (fp8_blocks, {"quant_method": "fp8", "weight_block_size": [32, 16]}),
    "fp8 as a whole": (fp8_tensor, compressed("float-quantized", num_bits=8, type="float", strategy="tensor")),
    "int8": (int8_rows, compressed("int-quantized", num_bits=8, type="int", strategy="channel")),
    "int4": (int4_groups, compressed("pack-quantized", num_bits=4, type="int", strategy="group", group_size=8)),
    "int4 with zeros": (int4_zeros, compressed("pack-quantized", num_bits=4, symmetric=False, actorder="group")),
}


def quantised_layers(name: str, weight: Tensor) -> bool:
    """Those that published checkpoints quantise: products of the language models, experts among them."""
    inside = name.startswith(("thinker.model.layers.", "talker.model.layers.")) and weight.dim() == 2
    return inside and name.endswith("_proj.weight")


@pytest.fixture(scope="module")
def pairs(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Path]]:
    """By format, a quantised checkpoint and a plain one of the same numbers."""
    weights = load_file(checkpoint / "model.safetensors")

    def make(kind: str) -> tuple[Path, Path]:
        folder = tmp_path_factory.mktemp("quantised")
        places = folder / "quantised", folder / "plain"
        for place in places:
            shutil.copytree(checkpoint, place)
        quantise, said = FORMATS[kind]
        stored, plain = {}, {}
        for name, weight in weights.items():
            if quantised_layers(name, weight):
                parts, plain[name] = quantise(weight)
                layer = name.removesuffix("weight")
                stored |= {f"{layer}{end}": part.contiguous() for end, part in parts.items()}
            else:
                stored[name] = plain[name] = weight
        for place, tensors in zip(places, (stored, plain), strict=True):
            save_file(tensors, place / "model.safetensors", {"format": "pt"})
        config = json.loads((checkpoint / "config.json").read_text())
        (places[0] / "config.json").write_text(json.dumps(config | {"quantization_config": said}))
        return places

    return make


@pytest.mark.parametrize("kind", FORMATS)
def test_weights_are_the_numbers_that_are_meant(pairs: Callable[[str], tuple[Path, Path]], kind: str) -> None:
    quantised, plain = pairs(kind)
    for prefix in ("thinker.", "talker.", "code2wav."):
        expected, weights = read_weights(plain, prefix), read_weights(quantised, prefix)
        assert weights.keys() == expected.keys()
        for name, tensor in expected.items():
            torch.testing.assert_close(weights[name], tensor, rtol=1e-6, atol=1e-7)
    original = read_weights(plain.parent / "plain", "thinker.")["model.layers.0.self_attn.q_proj.weight"]
    assert len(original.unique()) > 100


def test_stages_load_them(pairs: Callable[[str], tuple[Path, Path]], checkpoint: Path) -> None:
    places = [Place(checkpoint=folder) for folder in pairs("int4")]
    thinkers = [load_thinker(place) for place in places]
    talkers = [TalkerModel(place).lm for place in places]
    for one, other in (thinkers, talkers):
        mine, theirs = one.state_dict() | dict(one.named_buffers()), other.state_dict() | dict(other.named_buffers())
        assert mine.keys() == theirs.keys()
        assert all(torch.allclose(mine[name], theirs[name], rtol=1e-6, atol=1e-7) for name in mine)
    assert quantisation_of(checkpoint) is None


@pytest.mark.parametrize(
    ("said", "named"),
    [
        ({"quant_method": "awq", "bits": 4}, "awq"),
        ({"quant_method": "gptq", "bits": 4}, "gptq"),
        ({"quant_method": "bitsandbytes"}, "bitsandbytes"),
        (compressed("nvfp4-pack-quantized", num_bits=4), "compressed-tensors nvfp4-pack-quantized"),
        (compressed("pack-quantized", num_bits=3), "compressed-tensors pack-quantized"),
        ({"bits": 4}, "no known method"),
    ],
)
def test_others_are_refused_by_name(tmp_path: Path, said: dict[str, Any], named: str) -> None:
    config = {"thinker_config": {"text_config": {"quantization_config": said}}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    message = f"quantised by {named}, which can't be read: take the plain checkpoint, or one in fp8"
    with pytest.raises(ValueError, match=message):
        read_weights(tmp_path, "thinker.")


def test_a_scale_that_is_missing_is_told(pairs: Callable[[str], tuple[Path, Path]]) -> None:
    quantised, _ = pairs("int8")
    weights = load_file(quantised / "model.safetensors")
    name = "thinker.model.layers.1.self_attn.k_proj.weight"
    del weights[f"{name}_scale"]
    save_file(weights, quantised / "model.safetensors")
    with pytest.raises(ValueError, match=r"no scale of model\.layers\.1\.self_attn\.k_proj\.weight"):
        read_weights(quantised, "thinker.")
