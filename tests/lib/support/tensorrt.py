"""The runtime of TensorRT, played by ONNX Runtime on the CPU."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch

from omni.stages.qwen3_omni import engines

_KINDS = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(bool)": np.bool_}


class _Engine:
    """An ONNX file whose free sizes go up to `largest`."""

    def __init__(self, content: bytes, largest: int) -> None:
        self.session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
        self._inputs = {one.name: one for one in self.session.get_inputs()}
        self._outputs = {one.name: one for one in self.session.get_outputs()}
        # TensorRT promises no order.
        self._names = sorted([*self._inputs, *self._outputs], reverse=True)
        self._largest = largest
        self.num_io_tensors = len(self._names)

    def get_tensor_name(self, number: int) -> str:
        return self._names[number]

    def get_tensor_mode(self, name: str) -> str:
        return "input" if name in self._inputs else "output"

    def get_tensor_dtype(self, name: str) -> Any:
        return _KINDS[(self._inputs | self._outputs)[name].type]

    def get_tensor_profile_shape(self, name: str, profile: int) -> list[list[int]]:
        assert profile == 0
        shape = self._inputs[name].shape
        return [[size if isinstance(size, int) else free for size in shape] for free in (1, 2, self._largest)]

    def create_execution_context(self) -> _Context:
        return _Context(self)


class _Context:
    def __init__(self, engine: _Engine) -> None:
        self._engine = engine
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._addresses: dict[str, int] = {}

    def _at(self, name: str, shape: tuple[int, ...]) -> Any:
        kind = np.dtype(self._engine.get_tensor_dtype(name))
        size = kind.itemsize * int(np.prod(shape))
        return np.frombuffer((ctypes.c_char * size).from_address(self._addresses[name]), kind).reshape(shape)

    def _run(self) -> dict[str, Any]:
        names = [one.name for one in self._engine.session.get_outputs()]
        given = {name: self._at(name, shape) for name, shape in self._shapes.items()}
        return dict(zip(names, self._engine.session.run(names, given), strict=True))

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        self._shapes[name] = shape
        return True

    def set_tensor_address(self, name: str, address: int) -> bool:
        self._addresses[name] = address
        return True

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._run()[name].shape)

    def execute_async_v3(self, stream: int) -> bool:
        for name, value in self._run().items():
            self._at(name, value.shape)[...] = value
        return True


class _Nowhere:
    """The device that isn't there."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


def play_tensorrt(monkeypatch: pytest.MonkeyPatch, largest: int) -> None:
    """Makes `TensorRtEngine` take an ONNX file for an engine whose free sizes go up to `largest`, and the CPU for its
    device."""

    class Runtime:
        def __init__(self, logger: object) -> None:
            pass

        def deserialize_cuda_engine(self, content: bytes) -> _Engine | None:
            try:
                return _Engine(content, largest)
            except Exception:  # as TensorRT, which prints it
                return None

    played = SimpleNamespace(
        Runtime=Runtime,
        Logger=type("Logger", (), {"WARNING": 1, "__init__": lambda self, level: None}),
        TensorIOMode=SimpleNamespace(INPUT="input"),
        DataType=SimpleNamespace(FLOAT=np.float32, INT64=np.int64, INT32=np.int32, BOOL=np.bool_),
    )
    monkeypatch.setattr(engines, "tensorrt", lambda: played)
    monkeypatch.setattr(torch.cuda, "device", lambda _: _Nowhere())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(cuda_stream=0))
