"""code2wav: speech of codec frames, streamed exactly, in float32."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from omni.contract.errors import StageFailed
from omni.contract.names import CODE2WAV, SAMPLE_RATE
from omni.contract.params import Settings
from omni.contract.stage import Outputs, Stage, StageConfig
from omni.contract.tensors import StageMessage
from omni.engine.graphs import Graphs, bucket
from omni.engine.transfer import download, upload
from omni.stages.chunk_ramp import ChunkRamp
from omni.stages.qwen3_omni.checkpoint import Place
from omni.stages.qwen3_omni.decoder import Decoder, DecoderConfig
from omni.stages.qwen3_omni.engines import load_engine, step_names
from omni.stages.qwen3_omni.streams import Step, Streams
from omni.stages.qwen3_omni.weights import read_weights
from omni.stages.slots import Slots

Codes = npt.NDArray[np.int32]


def create(config: StageConfig) -> Stage:
    return Code2wav(config)


def decoder_config(checkpoint: Path) -> DecoderConfig:
    """Raises OSError, or KeyError for a checkpoint of another kind."""
    return DecoderConfig.from_json(json.loads((checkpoint / "config.json").read_text("utf-8"))["code2wav_config"])


def load_decoder(
    checkpoint: Path, dtype: torch.dtype = torch.float32, device: str = "cpu", *, random: bool = False
) -> Decoder:
    """The codec decoder of a checkpoint directory; `random` is as in `Place`. Raises OSError or RuntimeError when it
    isn't whole."""
    with torch.device(device if random else "meta"):
        decoder = Decoder(decoder_config(checkpoint))
    if not random:
        decoder.load_state_dict(read_weights(checkpoint, "code2wav."), assign=True)
    return decoder.to(device, dtype).eval().requires_grad_(False)


def load_step(place: Place, dtype: torch.dtype, engine: str | None, batch: int, frames: int) -> Step:
    """The decoder's step in torch, or that of the file `engine` for so many rows of so many frames. Raises what loading
    raises."""
    if engine is None:
        return load_decoder(place.checkpoint, dtype, place.device, random=place.random)
    config = decoder_config(place.checkpoint)
    states = [(batch, *shape) for shape in config.state_shapes]
    largest = [(batch, frames, config.num_quantizers), (batch,), *states]
    return load_engine(Path(engine), step_names(len(states)), largest, place.device)


def to_int16(wave: Tensor) -> npt.NDArray[np.int16]:
    """Samples of -1 to 1 as signed 16-bit, rounded to nearest."""
    return download((wave * 32767).round().clamp(-32768, 32767).to(torch.int16))()


def _stride(frames: int) -> int:
    """The largest power of two in `frames`."""
    return 1 << (frames.bit_length() - 1)


@dataclass(slots=True)
class _Run:
    ramp: ChunkRamp
    codes: Codes
    """Frames that wait, [frames, groups]."""
    ended: bool = False
    """Whether no frames follow."""
    row: int | None = None
    """Its states; None before the first frame."""
    chunk: int = 0
    """Frames of the chunk under way that are still to be decoded."""
    made: list[npt.NDArray[np.int16]] = field(default_factory=list)
    """What the chunk under way has so far."""

    def plan(self, now: float) -> None:
        """Begins the next chunk when it is time."""
        if not self.chunk:
            self.chunk = self.ramp.frames(len(self.codes), self.ended, now)

    @property
    def stride(self) -> int:
        """Frames of its next decode: powers of two, so that there are few shapes."""
        return _stride(self.chunk)

    @property
    def urgency(self) -> float:
        """Who must be served first: a first chunk, then who plays out first."""
        return -1.0 if self.ramp.plays_until is None else self.ramp.plays_until

    def take(self, frames: int) -> Codes:
        taken, self.codes = self.codes[:frames], self.codes[frames:]
        self.chunk -= frames
        return taken


class Code2wav:
    """Options: those of `Place`, of which `dtype` has no effect; `max_generations` (64) at once, `max_queue` (256) that
    wait; `max_batch` (32) rows of a step; `max_chunk_frames` (25); `margin_ms` (100), speech that a real-time player
    should still have when its next chunk is begun; `engine`, a file of `build/export_onnx.py` or `build/engines.py`
    that computes in the place of torch; `graphs` (torch on a GPU), decodes in few batch sizes and as CUDA graphs.

    A step decodes one batch of generations that need equally many frames, the most urgent first.
    """

    def __init__(
        self,
        config: StageConfig,
        clock: Callable[[], float] = time.monotonic,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """`dtype` is for tests that want rounding out of the way."""
        options = config.options
        place = Place.of(options)
        self._clock = clock
        self._most = int(options.get("max_chunk_frames", 25))
        self._margin = float(options.get("margin_ms", 100)) / 1000
        self._batch = int(options.get("max_batch", 32))
        rows = int(options.get("max_generations", 64))
        self._slots: Slots[_Run] = Slots(rows, int(options.get("max_queue", 256)))
        self._config = decoder_config(place.checkpoint)
        self._device = torch.device(place.device)
        # What convolutions on a GPU do by themselves, TF32, keeps ten bits of float32's mantissa.
        torch.backends.cudnn.allow_tf32 = False
        engine = options.get("engine")
        # Convolutions and attention of a decoder are capturable in any precision; what runs an engine may not be.
        captured = options.get("graphs", engine is None and self._device.type == "cuda")
        graphs = Graphs(self._device) if captured else None
        largest = min(self._batch, rows)
        step = load_step(place, dtype, engine, bucket(largest) if captured else largest, _stride(self._most))
        self._streams = Streams(step, self._config.states(rows, dtype, self._device), graphs)
        self._free = list(range(rows))

    def __len__(self) -> int:
        """Generations that are held."""
        return len(self._slots)

    @property
    def rows_in_use(self) -> int:
        return len(self._streams) - len(self._free)

    def open(self, generation: str, settings: Settings) -> None:
        most = min(self._most, settings.knob(CODE2WAV, "max_chunk_frames", self._most))
        groups = self._config.num_quantizers
        self._slots.add(generation, _Run(ChunkRamp(most, self._margin), np.empty((0, groups), np.int32)))

    def push(self, generation: str, message: StageMessage) -> None:
        run = self._slots.get(generation)
        if run is None:
            return
        if message.codes is not None:
            run.codes = np.concatenate((run.codes, self._checked(message.codes)))
        run.ended |= message.eos

    def _checked(self, codes: Codes) -> Codes:
        config = self._config
        shaped = codes.ndim == 2 and codes.shape[1] == config.num_quantizers
        if not shaped or (codes.size and not 0 <= codes.min() <= codes.max() < config.codebook_size):
            raise StageFailed("The speech of the answer can't be made.", stage=CODE2WAV)
        return codes

    def abort(self, generation: str) -> None:
        if (run := self._slots.remove(generation)) is not None and run.row is not None:
            self._streams.reset(run.row)
            self._free.append(run.row)

    def step(self) -> Outputs:
        now = self._clock()
        out: list[tuple[str, StageMessage]] = []
        for generation, run in self._slots:
            run.plan(now)
            if run.ended and not run.chunk and not len(run.codes):
                out.append((generation, StageMessage(eos=True)))
                self.abort(generation)
        ready = sorted((one for one in self._slots if one[1].chunk), key=lambda one: one[1].urgency)
        if ready:
            stride = ready[0][1].stride
            out += self._decode([one for one in ready if one[1].stride == stride][: self._batch], stride)
        return out

    def _decode(self, batch: list[tuple[str, _Run]], frames: int) -> Outputs:
        """One decode of `frames` frames of each; the chunks that it completes."""
        fresh = [run.row is None for _, run in batch]
        rows = []
        for _, run in batch:
            if run.row is None:
                run.row = self._free.pop()
            rows.append(run.row)
        codes = upload(np.stack([run.take(frames) for _, run in batch]).astype(np.int64), self._device)
        waves = to_int16(self._streams.decode(rows, codes))
        out: list[tuple[str, StageMessage]] = []
        for (generation, run), wave, first in zip(batch, waves, fresh, strict=True):
            run.made.append(wave[self._config.lead :] if first else wave)
            if run.chunk:
                continue
            audio, run.made = np.concatenate(run.made), []
            run.ramp.sent(-(-len(audio) // self._config.hop), len(audio) / SAMPLE_RATE, self._clock())
            ended = run.ended and not len(run.codes)
            out.append((generation, StageMessage(audio=audio, eos=ended)))
            if ended:
                self.abort(generation)
        return out

    def wait(self) -> float | None:
        now = self._clock()
        soonest: float | None = None
        for _, run in self._slots:
            run.plan(now)
            if run.chunk or run.ended:
                return 0.0
            if (due := run.ramp.due(len(run.codes))) is not None and (soonest is None or due < soonest):
                soonest = due
        return None if soonest is None else max(0.0, soonest - now)

    def close(self) -> None:
        self._slots.clear()
