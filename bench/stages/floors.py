"""The least time that a step can take on a device: that of reading the weights that it needs once.

Of a layer's experts, a batch needs the share 1 - (1 - k/n)^batch of all n when each token picks k of them evenly. Keys,
values and launches aren't counted, so a step with long contexts or of a small model is further above its floor.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn

import omni.stages.qwen3_omni  # noqa: F401  it makes transformers importable
from omni.contract.names import CODE2WAV, TALKER, THINKER

BANDWIDTH: Final[Mapping[str, float]] = {"H200": 4.8e12, "H100": 3.35e12}
"""Bytes per second of the memory of the SXM cards, by what their name contains (NVIDIA's data sheets)."""


def bandwidth(device: str) -> float:
    """Bytes per second that the device's memory can be read with: as published, else as measured by summing."""
    if torch.device(device).type == "cuda":
        name = torch.cuda.get_device_name(device)
        for card, known in BANDWIDTH.items():
            if card in name:
                return known
    values = torch.ones(1 << 26, device=device)
    times = []
    for _ in range(5):
        began = time.perf_counter()
        float(values.sum())
        times.append(time.perf_counter() - began)
    return float(values.nbytes / min(times))


@dataclass(frozen=True, slots=True)
class Experts:
    """A decoder whose layers pick `picked` of `count` experts per token; sizes are parameters."""

    dense: int
    """What every step reads, the head included."""
    experts: int
    """All experts of all layers."""
    count: int
    picked: int

    def read(self, batch: int) -> float:
        """Parameters that a step of `batch` tokens reads."""
        return self.dense + self.experts * (1 - (1 - self.picked / self.count) ** batch)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Parameters that the steps of a checkpoint read."""

    thinker: Experts
    talker: Experts
    predictor: int
    """All passes of one frame."""
    code2wav: int
    held: Mapping[str, int]
    """Parameters that each stage holds, read or not."""

    @classmethod
    def of(cls, checkpoint: Path) -> Sizes:
        """By the configuration alone. Raises OSError when there is none."""
        from transformers import Qwen3OmniMoeConfig, Qwen3OmniMoeForConditionalGeneration
        from transformers.initialization import no_init_weights

        config: Any = Qwen3OmniMoeConfig.from_pretrained(checkpoint, local_files_only=True)
        with torch.device("meta"), no_init_weights():
            model: Any = Qwen3OmniMoeForConditionalGeneration(config)
        thinker, talker, decoder = model.thinker, model.talker, model.code2wav
        text, voice = config.thinker_config.text_config, config.talker_config.text_config
        passes = config.talker_config.num_code_groups - 1
        predictor = talker.code_predictor
        return cls(
            thinker=_experts(
                thinker.model.language_model, thinker.model.language_model.embed_tokens, thinker.lm_head,
                text.num_experts, text.num_experts_per_tok,
            ),
            talker=_experts(
                talker.model, talker.model.codec_embedding, talker.codec_head,
                voice.num_local_experts, voice.num_experts_per_tok,
            ),
            predictor=passes * (_count(predictor.model.layers) + _count(predictor.lm_head[0])),
            code2wav=_count(decoder) - _count(decoder.code_embedding),
            held={
                # The talker also holds every token of the text as it reads it.
                THINKER: _count(thinker),
                TALKER: _count(talker) + text.vocab_size * voice.hidden_size,
                CODE2WAV: _count(decoder),
            },
        )  # fmt: skip

    def floors(self, batch: int, bytes_per_second: float, bytes_per_weight: int) -> dict[str, float]:
        """Milliseconds per step, `predictor` and `code2wav` per frame. code2wav is in float32 whatever the others."""
        per_weight = 1e3 * bytes_per_weight / bytes_per_second
        return {
            "thinker": self.thinker.read(batch) * per_weight,
            "talker": self.talker.read(batch) * per_weight,
            "predictor": self.predictor * per_weight,
            "code2wav": self.code2wav * 4e3 / bytes_per_second,
        }


def _count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _experts(decoder: Any, embedding: nn.Module, head: nn.Module, count: int, picked: int) -> Experts:
    experts = sum(_count(layer.mlp.experts) for layer in decoder.layers)
    return Experts(_count(decoder) - _count(embedding) - experts + _count(head), experts, count, picked)
