"""Parts of small models exported to ONNX, once for all test runs of the same sources: an export takes half a minute."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import torch
from safetensors.torch import save_file

from omni.stages.qwen3_omni import decoder
from omni.stages.qwen3_omni.decoder import Decoder, DecoderConfig

ROOT: Final = Path(__file__).parents[3]
GROUPS, ENTRIES = 4, 64
"""Of the codec: code groups, and entries of a codebook."""
_SIZES: Final = {
    "codebook_size": ENTRIES, "num_quantizers": GROUPS, "hidden_size": 32, "intermediate_size": 48,
    "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2, "sliding_window": 12,
    "decoder_dim": 16, "upsample_rates": [4, 3], "upsampling_ratios": [2],
}  # fmt: skip
_EXPORTED: Final = ("code_predictor", "decoder", "decoder_layers", "engines")


def _kept(name: str, make: Path) -> Path:
    """Where a thing called `name` is kept that `make` makes of what is exported: another place when one changes."""
    stages = Path(decoder.__file__).parent
    sources = [make, Path(__file__), *(stages / f"{module}.py" for module in _EXPORTED)]
    content = b"\0".join(source.read_bytes() for source in sources) + torch.__version__.encode()
    return ROOT / ".omni" / f"{hashlib.sha256(content).hexdigest()[:16]}-{name}"


def small_codec() -> Path:
    """Folder of a checkpoint with random weights that has nothing but the codec decoder."""
    folder = _kept("codec", Path(__file__))
    if (folder / "config.json").exists():
        return folder
    generator = torch.Generator().manual_seed(0)
    model = Decoder(DecoderConfig.from_json(_SIZES))
    weights = model.state_dict()
    for name, tensor in weights.items():
        if name.endswith(("layer_scale.scale", "gamma")):
            tensor.fill_(0.3)
        elif not name.endswith("norm.weight"):
            width = 0.2 if tensor.dim() == 1 else tensor[0].numel() ** -0.5
            tensor.copy_(torch.randn(tensor.shape, generator=generator) * width)
    # A wave that clips would hide differences.
    last = [weights["decoder.4.conv.weight"], weights["decoder.4.conv.bias"]]
    for tensor in last:
        tensor.mul_(0.01)
    codes = torch.randint(0, ENTRIES, (1, 40, GROUPS), generator=generator)
    with torch.no_grad():
        wave, *_ = model(codes, torch.tensor([0]), *model.config.states(1))
    for tensor in last:
        tensor.mul_(0.15 / wave.std())
    folder.mkdir(parents=True, exist_ok=True)
    save_file({f"code2wav.{name}": tensor for name, tensor in weights.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"code2wav_config": _SIZES}))
    return folder


def exports(checkpoints: Mapping[str, Path]) -> Mapping[str, Path]:
    """By part, its file; `checkpoints` are where the parts are taken from."""
    script = ROOT / "build" / "export_onnx.py"
    files = {part: _kept(f"{part}.onnx", script) for part in checkpoints}
    making = {part: file.with_name(f"{uuid.uuid4().hex}.onnx") for part, file in files.items() if not file.exists()}
    # Side by side, and in processes of their own: under a test, torch keeps a diary of what it traces.
    running = [
        subprocess.Popen([sys.executable, script, checkpoints[part], part, fresh], stdout=subprocess.DEVNULL)
        for part, fresh in making.items()
    ]
    if any(process.wait() for process in running):
        raise RuntimeError("a part wasn't exported")
    for part, fresh in making.items():
        os.replace(fresh, files[part])
    return files
