"""Codec frames, the next one of many generations at once: talker, sampling and code predictor as one function.

On a GPU that function is one graph per size of the batch, and nothing in it waits for the host.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from omni.contract.params import SamplingParams
from omni.engine.attention import PAGED_BLOCK, available
from omni.engine.graphs import Graphs, bucket, padded
from omni.engine.kv import BLOCK, KVPool, KVSequence
from omni.engine.language import LanguageModel, grow
from omni.engine.sampler import Needs, Sampler
from omni.engine.transfer import download, upload
from omni.stages.qwen3_omni.checkpoint import Place
from omni.stages.qwen3_omni.talker_model import TalkerModel


class Frames:
    """Options: `kv_tokens` (262144) of keys and values that are held at most, in blocks of `kv_block` (16, with paged
    attention 256); `paged_attention` (where flash-attn can do it); `graphs` (where they can be captured), frames in few
    shapes and as CUDA graphs; with an `engine`, which need not be capturable, the talker alone.

    Each generation has a row, which is opened before its first frame and closed after its last one.
    """

    def __init__(self, options: Mapping[str, Any], place: Place, model: TalkerModel, rows: int) -> None:
        self._model = model
        self._device = device = model.device
        paged = bool(options.get("paged_attention", available(device, place.dtype)))
        graphs = Graphs(device) if options.get("graphs", place.capturable) else None
        self._graphs = None if "engine" in options else graphs
        # Graphs want the pool to stay where it is.
        self.kv = KVPool.of(
            model.lm,
            int(options.get("kv_tokens", 262_144)),
            block=int(options.get("kv_block", PAGED_BLOCK if paged else BLOCK)),
            reserve=device.type != "cpu" or graphs is not None,
        )
        self._lm = LanguageModel(model.lm, self.kv, paged=paged, graphs=graphs)
        self._sampler = Sampler(rows, model.head.out_features, device, beside=(model.groups - 1, model.codebook))
        self._last = torch.zeros(rows, model.hidden, dtype=place.dtype, device=device)
        """Embedding of each row's last frame."""

    def open(self, row: int, params: SamplingParams) -> None:
        end = [self._model.end]
        suppressed = [*self._model.suppressed, *(end if params.ignore_eos else ())]
        self._sampler.open(row, params, ends=end, suppress=suppressed)

    def close(self, row: int) -> None:
        self._sampler.close(row)

    def read(self, sequence: KVSequence, embeddings: Tensor, positions: Tensor) -> Tensor:
        """Appends a part of a prompt, [count, hidden size] at [3, count]; its last hidden state [1, hidden size]."""
        hidden, _ = self._lm([sequence], embeddings[None], positions[:, None])
        return hidden[:, -1]

    @torch.inference_mode()
    def first(self, rows: Sequence[int], hidden: Tensor) -> Tensor:
        """The frames that follow prompts with the last states `hidden` [rows, hidden size]: codes, int64 [rows, groups]
        on the device. The next call may overwrite them; then `told`."""
        size = len(rows) if self._graphs is None else bucket(len(rows))
        index = padded(upload(rows, self._device, torch.long), size)
        return self._made(rows, "first", self._choose, index, padded(hidden, size))

    @torch.inference_mode()
    def next(
        self, rows: Sequence[int], sequences: Sequence[KVSequence], tokens: Sequence[int], positions: Sequence[float]
    ) -> Tensor:
        """The frames after those that `rows` had last, spoken while `tokens` are read at `positions` of `sequences`:
        codes, int64 [rows, groups] on the device. The next call may overwrite them; then `told`. Raises
        `KVFull`."""
        index, text = (upload(ids, self._device, torch.long) for ids in (rows, tokens))
        at = upload(positions, self._device, torch.float32)
        if self._graphs is None:
            hidden = self._lm.step(sequences, self._last[index] + self._model.text[text], at)
            return self._made(rows, "first", self._choose, index, hidden)
        tables, starts = self._lm.room(sequences)
        index, text, at = (padded(one, len(starts)) for one in (index, text, at))
        codes = self._made(rows, "next", self._read, index, text, at, tables, starts)
        grow(sequences, 1)
        return codes

    def told(self, rows: Sequence[int], codes: Sequence[Tensor]) -> npt.NDArray[np.int64]:
        """The `codes` that `first` and `next` made for `rows`, on the host [rows, groups]. While the device is at work,
        what the next frames are drawn with is asked of it."""
        wait = download(torch.cat(list(codes)))
        self._sampler.draw(rows)
        return wait()

    def _made(self, rows: Sequence[int], name: str, function: Any, index: Tensor, *inputs: Tensor) -> Tensor:
        needs = self._sampler.needs(rows)
        step = partial(function, needs)
        if self._graphs is None:
            codes, embeddings = step(index, *inputs)
        else:
            key = (name, needs, *(tuple(one.shape) for one in inputs))
            codes, embeddings = self._graphs(key, step, index, *inputs)
        count = len(rows)
        self._last[index[:count]] = embeddings[:count]
        self._sampler.took(index[:count], codes[:count, 0])
        return codes[:count]

    def _read(
        self, needs: Needs, rows: Tensor, tokens: Tensor, positions: Tensor, tables: Tensor, starts: Tensor
    ) -> tuple[Tensor, Tensor]:
        embeddings = self._last[rows] + self._model.text[tokens]
        return self._choose(needs, rows, self._lm.run(tables, starts, embeddings, positions))

    def _choose(self, needs: Needs, rows: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        first = self._sampler.choose(needs, rows, self._model.head(hidden).float())
        return self._model.predictor(hidden, first, self._sampler.beside[rows], self._sampler.sampled[rows])
