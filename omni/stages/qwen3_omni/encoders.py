"""The thinker's eyes and ears: embeddings of a prompt, features of its media in the place of their placeholders."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from omni.contract.errors import MediaMissing
from omni.stages.media.store import Recent
from omni.stages.qwen3_omni.checkpoint import Figures
from omni.stages.qwen3_omni.pixels import patches
from omni.stages.qwen3_omni.prompt import Media, Prompt

MOST_PATCHES: Final = 16_384
"""Patches that are encoded at once. A clip is cut between its temporal patches, which don't attend to each other."""


@dataclass(frozen=True, slots=True)
class Features:
    """What an encoder makes of one part."""

    embeds: Tensor
    """[tokens, hidden]"""
    deepstack: tuple[Tensor, ...] = ()
    """For each of the first layers, what is added to its output at the part's tokens [tokens, hidden]."""

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in (self.embeds, *self.deepstack))


class Encoders:
    """Features of media, remembered by their key up to `max_bytes` on the device."""

    def __init__(self, model: Any, figures: Figures, max_bytes: int) -> None:
        """`model` is a `Qwen3OmniMoeThinkerForConditionalGeneration`."""
        self._thinker = model.model
        self._embed = self._thinker.get_input_embeddings()
        self._figures = figures
        self._device = self._embed.weight.device
        self._features: Recent[str, Features] = Recent(max_bytes, lambda features: features.nbytes)
        self.encoded = 0
        """Parts that were encoded, the sound of a clip on its own, so far."""

    @torch.no_grad()
    def embed(self, tokens: Tensor) -> Tensor:
        """Embeddings of text tokens [..., hidden]."""
        embeds: Tensor = self._embed(tokens)
        return embeds

    @torch.no_grad()
    def __call__(
        self, prompt: Prompt, start: int, end: int, unfinished: dict[str, Features]
    ) -> tuple[Tensor, dict[str, Any]]:
        """Embeddings of the prompt's tokens from `start` to `end` [1, tokens, hidden], and what the decoder is told of
        the visual ones among them. Encodes the media that stand there, and no others.

        `unfinished` belongs to the caller's prompt: it holds the features of a part that goes on after `end`, so that
        they needn't be made again if they are too large to be remembered. Raises `MediaMissing` for a part that is only
        named and whose features aren't remembered.
        """
        ids = torch.tensor(prompt.ids[start:end], dtype=torch.long, device=self._device)
        embeds = self.embed(ids)
        visual = np.zeros(len(ids), np.bool_)
        levels: list[list[Tensor]] = []
        for media, span in zip(prompt.media, prompt.spans, strict=True):
            first, last = max(start, span.start), min(end, span.start + span.length)
            if first >= last:
                continue
            for token, sense, encode in self._senses(media):
                place = first - start + (prompt.ids[first:last] == token).nonzero()[0]
                if not len(place):
                    continue
                before = int((prompt.ids[span.start : first] == token).sum())
                taken = slice(before, before + len(place))
                key = f"{media.key} {sense}"
                features = unfinished.pop(key, None) or self._features.get(key) or self._made(key, encode, media)
                if last < span.start + span.length:
                    unfinished[key] = features
                # Indices, unlike masks, don't make the host wait for the device.
                embeds[torch.tensor(place, device=self._device)] = features.embeds[taken].to(embeds.dtype)
                if token != self._figures.audio:
                    visual[place] = True
                    levels.append([level[taken] for level in features.deepstack])
        if not levels:
            return embeds[None], {}
        deepstack = [torch.cat(level) for level in zip(*levels, strict=True)]
        mask = torch.tensor(visual[None], device=self._device)
        return embeds[None], {"visual_pos_masks": mask, "deepstack_visual_embeds": deepstack}

    def _senses(self, media: Media) -> Iterator[tuple[int, str, Callable[[Media], Features]]]:
        """For each encoder that the part needs, the placeholder of its features."""
        figures = self._figures
        if media.grid is not None:
            yield figures.image if media.kind == "image" else figures.video, "seen", self._see
        if media.mel_frames:
            yield figures.audio, "heard", self._hear

    def _made(self, key: str, encode: Callable[[Media], Features], media: Media) -> Features:
        features = encode(media)
        self.encoded += 1
        self._features.put(key, features)
        return features

    def _see(self, media: Media) -> Features:
        if media.pixels is None:
            raise _missing(media)
        assert media.grid is not None
        figures, (times, rows, columns) = self._figures, media.grid
        at_once = max(1, MOST_PATCHES // (rows * columns))
        pieces = []
        for time in range(0, times, at_once):
            frames = media.pixels[time * figures.temporal_patch : (time + at_once) * figures.temporal_patch]
            grid = torch.tensor([[min(at_once, times - time), rows, columns]], device=self._device)
            values = patches(torch.tensor(frames, device=self._device), figures)
            pieces.append(self._thinker.get_image_features(values, grid, return_dict=True))
        deepstack = zip(*(piece.deepstack_features for piece in pieces), strict=True)
        return Features(
            torch.cat([one for piece in pieces for one in piece.pooler_output]),
            tuple(torch.cat([one for piece in level for one in piece]) for level in deepstack),
        )

    def _hear(self, media: Media) -> Features:
        if media.mel is None:
            raise _missing(media)
        mel = torch.tensor(media.mel, device=self._device, dtype=self._embed.weight.dtype)[None]
        mask = torch.ones(1, mel.shape[2], dtype=torch.long, device=self._device)
        heard = self._thinker.get_audio_features(mel, feature_attention_mask=mask, return_dict=True)
        return Features(heard.last_hidden_state)


def _missing(media: Media) -> MediaMissing:
    return MediaMissing(f"The {media.kind} is no longer held; send it again with its bytes.")
