"""A decoder of `transformers` that serves many sequences at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from omni.engine.attention import use_paged
from omni.engine.graphs import Graphs, bucket
from omni.engine.kv import KVBatch, KVPool, KVSequence


class LanguageModel:
    """Runs `model`, a decoder with three-axis rotary positions as Qwen Omni's thinker and talker have, on `kv`.

    Positions and masks are explicit: the model's own state of the last call is neither read nor written.
    """

    def __init__(
        self, model: Any, kv: KVPool, *, capture: int | None = None, paged: bool = False, graphs: Graphs | None = None
    ) -> None:
        """`capture` is the index of the hidden states to return beside the last ones, 0 for the embeddings.

        With `paged`, attention reads the pool itself; with `graphs`, `step` runs in few shapes, as graphs where there
        are any.
        """
        self.model = model
        self.kv = kv
        self._capture = capture
        self._paged = paged
        self._graphs = graphs
        if paged:
            use_paged(model)

    @torch.no_grad()
    def __call__(
        self, sequences: Sequence[KVSequence], embeds: Tensor, positions: Tensor, **options: Any
    ) -> tuple[Tensor, Tensor | None]:
        """Appends `embeds` [rows, count, hidden] at `positions` [3, rows, count] to `sequences`.

        Returns the hidden states after the last norm and those of `capture`, [rows, count, hidden] each. Raises
        `KVFull`, with nothing appended.
        """
        batch = self.kv.batch(sequences, embeds.shape[1])
        if self._capture is not None:
            options["output_hidden_states"] = [self._capture]
        out = self._run(batch, embeds, positions, **options)
        _grow(sequences, batch.count)
        captured = None if self._capture is None else out.hidden_states[self._capture]
        return out.last_hidden_state, captured

    @torch.no_grad()
    def step(self, sequences: Sequence[KVSequence], embeds: Tensor, positions: Tensor) -> Tensor:
        """Appends one token, `embeds` [rows, 1, hidden] at `positions` [3, rows, 1], to each of `sequences`.

        Returns the hidden states after the last norm [rows, 1, hidden], which the next step may overwrite. Raises
        `KVFull`, with nothing appended.
        """
        rows = len(sequences)
        if self._graphs is None:
            batch = self.kv.batch(sequences, 1)
            hidden: Tensor = self._run(batch, embeds, positions).last_hidden_state
        else:
            # The last row again and again: it computes and stores the same.
            more = bucket(rows) - rows
            padded = [*sequences, *[sequences[-1]] * more]
            embeds = torch.cat([embeds, embeds[-1:].expand(more, -1, -1)])
            positions = torch.cat([positions, positions[:, -1:].expand(-1, more, -1)], 1)
            width = bucket(max(self.kv.blocks_for(sequence.length + 1) for sequence in sequences))
            batch = self.kv.batch(padded, 1, width=width)
            key = (len(padded), width)
            hidden = self._graphs(key, self._step, batch.tables, batch.starts, embeds, positions)[:rows]
        _grow(sequences, 1)
        return hidden

    def _step(self, tables: Tensor, starts: Tensor, embeds: Tensor, positions: Tensor) -> Tensor:
        hidden: Tensor = self._run(KVBatch(self.kv, tables, starts, 1), embeds, positions).last_hidden_state
        return hidden

    def _run(self, batch: KVBatch, embeds: Tensor, positions: Tensor, **options: Any) -> Any:
        batch.paged = self._paged
        if self._paged:
            options["batch"] = batch
        return self.model(
            inputs_embeds=embeds,
            attention_mask=batch.mask(),
            position_ids=torch.cat([batch.places[None].to(positions.dtype), positions]),
            cache=batch,
            use_cache=True,
            **options,
        )


def _grow(sequences: Sequence[KVSequence], count: int) -> None:
    for sequence in sequences:
        sequence.length += count
