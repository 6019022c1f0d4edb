"""The demo's code2wav: codec frames to sound, in chunks that grow. What is streamed is what a whole decode gives."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from omni.contract.names import CODE2WAV as STAGE
from omni.contract.params import Settings
from omni.contract.stage import Outputs, Stage, StageConfig
from omni.contract.tensors import StageMessage
from omni.stages.demo.frames import GROUPS, NUMBERS, Codes, Frames, unpack
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
    most: int
    """Frames of a chunk when the ramp is up."""
    ramp: int
    """Frames of the next chunk; it doubles up to `most`."""
    vocoder: Vocoder
    codes: Codes = field(default_factory=lambda: np.empty((0, GROUPS), np.int32))
    ended: bool = False
    begun: bool = False

    @property
    def ready(self) -> bool:
        return self.ended or bool(len(self.codes))

    def take(self) -> Codes:
        """The frames of the next chunk: fewer than it may have when there are no more, since a clause comes at once."""
        count = min(self.ramp, self.most)
        chunk, self.codes = self.codes[:count], self.codes[count:]
        self.ramp *= 2
        self.begun = True
        return chunk


class Code2wav:
    """Options: `first_chunk_frames` (16), `max_chunk_frames` (80), `max_generations` (64) at once, `max_queue` (64)
    that wait. A step makes one chunk: first chunks go first, then who has waited longest.
    """

    def __init__(self, config: StageConfig) -> None:
        options = config.options
        self._first = int(options.get("first_chunk_frames", 16))
        self._most = int(options.get("max_chunk_frames", 80))
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
        self._slots.add(generation, _Run(most, self._first, Vocoder(self._head)))

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
        ready = [(generation, run) for generation, run in self._slots if run.ready]
        if not ready:
            return []
        generation, run = min(ready, key=lambda one: one[1].begun)
        codes = run.take()
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
        return 0.0 if any(run.ready for _, run in self._slots) else None

    def close(self) -> None:
        self._slots.clear()
