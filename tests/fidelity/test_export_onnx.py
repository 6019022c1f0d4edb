"""Parts of the model exported to ONNX, in ONNX Runtime, against the same in torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import engines
import export_onnx
import numpy as np
import pytest
import torch
import verify
from engines import BuildError
from export_onnx import CODE2WAV, CODE_PREDICTOR
from support.exports import ENTRIES, GROUPS, exports, small_codec
from support.tensorrt import play_tensorrt
from torch import Tensor

from omni.contract.names import TALKER
from omni.contract.params import SamplingParams, Settings
from omni.contract.tensors import StageMessage
from omni.stages.drive import Drive
from omni.stages.qwen3_omni.code2wav import load_decoder
from omni.stages.qwen3_omni.code_predictor import CodePredictor
from omni.stages.qwen3_omni.decoder import Decoder, DecoderConfig
from omni.stages.qwen3_omni.engines import TensorRtEngine, load_engine, load_predictor, step_names
from omni.stages.qwen3_omni.handover import TalkerPrompt
from omni.stages.qwen3_omni.streams import Step, Streams

pytestmark = pytest.mark.fidelity


@pytest.fixture(scope="session")
def codec() -> Path:
    """A checkpoint of the decoder alone. It has every kind of layer, twice what is repeated: the export takes its time
    for each."""
    return small_codec()


@pytest.fixture(scope="session")
def exported(codec: Path, checkpoint: Path) -> Mapping[str, Path]:
    """By part, its file."""
    return exports({CODE2WAV: codec, CODE_PREDICTOR: checkpoint})


@pytest.fixture(scope="module")
def decoder(codec: Path) -> Decoder:
    return load_decoder(codec)


def engine_of(file: Path, config: DecoderConfig, batch: int = 8, frames: int = 32) -> Step:
    largest = [(batch, frames, config.num_quantizers), (batch,), *((batch, *shape) for shape in config.state_shapes)]
    return load_engine(file, step_names(len(config.state_shapes)), largest, "cpu")


def test_any_batch_of_any_frames_is_as_in_torch(decoder: Decoder, exported: Mapping[str, Path]) -> None:
    config = decoder.config
    ours = Streams(decoder, config.states(4))
    theirs = Streams(engine_of(exported[CODE2WAV], config), config.states(4))
    generator = torch.Generator().manual_seed(0)
    for rows, frames in (([0], 1), ([0, 1], 1), ([1, 2, 3], 8), ([0], 4), ([3, 1, 0, 2], 2), ([2], 16)):
        codes = torch.randint(0, ENTRIES, (len(rows), frames, GROUPS), generator=generator)
        expected, wave = ours.decode(rows, codes), theirs.decode(rows, codes)
        assert wave.shape == expected.shape == (len(rows), frames * config.hop)
        assert float((wave - expected).abs().max()) < 1e-4
        assert float(expected.std()) > 0.02
        assert float(expected.abs().max()) < 0.999


def test_code2wav_speaks_through_an_engine(codec: Path, decoder: Decoder, exported: Mapping[str, Path]) -> None:
    codes = np.random.default_rng(0).integers(0, ENTRIES, (19, GROUPS)).astype(np.int32)
    said = {}
    for name, options in {"torch": {}, "engine": {"engine": str(exported[CODE2WAV])}}.items():
        with Drive(CODE2WAV, "qwen3_omni", checkpoint=str(codec), **options) as drive:
            messages = drive.run([StageMessage(codes=codes, eos=True)], Settings(speech=True))
        said[name] = np.concatenate([m.audio for m in messages if m.audio is not None]).astype(int)
    assert len(said["engine"]) == decoder.config.hop * 19 - decoder.config.lead
    assert np.abs(said["engine"] - said["torch"]).max() <= 4


def frames_of(predictor: CodePredictor, rows: int, seed: int) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    noise = torch.empty(rows, predictor.groups - 1, predictor.codebook).exponential_(generator=generator)
    return (
        torch.randn(rows, 32, generator=generator),
        torch.randint(0, predictor.codebook, (rows,), generator=generator),
        noise,
        torch.rand(rows, generator=generator) < 0.5,
    )


@torch.no_grad()
def test_the_code_predictor_draws_the_same_codes(checkpoint: Path, exported: Mapping[str, Path]) -> None:
    ours = export_onnx.load_code_predictor(checkpoint)
    theirs = load_predictor(exported[CODE_PREDICTOR], (8, 32, ours.groups, ours.codebook), "cpu")
    for rows in (1, 2, 5, 8):
        given = frames_of(ours, rows, seed=rows)
        codes, embedding = theirs(*given)
        expected, summed = ours(*given)
        assert torch.equal(codes, expected)
        torch.testing.assert_close(embedding, summed, atol=1e-4, rtol=0)
    in_half, expected = theirs(given[0].bfloat16(), *given[1:])[1], ours(given[0].bfloat16().float(), *given[1:])[1]
    torch.testing.assert_close(in_half, expected.bfloat16())


def test_the_talker_speaks_through_an_engine(checkpoint: Path, exported: Mapping[str, Path]) -> None:
    nothing = np.zeros(0, np.int64)
    prompt = TalkerPrompt(
        user_ids=np.arange(40, 60, dtype=np.int32), hidden=torch.zeros(0, 32), image_grid_thw=nothing.reshape(0, 3),
        video_grid_thw=nothing.reshape(0, 3), audio_feature_lengths=nothing,
        video_second_per_grid=np.zeros(0, np.float32),
    )  # fmt: skip
    given = [
        StageMessage(handover=prompt.to_handover()),
        StageMessage(tokens=np.arange(30, 50, dtype=np.int32), eos=True),
    ]
    settings = Settings(speech=True, sampling={TALKER: SamplingParams(seed=3, max_tokens=24, ignore_eos=True)})
    said = {}
    for name, options in {"torch": {}, "engine": {"engine": str(exported[CODE_PREDICTOR])}}.items():
        with Drive(TALKER, "qwen3_omni", checkpoint=str(checkpoint), max_generations=4, **options) as drive:
            said[name] = np.concatenate([m.codes for m in drive.run(given, settings) if m.codes is not None])
    assert len(said["engine"]) == 23
    assert np.array_equal(said["engine"], said["torch"])


def test_products_in_half_precision_keep_the_wave(codec: Path, decoder: Decoder) -> None:
    codes = torch.randint(0, ENTRIES, (2, 24, GROUPS), generator=torch.Generator().manual_seed(0))

    def wave(step: Step) -> Tensor:
        return Streams(step, decoder.config.states(2)).decode([0, 1], codes)

    def noise(precision: str, keep: tuple[str, ...]) -> float:
        lowered = load_decoder(codec)
        assert export_onnx.lower(lowered, export_onnx.PRECISIONS[precision], keep) > 3
        return float(10 * torch.log10(expected.square().sum() / (wave(lowered) - expected).square().sum()))

    expected = wave(decoder)
    kept, all_half = noise("fp16", export_onnx.KEPT[CODE2WAV]), noise("fp16", ())
    assert kept > all_half > 20
    assert kept > noise("bf16", export_onnx.KEPT[CODE2WAV]) > 20


def test_files_that_do_not_fit_are_told(decoder: Decoder, exported: Mapping[str, Path], tmp_path: Path) -> None:
    config = decoder.config
    with pytest.raises(FileNotFoundError, match=r"none\.onnx: make it with"):
        engine_of(tmp_path / "none.onnx", config)
    for name in ("a.onnx", "a.txt", "a.plan"):
        (tmp_path / name).write_bytes(b"nothing")
    with pytest.raises(ValueError, match="ONNX Runtime can't run the engine"):
        engine_of(tmp_path / "a.onnx", config)
    with pytest.raises(ValueError, match=r"must end in \.onnx"):
        engine_of(tmp_path / "a.txt", config)
    with pytest.raises(ValueError, match="needs a GPU and the stage runs on cpu"):
        engine_of(tmp_path / "a.plan", config)
    with pytest.raises(ValueError, match="is of something else"):
        engine_of(exported[CODE_PREDICTOR], config)
    with pytest.raises(ValueError, match=r"takes hidden of \[1, 32\] to \[\d+, 32\], and up to \[8, 64\] is asked"):
        load_predictor(exported[CODE_PREDICTOR], (8, 64, GROUPS, ENTRIES), "cpu")


def test_the_verifier_tells_how_far_they_are(
    codec: Path, checkpoint: Path, decoder: Decoder, exported: Mapping[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    files = {part: str(file) for part, file in exported.items()}
    arguments = [str(codec), CODE2WAV, files[CODE2WAV], "--streams=3", "--frames=40"]
    assert verify.main(arguments) == 0
    said = capsys.readouterr().out
    assert "against torch: signal to noise" in said
    assert "good" in said
    assert verify.main([*arguments, "--snr=500"]) == 1
    assert "TOO FAR" in capsys.readouterr().out
    found = verify.compare(checkpoint, CODE_PREDICTOR, exported[CODE_PREDICTOR], streams=4, frames=8)
    assert found.equal == 1.0
    assert found.max_error < 1e-4
    lowered = load_decoder(codec)
    export_onnx.lower(lowered, torch.bfloat16, ())
    snr = verify.compare_code2wav(decoder, lowered, 3, 40, seed=0, device="cpu").snr
    assert snr is not None
    assert 5 < snr < 60
    assert verify.main([str(checkpoint), CODE2WAV, "none.onnx"]) == 1
    assert "there is no engine none.onnx" in capsys.readouterr().err


def test_tensorrt_reads_and_builds_them(exported: Mapping[str, Path], tmp_path: Path) -> None:
    """TensorRT for RTX has the parser of TensorRT, and builds without a GPU."""
    trt = pytest.importorskip("tensorrt_rtx")
    for part, file in exported.items():
        built = engines.build(file, tmp_path / f"{part}.engine", {"batch": (1, 2, 4), "frames": (1, 4, 16)})
        assert built.layers > 500
        assert (tmp_path / f"{part}.engine").stat().st_size == built.bytes > 1_000_000
    with pytest.raises(BuildError, match="wants a range of frames"):
        engines.build(exported[CODE2WAV], tmp_path / "x.engine", {"batch": (1, 2, 4)})
    (tmp_path / "no.onnx").write_bytes(b"nothing")
    with pytest.raises(BuildError, match="TensorRT can't read"):
        engines.build(tmp_path / "no.onnx", tmp_path / "x.engine", {})
    # What runs an engine uses these, which can be looked up here and called only on a GPU.
    for owner, names in {
        trt.ICudaEngine: (
            "create_execution_context", "get_tensor_name", "get_tensor_mode", "get_tensor_profile_shape",
            "get_tensor_dtype", "num_io_tensors",
        ),
        trt.IExecutionContext: ("set_input_shape", "set_tensor_address", "get_tensor_shape", "execute_async_v3"),
    }.items():  # fmt: skip
        assert all(hasattr(owner, name) for name in names)


def test_an_engine_of_tensorrt_is_called_as_the_step(
    decoder: Decoder, exported: Mapping[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its runtime is played by ONNX Runtime, on addresses as TensorRT is given them."""
    config = decoder.config
    play_tensorrt(monkeypatch, largest=4)
    file = tmp_path / "code2wav.engine"
    file.write_bytes(exported[CODE2WAV].read_bytes())
    names = step_names(len(config.state_shapes))

    def largest(batch: int) -> list[tuple[int, ...]]:
        return [(batch, 4, GROUPS), (batch,), *((batch, *shape) for shape in config.state_shapes)]

    theirs = Streams(TensorRtEngine(file, names, largest(4), torch.device("cpu")), config.states(3))
    ours = Streams(decoder, config.states(3))
    generator = torch.Generator().manual_seed(0)
    for rows, frames in (([0, 2], 1), ([1, 0], 4), ([2], 2)):
        codes = torch.randint(0, ENTRIES, (len(rows), frames, GROUPS), generator=generator)
        assert float((ours.decode(rows, codes) - theirs.decode(rows, codes)).abs().max()) < 1e-4
    with pytest.raises(ValueError, match=r"takes codes of \[1, 1, 4\] to \[4, 4, 4\], and up to \[8, 4, 4\] is asked"):
        TensorRtEngine(file, names, largest(8), torch.device("cpu"))
    file.write_bytes(b"of another version")
    with pytest.raises(ValueError, match="isn't for this GPU and this version"):
        TensorRtEngine(file, names, largest(4), torch.device("cpu"))
