"""Functions of fixed shapes as CUDA graphs: one launch for all their kernels.

A captured function is frozen: a replay runs the same kernels on the same addresses, whatever Python would do by now.
So it must be a function of its inputs and of tensors that stay where they are, with no look at a value on the host.
It may write only what it writes again alike when it runs again, such as the keys and values of a token; what counts or
advances is written by the caller, of what the function returned.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Outputs = tuple[Tensor, ...]
Function = Callable[..., Outputs]
Capture = Callable[[Function, tuple[Tensor, ...]], tuple[Callable[[], None], Outputs]]
"""Freezes a function on tensors that stay where they are: what replays it, and where its results appear."""

WARM_UPS = 2
"""Runs before a capture, in which libraries allocate and choose what a capture mustn't."""


@dataclass(frozen=True, slots=True)
class _Captured:
    inputs: tuple[Tensor, ...]
    replay: Callable[[], None]
    outputs: Outputs


class Graphs:
    """Captures a function once per key and replays it. Where nothing can be captured, it simply calls the function."""

    def __init__(self, device: torch.device | str) -> None:
        self._capture = capturing(torch.device(device))
        self._captured: dict[Hashable, _Captured] = {}

    def __len__(self) -> int:
        """Graphs that were captured."""
        return len(self._captured)

    def __call__(self, key: Hashable, function: Function, *inputs: Tensor) -> Outputs:
        """`function(*inputs)`; `key` stands for the function, for the shapes of `inputs` and for all else that it
        depends on. The results are overwritten by the next call of `key`."""
        if self._capture is None:
            return function(*inputs)
        known = self._captured.get(key)
        if known is None:
            places = tuple(value.clone() for value in inputs)
            known = self._captured[key] = _Captured(places, *self._capture(function, places))
        for place, value in zip(known.inputs, inputs, strict=True):
            place.copy_(value)
        known.replay()
        return known.outputs


def capturing(device: torch.device) -> Capture | None:
    """How functions are captured on `device`; None where they can't be."""
    return _CudaCapture(device) if device.type == "cuda" else None


class _CudaCapture:
    """Graphs of one pool of memory for what they hold in between: they never run at once."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._memory: Any = None

    def __call__(self, function: Function, places: tuple[Tensor, ...]) -> tuple[Callable[[], None], Outputs]:
        # The streams below are those of the current device.
        with torch.cuda.device(self._device):
            return self._captured(function, places)

    def _captured(self, function: Function, places: tuple[Tensor, ...]) -> tuple[Callable[[], None], Outputs]:
        beside = torch.cuda.Stream()
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):
            for _ in range(WARM_UPS):
                function(*places)
        torch.cuda.current_stream().wait_stream(beside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._memory):
            outputs = function(*places)
        self._memory = self._memory or graph.pool()
        return graph.replay, outputs


def bucket(size: int) -> int:
    """The power of two that holds `size`, so that there are few shapes."""
    return 1 << max(0, size - 1).bit_length()


def padded(rows: Tensor, size: int, dim: int = 0) -> Tensor:
    """`rows` with the last one again and again until there are `size`: it computes and stores the same."""
    more = size - rows.shape[dim]
    if not more:
        return rows
    last = rows.narrow(dim, rows.shape[dim] - 1, 1)
    return torch.cat([rows, last.expand([more if d == dim else n for d, n in enumerate(rows.shape)])], dim)
