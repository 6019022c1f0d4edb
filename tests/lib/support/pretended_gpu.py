"""A GPU that isn't there: tensors on `cuda:0` whose values are the CPU's, under the rules of a device of its own.

An operator on tensors of two devices is refused. What a GPU does later is done later: a copy to pinned memory has
arrived when an event after it was waited for, and holds nothing but rubbish before. What makes the host wait is
counted. Graphs are those of `recorded_graphs`. The kernels, and so speed and rounding, are the CPU's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any
from unittest import mock

import torch
from support.recorded_graphs import RecordedGraph, recording
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

GPU = torch.device("cuda:0")
_CROSSING = ("copy_", "_to_copy")
"""Operators that take tensors of two devices."""
_INDEXING = ("index", "index_put_", "_unsafe_index", "_index_put_impl_")
"""Operators whose indices may be the CPU's; the host has to send them."""
_WAITS = ("_local_scalar_dense", "nonzero", "masked_select", "_unique2", "unique_dim", "equal", "is_nonzero")
"""Operators whose result has a value or a shape that the host wants."""
_RESHAPING = ("resize_", "t_", "transpose_", "squeeze_", "unsqueeze_", "as_strided_", "set_")
"""What changes a tensor's shape in place, which a wrapper can't follow."""
_OPERATORS = {"__invert__": "bitwise_not"}
"""Methods that have another name than their operator."""
_NUMBERS: Mapping[str, Callable[[Any], Any]] = {"__int__": int, "__float__": float, "__bool__": bool}


class WrongDevice(RuntimeError):
    """An operator that a GPU would refuse."""


class OnGpu(Tensor):
    """A tensor on the GPU; `on_host` has its values."""

    on_host: Tensor

    @staticmethod
    def __new__(cls, values: Tensor) -> OnGpu:
        # A view of a tensor that was made outside of inference mode isn't one of its tensors either.
        with torch.inference_mode(False):
            made = Tensor._make_wrapper_subclass(
                cls, values.shape, strides=values.stride(), storage_offset=values.storage_offset(), dtype=values.dtype,
                layout=values.layout, device=GPU,
            )  # fmt: skip
        made.on_host = values
        return made

    def __repr__(self) -> str:
        return f"OnGpu({self.on_host!r})"

    def __index__(self) -> int:
        return int(self.item())

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def numpy(self, *, force: bool = False) -> Any:
        if not force:
            raise WrongDevice("a tensor on a GPU has no numpy array")
        return self.cpu().numpy()

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        with torch._C.DisableTorchFunctionSubclass():
            if func in (Tensor.__getitem__, Tensor.__setitem__):
                return _indexed(func, *args)
            try:
                return func(*args, **kwargs)
            except RuntimeError as error:
                if "not linked with support for cuda" not in str(error):
                    raise
            # Some methods look for a driver before they look for a subclass.
            name = func.__name__
            if name in _NUMBERS:
                return _NUMBERS[name](args[0].item())
            if kwargs.get("as_tuple") is False:
                del kwargs["as_tuple"]
            return getattr(torch.ops.aten, _OPERATORS.get(name, name))(*args, **kwargs)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _gpu().operate(func, args, kwargs or {})


def _values(value: Any) -> Any:
    """What the CPU computes with, of anything in arguments."""
    if isinstance(value, OnGpu):
        return value.on_host
    if type(value) in (list, tuple):
        return type(value)(map(_values, value))
    return value


def _on_gpu(value: Any) -> Any:
    """What is seen on the GPU, of anything in results."""
    if type(value) in (list, tuple):
        return type(value)(map(_on_gpu, value))
    return OnGpu(value) if isinstance(value, Tensor) and not isinstance(value, OnGpu) else value


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif type(value) in (list, tuple):
        for one in value:
            yield from _tensors(one)


@cache
def _composite(func: Any) -> bool:
    """Whether `func` is made of other operators."""
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"))


def _indexed(func: Any, tensor: Tensor, index: Any, *assigned: Any) -> Any:
    _gpu().check_index(tensor, index, assigned)
    out = func(*_values((tensor, index, *assigned)))
    return _on_gpu(out) if isinstance(tensor, OnGpu) else out


class PretendedGpu(TorchDispatchMode):
    """What is on at the moment. `waits` names what made the host wait so far."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[str] = []
        self._pinned: dict[int, Tensor] = {}
        self._arriving: list[tuple[Tensor, Tensor]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.operate(func, args, kwargs or {})

    def operate(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """`func` under the rules of two devices."""
        name, tensors = func._opname, [*_tensors(args), *_tensors(list(kwargs.values()))]
        here = any(isinstance(t, OnGpu) for t in tensors)
        wanted = kwargs.get("device", next((arg for arg in args if isinstance(arg, torch.device)), None))
        there = here if wanted is None else torch.device(wanted).type == GPU.type
        pinned = bool(kwargs.get("pin_memory"))
        if not (here or there or pinned):
            return func(*args, **kwargs)
        if _composite(func):
            with self:
                return func.decompose(*args, **kwargs)
        if here:
            self._check(func, name, args, tensors)
        plain = {key: _values(value) for key, value in kwargs.items() if key != "pin_memory"}
        if wanted is not None:
            plain["device"] = "cpu"
        if name == "copy_":
            return self._copied(func, *args)
        if name == "_to_copy" and here != there:
            self._crossed(args[0], bool(kwargs.get("non_blocking")))
            # Even a copy that changes nothing is one between devices.
            made = func(_values(args[0]), **plain)
            return OnGpu(made) if there else made
        if name == "histc" and not args[0].is_floating_point():
            # A kernel that the CPU doesn't have.
            out = func(args[0].on_host.float(), *args[1:], **plain).to(args[0].dtype)
        else:
            out = func(*_values(args), **plain)
        if pinned:
            self.pin(out)
        if name.endswith("_") and not name.endswith("__"):
            return args[0]
        if "out" in kwargs:
            return kwargs["out"]
        return _on_gpu(out) if there else out

    def _check(self, func: Any, name: str, args: Any, tensors: list[Tensor]) -> None:
        strangers = [t for t in tensors if not isinstance(t, OnGpu)]
        if name in _RESHAPING:
            raise NotImplementedError(name)
        if name in _WAITS:
            self.waits.append(name)
        if name in _INDEXING:
            self.check_index(args[0], args[1], args[2:3])
            return
        if torch.Tag.pointwise in func.tags or name in ("where", "masked_fill", "masked_fill_", "fill_"):
            strangers = [t for t in strangers if t.dim()]
        if strangers and name not in _CROSSING:
            raise WrongDevice(f"{name} of tensors of two devices")

    def check_index(self, tensor: Tensor, index: Any, assigned: Sequence[Any]) -> None:
        """Whether `tensor` can be read at `index`, or be given what is `assigned` there."""
        parts, here = list(_tensors(index)), isinstance(tensor, OnGpu)
        if not here and any(isinstance(part, OnGpu) for part in parts):
            raise WrongDevice("indices on the GPU of a tensor on the CPU")
        if any(value.dim() and isinstance(value, OnGpu) != here for value in _tensors(tuple(assigned))):
            raise WrongDevice("a value of another device is put into a tensor")
        if any(part.dtype == torch.bool for part in parts) and not assigned:
            self.waits.append("a mask as an index")
        if here and not all(isinstance(part, OnGpu) for part in parts):
            self.waits.append("indices on the CPU")

    def _crossed(self, source: Tensor, later: bool) -> None:
        if isinstance(source, OnGpu):
            self.waits.append("a copy to the CPU")
        elif not later or source.data_ptr() not in self._pinned:
            self.waits.append("a copy of memory that isn't pinned")

    def _copied(self, func: Any, into: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
        if isinstance(into, OnGpu) or not isinstance(source, OnGpu):
            if not isinstance(source, OnGpu) and source.dim():
                self._crossed(source, non_blocking)
            func(_values(into), _values(source))
        elif non_blocking and into.data_ptr() in self._pinned:
            self._arriving.append((into, source.on_host.clone()))
            into.view(torch.uint8).fill_(0x7F) if into.dim() else into.fill_(0)
        else:
            self.waits.append("a copy to the CPU")
            func(into, source.on_host)
        return into

    def pin(self, host: Tensor) -> Tensor:
        # Held, so that the address stays its own.
        self._pinned[host.data_ptr()] = host
        return host

    def record(self) -> Callable[[], None]:
        """An event: what waits for all that was begun."""
        begun, self._arriving = self._arriving, []

        def wait() -> None:
            while begun:
                into, values = begun.pop()
                into.copy_(values)

        return wait


_ON: list[PretendedGpu] = []


def _gpu() -> PretendedGpu:
    if not _ON:
        raise WrongDevice("the GPU is gone")
    return _ON[-1]


class _Event:
    def __init__(self, **_: Any) -> None:
        self._wait: Callable[[], None] = lambda: None

    def record(self, stream: Any = None) -> None:
        self._wait = _gpu().record()

    def synchronize(self) -> None:
        self._wait()


class _Stream:
    def __init__(self, *_: Any) -> None: ...

    def wait_stream(self, other: _Stream) -> None: ...

    def synchronize(self) -> None:
        _gpu().waits.append("a stream")
        _gpu().record()()


_Generator = torch.Generator


class _GeneratorOfGpu:
    def __new__(cls, device: Any = "cpu") -> torch.Generator:  # type: ignore[misc]
        return _Generator()


class _Lists(TorchFunctionMode):
    """`torch.tensor` of lists with tensors on the GPU in them, which it looks into below all dispatch."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.tensor and any(isinstance(value, OnGpu) for value in _tensors(args)):
            _gpu().waits.append("numbers in a list")
            args = _values(args)
        return func(*args, **(kwargs or {}))


@contextmanager
def _entered(*_: Any) -> Iterator[None]:
    yield


@contextmanager
def pretended_gpu() -> Iterator[PretendedGpu]:
    """The device `cuda:0`, for this thread: an H200 by its own account."""
    current = _Stream()
    stand_ins: dict[str, Any] = {
        "torch.cuda._lazy_init": lambda: None,
        "torch.cuda.get_device_capability": lambda device=None: (9, 0),
        "torch.cuda.get_device_name": lambda device=None: "none",
        "torch.cuda.device": _entered,
        "torch.cuda.stream": _entered,
        "torch.cuda.Stream": _Stream,
        "torch.cuda.Event": _Event,
        "torch.cuda.current_stream": lambda device=None: current,
        "torch.cuda.synchronize": lambda device=None: current.synchronize(),
        "torch.cuda.CUDAGraph": RecordedGraph,
        "torch.cuda.graph": recording,
        "torch.Generator": _GeneratorOfGpu,
        "torch.Tensor.pin_memory": lambda host: _gpu().pin(host.clone()),
    }
    overwrites = torch.__future__.get_overwrite_module_params_on_conversion()
    lifts = torch._C._only_lift_cpu_tensors()
    with ExitStack() as stack:
        for name, stand_in in stand_ins.items():
            stack.enter_context(mock.patch(name, stand_in))
        torch.__future__.set_overwrite_module_params_on_conversion(True)
        torch._C._set_only_lift_cpu_tensors(True)
        stack.enter_context(_Lists())
        gpu = stack.enter_context(PretendedGpu())
        _ON.append(gpu)
        try:
            yield gpu
        finally:
            _ON.remove(gpu)
            torch._C._set_only_lift_cpu_tensors(lifts)
            torch.__future__.set_overwrite_module_params_on_conversion(overwrites)
