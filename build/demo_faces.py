"""Writes MediaPipe's short-range face detector (BlazeFace) as ONNX from its TensorFlow Lite file, without TensorFlow.

The file is a FlatBuffer; slots and numbers below are those of TensorFlow Lite's schema.fbs, version 3. The network is
a chain of few kinds of operators, so each is written out here, with pictures as [N, C, H, W] in place of [N, H, W, C].
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnx
from flatbuffers import number_types
from flatbuffers.table import Table as FlatTable
from onnx import TensorProto, helper, numpy_helper

SIZE: Final = 128
ANCHORS: Final = 896
_TYPES: Final = {0: np.float32, 1: np.float16, 2: np.int32}
_NCHW: Final = (0, 3, 1, 2)


class Operator(IntEnum):
    ADD = 0
    CONCATENATION = 2
    CONV_2D = 3
    DEPTHWISE_CONV_2D = 4
    DEQUANTIZE = 6
    MAX_POOL_2D = 17
    RELU = 19
    RESHAPE = 22
    PAD = 34


class Table:
    """A table of a FlatBuffer; its fields are asked for by their slots."""

    def __init__(self, data: bytes, at: int) -> None:
        self._table = FlatTable(data, at)

    def _place(self, slot: int) -> int:
        return int(self._table.Offset(4 + 2 * slot))

    def number(self, slot: int, kind: Any = number_types.Int32Flags) -> int:
        place = self._place(slot)
        return int(self._table.Get(kind, place + self._table.Pos)) if place else 0

    def array(self, slot: int, dtype: Any = np.int32) -> npt.NDArray[Any]:
        if not (place := self._place(slot)):
            return np.empty(0, dtype)
        return np.frombuffer(self._table.Bytes, dtype, self._table.VectorLen(place), self._table.Vector(place))

    def tables(self, slot: int) -> list[Table]:
        if not (place := self._place(slot)):
            return []
        data, first = self._table.Bytes, self._table.Vector(place)
        return [Table(data, self._table.Indirect(first + 4 * n)) for n in range(self._table.VectorLen(place))]

    def table(self, slot: int) -> Table:
        return Table(self._table.Bytes, self._table.Indirect(self._place(slot) + self._table.Pos))


class _Graph:
    """The operators of the file, one after the other, as nodes of ONNX."""

    def __init__(self, data: bytes) -> None:
        model = Table(data, struct.unpack_from("<I", data)[0])
        (graph,) = model.tables(2)
        self.codes = [code.number(0, number_types.Int8Flags) for code in model.tables(1)]
        self.operators = graph.tables(3)
        self.inputs, self.outputs = graph.array(1), graph.array(2)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, npt.NDArray[Any]] = {}
        self.known: dict[int, npt.NDArray[Any]] = {}
        """Constant tensors, as in the file."""
        buffers = [buffer.array(0, np.uint8) for buffer in model.tables(4)]
        for n, tensor in enumerate(graph.tables(0)):
            held = buffers[tensor.number(2, number_types.Uint32Flags)]
            if len(held):
                self.known[n] = held.view(_TYPES[tensor.number(1, number_types.Int8Flags)]).reshape(tensor.array(0))

    def node(self, kind: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(kind, list(inputs), [output], **attributes))
        return output

    def constant(self, name: str, value: npt.NDArray[Any]) -> str:
        self.constants[name] = np.ascontiguousarray(value)
        return name

    def add(self, operator: Table) -> None:
        """Raises ValueError for an operator that isn't known here."""
        code = self.codes[operator.number(0, number_types.Uint32Flags)]
        inputs, (output,) = operator.array(1).tolist(), operator.array(2).tolist()
        names, out = [f"t{n}" for n in inputs], f"t{output}"
        match code:
            case Operator.DEQUANTIZE:
                self.known[output] = self.known[inputs[0]].astype(np.float32)
            case Operator.CONV_2D | Operator.DEPTHWISE_CONV_2D:
                self._convolve(code == Operator.DEPTHWISE_CONV_2D, operator.table(4), inputs, out)
            case Operator.ADD:
                self.node("Add", names, out)
            case Operator.RELU:
                self.node("Relu", names, out)
            case Operator.PAD:
                pads = self.known[inputs[1]][list(_NCHW)].astype(np.int64)
                self.node("Pad", [names[0], self.constant(f"{out}.pads", pads.T.reshape(-1))], out)
            case Operator.MAX_POOL_2D:
                options = operator.table(4)
                size = [options.number(4), options.number(3)]
                self.node("MaxPool", names, out, kernel_shape=size, **_windows(options))
            case Operator.RESHAPE:
                turned = self.node("Transpose", names[:1], f"{out}.turned", perm=[0, 2, 3, 1])
                shape = self.constant(f"{out}.shape", operator.table(4).array(0).astype(np.int64))
                self.node("Reshape", [turned, shape], out)
            case Operator.CONCATENATION:
                self.node("Concat", names, out, axis=operator.table(4).number(0))
            case _:
                raise ValueError(f"operator {code} isn't known: this is another version of the detector")

    def _convolve(self, depthwise: bool, options: Table, inputs: list[int], out: str) -> None:
        weights = self.known[inputs[1]].transpose((3, 0, 1, 2) if depthwise else _NCHW)
        given = [
            f"t{inputs[0]}",
            self.constant(f"{out}.w", weights),
            self.constant(f"{out}.b", self.known[inputs[2]]),
        ]
        attributes = {"kernel_shape": list(weights.shape[2:]), "group": len(weights) if depthwise else 1}
        relu = options.number(4 if depthwise else 3, number_types.Int8Flags)
        self.node("Conv", given, f"{out}.sum" if relu else out, **attributes, **_windows(options))
        if relu:
            self.node("Relu", [f"{out}.sum"], out)


def _windows(options: Table) -> dict[str, Any]:
    padding = options.number(0, number_types.Int8Flags)
    return {"auto_pad": "VALID" if padding else "SAME_UPPER", "strides": [options.number(2), options.number(1)]}


def write(detector: Path, to: Path) -> None:
    """`x` float32 [1, 3, 128, 128], -1 to 1, to `boxes` [1, 896, 16] and `scores` [1, 896, 1].

    Raises ValueError when the detector isn't the one that is known here.
    """
    graph = _Graph(detector.read_bytes())
    for operator in graph.operators:
        graph.add(operator)
    names = {f"t{graph.inputs[0]}": "x", f"t{graph.outputs[0]}": "boxes", f"t{graph.outputs[1]}": "scores"}
    for node in graph.nodes:
        for ends in (node.input, node.output):
            ends[:] = [names.get(name, name) for name in ends]
    made = helper.make_graph(
        graph.nodes,
        "face-detection-short-range",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, SIZE, SIZE])],
        [
            helper.make_tensor_value_info("boxes", TensorProto.FLOAT, [1, ANCHORS, 16]),
            helper.make_tensor_value_info("scores", TensorProto.FLOAT, [1, ANCHORS, 1]),
        ],
        [numpy_helper.from_array(array, name) for name, array in graph.constants.items()],
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.checker.check_model(model)
    onnx.save(model, to)
