"""The decoder's states of many streams, of which any may take part in a step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from omni.engine.graphs import Graphs, bucket, padded
from omni.engine.transfer import upload


class Step(Protocol):
    """`wave, *states = step(codes, position, *states)`, however it is computed. All are on one device.

    codes     int64 [B, frames, groups]
    position  int64 [B], frames that each row's stream has decoded before; 0 starts a stream
    states    as `DecoderConfig.states` makes them, the batch first; those of a stream that starts are zeros
    wave      float32 [B, frames * hop] in -1 to 1; of a stream that starts, the first `lead` samples are to be dropped
    """

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, ...]: ...


class Streams:
    """Rows of states. A row is one stream; `decode` advances the rows that it is given and leaves the others alone."""

    def __init__(self, step: Step, states: Sequence[Tensor], graphs: Graphs | None = None) -> None:
        """`states` are fresh ones, the first dimension as long as there are rows. With `graphs`, decodes run in few
        batch sizes, as graphs where there are any."""
        self._step = step
        self._graphs = graphs
        self._shapes = [tuple(state.shape[1:]) for state in states]
        # One tensor, so that taking a batch of rows out and putting it back are one operation each.
        self._states = torch.cat([state.flatten(1) for state in states], 1)
        self._positions = torch.zeros(len(self._states), dtype=torch.long, device=self._states.device)

    def __len__(self) -> int:
        return len(self._positions)

    def position(self, row: int) -> int:
        """Frames that the row has decoded."""
        return int(self._positions[row])

    def reset(self, row: int) -> None:
        """Makes the row a stream that hasn't begun."""
        self._positions[row] = 0
        self._states[row] = 0

    @torch.inference_mode()
    def decode(self, rows: Sequence[int], codes: Tensor) -> Tensor:
        """The samples of the next frames of `rows`: [rows, frames * hop] of int64 [rows, frames, groups]. The next
        decode may overwrite them.

        The first `lead` samples of a stream's first decode are to be dropped.
        """
        index, codes = upload(rows, self._states.device, torch.long), codes.to(self._states.device)
        if self._graphs is None:
            wave, states = self._advanced(index, codes)
        else:
            size = bucket(len(rows))
            inputs = padded(index, size), padded(codes, size)
            wave, states = self._graphs(inputs[1].shape, self._advanced, *inputs)
        self._states[index] = states[: len(rows)]
        self._positions[index] += codes.shape[1]
        return wave[: len(rows)]

    def _advanced(self, rows: Tensor, codes: Tensor) -> tuple[Tensor, Tensor]:
        """Samples and states to come, of which nothing is kept."""
        parts = self._states[rows].split([math.prod(shape) for shape in self._shapes], 1)
        states = (part.unflatten(1, shape) for part, shape in zip(parts, self._shapes, strict=True))
        wave, *renewed = self._step(codes, self._positions[rows], *states)
        return wave, torch.cat([state.flatten(1) for state in renewed], 1)
