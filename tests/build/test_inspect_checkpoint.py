"""What the inspection says of a checkpoint, against the stages that load it."""

from __future__ import annotations

import json
import shutil
import struct
from dataclasses import replace
from pathlib import Path

import inspect_checkpoint as inspection
import pytest
from inspect_checkpoint import Checkpoint, CheckpointError, Entry
from support.qwen3_omni import tiny_checkpoint

from omni.engine.kv import KVPool
from omni.profile import Profile, load_profile
from omni.stages.qwen3_omni.code2wav import decoder_config
from omni.stages.qwen3_omni.weights import read_weights

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def folder() -> Path:
    return tiny_checkpoint()


@pytest.fixture(scope="module")
def checkpoint(folder: Path) -> Checkpoint:
    return inspection.read_checkpoint(folder)


def profile(**stages: dict[str, object]) -> Profile:
    made = {name: {"implementation": "qwen3_omni", **options} for name, options in stages.items()}
    return Profile(name="mine", model="m", stages=made)


def test_parameters_are_those_that_stages_load(folder: Path, checkpoint: Checkpoint) -> None:
    for prefix in ("thinker.", "talker.", "code2wav."):
        weights = read_weights(folder, prefix)
        assert checkpoint.parameters(prefix) == sum(tensor.numel() for tensor in weights.values())
    assert sum(one.bytes for one in checkpoint.entries) == 4 * checkpoint.parameters()


def test_memory_is_what_stages_take(folder: Path, checkpoint: Checkpoint) -> None:
    config = decoder_config(folder)
    states = sum(state.nbytes for state in config.states(3))
    (need,) = inspection.needs(profile(code2wav={"max_generations": 3}), checkpoint)
    assert (need.past, need.device) == (states, "cpu")
    (need,) = inspection.needs(profile(thinker={"kv_tokens": 4096}), checkpoint)
    text = checkpoint.config["thinker_config"]["text_config"]
    pool = KVPool(text["num_hidden_layers"], text["num_key_value_heads"], text["head_dim"], 4096, reserve=True)
    assert need.past == pool.bytes
    (half,) = inspection.needs(profile(thinker={"kv_tokens": 4096, "dtype": "bfloat16"}), checkpoint)
    assert (half.past * 2, half.weights * 2) == (need.past, need.weights)


def test_it_fits_or_it_does_not(checkpoint: Checkpoint) -> None:
    made = profile(talker={"device": "cuda:0"}, code2wav={"device": "cuda:1"}, preprocess={})
    needed = inspection.needs(made, checkpoint)
    assert set(inspection.by_device(needed)) == {"cpu", "cuda:0", "cuda:1"}
    assert inspection.fits(made, needed)
    assert inspection.fits(replace(made, gpu_memory_gib=2.2), needed)
    assert not inspection.fits(replace(made, gpu_memory_gib=2.1), needed)
    assert "cuda:1: 2.15 GB" in inspection.describe_needs(made, needed)


def test_a_command_that_tells_it_all(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert inspection.main([str(folder), "--profile", "tiny", "--profile", "qwen3-omni-1xH200"]) == 0
    said = capsys.readouterr().out
    assert "1 files, not quantised" in said
    assert "it has 150.32 GB: fits" in said
    assert load_profile("qwen3-omni-1xH200").gpu_memory_gib == 140


def test_packed_weights_count_as_what_they_stand_for() -> None:
    entries = [
        Entry("thinker.a.weight_packed", "I32", (64, 16), 4096),
        Entry("thinker.a.weight_scale", "BF16", (64, 4), 512),
        Entry("thinker.a.weight_shape", "I64", (2,), 16),
        Entry("thinker.b.weight", "F8_E4M3", (8, 8), 64),
        Entry("thinker.b.weight_scale_inv", "F32", (1, 1), 4),
    ]
    groups = {"group_0": {"weights": {"num_bits": 4}}}
    quantised = {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": groups}
    checkpoint = Checkpoint({"thinker_config": {"text_config": {"quantization_config": quantised}}}, entries, 1)
    assert checkpoint.parameters() == 64 * 128 + 64
    assert "1 files, quantised: compressed-tensors, pack-quantized" in inspection.describe(checkpoint)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "isn't a file of safetensors"),
        (struct.pack("<Q", 1 << 40), "isn't a file of safetensors"),
        (struct.pack("<Q", 4) + b"nope", "isn't a file of safetensors"),
        (struct.pack("<Q", 2) + b"{}" + b"more", "has 14 bytes and should have 10"),
        (None, "fetch the checkpoint again"),
    ],
)
def test_broken_files_are_told(tmp_path: Path, content: bytes | None, message: str) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "a.safetensors"}}))
    if content is not None:
        (tmp_path / "a.safetensors").write_bytes(content)
    with pytest.raises(CheckpointError, match=message):
        inspection.read_checkpoint(tmp_path)


def test_folders_that_are_no_checkpoint(
    folder: Path, checkpoint: Checkpoint, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert inspection.main([str(tmp_path)]) == 1
    assert capsys.readouterr().err.endswith("has no config.json that can be read: it isn't a checkpoint\n")
    shutil.copy(folder / "config.json", tmp_path)
    with pytest.raises(CheckpointError, match="has no weights"):
        inspection.read_checkpoint(tmp_path)
    with pytest.raises(CheckpointError, match="isn't a checkpoint of Qwen3-Omni"):
        inspection.needs(profile(talker={}), replace(checkpoint, config={}))
