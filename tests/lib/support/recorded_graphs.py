"""CUDA graphs acted out on the CPU: what a capture would freeze is frozen, and what it would refuse is refused.

A capture records every operator with the very tensors that it worked on. A replay runs these again and puts the results
where the recorded ones were; no Python of the captured function runs. So a value that was looked at on the host, a
tensor that moved since, a shape outside of the key or a result that is kept too long shows as it would on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from support.device import DEVICE
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from omni.engine import graphs
from omni.engine.graphs import WARM_UPS, Function, Outputs

_WAITS = ("_local_scalar_dense", "nonzero", "masked_select", "_unique2", "is_nonzero", "equal", "lift_fresh",
          "exponential_", "multinomial", "normal_", "random_", "rand", "randn", "randint", "bernoulli_")  # fmt: skip
"""What looks at values on the host, brings some from there, or draws from a generator that isn't registered."""


class HostSync(Exception):
    """The function can't be captured."""


class _Recording(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, tuple[Any, ...], dict[str, Any], list[Tensor]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        masks = name in ("index", "index_put_") and any(
            index is not None and index.dtype == torch.bool for index in args[1]
        )
        if name in _WAITS or masks:
            raise HostSync(str(func))
        out = func(*args, **kwargs)
        own = {_memory(t) for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)}
        made = [t for t in tree_leaves(out) if isinstance(t, Tensor)]
        # A view of an argument, or an argument itself, is where it is.
        self.calls.append((func, args, kwargs, [] if any(_memory(t) in own for t in made) else made))
        return out

    @torch.no_grad()
    def replay(self) -> None:
        for func, args, kwargs, made in self.calls:
            out = func(*args, **kwargs)
            fresh = [t for t in tree_leaves(out) if isinstance(t, Tensor)]
            for old, new in zip(made, fresh, strict=False):
                old.copy_(new)


def _memory(tensor: Tensor) -> int:
    return getattr(tensor, "on_host", tensor).untyped_storage()._cdata


class RecordedGraph:
    """Stands in for `torch.cuda.CUDAGraph`."""

    def __init__(self) -> None:
        self.recording = _Recording()
        self.replay = self.recording.replay

    def pool(self) -> object:
        return self


@contextmanager
def recording(graph: RecordedGraph, pool: object = None) -> Iterator[None]:
    """Stands in for `torch.cuda.graph`."""
    with graph.recording:
        yield
    for *_, made in graph.recording.calls:
        for tensor in made:
            if 0 not in tensor.stride():
                # A capture computes nothing.
                tensor.fill_(0)


def recorded(function: Function, places: tuple[Tensor, ...]) -> tuple[Callable[[], None], Outputs]:
    """A `Capture`. Raises `HostSync`."""
    for _ in range(WARM_UPS):
        function(*places)
    with _Recording() as recording:
        outputs = function(*places)
    for place in outputs:
        # A capture computes nothing.
        place.fill_(0)
    return recording.replay, outputs


@contextmanager
def recorded_graphs() -> Iterator[None]:
    """`Graphs` that are made inside of it capture on the CPU, and on a GPU as ever."""
    if DEVICE != "cpu":
        yield
        return
    with mock.patch.object(graphs, "capturing", return_value=recorded):
        yield
