"""A decoder of `transformers` that serves many sequences at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from omni.engine.attention import use_paged
from omni.engine.graphs import Graphs, bucket, padded
from omni.engine.kv import KVBatch, KVPool, KVSequence

LEAST_WIDTH = 16
"""Blocks of the narrowest table of a step in few shapes: below it, another shape would gain nothing."""


class LanguageModel:
    """Runs `model`, a decoder with three-axis rotary positions as Qwen Omni's thinker and talker have, on `kv`.

    Positions and masks are explicit: the model's own state of the last call is neither read nor written.
    """

    def __init__(
        self, model: Any, kv: KVPool, *, capture: int | None = None, paged: bool = False, graphs: Graphs | None = None
    ) -> None:
        """`capture` is the index of the hidden states to return beside the last ones, 0 for the embeddings.

        With `paged`, attention reads the pool itself; with `graphs`, steps run in few shapes, as graphs where there
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
        grow(sequences, batch.count)
        captured = None if self._capture is None else out.hidden_states[self._capture]
        return out.last_hidden_state, captured

    @torch.no_grad()
    def step(self, sequences: Sequence[KVSequence], embeds: Tensor, positions: Tensor) -> Tensor:
        """Appends one token, `embeds` [rows, hidden] at the text position `positions` [rows], to each of `sequences`.

        Returns the hidden states after the last norm [rows, hidden], which the next step may overwrite. Raises
        `KVFull`, with nothing appended.
        """
        tables, starts = self.room(sequences)
        size = len(starts)
        inputs = (tables, starts, padded(embeds, size), padded(positions, size))
        if self._graphs is None:
            (hidden,) = self._step(*inputs)
        else:
            (hidden,) = self._graphs(tables.shape, self._step, *inputs)
        grow(sequences, 1)
        return hidden[: len(sequences)]

    def room(self, sequences: Sequence[KVSequence]) -> tuple[Tensor, Tensor]:
        """Room for one more token in each of `sequences`: `tables` and `starts` of `run`. With graphs there are few
        shapes of them, and the last row stands there again and again. Raises `KVFull`."""
        if self._graphs is None:
            batch = self.kv.batch(sequences, 1)
        else:
            most = max(self.kv.blocks_for(sequence.length + 1) for sequence in sequences)
            more = [sequences[-1]] * (bucket(len(sequences)) - len(sequences))
            batch = self.kv.batch([*sequences, *more], 1, width=max(LEAST_WIDTH, bucket(most)))
        return batch.tables, batch.starts

    def run(self, tables: Tensor, starts: Tensor, embeds: Tensor, positions: Tensor) -> Tensor:
        """A step as a function of tensors alone, which can be captured: the hidden states after the last norm
        [rows, hidden] of one more token `embeds` [rows, hidden] at `positions` [rows] of each sequence, which doesn't
        grow by it."""
        axes = positions.expand(3, -1)[..., None]
        hidden: Tensor = self._run(KVBatch(self.kv, tables, starts, 1), embeds[:, None], axes).last_hidden_state
        return hidden[:, 0]

    def _step(self, *inputs: Tensor) -> tuple[Tensor]:
        return (self.run(*inputs),)

    def _run(self, batch: KVBatch, embeds: Tensor, positions: Tensor, **options: Any) -> Any:
        batch.paged = self._paged
        if self._paged:
            options["batch"] = batch
        return self.model(
            inputs_embeds=embeds,
            # Attention on the pool knows what is seen by the lengths alone.
            attention_mask=batch.mask() if not self._paged else batch.places.new_ones(1, 1, 1, 1, dtype=torch.bool),
            position_ids=torch.cat([batch.places[None].to(positions.dtype), positions]),
            cache=batch,
            use_cache=True,
            **options,
        )


def grow(sequences: Sequence[KVSequence], count: int) -> None:
    """Tells `sequences` that so many tokens more are in their blocks."""
    for sequence in sequences:
        sequence.length += count
