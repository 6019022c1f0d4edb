"""The demo's code2wav: codec frames to sound, in chunks that grow. What is streamed is what a whole decode gives."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from omni.contract.names import CODE2WAV as STAGE
from omni.contract.names import SAMPLE_RATE
from omni.contract.params import Settings
from omni.contract.stage import Outputs, Stage, StageConfig
from omni.contract.tensors import StageMessage
from omni.stages.chunk_ramp import ChunkRamp
from omni.stages.demo.frames import GROUPS, HOP, NUMBERS, Codes, Frames, unpack
from omni.stages.demo.models import CODE2WAV, session
from omni.stages.demo.vocoder import Spectrum, Vocoder
from omni.stages.slots import Slots


def create(config: StageConfig) -> Stage:
    return Code2wav(config)


class Head:
    """The voice's last layer: the spectrum of each frame. Its sums are of whole numbers, and so exact."""

    def __init__(self) -> None:
        self._head = session(CODE2WAV)
        self._inputs = [one.name for one in self._head.get_inputs()]

    def __call__(self, frames: Frames) -> Spectrum:
        """Frames of several clauses may come together; those that share a scale are computed at once."""
        changes = (np.diff(frames.scales) != 0) | (np.diff(frames.zero_points) != 0)
        starts = [0, *(np.flatnonzero(changes) + 1).tolist(), len(frames.scales)]
        parts = [self._run(frames, start, end) for start, end in pairwise(starts)]
        return Spectrum(*(np.concatenate(part) for part in zip(*parts, strict=True)))

    def _run(self, frames: Frames, start: int, end: int) -> list[npt.NDArray[np.float32]]:
        feed = (frames.numbers[None, start:end], frames.scales[start], frames.zero_points[start])
        given = {name: np.asarray(value) for name, value in zip(self._inputs, feed, strict=True)}
        return [np.ascontiguousarray(part[0].T) for part in self._head.run(None, given)]


@dataclass(slots=True)
class _Run:
    ramp: ChunkRamp
    vocoder: Vocoder
    codes: Codes = field(default_factory=lambda: np.empty((0, GROUPS), np.int32))
    ended: bool = False

    def due(self, now: float) -> float | None:
        """When there is something to do; None when that is for the talker to say."""
        if self.ended or self.ramp.frames(len(self.codes), self.ended, now):
            return now
        return self.ramp.due(len(self.codes))

    def take(self, now: float) -> Codes:
        """The frames of the chunk that is due."""
        count = self.ramp.frames(len(self.codes), self.ended, now)
        chunk, self.codes = self.codes[:count], self.codes[count:]
        self.ramp.sent(count, count * HOP / SAMPLE_RATE, now)
        return chunk


class Code2wav:
    """Options: `first_chunk_frames` (16), `max_chunk_frames` (80), `ramp_margin_ms` (200) of speech that a player
    should still have when the next chunk is begun, `max_generations` (64) at once, `max_queue` (64) that wait.

    A step makes one chunk: first chunks go first, then who has waited longest.
    """

    def __init__(self, config: StageConfig, clock: Callable[[], float] = time.monotonic) -> None:
        options = config.options
        self._clock = clock
        self._first = int(options.get("first_chunk_frames", 16))
        self._most = int(options.get("max_chunk_frames", 80))
        self._margin = float(options.get("ramp_margin_ms", 200)) / 1000
        self._slots: Slots[_Run] = Slots(int(options.get("max_generations", 64)), int(options.get("max_queue", 64)))
        self._head = Head()
        # A first run allocates, and would make the first client wait.
        silence = np.zeros(self._first, np.float32)
        quiet = silence.astype(np.uint8)
        Vocoder(self._head).feed(Frames(np.zeros((self._first, NUMBERS), np.uint8), quiet, silence, silence), True)

    def __len__(self) -> int:
        """Generations that are held."""
        return len(self._slots)

    def open(self, generation: str, settings: Settings) -> None:
        most = settings.knob(STAGE, "max_chunk_frames", self._most)
        self._slots.add(generation, _Run(ChunkRamp(most, self._margin, full=self._first), Vocoder(self._head)))

    def push(self, generation: str, message: StageMessage) -> None:
        run = self._slots.get(generation)
        if run is None:
            return
        if message.codes is not None:
            try:
                unpack(message.codes)
            except Exception:
                self.abort(generation)
                raise
            run.codes = np.concatenate((run.codes, message.codes))
        run.ended |= message.eos

    def abort(self, generation: str) -> None:
        self._slots.remove(generation)

    def step(self) -> Outputs:
        now = self._clock()
        due = [(generation, run) for generation, run in self._slots if (at := run.due(now)) is not None and at <= now]
        if not due:
            return []
        generation, run = min(due, key=lambda one: one[1].ramp.plays_until is not None)
        codes = run.take(now)
        ended = run.ended and not len(run.codes)
        wave = run.vocoder.feed(unpack(codes), ended)
        if ended:
            self._slots.remove(generation)
        else:
            self._slots.served(generation)
        audio = np.clip(np.rint(wave * 32767), -32768, 32767).astype(np.int16) if len(wave) else None
        message = StageMessage(audio=audio, eos=ended)
        return [] if message.empty else [(generation, message)]

    def wait(self) -> float | None:
        now = self._clock()
        due = [at for _, run in self._slots if (at := run.due(now)) is not None]
        return max(0.0, min(due) - now) if due else None

    def close(self) -> None:
        self._slots.clear()
