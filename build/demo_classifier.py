"""Writes EfficientNet-Lite0 as ONNX from its PyTorch checkpoint, without PyTorch.

The network is that of the paper's reference implementation: a stem, sixteen blocks of expansion, depthwise convolution
and projection, a head. Batch normalisation is folded into the convolutions.
"""

from __future__ import annotations

import pickle
import struct
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

Weights = Mapping[str, npt.NDArray[Any]]

SIZE: Final = 224
CLASSES: Final = 1000
_STRIDE_2: Final = {1, 3, 5, 11}
"""Blocks that halve the picture, as the stem does."""
_EPSILON: Final = 1e-3
"""Of the batch normalisation, in the reference implementation."""


class _Tensors(pickle.Unpickler):
    """Reads the descriptions of tensors and nothing else: any other class in the file is refused."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return lambda storage, offset, size, stride, *_: (storage, offset, size, stride)
        if module == "torch" and name in ("FloatStorage", "LongStorage"):
            return np.dtype(np.float32 if name == "FloatStorage" else np.int64)
        raise pickle.UnpicklingError(f"{module}.{name} has no place in a checkpoint")

    def persistent_load(self, pid: Any) -> Any:
        _, dtype, key, *_ = pid
        return dtype, key


def read_checkpoint(path: Path) -> Weights:
    """The tensors of a checkpoint in PyTorch's format before 1.6: pickles, then storages in the order of their keys.

    Raises `pickle.UnpicklingError` when it isn't one.
    """
    with path.open("rb") as file:
        for _ in range(3):  # a magic number, the version, the machine's sizes
            pickle.load(file)
        tensors = _Tensors(file).load()
        dtypes = {storage[1]: storage[0] for storage, *_ in tensors.values()}
        storages = {key: _storage(file, dtypes[key]) for key in pickle.load(file)}
    return {
        name: np.lib.stride_tricks.as_strided(
            storages[key][offset:], size, [step * storages[key].itemsize for step in stride]
        ).copy()
        for name, ((_, key), offset, size, stride) in tensors.items()
    }


def _storage(file: IO[bytes], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    (count,) = struct.unpack("<q", file.read(8))
    return np.frombuffer(file.read(count * dtype.itemsize), dtype)


class _Graph:
    def __init__(self, weights: Weights) -> None:
        self.weights = weights
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, npt.NDArray[Any]] = {"zero": np.float32(0), "six": np.float32(6)}  # type: ignore[dict-item]

    def node(self, kind: str, inputs: list[str], **attributes: Any) -> str:
        name = f"{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], **attributes))
        return name

    def conv(self, x: str, name: str, norm: str, *, stride: int = 1, depthwise: bool = False, relu: bool = True) -> str:
        """A convolution with its normalisation folded in, and ReLU6 unless told otherwise."""
        w, scale, bias, mean, variance = (
            self.weights[key]
            for key in (f"{name}.weight", *(f"{norm}.{p}" for p in ("weight", "bias", "running_mean", "running_var")))
        )
        factor = scale / np.sqrt(variance + _EPSILON)
        self.constants[f"{name}.w"] = (w * factor[:, None, None, None]).astype(np.float32)
        self.constants[f"{name}.b"] = (bias - mean * factor).astype(np.float32)
        y = self.node(
            "Conv", [x, f"{name}.w", f"{name}.b"],
            auto_pad="SAME_UPPER", strides=[stride] * 2, kernel_shape=list(w.shape[2:]),
            group=w.shape[0] if depthwise else 1,
        )  # fmt: skip
        return self.node("Clip", [y, "zero", "six"]) if relu else y


def write(weights: Weights, names: list[str], to: Path) -> None:
    """`x` float32 [pictures, 3, 224, 224] to `p` [pictures, 1000]; the classes' names ride in the file's metadata."""
    graph = _Graph(weights)
    x = graph.conv("x", "_conv_stem", "_bn0", stride=2)
    for block in range(1 + max(int(key.split(".")[1]) for key in weights if key.startswith("_blocks."))):
        at, y = f"_blocks.{block}", x
        if f"{at}._expand_conv.weight" in weights:
            y = graph.conv(y, f"{at}._expand_conv", f"{at}._bn0")
        stride = 2 if block in _STRIDE_2 else 1
        y = graph.conv(y, f"{at}._depthwise_conv", f"{at}._bn1", stride=stride, depthwise=True)
        y = graph.conv(y, f"{at}._project_conv", f"{at}._bn2", relu=False)
        narrow = weights.get(f"{at}._expand_conv.weight", weights[f"{at}._depthwise_conv.weight"])
        wide = weights[f"{at}._project_conv.weight"].shape[0]
        came = narrow.shape[1] if f"{at}._expand_conv.weight" in weights else narrow.shape[0]
        x = graph.node("Add", [x, y]) if stride == 1 and came == wide else y
    x = graph.conv(x, "_conv_head", "_bn1")
    graph.constants |= {"fc.w": weights["_fc.weight"], "fc.b": weights["_fc.bias"]}
    x = graph.node("Flatten", [graph.node("GlobalAveragePool", [x])])
    x = graph.node("Gemm", [x, "fc.w", "fc.b"], transB=1)
    graph.nodes.append(helper.make_node("Softmax", [x], ["p"], axis=1))
    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "efficientnet-lite0",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, SIZE, SIZE])],
            [helper.make_tensor_value_info("p", TensorProto.FLOAT, ["N", CLASSES])],
            [numpy_helper.from_array(np.ascontiguousarray(array), name) for name, array in graph.constants.items()],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
    )
    model.ir_version = 8
    helper.set_model_props(model, {"classes": "\n".join(names)})
    onnx.checker.check_model(model)
    onnx.save(model, to)
