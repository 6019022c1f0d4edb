"""One generation in the thinker."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from omni.contract.params import SamplingParams, Settings
from omni.engine.kv import KVSequence
from omni.stages.qwen3_omni.answer import Answer
from omni.stages.qwen3_omni.encoders import Features
from omni.stages.qwen3_omni.prefixes import Held
from omni.stages.qwen3_omni.prompt import Prompt


@dataclass(slots=True, eq=False)
class Generation:
    """Waits until it has keys and values, is prefilled until all of its prompt is in them, then answers."""

    id: str
    settings: Settings
    prompt: Prompt | None = None
    params: SamplingParams | None = None
    """Complete; `max_tokens` fits into the context."""
    kv: KVSequence | None = None
    reserved: int = 0
    """Blocks that it may come to hold."""
    slot: int | None = None
    """Of the sampler, while it answers."""
    cached: int | None = None
    """Prompt tokens that were there before; None until it is known."""
    hidden: list[Tensor] = field(default_factory=list)
    """For the talker, hidden states at the placeholders that are in `kv`, in pieces [placeholders, hidden]."""
    features: dict[str, Features] = field(default_factory=dict)
    """Of the part in which the prefill stands."""
    answer: Answer | None = None
    said: list[int] = field(default_factory=list)
    """Token ids of the answer."""

    @property
    def computed(self) -> int:
        """Tokens that are in `kv`."""
        return 0 if self.kv is None else self.kv.length

    @property
    def left(self) -> int:
        """Prompt tokens that aren't in `kv` yet."""
        assert self.prompt is not None
        return max(0, len(self.prompt.ids) - self.computed)

    def held(self, *, prompt_only: bool = False) -> Held | None:
        """What is in `kv`, to be shared with others; None when that is nothing."""
        if self.kv is None or self.prompt is None or not self.kv.length:
            return None
        prompt, count = self.prompt, self.kv.length
        if prompt_only:
            count = min(count, len(prompt.ids))
        ids = np.concatenate([prompt.ids, np.array(self.said, np.int32)])[:count]
        after = np.arange(len(prompt.ids), max(count, len(prompt.ids)), dtype=np.float32) + np.float32(prompt.delta)
        positions = np.concatenate([prompt.positions, np.broadcast_to(after, (3, len(after)))], axis=1)[:, :count]
        spans = tuple(span for span in prompt.spans if span.start < count)
        return Held(ids, positions, spans, torch.cat(self.hidden), self.kv)
