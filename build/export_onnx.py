#!/usr/bin/env python3
"""Writes the codec decoder's streaming step of a Qwen3-Omni checkpoint as ONNX, for any batch and any number of frames.

python build/export_onnx.py CHECKPOINT [FILE]    (FILE: CHECKPOINT/code2wav.onnx)

code2wav runs it with `backend: onnx`. Inputs: codes int64 [batch, frames, groups], position int64 [batch] and the
states `state_N`; outputs: wave float32 [batch, samples] and the states to come `new_state_N`. The states are those of
`omni.stages.qwen3_omni.decoder`; of a stream at position 0 they are zeros. Needs the packages onnx and onnxscript.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from torch import Tensor, nn

from omni.stages.qwen3_omni.code2wav import load_decoder
from omni.stages.qwen3_omni.decoder_onnx import CODES, POSITION, WAVE, state_names

OPSET = 20
"""The first with GELU as one operator."""


class _Step(nn.Module):
    """`Decoder` with its states as one argument, to say once which dimension of them is free."""

    def __init__(self, decoder: nn.Module) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(self, codes: Tensor, position: Tensor, states: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        out: tuple[Tensor, ...] = self.decoder(codes, position, *states)
        return out


def export(checkpoint: Path, file: Path) -> int:
    """The number of operators written. Raises OSError when the checkpoint isn't whole."""
    decoder = load_decoder(checkpoint)
    states = tuple(decoder.config.states(2))
    codes = torch.zeros(2, 3, decoder.config.num_quantizers, dtype=torch.long)
    batch, frames = torch.export.Dim("batch", min=1, max=1024), torch.export.Dim("frames", min=1, max=1024)
    names = state_names(len(states))
    program = torch.onnx.export(
        _Step(decoder).eval(),
        (codes, torch.tensor([0, 5]), states),
        input_names=[CODES, POSITION, *names],
        output_names=[WAVE, *(f"new_{name}" for name in names)],
        dynamic_shapes=({0: batch, 1: frames}, {0: batch}, tuple({0: batch} for _ in states)),
        opset_version=OPSET,
        dynamo=True,
        verbose=False,
    )
    if program is None:
        raise RuntimeError("torch made no program")
    program.save(str(file))
    return len(program.model.graph)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("file", type=Path, nargs="?")
    asked = parser.parse_args()
    file = asked.file or asked.checkpoint / "code2wav.onnx"
    nodes = export(asked.checkpoint, file)
    sys.stdout.write(f"{file}: {nodes} operators, {file.stat().st_size / 1e6:.1f} MB\n")


if __name__ == "__main__":
    main()
