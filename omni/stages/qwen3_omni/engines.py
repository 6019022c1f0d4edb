"""Steps from a file: the codec decoder and the code predictor as `build/` exported them, called as in torch.

A file's suffix says what runs it: `.onnx` ONNX Runtime, `.engine` or `.plan` TensorRT. Both compute on the stage's
device, on tensors that are there already.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import torch
from torch import Tensor

from omni.stages.qwen3_omni.code_predictor import Predictor

NUMPY: Final = {torch.float32: np.float32, torch.int64: np.int64, torch.bool: np.bool_}
"""The dtypes that go in and out, whatever is computed with in between."""


@dataclass(frozen=True, slots=True)
class Names:
    """What a file calls its inputs and outputs, in the order of the function's."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def step_names(states: int) -> Names:
    """Of the decoder's step with so many states, as `omni.stages.qwen3_omni.streams.Step` has them."""
    numbered = [f"state_{number}" for number in range(states)]
    return Names(("codes", "position", *numbered), ("wave", *(f"new_{name}" for name in numbered)))


PREDICTOR_NAMES: Final = Names(("hidden", "first", "noise", "sampled"), ("frame", "frame_embedding"))
"""Of the code predictor, as `Predictor` has them; `hidden` and `frame_embedding` are float32."""


class Engine(Protocol):
    def __call__(self, *inputs: Tensor) -> tuple[Tensor, ...]: ...


def load_engine(file: Path, names: Names, largest: Sequence[Sequence[int]], device: torch.device | str) -> Engine:
    """The function in `file`. `largest` are the shapes of its inputs when as much is asked of it as may be.

    Raises OSError when there is no such file, ValueError when it can't be run here or doesn't do what is asked.
    """
    if not file.is_file():
        raise FileNotFoundError(f"there is no engine {file}: make it with build/export_onnx.py and build/engines.py")
    if file.suffix == ".onnx":
        return OnnxEngine(file, names, largest, torch.device(device))
    if file.suffix in (".engine", ".plan"):
        if torch.device(device).type != "cuda":
            raise ValueError(f"the engine {file} needs a GPU and the stage runs on {device}")
        return TensorRtEngine(file, names, largest, torch.device(device))
    raise ValueError(f"the engine {file} must end in .onnx (ONNX Runtime), .engine or .plan (TensorRT)")


def load_predictor(file: Path, sizes: Sequence[int], device: torch.device | str) -> Predictor:
    """The code predictor in `file`. `sizes` are the largest batch, the hidden size, the groups and the codebook.
    Raises as `load_engine` does."""
    batch, hidden, groups, codebook = sizes
    largest = ((batch, hidden), (batch,), (batch, groups - 1, codebook), (batch,))
    engine = load_engine(file, PREDICTOR_NAMES, largest, device)

    def predictor(hidden: Tensor, first: Tensor, noise: Tensor, sampled: Tensor) -> tuple[Tensor, Tensor]:
        codes, embedding = engine(hidden.float(), first, noise, sampled)
        return codes, embedding.to(hidden.dtype)

    return predictor


def _check_names(file: Path, names: Names, inputs: Sequence[str], outputs: Sequence[str]) -> None:
    wanted, there = {*names.inputs, *names.outputs}, {*inputs, *outputs}
    if wanted != there:
        odd = ", ".join(sorted(wanted ^ there)[:3])
        raise ValueError(f"the engine {file} is of something else: it and the checkpoint disagree about {odd}")


def _check_shape(file: Path, name: str, asked: Sequence[int], least: Sequence[int], most: Sequence[int]) -> None:
    """Whether `asked` and anything smaller lies between `least` and `most`; a size that is fixed has to be met."""
    fits = len(asked) == len(most) and all(
        size == low == high or (low <= 1 and low < high and size <= high)
        for size, low, high in zip(asked, least, most, strict=True)
    )
    if not fits:
        raise ValueError(
            f"the engine {file} takes {name} of {list(least)} to {list(most)}, and up to {list(asked)} is asked of it: "
            "build it for this checkpoint and these sizes"
        )


class OnnxEngine:
    """On the CPU, or with a build of ONNX Runtime for CUDA on a GPU."""

    def __init__(self, file: Path, names: Names, largest: Sequence[Sequence[int]], device: torch.device) -> None:
        import onnxruntime

        provider: Any = "CPUExecutionProvider"
        if device.type == "cuda":
            provider = ("CUDAExecutionProvider", {"device_id": device.index or 0})
            if provider[0] not in onnxruntime.get_available_providers():
                raise ValueError("this ONNX Runtime has no CUDA: install onnxruntime-gpu, or let the stage run on cpu")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        try:
            self._session = session = onnxruntime.InferenceSession(str(file), options, providers=[provider])
        except Exception as problem:
            # Its errors have no class in common.
            raise ValueError(f"ONNX Runtime can't run the engine {file}: {problem}") from None
        self._names = names
        self._device = device
        shapes = {one.name: one.shape for one in session.get_inputs()}
        _check_names(file, names, list(shapes), [one.name for one in session.get_outputs()])
        for name, asked in zip(names.inputs, largest, strict=True):
            # A size that is free has a name in place of a number.
            fixed = [size if isinstance(size, int) else None for size in shapes[name]]
            least = [1 if size is None else size for size in fixed]
            most = [2**31 - 1 if size is None else size for size in fixed]
            _check_shape(file, name, asked, least, most)

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        binding = self._session.io_binding()
        place = self._device.type, self._device.index or 0
        held = [tensor.contiguous() for tensor in inputs]
        for name, tensor in zip(self._names.inputs, held, strict=True):
            binding.bind_input(name, *place, NUMPY[tensor.dtype], tuple(tensor.shape), tensor.data_ptr())
        for name in self._names.outputs:
            binding.bind_output(name, *place)
        if self._device.type == "cuda":
            # It computes on a stream of its own.
            torch.cuda.current_stream(self._device).synchronize()
        self._session.run_with_iobinding(binding)
        return tuple(torch.from_dlpack(value) for value in binding.get_outputs())


def tensorrt() -> Any:
    """The package of TensorRT, or else that of TensorRT for RTX. Raises ValueError when there is neither."""
    for name in ("tensorrt", "tensorrt_rtx"):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    raise ValueError("TensorRT isn't installed here: pip install 'omni-server[tensorrt]', or name an .onnx file")


class TensorRtEngine:
    """Computes on torch's current stream, and so in order with what torch does before and after."""

    def __init__(self, file: Path, names: Names, largest: Sequence[Sequence[int]], device: torch.device) -> None:
        trt = tensorrt()
        with torch.cuda.device(device):
            runtime = trt.Runtime(trt.Logger(trt.Logger.WARNING))
            self._engine = engine = runtime.deserialize_cuda_engine(file.read_bytes())
            if engine is None:
                raise ValueError(
                    f"the engine {file} isn't for this GPU and this version of TensorRT: build it here "
                    "(build/engines.py)"
                )
            self._context = engine.create_execution_context()
        self._names = names
        self._device = device
        there = [engine.get_tensor_name(number) for number in range(engine.num_io_tensors)]
        inputs = [name for name in there if engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT]
        _check_names(file, names, inputs, [name for name in there if name not in inputs])
        for name, asked in zip(names.inputs, largest, strict=True):
            least, _, most = engine.get_tensor_profile_shape(name, 0)
            _check_shape(file, name, asked, tuple(least), tuple(most))
        kinds = {
            trt.DataType.FLOAT: torch.float32,
            trt.DataType.INT64: torch.int64,
            trt.DataType.INT32: torch.int32,
            trt.DataType.BOOL: torch.bool,
        }
        self._kinds = {name: kinds[engine.get_tensor_dtype(name)] for name in there}

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        context = self._context
        held, outputs = [], []
        for name, tensor in zip(self._names.inputs, inputs, strict=True):
            held.append(tensor.to(self._kinds[name]).contiguous())
            context.set_input_shape(name, tuple(tensor.shape))
            context.set_tensor_address(name, held[-1].data_ptr())
        for name in self._names.outputs:
            shape = tuple(context.get_tensor_shape(name))
            outputs.append(torch.empty(shape, dtype=self._kinds[name], device=self._device))
            context.set_tensor_address(name, outputs[-1].data_ptr())
        with torch.cuda.device(self._device):
            ran = context.execute_async_v3(torch.cuda.current_stream().cuda_stream)
        if not ran:
            raise RuntimeError("TensorRT didn't run the engine")
        return tuple(outputs)
