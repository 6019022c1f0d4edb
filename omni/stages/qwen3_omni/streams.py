"""The decoder's states of many streams, of which any may take part in a step."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Step = Callable[..., tuple[Tensor, ...]]
"""`wave, *states = step(codes, position, *states)`, as `Decoder` defines it."""


class Streams:
    """Rows of states. A row is one stream; `decode` advances the rows that it is given and leaves the others alone."""

    def __init__(self, step: Step, states: Sequence[Tensor]) -> None:
        """`states` are fresh ones, the first dimension as long as there are rows."""
        self._step = step
        self._states = list(states)
        self._positions = torch.zeros(len(states[0]), dtype=torch.long, device=states[0].device)

    def __len__(self) -> int:
        return len(self._positions)

    def position(self, row: int) -> int:
        """Frames that the row has decoded."""
        return int(self._positions[row])

    def reset(self, row: int) -> None:
        """Makes the row a stream that hasn't begun."""
        self._positions[row] = 0
        for state in self._states:
            state[row].zero_()

    @torch.inference_mode()
    def decode(self, rows: Sequence[int], codes: Tensor) -> Tensor:
        """The samples of the next frames of `rows`: float32 [rows, frames * hop] of int64 [rows, frames, groups].

        The first `lead` samples of a stream's first decode are to be dropped.
        """
        device = self._positions.device
        index = torch.tensor(rows, device=device)
        wave, *renewed = self._step(codes.to(device), self._positions[index], *(s[index] for s in self._states))
        for state, new in zip(self._states, renewed, strict=True):
            state[index] = new
        self._positions[index] += codes.shape[1]
        return wave
