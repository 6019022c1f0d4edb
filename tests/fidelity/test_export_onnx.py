"""code2wav exported to ONNX, in ONNX Runtime, against the same in torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from support.qwen3_omni import ROOT

from omni.contract.names import CODE2WAV
from omni.contract.params import Settings
from omni.contract.tensors import StageMessage
from omni.stages.drive import Drive
from omni.stages.qwen3_omni.code2wav import load_decoder
from omni.stages.qwen3_omni.decoder_onnx import DecoderOnnx
from omni.stages.qwen3_omni.streams import Streams

pytestmark = pytest.mark.fidelity


@pytest.fixture(scope="module")
def exported(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("onnx") / "code2wav.onnx"
    script = ROOT / "build" / "export_onnx.py"
    subprocess.run([sys.executable, str(script), str(checkpoint), str(file)], check=True, capture_output=True, cwd=ROOT)
    return file


def test_any_batch_of_any_frames_is_as_in_torch(checkpoint: Path, exported: Path) -> None:
    decoder = load_decoder(checkpoint)
    config = decoder.config
    ours, theirs = Streams(decoder, config.states(4)), Streams(DecoderOnnx(exported, 1), config.states(4))
    generator = torch.Generator().manual_seed(0)
    for rows, frames in (([0], 1), ([0, 1], 1), ([1, 2, 3], 8), ([0], 4), ([3, 1, 0, 2], 2), ([2], 16)):
        codes = torch.randint(0, 64, (len(rows), frames, config.num_quantizers), generator=generator)
        expected, wave = ours.decode(rows, codes), theirs.decode(rows, codes)
        assert wave.shape == expected.shape == (len(rows), frames * 1920)
        assert float((wave - expected).abs().max()) < 1e-4
        assert float(expected.std()) > 0.01


def test_the_stage_speaks_through_it(checkpoint: Path, exported: Path) -> None:
    codes = np.random.default_rng(0).integers(0, 64, (19, load_decoder(checkpoint).config.num_quantizers))
    said = {}
    for backend in ("torch", "onnx"):
        with Drive(CODE2WAV, "qwen3_omni", checkpoint=str(checkpoint), backend=backend, onnx=str(exported)) as drive:
            messages = drive.run([StageMessage(codes=codes.astype(np.int32), eos=True)], Settings(speech=True))
        said[backend] = np.concatenate([m.audio for m in messages if m.audio is not None]).astype(int)
    assert len(said["onnx"]) == 1920 * 19 - 555
    assert np.abs(said["onnx"] - said["torch"]).max() <= 4


def test_a_file_that_is_not_there_is_told(checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"none\.onnx"):
        Drive(CODE2WAV, "qwen3_omni", checkpoint=str(checkpoint), backend="onnx", onnx=str(tmp_path / "none.onnx"))
