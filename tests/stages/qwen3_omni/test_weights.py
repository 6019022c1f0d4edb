"""Reading a part of a checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from omni.stages.qwen3_omni.weights import fuse_experts, read_weights

pytestmark = pytest.mark.pure


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text("{}")
    return tmp_path


def test_a_part_is_read_from_the_files_that_hold_it_alone(checkpoint: Path) -> None:
    save_file({"talker.a": torch.ones(2), "thinker.a": torch.zeros(2)}, checkpoint / "1.safetensors")
    save_file({"talker.b": torch.full((1,), 3.0)}, checkpoint / "2.safetensors")
    places = {"talker.a": "1.safetensors", "thinker.a": "1.safetensors", "talker.b": "2.safetensors",
              "code2wav.a": "missing.safetensors"}  # fmt: skip
    (checkpoint / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    weights = read_weights(checkpoint, "talker.")
    assert {name: tensor.tolist() for name, tensor in weights.items()} == {"a": [1.0, 1.0], "b": [3.0]}
    with pytest.raises(OSError, match="missing"):
        read_weights(checkpoint, "code2wav.")


def test_a_single_file_needs_no_index(checkpoint: Path) -> None:
    save_file({"talker.a": torch.ones(2), "other": torch.ones(1)}, checkpoint / "model.safetensors")
    assert list(read_weights(checkpoint, "talker.")) == ["a"]


def test_experts_become_one_tensor_in_their_order() -> None:
    weights = {"layers.0.norm.weight": torch.ones(3)}
    for expert in range(12):
        for part, shape in (("gate_proj", (2, 3)), ("up_proj", (2, 3)), ("down_proj", (3, 2))):
            value = {"gate_proj": 0, "up_proj": 100, "down_proj": 200}[part] + expert
            weights[f"layers.0.mlp.experts.{expert}.{part}.weight"] = torch.full(shape, float(value))
    fused = fuse_experts(weights)
    assert sorted(fused) == [
        "layers.0.mlp.experts.down_proj",
        "layers.0.mlp.experts.gate_up_proj",
        "layers.0.norm.weight",
    ]
    assert fused["layers.0.mlp.experts.gate_up_proj"].shape == (12, 4, 3)
    assert fused["layers.0.mlp.experts.gate_up_proj"][11, :, 0].tolist() == [11, 11, 111, 111]
    assert fused["layers.0.mlp.experts.down_proj"][3].unique().tolist() == [203]
