"""The sizes of the real model: the floors of a step, whether the profiles fit their GPUs and say nothing unheard of,
and a dry run of what measures them."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from support.qwen3_omni import ROOT

from bench.gpu.speed import speed
from bench.stages.floors import Sizes
from omni.contract.names import CODE2WAV, STAGES, TALKER, THINKER
from omni.contract.stage import StageConfig
from omni.profile import load_profile
from omni.stages import load
from omni.stages.qwen3_omni.checkpoint import load_tokenizer
from omni.stages.qwen3_omni.thinker import Thinker

pytestmark = pytest.mark.fidelity
PROFILES = ("qwen3-omni-1xH200", "qwen3-omni-2xH100")
HOST = {"implementation", "coalesce_ms"}
"""Read by whoever loads and hosts a stage."""


@pytest.fixture(scope="module")
def config(checkpoint: Path) -> Any:
    """The real configuration; its token ids here are those of the tiny vocabulary."""
    tokenizer = load_tokenizer(checkpoint)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "build"))
        make_real = import_module("make_real")
        vocabulary = import_module("qwen_vocabulary")
    return make_real.config(tokenizer, {name: tokenizer.convert_tokens_to_ids(name) for name in vocabulary.SPECIAL})


@pytest.fixture(scope="module")
def sizes(config: Any, tmp_path_factory: pytest.TempPathFactory) -> Sizes:
    folder = tmp_path_factory.mktemp("real")
    config.save_pretrained(folder)
    return Sizes.of(folder)


def test_the_least_time_of_a_step_is_that_of_reading_its_weights(sizes: Sizes) -> None:
    """Computed once from the published parameter counts, for 4.8 TB/s and bfloat16."""
    table = {1: (1.27, 0.12), 4: (3.26, 0.28), 8: (5.38, 0.46), 16: (8.29, 0.74), 32: (11.06, 1.05)}
    for batch, expected in table.items():
        floors = sizes.floors(batch, 4.8e12, 2)
        assert (round(floors["thinker"], 2), round(floors["talker"], 2)) == expected
        assert (round(floors["predictor"], 2), round(floors["code2wav"], 2)) == (0.5, 0.15)
    assert round(sum(sizes.held.values()) / 1e9, 1) == 35.4


@pytest.mark.parametrize("name", PROFILES)
def test_weights_and_memory_of_a_profile_fit_its_gpus(sizes: Sizes, config: Any, name: str) -> None:
    profile = load_profile(name)
    assert profile.gpu_memory_gib is not None
    decoders = {THINKER: config.thinker_config.text_config, TALKER: config.talker_config.text_config}
    used: dict[str, float] = {}
    for stage, parameters in sizes.held.items():
        options = profile.stages[stage]
        taken: float = parameters * (4 if stage == CODE2WAV else 2)
        if decoder := decoders.get(stage):
            per_token = 4 * decoder.num_hidden_layers * decoder.num_key_value_heads * decoder.head_dim
            assert per_token == {THINKER: 96, TALKER: 20}[stage] * 1024
            taken += per_token * options["kv_tokens"]
            # An answer of any length that is allowed has to fit.
            assert options["kv_tokens"] >= profile.context_length
        # Beside it: the context of a process, kernels, graphs, activations.
        used[options["device"]] = used.get(options["device"], 0) + taken + options.get("encoder_cache_bytes", 0) + 3e9
    assert max(used.values()) < profile.gpu_memory_gib * 2**30
    assert max(used.values()) > 0.7 * profile.gpu_memory_gib * 2**30, "what is paid for is used"


class Watched(dict[str, Any]):
    """Options, and which of them were asked for."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        self.read: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.read.add(key)
        return super().get(key, default)

    def __getitem__(self, key: str) -> Any:
        self.read.add(key)
        return super().__getitem__(key)


@pytest.mark.parametrize("stage", STAGES)
def test_every_setting_of_the_profiles_is_one_that_the_stage_reads(
    checkpoint: Path, thinker_model: Any, stage: str
) -> None:
    both = [load_profile(name).stages[stage] for name in PROFILES]
    here = {"checkpoint": str(checkpoint), "device": "cpu", "dtype": "float32"}
    options = Watched({**both[0], **both[1], **here})
    config = StageConfig(options)
    made = Thinker(config, thinker_model) if stage == THINKER else load(stage, config)
    made.close()
    assert set(both[0]) | set(both[1]) <= options.read | HOST


@pytest.mark.filterwarnings("ignore:Passing `repetition_penalty`")
def test_what_measures_a_gpu_runs_dry(checkpoint: Path) -> None:
    figures = speed(checkpoint, "cpu", "float32", [2], 6)
    assert {"steps", "together", "prefix", "generate"} <= figures["parts"].keys()
    for stage in ("thinker", "talker", "code2wav"):
        assert all(row["ms_per_step"] > row["floor_ms"] > 0 for row in figures[stage])
    assert figures["together"]["first_audio"] >= figures["together"]["first_text"] > 0
    assert figures["prefix"]["cold"] > 0
    assert figures["generate"]["frames_per_s"] > 0
