"""code2wav against `transformers`' own: streamed in any chunking, in any company, it is the one-shot decode."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from support.device import DEVICE
from support.recorded_graphs import recorded_graphs
from transformers import Qwen3OmniMoeConfig
from transformers.models.qwen3_omni_moe.modeling_qwen3_omni_moe import Qwen3OmniMoeCode2Wav

from omni.contract.errors import Overloaded, StageFailed
from omni.contract.names import CODE2WAV
from omni.contract.params import Settings
from omni.contract.stage import StageConfig
from omni.contract.tensors import StageMessage
from omni.engine.graphs import Graphs
from omni.stages.drive import Drive
from omni.stages.qwen3_omni.code2wav import Code2wav, Codes, load_decoder, to_int16
from omni.stages.qwen3_omni.decoder import Decoder
from omni.stages.qwen3_omni.streams import Streams
from omni.stages.qwen3_omni.weights import read_weights

pytestmark = pytest.mark.fidelity

FRAMES = 40
LOST = 555
"""Samples that the trims of the transposed convolutions take from the whole."""
CHUNKINGS = ([1] * FRAMES, [4] * 10, [FRAMES], [1, 2, 4, 8, 16, 9], [7, 13, 1, 19])


def some_codes(frames: int, groups: int, seed: int = 0) -> Codes:
    """Frames [frames, groups] out of the tiny codebook of 64."""
    return np.random.default_rng(seed).integers(0, 64, (frames, groups)).astype(np.int32)


@cache
def _theirs(checkpoint: Path, dtype: torch.dtype) -> Any:
    config = Qwen3OmniMoeConfig.from_pretrained(checkpoint).code2wav_config
    model = Qwen3OmniMoeCode2Wav._from_config(config, attn_implementation="sdpa").to(DEVICE, dtype).eval()
    model.load_state_dict(read_weights(checkpoint, "code2wav."))
    return model


@torch.inference_mode()
def one_shot(checkpoint: Path, codes: Codes, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """What `transformers` makes of all frames at once, [samples]."""
    return _theirs(checkpoint, dtype)(torch.from_numpy(codes).long().T[None].to(DEVICE))[0, 0].cpu()


@pytest.fixture(scope="module")
def groups(checkpoint: Path) -> int:
    return load_decoder(checkpoint).config.num_quantizers


def captured(decoder: Decoder, rows: int, dtype: torch.dtype) -> Streams:
    """As on a GPU, in captured graphs of few shapes."""
    with recorded_graphs():
        return Streams(decoder, decoder.config.states(rows, dtype, DEVICE), Graphs(DEVICE))


@pytest.mark.parametrize(("dtype", "limit"), [(torch.float64, 1e-10), (torch.float32, 1e-4)], ids=["fp64", "fp32"])
@pytest.mark.parametrize("sizes", CHUNKINGS, ids=lambda sizes: f"{len(sizes)}-chunks")
def test_any_chunking_is_the_one_shot_decode(
    checkpoint: Path, groups: int, sizes: Sequence[int], dtype: torch.dtype, limit: float
) -> None:
    codes = some_codes(FRAMES, groups)
    expected = one_shot(checkpoint, codes, dtype)
    decoder = load_decoder(checkpoint, dtype, DEVICE)
    plain = Streams(decoder, decoder.config.states(1, dtype, DEVICE))
    streams = captured(decoder, 1, dtype) if dtype == torch.float64 else plain
    made, at = [], 0
    for size in sizes:
        made.append(streams.decode([0], torch.from_numpy(codes[None, at : at + size]).long())[0].cpu().clone())
        at += size
    wave = torch.cat(made)[decoder.config.lead :]
    assert len(wave) == len(expected) == 1920 * FRAMES - LOST
    assert float((wave - expected).abs().max()) < limit
    assert float(expected.abs().max()) < 0.999, "a clipped wave would hide errors"
    assert float(expected.std()) > 0.01


def test_streams_that_join_at_different_times_do_not_touch_each_other(checkpoint: Path, groups: int) -> None:
    decoder = load_decoder(checkpoint, torch.float64, DEVICE)
    streams = captured(decoder, 3, torch.float64)
    lengths, starts, rows = (30, 44, 18, 60, 26), (0, 3, 20, 7, 31), (0, 1, 0, 2, 0)
    codes = [some_codes(length, groups, seed) for seed, length in enumerate(lengths)]
    done, waves = [0] * len(codes), [[] for _ in codes]
    tick = 0
    while any(one < length for one, length in zip(done, lengths, strict=True)):
        busy: dict[int, int] = {}
        for i, start in enumerate(starts):
            if tick >= start and done[i] < lengths[i] and rows[i] not in busy:
                busy[rows[i]] = i
        tick += 1
        if not busy:
            continue
        for row, i in busy.items():
            if done[i] == 0:
                streams.reset(row)
        frames = 2
        batch = np.stack([codes[i][done[i] : done[i] + frames] for i in busy.values()])
        out = streams.decode(list(busy), torch.from_numpy(batch).long()).cpu().clone()
        for i, wave in zip(busy.values(), out, strict=True):
            waves[i].append(wave if done[i] else wave[decoder.config.lead :])
            done[i] += frames
    for i, parts in enumerate(waves):
        expected = one_shot(checkpoint, codes[i])
        wave = torch.cat(parts)
        assert wave.shape == expected.shape
        assert float((wave - expected).abs().max()) < 1e-10


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def stage(
    checkpoint: Path, clock: Clock | None = None, dtype: torch.dtype = torch.float64, **options: object
) -> Code2wav:
    config = StageConfig({"checkpoint": str(checkpoint), "max_generations": 4, **options})
    return Code2wav(config, clock or Clock(), dtype)


def run_to_the_end(code2wav: Code2wav) -> dict[str, list[StageMessage]]:
    said: dict[str, list[StageMessage]] = {}
    while (wait := code2wav.wait()) is not None:
        assert wait == 0.0
        for generation, message in code2wav.step():
            said.setdefault(generation, []).append(message)
    return said


def audio_of(messages: list[StageMessage]) -> npt.NDArray[np.int16]:
    return np.concatenate([m.audio for m in messages if m.audio is not None] or [np.empty(0, np.int16)])


@pytest.mark.parametrize(("dtype", "steps"), [(torch.float64, 1), (torch.float32, 4)], ids=["fp64", "fp32"])
def test_the_stage_speaks_the_rounded_one_shot_decode_in_a_growing_ramp(
    checkpoint: Path, groups: int, dtype: torch.dtype, steps: int
) -> None:
    # A random decoder amplifies the rounding of float32 to 1e-4, which is over three steps of 16 bits.
    code2wav = stage(checkpoint, dtype=dtype, max_chunk_frames=25)
    codes = {f"g{i}": some_codes(frames, groups, i) for i, frames in enumerate((60, 1, 33, 47, 8, 20))}
    for generation, frames in codes.items():
        code2wav.open(generation, Settings(speech=True))
        code2wav.push(generation, StageMessage(codes=frames))
        code2wav.push(generation, StageMessage(eos=True))
    said = run_to_the_end(code2wav)
    for generation, frames in codes.items():
        audio, expected = audio_of(said[generation]), to_int16(one_shot(checkpoint, frames))
        assert audio.dtype == np.int16
        assert len(audio) == 1920 * len(frames) - LOST
        assert np.abs(audio.astype(int) - expected).max() <= steps
        assert [m.eos for m in said[generation]] == [False] * (len(said[generation]) - 1) + [True]
    sizes = [(len(m.audio) + LOST * (i == 0)) // 1920 for i, m in enumerate(said["g0"])]
    assert sizes == [1, 2, 4, 8, 16, 25, 4]
    assert len(code2wav) == code2wav.rows_in_use == 0


def test_a_request_sets_its_own_cap(checkpoint: Path, groups: int) -> None:
    with Drive(CODE2WAV, "qwen3_omni", checkpoint=str(checkpoint)) as drive:
        said = drive.run(
            [StageMessage(codes=some_codes(11, groups)), StageMessage(eos=True)],
            Settings(speech=True, stage={CODE2WAV: {"max_chunk_frames": 3}}),
        )
    assert [round(len(m.audio) / 1920) for m in said if m.audio is not None] == [1, 2, 3, 3, 2]


def test_first_chunks_go_first(checkpoint: Path, groups: int) -> None:
    code2wav = stage(checkpoint, max_batch=1)
    code2wav.open("old", Settings(speech=True))
    code2wav.push("old", StageMessage(codes=some_codes(31, groups)))
    code2wav.step()
    code2wav.open("new", Settings(speech=True))
    code2wav.push("new", StageMessage(codes=some_codes(1, groups)))
    assert [generation for generation, _ in code2wav.step()] == ["new"]


def test_a_chunk_that_is_not_full_goes_out_before_the_player_runs_dry(checkpoint: Path, groups: int) -> None:
    clock = Clock()
    code2wav = stage(checkpoint, clock, margin_ms=20)
    code2wav.open("g", Settings(speech=True))
    code2wav.push("g", StageMessage(codes=some_codes(1, groups)))
    assert len(code2wav.step()) == 1  # 57 ms of speech
    code2wav.push("g", StageMessage(codes=some_codes(1, groups)))
    assert code2wav.step() == []
    assert code2wav.wait() == pytest.approx(1365 / 24_000 - 0.02)
    clock.now = 0.04
    assert [len(m.audio) for _, m in code2wav.step() if m.audio is not None] == [1920]
    assert code2wav.wait() is None


def test_a_chunk_without_frames_is_silence_and_an_end(checkpoint: Path) -> None:
    with Drive(CODE2WAV, "qwen3_omni", checkpoint=str(checkpoint)) as drive:
        said = drive.run([StageMessage(eos=True)])
    assert said == [StageMessage(eos=True)]


def test_an_abort_frees_the_row_and_leaves_no_trace(checkpoint: Path, groups: int) -> None:
    code2wav = stage(checkpoint, max_generations=1, max_queue=1)
    code2wav.open("a", Settings(speech=True))
    code2wav.push("a", StageMessage(codes=some_codes(7, groups, 1)))
    code2wav.step()
    assert code2wav.rows_in_use == 1
    code2wav.open("b", Settings(speech=True))
    with pytest.raises(Overloaded):
        code2wav.open("c", Settings(speech=True))
    code2wav.abort("a")
    assert (len(code2wav), code2wav.rows_in_use) == (1, 0)
    codes = some_codes(5, groups, 2)
    code2wav.push("b", StageMessage(codes=codes, eos=True))
    audio = audio_of(run_to_the_end(code2wav)["b"])
    assert np.abs(audio.astype(int) - to_int16(one_shot(checkpoint, codes))).max() <= 1
    code2wav.abort("unknown")


@pytest.mark.parametrize(
    "wrong", [np.full((1, 4), 64, np.int32), np.full((1, 4), -1, np.int32), np.zeros((4,), np.int32)]
)
def test_codes_that_are_none_fail_that_generation_alone(checkpoint: Path, wrong: Codes) -> None:
    code2wav = stage(checkpoint)
    code2wav.open("g", Settings(speech=True))
    with pytest.raises(StageFailed):
        code2wav.push("g", StageMessage(codes=wrong))
