"""The codec decoder's step in ONNX Runtime, from a file that `build/export_onnx.py` made."""

from __future__ import annotations

from pathlib import Path

import onnxruntime
import torch
from torch import Tensor

CODES, POSITION, WAVE = "codes", "position", "wave"


def state_names(count: int) -> list[str]:
    """Names of the states among the inputs; an output's begins with `new_`."""
    return [f"state_{number}" for number in range(count)]


class DecoderOnnx:
    """`Decoder` by its signature, on the CPU in float32."""

    def __init__(self, file: Path, threads: int = 0) -> None:
        """`threads` of one step, 0 for as many as there are cores. Raises OSError when there is no such file."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self._session = onnxruntime.InferenceSession(file.read_bytes(), options, providers=["CPUExecutionProvider"])

    def __call__(self, codes: Tensor, position: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
        names = [CODES, POSITION, *state_names(len(states))]
        given = {name: tensor.numpy() for name, tensor in zip(names, (codes, position, *states), strict=True)}
        return tuple(torch.from_numpy(array) for array in self._session.run(None, given))
