#!/usr/bin/env python3
"""Writes a part of a Qwen3-Omni checkpoint as ONNX, for batches of any size.

    python build/export_onnx.py CHECKPOINT code2wav [FILE]          the codec decoder's streaming step
    python build/export_onnx.py CHECKPOINT code_predictor [FILE]    of a frame's first code, the others

FILE is CHECKPOINT/PART.onnx unless it is given. A stage runs it when its section of the profile names it, `engine:
FILE`: code2wav the first, the talker the second. `build/engines.py` makes a TensorRT engine of it, `build/verify.py`
compares either with torch. Names and shapes of inputs and outputs are those of `omni.stages.qwen3_omni.engines`; all
numbers that go in and out are float32.

With `--precision` fp16 or bf16, matrix products and convolutions take and give half precision, and all between them
stays float32: norms, softmax, the periodic activations, sums and the states. Modules that `--keep` names stay float32
altogether. Needs the packages onnx and onnxscript.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim

from omni.stages.qwen3_omni.code2wav import load_decoder
from omni.stages.qwen3_omni.code_predictor import CodePredictor
from omni.stages.qwen3_omni.engines import PREDICTOR_NAMES, Names, step_names
from omni.stages.qwen3_omni.weights import read_weights

OPSET = 20
"""The first with GELU as one operator."""
CODE2WAV, CODE_PREDICTOR = PARTS = "code2wav", "code_predictor"
PRECISIONS = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
KEPT = {CODE2WAV: ("decoder.[!0]*",), CODE_PREDICTOR: ("_heads_of_group.*",)}
"""By part, the modules that stay float32 when nothing else is asked for: those near the samples and the codes."""
MOST = 1024
"""Rows and frames."""


class _Lowered(nn.Module):
    """A product or convolution in `dtype`, for float32 around it."""

    def __init__(self, module: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.module = module.to(dtype)
        self._dtype = dtype

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.module(x.to(self._dtype))
        return out.float()


def lower(module: nn.Module, dtype: torch.dtype, keep: Sequence[str], prefix: str = "") -> int:
    """Lets the products and convolutions within `module` compute in `dtype`, but for those whose names match one of
    `keep`; how many do so then."""
    count = 0
    for name, child in list(module.named_children()):
        path = f"{prefix}{name}"
        if any(fnmatch(path, pattern) for pattern in keep):
            continue
        if isinstance(child, nn.Linear | nn.Conv1d | nn.ConvTranspose1d):
            setattr(module, name, _Lowered(child, dtype))
            count += 1
        else:
            count += lower(child, dtype, keep, f"{path}.")
    return count


def load_code_predictor(checkpoint: Path) -> CodePredictor:
    """The code predictor of a checkpoint directory, in float32. Raises OSError or RuntimeError when it isn't whole."""
    from transformers import Qwen3OmniMoeConfig
    from transformers.models.qwen3_omni_moe.modeling_qwen3_omni_moe import (
        Qwen3OmniMoeRotaryEmbedding,
        Qwen3OmniMoeTalkerCodePredictorModelForConditionalGeneration,
    )

    config: Any = Qwen3OmniMoeConfig.from_pretrained(checkpoint, local_files_only=True).talker_config
    architecture: Any = Qwen3OmniMoeTalkerCodePredictorModelForConditionalGeneration
    with torch.device("meta"):
        model = architecture._from_config(config.code_predictor_config, dtype=torch.float32)
    model.load_state_dict(read_weights(checkpoint, "talker.code_predictor."), assign=True)
    model.model.rotary_emb = Qwen3OmniMoeRotaryEmbedding(config.code_predictor_config)
    first = read_weights(checkpoint, "talker.model.codec_embedding.")["weight"]
    return CodePredictor(model.float(), nn.Embedding.from_pretrained(first.float())).eval().requires_grad_(False)


def load(checkpoint: Path, part: str) -> nn.Module:
    """What `part` is in torch, in float32."""
    return load_decoder(checkpoint) if part == CODE2WAV else load_code_predictor(checkpoint)


class _Step(nn.Module):
    """`Decoder` with its states as one argument, to say once which dimension of them is free."""

    def __init__(self, decoder: nn.Module) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(self, codes: Tensor, position: Tensor, states: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        out: tuple[Tensor, ...] = self.decoder(codes, position, *states)
        return out


def _example(part: str, model: Any) -> tuple[nn.Module, tuple[Any, ...], tuple[Any, ...], Names]:
    """What to trace, with what, which sizes are free, and the names."""
    batch = Dim("batch", min=1, max=MOST)
    if part == CODE2WAV:
        states = tuple(model.config.states(2))
        codes = torch.zeros(2, 3, model.config.num_quantizers, dtype=torch.long)
        free = ({0: batch, 1: Dim("frames", min=1, max=MOST)}, {0: batch}, tuple({0: batch} for _ in states))
        return _Step(model), (codes, torch.tensor([0, 5]), states), free, step_names(len(states))
    hidden = torch.zeros(2, model.hidden)
    noise = torch.ones(2, model.groups - 1, model.codebook)
    arguments = hidden, torch.tensor([0, 1]), noise, torch.tensor([False, True])
    return model, arguments, ({0: batch},) * 4, PREDICTOR_NAMES


def export(checkpoint: Path, part: str, file: Path, precision: str = "fp32", keep: Sequence[str] | None = None) -> int:
    """The number of operators written. Raises OSError when the checkpoint isn't whole."""
    model = load(checkpoint, part)
    if precision != "fp32":
        lower(model, PRECISIONS[precision], KEPT[part] if keep is None else keep)
    traced, arguments, free, names = _example(part, model)
    with warnings.catch_warnings():
        # The exporter warns of its own parts.
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            traced.eval(),
            arguments,
            input_names=names.inputs,
            output_names=names.outputs,
            dynamic_shapes=free,
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
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("file", type=Path, nargs="?")
    parser.add_argument("--precision", choices=list(PRECISIONS), default="fp32")
    parser.add_argument("--keep", action="append", metavar="PATTERN", help="modules in float32, in place of our choice")
    asked = parser.parse_args()
    file = asked.file or asked.checkpoint / f"{asked.part}.onnx"
    nodes = export(asked.checkpoint, asked.part, file, asked.precision, asked.keep)
    sys.stdout.write(f"{file}: {nodes} operators, {file.stat().st_size / 1e6:.1f} MB\n")


if __name__ == "__main__":
    main()
