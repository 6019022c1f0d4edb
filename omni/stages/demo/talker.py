"""The demo's talker: text to phonemes to codec frames, a clause at a time, one clause per step."""

from __future__ import annotations

import json
import logging
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from omni.contract.errors import StageFailed
from omni.contract.names import TALKER as STAGE
from omni.contract.params import TALKER_DEFAULTS, SamplingParams, Settings
from omni.contract.stage import Outputs, Stage, StageConfig
from omni.contract.tensors import StageMessage
from omni.stages.demo.clauses import Clauses
from omni.stages.demo.frames import Codes, Frames, pack
from omni.stages.demo.models import TALKER, imported, packaged, session
from omni.stages.slots import Slots

_EDGE = 0
"""Id that stands at both ends of a clause."""

log = logging.getLogger(__name__)


def create(config: StageConfig) -> Stage:
    return Talker(config)


class Voice:
    """Clauses to frames. One call at a time."""

    def __init__(self) -> None:
        self._talker = session(TALKER)
        unknown = packaged("hibari", "assets/oov.onnx")
        oov = imported("hibari.g2p.oov").OOV(str(unknown), session(unknown))
        self._phonemes = imported("hibari.g2p").G2P(oov=oov)
        self._ids: dict[str, int] = json.loads(packaged("hibari", "assets/vocab.json").read_text("utf-8"))

    def speak(self, clause: str) -> Codes | None:
        """int32 [frames, 259]; None when there is nothing in the clause that has a sound."""
        ids = [self._ids[phoneme] for phoneme in self._phonemes(clause) if phoneme in self._ids]
        if not ids:
            return None
        framed = np.array([[_EDGE, *ids, _EDGE]], np.int64)
        numbers, scale, zero_point, pitch = self._talker.run(None, {"ids": framed, "speed": np.ones(1, np.float32)})
        count = numbers.shape[1]
        return pack(Frames(numbers[0], np.full(count, zero_point), np.full(count, scale), pitch[0]))


@dataclass(slots=True)
class _Run:
    most: int
    """Frames at which the speech is cut off."""
    frames: int = 0
    clauses: Clauses = field(default_factory=Clauses)
    due: deque[str] = field(default_factory=deque)
    ended: bool = False

    @property
    def ready(self) -> bool:
        return self.ended or bool(self.due)


class Talker:
    """Options: `max_generations` (64) at once, `max_queue` (64) that wait, `sampling` that stands in for what a request
    leaves open; of that only `max_tokens` counts.
    """

    def __init__(self, config: StageConfig) -> None:
        options = config.options
        self._defaults = SamplingParams.from_json(options.get("sampling", {})).over(TALKER_DEFAULTS)
        self._slots: Slots[_Run] = Slots(int(options.get("max_generations", 64)), int(options.get("max_queue", 64)))
        self._voice = Voice()
        # A first run allocates, and would make the first client wait; the second word is in no dictionary.
        self._voice.speak("Hello, zyzzogeton, this is the voice that will speak to you.")

    def __len__(self) -> int:
        """Generations that are held."""
        return len(self._slots)

    def open(self, generation: str, settings: Settings) -> None:
        params = settings.sampling_of(STAGE, self._defaults)
        self._slots.add(generation, _Run(params.max_tokens or 1))

    def push(self, generation: str, message: StageMessage) -> None:
        run = self._slots.get(generation)
        if run is None:
            return
        if message.text is not None:
            run.due.extend(run.clauses.feed(message.text.text))
        if message.eos:
            run.due.extend(run.clauses.flush())
            run.ended = True

    def abort(self, generation: str) -> None:
        self._slots.remove(generation)

    def step(self) -> Outputs:
        for generation, run in self._slots:
            if not run.ready:
                continue
            message = self._say(run)
            if message.eos:
                self._slots.remove(generation)
            else:
                self._slots.served(generation)
            return [] if message.empty else [(generation, message)]
        return []

    def wait(self) -> float | None:
        return 0.0 if any(run.ready for _, run in self._slots) else None

    def close(self) -> None:
        self._slots.clear()

    def _say(self, run: _Run) -> StageMessage:
        codes: Any = None
        if run.due:
            try:
                codes = self._voice.speak(run.due.popleft())
            except Exception:
                log.exception("a clause could not be spoken")
                failed = StageFailed("The answer could not be spoken.", stage=STAGE)
                return StageMessage(error=failed, eos=True)
        if codes is not None:
            codes = codes[: run.most - run.frames]
            run.frames += len(codes)
        return StageMessage(codes=codes, eos=run.frames >= run.most or (run.ended and not run.due))
