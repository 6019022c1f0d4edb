"""The dummy code2wav: makes tones of codec frames, in chunks that grow."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from omni.contract.errors import StageFailed
from omni.contract.names import CODE2WAV, CODEC_FRAME_SAMPLES, SAMPLE_RATE
from omni.contract.params import Settings
from omni.contract.stage import Outputs, Stage, StageConfig
from omni.contract.tensors import StageMessage
from omni.stages.chunk_ramp import ChunkRamp
from omni.stages.dummy.frames import GROUPS, Codes
from omni.stages.dummy.tones import sing
from omni.stages.slots import Slots


def create(config: StageConfig) -> Stage:
    return Code2wav(config)


def _none() -> Codes:
    return np.empty((0, GROUPS), np.int32)


@dataclass(slots=True)
class _Run:
    ramp: ChunkRamp
    delay: float
    """Seconds that each chunk takes."""
    codes: Codes = field(default_factory=_none)
    ended: bool = False
    count: int = 0
    """Frames of the chunk that is under way."""
    ready: float | None = None
    """When that chunk is ready; None while none is under way."""

    def plan(self, now: float) -> None:
        """Begin the next chunk if it may."""
        if self.ready is not None:
            return
        self.count = self.ramp.frames(len(self.codes), self.ended, now)
        if self.count or self.ended:
            self.ready = now + (self.delay if self.count else 0.0)

    def due(self) -> float | None:
        """When there is something to do."""
        return self.ramp.due(len(self.codes)) if self.ready is None else self.ready

    def take(self, now: float) -> Codes:
        """The frames of the chunk that is ready."""
        chunk, self.codes = self.codes[: self.count], self.codes[self.count :]
        self.ramp.sent(self.count, self.count * CODEC_FRAME_SAMPLES / SAMPLE_RATE, now)
        self.ready = None
        return chunk


class Code2wav:
    """Options: `max_chunk_frames` (25), `chunk_delay_ms` (0), `ramp_margin_ms` (50) of speech that a player should
    still have when the next chunk is begun, `frames_per_step` (256) over all generations, `max_generations` (256) at
    once, `max_queue` (256) that wait.

    When a step can't serve all, first chunks go first, then who has waited longest.
    """

    def __init__(self, config: StageConfig, clock: Callable[[], float] = time.monotonic) -> None:
        options = config.options
        self._clock = clock
        self._most = int(options.get("max_chunk_frames", 25))
        self._delay_ms = float(options.get("chunk_delay_ms", 0))
        self._margin = float(options.get("ramp_margin_ms", 50)) / 1000
        self._frames_per_step = int(options.get("frames_per_step", 256))
        self._slots: Slots[_Run] = Slots(int(options.get("max_generations", 256)), int(options.get("max_queue", 256)))

    def __len__(self) -> int:
        """Generations that are held."""
        return len(self._slots)

    def open(self, generation: str, settings: Settings) -> None:
        most = settings.knob(CODE2WAV, "max_chunk_frames", self._most)
        delay = settings.knob(CODE2WAV, "chunk_delay_ms", self._delay_ms) / 1000
        self._slots.add(generation, _Run(ChunkRamp(most, self._margin), delay))

    def push(self, generation: str, message: StageMessage) -> None:
        run = self._slots.get(generation)
        if run is None:
            return
        if (codes := message.codes) is not None:
            if (
                codes.ndim != 2
                or codes.shape[1] != GROUPS
                or (codes.size and not 0 <= codes.min() <= codes.max() <= 255)
            ):
                self.abort(generation)
                raise StageFailed("The speech of the answer can't be made.", stage=CODE2WAV)
            run.codes = np.concatenate((run.codes, codes))
        run.ended |= message.eos
        run.plan(self._clock())

    def abort(self, generation: str) -> None:
        self._slots.remove(generation)

    def step(self) -> Outputs:
        out: list[tuple[str, StageMessage]] = []
        now = self._clock()
        for _, run in self._slots:
            run.plan(now)
        ready = [(generation, run) for generation, run in self._slots if run.ready is not None and run.ready <= now]
        left = self._frames_per_step
        for generation, run in sorted(ready, key=lambda one: one[1].ramp.plays_until is not None):
            if left <= 0:
                break
            codes = run.take(now)
            left -= len(codes)
            ended = run.ended and not len(run.codes)
            out.append((generation, StageMessage(audio=sing(codes) if len(codes) else None, eos=ended)))
            if ended:
                self._slots.remove(generation)
            else:
                self._slots.served(generation)
                run.plan(now)
        return out

    def wait(self) -> float | None:
        due = [at for _, run in self._slots if (at := run.due()) is not None]
        return max(0.0, min(due) - self._clock()) if due else None

    def close(self) -> None:
        self._slots.clear()
