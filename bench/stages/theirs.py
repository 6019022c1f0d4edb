"""`generate()` of `transformers`, one request at a time, and where its time goes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import omni.stages.qwen3_omni  # noqa: F401  it makes transformers importable


@dataclass(frozen=True, slots=True)
class Spoken:
    seconds: float
    """Of the whole call: nothing is heard before it returns."""
    thinker_seconds: float
    talker_seconds: float
    code2wav_seconds: float
    tokens: int
    frames: int


class Theirs:
    def __init__(self, checkpoint: Path, device: str, dtype: torch.dtype, *, random: bool = False) -> None:
        """`random` makes weights up, as the option `weights: random` of the stages does."""
        from transformers import AutoTokenizer, Qwen3OmniMoeConfig, Qwen3OmniMoeForConditionalGeneration

        architecture: Any = Qwen3OmniMoeForConditionalGeneration
        if random:
            with torch.device(device):
                model = architecture._from_config(Qwen3OmniMoeConfig.from_pretrained(checkpoint), dtype=dtype)
        else:
            model = architecture.from_pretrained(checkpoint, dtype=dtype)
        self._model = model.to(device).eval()
        self._tokenizer: Any = AutoTokenizer.from_pretrained(checkpoint)
        self._device = device

    def speak(self, question: str, tokens: int, frames: int) -> Spoken:
        """A greedy answer to a text, of at most `tokens` tokens and `frames` first codes."""
        prompt = f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
        ids = self._tokenizer(prompt, return_tensors="pt").input_ids.to(self._device)
        spent: dict[str, float] = {}
        parts = [(self._model.thinker, "generate"), (self._model.talker, "generate"),
                 (self._model.code2wav, "chunked_decode")]  # fmt: skip
        originals = [getattr(part, name) for part, name in parts]
        results: dict[str, Any] = {}

        def timed(key: str, call: Callable[..., Any]) -> Callable[..., Any]:
            def run(*args: Any, **kwargs: Any) -> Any:
                began = self._now()
                results[key] = call(*args, **kwargs)
                spent[key] = self._now() - began
                return results[key]

            return run

        for (part, name), key, call in zip(parts, ("thinker", "talker", "code2wav"), originals, strict=True):
            setattr(part, name, timed(key, call))
        began = self._now()
        try:
            said, _ = self._model.generate(
                input_ids=ids, return_audio=True, thinker_do_sample=False, talker_do_sample=False,
                thinker_max_new_tokens=tokens, talker_max_new_tokens=frames,
                thinker_eos_token_id=self._model.config.im_end_token_id,
            )  # fmt: skip
        finally:
            for (part, name), call in zip(parts, originals, strict=True):
                setattr(part, name, call)
        made = results["talker"].sequences.shape[1] - 1
        return Spoken(
            self._now() - began,
            spent["thinker"],
            spent["talker"],
            spent["code2wav"],
            said.shape[1] - ids.shape[1],
            made,
        )

    def _now(self) -> float:
        if self._device != "cpu":
            torch.cuda.synchronize()
        return time.perf_counter()
