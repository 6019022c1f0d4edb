"""Splits the demo's voice into its talker and its code2wav, where its own graph has discrete numbers.

The graph predicts a spectrum for each 12.5 ms of speech. Its last layer is quantised: 256 numbers of 8 bits for each
frame, with one scale and one zero point for a whole clause, then one matrix. The numbers are what the talker sends; the
matrix is code2wav's. Both halves together compute what the whole does, bit for bit.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import onnx
from onnx.utils import Extractor

_LATENT: Final = "/dec_norm/LayerNormalization_output_0"
CODES: Final = (f"{_LATENT}_quantized", f"{_LATENT}_scale", f"{_LATENT}_zero_point")
"""uint8 [1, frames, 256], float32 [] and uint8 []."""
TALKER_INPUTS: Final = ("ids", "speed")
PITCH: Final = "f0"
SPECTRUM: Final = ("lh", "theta", "ln", "lr", "phi")


def split(voice: Path, talker: Path, code2wav: Path) -> None:
    """Writes both halves. Raises ValueError when the graph isn't the one that is known here."""
    model = onnx.load(voice)
    made = {name for node in model.graph.node for name in node.output}
    if missing := {*CODES, PITCH, *SPECTRUM} - made:
        raise ValueError(f"{voice.name} has no {', '.join(sorted(missing))}: it is another version of the voice")
    known = {value.name for value in model.graph.value_info}
    shapes: tuple[tuple[int, list[str | int]], ...] = (
        (onnx.TensorProto.UINT8, [1, "F", 256]),
        (onnx.TensorProto.FLOAT, []),
        (onnx.TensorProto.UINT8, []),
    )
    for name, (kind, shape) in zip(CODES, shapes, strict=True):
        if name not in known:
            model.graph.value_info.append(onnx.helper.make_tensor_value_info(name, kind, shape))
    cut = Extractor(model)
    onnx.save(cut.extract_model([*TALKER_INPUTS], [*CODES, PITCH]), talker)
    onnx.save(cut.extract_model([*CODES], [*SPECTRUM]), code2wav)
