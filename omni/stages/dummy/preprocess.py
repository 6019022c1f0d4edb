"""The dummy preprocess: decodes every part of a job in a bounded pool of threads and tells the thinker what it found.

Hand-over: `meta` is `{"messages": [{"role", "parts": [facts]}], "prompt_tokens", "audio_tokens", "priority"}`. The
facts of a part are `type`, `tokens`, and for text `text`, for an image `width`, `height`, for audio `seconds`, `rms`,
`peak`, for video `width`, `height`, `frames`, `seconds`, `has_audio`; media also have `digest`, and `array` when an
array of that name goes along.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from omni.contract.errors import Cancelled, ContextExceeded, InvalidRequest, OmniError, Overloaded, StageFailed
from omni.contract.handover import Handover
from omni.contract.job import Job, Part, TextPart
from omni.contract.names import PREPROCESS, THINKER
from omni.contract.params import Settings
from omni.contract.stage import Outputs, Stage, StageConfig
from omni.contract.tensors import StageMessage
from omni.stages.dummy.perceive import Perceived, Senses
from omni.stages.media.limits import Check, MediaLimits
from omni.stages.media.store import DEFAULT_BYTES, MediaStore
from omni.stages.media.video import Sampling

MESSAGE_TOKENS = 1
"""Prompt tokens for the role of each message."""

log = logging.getLogger(__name__)


def create(config: StageConfig) -> Stage:
    return Preprocess(config)


@dataclass(slots=True)
class _Run:
    job: Job | None = None
    dropped: bool = False

    def check(self) -> None:
        """A `Check`: stops a decoder when nobody wants its result any more."""
        if self.dropped:
            raise Cancelled("The generation was aborted.")


class Preprocess:
    """Options: `workers` (2), `max_queue` (256) jobs that wait, `store_bytes` and `cache_bytes` (256 MiB each) of
    encoded and of decoded media that are remembered, `limits` as `MediaLimits`, `video` as `Sampling`,
    `context_length` (32768).
    """

    def __init__(self, config: StageConfig) -> None:
        options = config.options
        self._wake = config.wake
        self._workers = int(options.get("workers", 2))
        self._max_queue = int(options.get("max_queue", 256))
        self._context_length = int(options.get("context_length", 32_768))
        self._senses = Senses(MediaLimits.of(options), Sampling.of(options))
        self.store = MediaStore(
            lambda made: cast(Perceived, made).size,
            int(options.get("store_bytes", DEFAULT_BYTES)),
            int(options.get("cache_bytes", DEFAULT_BYTES)),
        )
        self._pool = ThreadPoolExecutor(self._workers, thread_name_prefix="preprocess")
        self._waiting: dict[str, _Run] = {}
        self._running: dict[str, _Run] = {}
        self._busy = 0
        """Workers at work, also on what was dropped: their number bounds the pool's own queue."""
        self._finished: deque[tuple[str, _Run, StageMessage, bool]] = deque()
        """What workers leave for `step`: `(generation, run, message, from a worker)`."""

    def __len__(self) -> int:
        """Generations that are held."""
        return len(self._waiting) + len(self._running)

    def open(self, generation: str, settings: Settings) -> None:
        if len(self._waiting) >= self._max_queue:
            raise Overloaded("Too many requests wait for their media to be decoded; try again later.")
        self._waiting[generation] = _Run()

    def push(self, generation: str, message: StageMessage) -> None:
        run = self._waiting.get(generation)
        if run is None:
            return
        if message.job is None:
            self.abort(generation)
            raise InvalidRequest("The request carries no job.")
        run.job = message.job
        self.store.keep(message.job)
        if message.job.media:
            self._start()
        else:
            # Text needs no decoder, and so waits for none.
            self._running[generation] = self._waiting.pop(generation)
            self._finished.append((generation, run, self._answer(message.job, run.check), False))

    def abort(self, generation: str) -> None:
        run = self._waiting.pop(generation, None) or self._running.pop(generation, None)
        if run is not None:
            run.dropped = True

    def step(self) -> Outputs:
        out: list[tuple[str, StageMessage]] = []
        while self._finished:
            generation, run, message, worked = self._finished.popleft()
            self._busy -= worked
            if not run.dropped:
                del self._running[generation]
                out.append((generation, message))
        self._start()
        return out

    def wait(self) -> float | None:
        return 0.0 if self._finished else None

    def close(self) -> None:
        for generation in (*self._waiting, *self._running):
            self.abort(generation)
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _start(self) -> None:
        """Gives free workers the job of the highest priority that has waited longest."""
        while self._busy < self._workers:
            ready = [(run.job.priority, generation) for generation, run in self._waiting.items() if run.job is not None]
            if not ready:
                return
            _, generation = max(ready, key=lambda one: one[0])
            run = self._running[generation] = self._waiting.pop(generation)
            self._busy += 1
            self._pool.submit(self._work, generation, run)

    def _work(self, generation: str, run: _Run) -> None:
        assert run.job is not None
        message = self._answer(run.job, run.check)
        self._finished.append((generation, run, message, True))
        self._wake()

    def _answer(self, job: Job, check: Check) -> StageMessage:
        try:
            return StageMessage(handover=self._prompt(job, check), eos=True)
        except OmniError as problem:
            return StageMessage(error=problem, eos=True)
        except Exception:
            log.exception("a job could not be preprocessed")
            failed = StageFailed("The media of the request could not be processed.", stage=PREPROCESS)
            return StageMessage(error=failed, eos=True)

    def _prompt(self, job: Job, check: Check) -> Handover:
        arrays: dict[str, npt.NDArray[np.generic]] = {}
        kinds: Counter[str] = Counter()
        prompt_tokens = audio_tokens = 0
        messages: list[dict[str, Any]] = []
        for message in job.messages:
            parts: list[dict[str, Any]] = []
            prompt_tokens += MESSAGE_TOKENS
            for part in message.parts:
                check()
                one = self._perceive(part, job, check)
                facts = {**one.facts, "tokens": one.tokens}
                if not isinstance(part, TextPart):
                    facts["digest"] = part.digest
                    if one.array is not None:
                        facts["array"] = f"{part.kind}_{kinds[part.kind]}"
                        arrays[facts["array"]] = one.array
                    kinds[part.kind] += 1
                prompt_tokens += one.tokens
                audio_tokens += one.audio_tokens
                parts.append(facts)
            messages.append({"role": message.role, "parts": parts})
        self._fits(prompt_tokens, job.settings)
        meta = {
            "messages": messages,
            "prompt_tokens": prompt_tokens,
            "audio_tokens": audio_tokens,
            "priority": job.priority,
        }
        return Handover(meta, arrays)

    def _perceive(self, part: Part, job: Job, check: Check) -> Perceived:
        if isinstance(part, TextPart):
            return self._senses.text(part.text)
        options = job.video if part.kind == "video" else None
        return self.store.made(part, options, lambda data: self._senses.media(part, data, job.video, check))

    def _fits(self, prompt_tokens: int, settings: Settings) -> None:
        """Raises `ContextExceeded` when the prompt, or the prompt and the answer that was asked for, are too long."""
        most = self._context_length
        if prompt_tokens >= most:
            raise ContextExceeded(
                f"The prompt has {prompt_tokens} tokens, which is longer than the model's context length of {most} "
                "tokens.",
                param="messages",
            )
        sampling = settings.sampling.get(THINKER)
        asked = sampling.max_tokens if sampling is not None else None
        if asked is not None and prompt_tokens + asked > most:
            raise ContextExceeded(
                f"Requested token count exceeds the model's context length: {prompt_tokens} tokens of prompt and "
                f"{asked} tokens of answer are more than {most} tokens.",
                param="max_tokens",
            )
