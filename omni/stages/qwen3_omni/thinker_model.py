"""The thinker's model on its keys and values: reading prompts, adding tokens to answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from omni.engine.attention import PAGED_BLOCK, available
from omni.engine.graphs import Graphs
from omni.engine.kv import BLOCK, KVPool, KVSequence
from omni.engine.language import LanguageModel
from omni.engine.transfer import upload
from omni.stages.qwen3_omni.checkpoint import Figures, Place, load_thinker
from omni.stages.qwen3_omni.encoders import Encoders, Features
from omni.stages.qwen3_omni.prompt import Prompt


class ThinkerModel:
    """Options: `kv_tokens` (32768) of keys and values that are held at most, in blocks of `kv_block` (16, with paged
    attention 256); `encoder_cache_bytes` (256 MiB); `paged_attention` (where flash-attn can do it); `graphs` (where
    they can be captured), decode steps in few shapes and as CUDA graphs.
    """

    def __init__(self, options: Mapping[str, Any], place: Place, figures: Figures, model: Any = None) -> None:
        """`model` is the thinker when it is loaded already."""
        model = load_thinker(place) if model is None else model
        decoder, self._head = model.model.language_model, model.lm_head
        self.vocab, self.hidden = self._head.weight.shape
        self.device = self._head.weight.device
        self._figures = figures
        paged = bool(options.get("paged_attention", available(self.device, place.dtype)))
        graphs = Graphs(self.device) if options.get("graphs", place.capturable) else None
        # Graphs want the pool to stay where it is.
        self.kv = KVPool.of(
            decoder,
            int(options.get("kv_tokens", 32_768)),
            block=int(options.get("kv_block", PAGED_BLOCK if paged else BLOCK)),
            reserve=self.device.type != "cpu" or graphs is not None,
        )
        self._lm = LanguageModel(decoder, self.kv, capture=figures.accept_hidden_layer, paged=paged, graphs=graphs)
        self.encoders = Encoders(model, figures, int(options.get("encoder_cache_bytes", 256 << 20)))

    @property
    def no_states(self) -> Tensor:
        """States for the talker of no placeholders [0, hidden]."""
        return self._head.weight.new_empty(0, self.hidden)

    @torch.no_grad()
    def read(
        self, prompt: Prompt, kv: KVSequence, count: int, unfinished: dict[str, Features]
    ) -> tuple[Tensor, Tensor]:
        """Appends the next `count` tokens of `prompt` to `kv`; `unfinished` is as in `Encoders`.

        Returns the hidden state that tells the token after them [1, hidden], and for the talker those at the
        placeholders among them [placeholders, hidden].
        """
        start, end = kv.length, kv.length + count
        embeds, options = self.encoders(prompt, start, end, unfinished)
        positions = upload(prompt.positions[:, None, start:end], self.device)
        hidden, captured = self._lm([kv], embeds, positions, **options)
        assert captured is not None
        places = prompt.media_mask(self._figures)[start:end].nonzero()[0]
        return hidden[:, -1], captured[0, upload(places, self.device)]

    @torch.no_grad()
    def step(self, sequences: Sequence[KVSequence], tokens: Sequence[int], positions: Sequence[float]) -> Tensor:
        """Appends a token to each of `sequences`; the hidden states that tell the next ones [rows, hidden], which the
        next step may overwrite."""
        embeds = self.encoders.embed(upload(tokens, self.device, torch.long))
        return self._lm.step(sequences, embeds, upload(positions, self.device, torch.float32))

    @torch.no_grad()
    def logits(self, hidden: Tensor) -> Tensor:
        """[rows, hidden] to [rows, vocabulary]."""
        logits: Tensor = self._head(hidden)
        return logits
