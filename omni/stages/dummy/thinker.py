"""The dummy thinker: says what it received, word by word at a settable pace."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from omni.contract.chunk import Usage
from omni.contract.errors import StageFailed
from omni.contract.handover import Handover
from omni.contract.names import TALKER, THINKER
from omni.contract.params import THINKER_DEFAULTS, SamplingParams, Settings
from omni.contract.stage import Outputs, Stage, StageConfig
from omni.contract.tensors import StageMessage
from omni.stages.dummy.answer import Answer
from omni.stages.dummy.describe import describe, opening
from omni.stages.dummy.prefixes import Prefixes
from omni.stages.dummy.words import words
from omni.stages.slots import Slots

log = logging.getLogger(__name__)


def create(config: StageConfig) -> Stage:
    return Thinker(config)


@dataclass(slots=True)
class _Run:
    settings: Settings
    interval: float
    """Seconds between two tokens."""
    prompt: Handover | None = None
    answer: Answer | None = None
    due: float = 0.0
    """When the next token may be said."""

    @property
    def priority(self) -> int:
        return 0 if self.prompt is None else int(self.prompt.meta.get("priority", 0))


class Thinker:
    """Options: `token_interval_ms` (0), `max_generations` (256) at once, `max_queue` (256) that wait,
    `context_length` (32768), `sampling` that stands in for what a request leaves open.

    At an interval of 0 every step says one token of each generation.
    """

    def __init__(self, config: StageConfig, clock: Callable[[], float] = time.monotonic) -> None:
        options = config.options
        self._clock = clock
        self._interval_ms = float(options.get("token_interval_ms", 0))
        self._context_length = int(options.get("context_length", 32_768))
        self._defaults = SamplingParams.from_json(options.get("sampling", {})).over(THINKER_DEFAULTS)
        self._prefixes = Prefixes()
        self._slots: Slots[_Run] = Slots(
            int(options.get("max_generations", 256)), int(options.get("max_queue", 256)), lambda run: run.priority
        )

    def __len__(self) -> int:
        """Generations that are held."""
        return len(self._slots)

    def open(self, generation: str, settings: Settings) -> None:
        interval = settings.knob(THINKER, "token_interval_ms", self._interval_ms) / 1000
        self._slots.add(generation, _Run(settings, interval))

    def push(self, generation: str, message: StageMessage) -> None:
        if message.handover is not None and (run := self._slots.get(generation)) is not None:
            run.prompt = message.handover

    def abort(self, generation: str) -> None:
        self._slots.remove(generation)

    def step(self) -> Outputs:
        out: list[tuple[str, StageMessage]] = []
        now = self._clock()
        for generation, run in self._slots:
            if run.prompt is None or now < run.due:
                continue
            if run.answer is None:
                first = self._try_to_begin(run, run.prompt)
                out.append((generation, first))
                if first.eos:
                    self._slots.remove(generation)
                    continue
            run.due = max(run.due + run.interval, now)
            if (message := self._say(run)) is not None:
                out.append((generation, message))
                if message.eos:
                    self._slots.remove(generation)
        return out

    def wait(self) -> float | None:
        due = [run.due for _, run in self._slots if run.prompt is not None]
        return max(0.0, min(due) - self._clock()) if due else None

    def close(self) -> None:
        self._slots.clear()

    def _try_to_begin(self, run: _Run, prompt: Handover) -> StageMessage:
        try:
            return self._begin(run, prompt)
        except Exception:
            log.exception("a prompt could not be read")
            error = StageFailed("The prompt of the request can't be read.", stage=THINKER)
            return StageMessage(error=error, eos=True)

    def _begin(self, run: _Run, prompt: Handover) -> StageMessage:
        """Reads the prompt and says that it did; that is all that a prefill is for."""
        meta = prompt.meta
        prompt_tokens, cached = int(meta["prompt_tokens"]), self._prefixes.cached(meta["messages"])
        self._prefixes.keep(meta["messages"])
        news = {"prompt_tokens": prompt_tokens, "cached_tokens": cached}
        if run.settings.prefill:
            return StageMessage(event={"type": "prefilled", **news}, eos=True)
        params = run.settings.sampling_of(THINKER, self._defaults)
        room = max(1, self._context_length - prompt_tokens)
        params = SamplingParams(max_tokens=min(params.max_tokens or room, room)).over(params)
        text = describe(prompt, opening(params.seed, params.temperature or 0.0))
        usage = Usage(prompt_tokens=prompt_tokens, cached_tokens=cached, audio_tokens=int(meta["audio_tokens"]))
        run.answer = Answer(text, params, usage)
        run.due = self._clock()
        handover = None
        if run.settings.speech:
            handover = Handover({"voice": run.settings.knob(TALKER, "voice", None)})
        return StageMessage(event={"type": "prompt", **news}, handover=handover)

    def _say(self, run: _Run) -> StageMessage | None:
        assert run.answer is not None
        assert run.prompt is not None
        piece = run.answer.next()
        if piece is None:
            return None
        if run.answer.finished:
            self._prefixes.keep([*run.prompt.meta["messages"], _said(run.answer.text)])
        tokens = np.array(piece.tokens, np.int32) if run.settings.speech and piece.tokens else None
        return StageMessage(text=piece.delta, tokens=tokens, eos=run.answer.finished)


def _said(text: str) -> dict[str, Any]:
    """An answer as the message that it is in the next turn."""
    return {"role": "assistant", "parts": [{"type": "text", "text": text, "tokens": len(words(text))}]}
