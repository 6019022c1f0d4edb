"""The talker's weights, and what the prompt of a generation looks like to it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from transformers import Qwen3OmniMoeConfig, Qwen3OmniMoeTalkerForConditionalGeneration
from transformers.models.qwen3_omni_moe.modeling_qwen3_omni_moe import (
    Qwen3OmniMoeRotaryEmbedding,
    Qwen3OmniMoeTalkerRotaryEmbedding,
)

from omni.stages.qwen3_omni.checkpoint import Place
from omni.stages.qwen3_omni.code_predictor import CodePredictor, Predictor
from omni.stages.qwen3_omni.handover import TalkerPrompt
from omni.stages.qwen3_omni.weights import fuse_experts, read_weights

_TABLE_CHUNK = 8192
"""Rows of the text table that are projected at once."""
_CONTROL_CODES = 1024
"""How many codes at the end of the talker's vocabulary are no sounds; `generate()` of `transformers` knows it too."""
OPENING = 9
"""Rows that open an answer."""
_NEWLINE = "Ċ"
"""The line feed as byte-level BPE spells it."""


@dataclass(frozen=True, slots=True)
class Prefill:
    """What the talker reads before its first frame."""

    embeddings: Tensor
    """[T, hidden size]: the user's turns, then nine rows that open the answer and hold its first token."""
    positions: Tensor
    """Temporal, vertical and horizontal position of each row, float32 [3, T]."""
    delta: float
    """What the position of a later row exceeds the number of rows before it by."""

    def __len__(self) -> int:
        """T."""
        return len(self.embeddings)


class TalkerModel:
    """The talker of a checkpoint. Loads the talker's weights and the thinker's token embeddings, which it keeps only
    as `text`: projected once, they are half as large as the embeddings, and need no projection while speaking.
    """

    def __init__(self, place: Place) -> None:
        """Raises OSError or RuntimeError when the checkpoint isn't whole."""
        checkpoint = place.checkpoint
        self.config = Qwen3OmniMoeConfig.from_pretrained(checkpoint, local_files_only=True)
        talker: Any = self.config.talker_config
        thinker: Any = self.config.thinker_config
        # Asked for when media of several kinds are placed, but missing in the talker's part of any checkpoint.
        talker.audio_config = thinker.audio_config
        architecture: Any = Qwen3OmniMoeTalkerForConditionalGeneration
        with torch.device(place.device if place.random else "meta"):
            model = architecture._from_config(
                talker,
                dtype=place.dtype,
                attn_implementation=place.attention,
                **({} if place.experts is None else {"experts_implementation": place.experts}),
            )
        if not place.random:
            model.load_state_dict(fuse_experts(read_weights(checkpoint, "talker.")), assign=True)
            model.model.rotary_emb = Qwen3OmniMoeTalkerRotaryEmbedding(talker.text_config)
            model.code_predictor.model.rotary_emb = Qwen3OmniMoeRotaryEmbedding(talker.code_predictor_config)
        self._model: Any = model.to(place.device, place.dtype).eval().requires_grad_(False)
        self.lm: Any = self._model.model
        self.head: Any = self._model.codec_head
        self.hidden: int = self.head.in_features
        predictor = CodePredictor(self._model.code_predictor, self.lm.codec_embedding)
        self.groups: int = predictor.groups
        """Codes of a frame."""
        self.codebook: int = predictor.codebook
        """Entries of the codebooks of all codes but the first."""
        self.predictor: Predictor = predictor
        self.device = torch.device(place.device)
        self.text = self._text_table(place, thinker)
        """Every token of the vocabulary as the talker reads it [vocabulary, hidden size]."""
        self._newline = _newline_id(checkpoint)
        self._media = [thinker.audio_token_id, thinker.image_token_id, thinker.video_token_id]

    @property
    def end(self) -> int:
        """The first code that ends the speech."""
        end: int = self._model.config.codec_eos_token_id
        return end

    @property
    def voices(self) -> Mapping[str, int]:
        """Codec ids of the voices by their name in lower case."""
        voices: dict[str, int] = self._model.config.speaker_id
        return voices

    @property
    def suppressed(self) -> list[int]:
        """First codes that are never spoken: all control codes but the end."""
        size: int = self.head.out_features
        return [code for code in range(size - _CONTROL_CODES, size) if code != self.end]

    def _text_table(self, place: Place, thinker: Any) -> Tensor:
        if place.random:
            return torch.randn(thinker.text_config.vocab_size, self.hidden, dtype=place.dtype, device=self.device)
        rows = read_weights(place.checkpoint, "thinker.model.embed_tokens.")["weight"]
        chunks = (rows[at : at + _TABLE_CHUNK].to(self.device, place.dtype) for at in range(0, len(rows), _TABLE_CHUNK))
        with torch.inference_mode():
            return torch.cat([self._model.text_projection(chunk) for chunk in chunks])

    @torch.inference_mode()
    def prefill(self, prompt: TalkerPrompt, first: int, voice: int) -> Prefill:
        """The rows for `prompt` and the answer's `first` token, spoken by the codec id `voice`."""
        config: Any = self.config
        talker = config.talker_config
        ids = torch.from_numpy(prompt.user_ids.astype(np.int64))
        user = self.text[ids.to(self.device)]
        media = torch.isin(ids, torch.tensor(self._media))
        if bool(media.any()):
            hidden = prompt.hidden.to(self.device, user.dtype)
            user[media.to(self.device)] = self._model.hidden_projection(hidden)
        pad = config.tts_pad_token_id
        spoken = [config.im_start_token_id, config.assistant_token_id, self._newline, *([pad] * 4)]
        text = self._text([*spoken, config.tts_bos_token_id, first])
        codec = self.lm.codec_embedding(
            torch.tensor(
                [
                    talker.codec_nothink_id, talker.codec_think_bos_id, talker.codec_think_eos_id, voice,
                    talker.codec_pad_id, talker.codec_bos_id,
                ],
                device=self.device,
            )
        )  # fmt: skip
        text[3:] += codec
        positions, delta = self._positions(prompt, torch.cat((ids, torch.full((len(text),), pad))))
        return Prefill(torch.cat((user, text)), positions.to(self.device), delta)

    def _text(self, ids: Sequence[int]) -> Tensor:
        return self.text[torch.tensor(ids, device=self.device)]

    def _positions(self, prompt: TalkerPrompt, ids: Tensor) -> tuple[Tensor, float]:
        images, videos = _some(prompt.image_grid_thw), _some(prompt.video_grid_thw)
        if images is None and videos is None:
            return torch.arange(len(ids)).float().expand(3, -1), 0.0
        # `generate` doesn't tell the talker that a clip is heard, so it places such a clip as a silent one followed
        # by a sound; the talker of the checkpoint is used that way, and so it is here.
        positions, delta = self._model.get_rope_index(
            ids[None], images, videos, torch.ones_like(ids)[None], False,
            _some(prompt.audio_feature_lengths), _some(prompt.video_second_per_grid),
        )  # fmt: skip
        return positions[:, 0].float(), float(delta.flatten()[0])


def _some(array: npt.NDArray[Any]) -> Tensor | None:
    return torch.from_numpy(np.array(array)) if len(array) else None


def _newline_id(checkpoint: Path) -> int:
    vocabulary = checkpoint / "vocab.json"
    if vocabulary.exists():
        return int(json.loads(vocabulary.read_text("utf-8"))[_NEWLINE])
    return int(json.loads((checkpoint / "tokenizer.json").read_text("utf-8"))["model"]["vocab"][_NEWLINE])
