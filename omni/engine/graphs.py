"""Functions of fixed shapes as CUDA graphs: one launch for all their kernels."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

WARM_UPS = 2
"""Runs before a capture, in which libraries allocate and choose what a capture mustn't."""


@dataclass(frozen=True, slots=True)
class _Captured:
    graph: Any
    inputs: tuple[Tensor, ...]
    output: Tensor


class Graphs:
    """Captures a function once per key and replays it. Off CUDA it simply calls the function."""

    def __init__(self, device: torch.device) -> None:
        self._captures = device.type == "cuda"
        self._captured: dict[Hashable, _Captured] = {}
        self._memory: Any = None

    def __len__(self) -> int:
        """Graphs that were captured."""
        return len(self._captured)

    def __call__(self, key: Hashable, function: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
        """`function(*inputs)`; `key` stands for the function and for the shapes of `inputs`.

        The function may run several times: it must do the same each time, be free of host synchronisation, and touch
        nothing but `inputs` and tensors that stay where they are. Its result is overwritten by the next call of `key`.
        """
        if not self._captures:
            return function(*inputs)
        known = self._captured.get(key)
        if known is None:
            known = self._captured[key] = self._capture(function, inputs)
        for place, value in zip(known.inputs, inputs, strict=True):
            place.copy_(value)
        known.graph.replay()
        return known.output

    def _capture(self, function: Callable[..., Tensor], inputs: tuple[Tensor, ...]) -> _Captured:
        places = tuple(value.clone() for value in inputs)
        beside = torch.cuda.Stream()
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):
            for _ in range(WARM_UPS):
                function(*places)
        torch.cuda.current_stream().wait_stream(beside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._memory):
            output = function(*places)
        # All graphs share memory for what they hold in between: they never run at once.
        self._memory = self._memory or graph.pool()
        return _Captured(graph, places, output)


def bucket(size: int) -> int:
    """The power of two that holds `size`, so that there are few shapes."""
    return 1 << max(0, size - 1).bit_length()
