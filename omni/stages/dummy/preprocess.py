"""The dummy preprocess: decodes every part of a job in a bounded pool of threads and tells the thinker what it found.

Hand-over: `meta` is `{"messages": [{"role", "parts": [facts]}], "prompt_tokens", "audio_tokens", "priority"}`. The
facts of a part are `type`, `tokens`, and for text `text`, for an image `width`, `height`, for audio `seconds`, `rms`,
`peak`, for video `width`, `height`, `frames`, `seconds`, `has_audio`; media also have `digest`, and `array` when an
array of that name goes along.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from omni.contract.handover import Handover
from omni.contract.job import Job, Part, TextPart
from omni.contract.stage import Stage, StageConfig
from omni.stages.context import check_context
from omni.stages.dummy.perceive import Perceived, Senses
from omni.stages.media.limits import Check, MediaLimits
from omni.stages.media.store import DEFAULT_BYTES, MediaStore
from omni.stages.media.video import Sampling
from omni.stages.workers import Workers

MESSAGE_TOKENS = 1
"""Prompt tokens for the role of each message."""


def create(config: StageConfig) -> Stage:
    return Preprocess(config)


class Preprocess(Workers):
    """Options: `workers` (2), `max_queue` (256) jobs that wait, `store_bytes` and `cache_bytes` (256 MiB each) of
    encoded and of decoded media that are remembered, `limits` as `MediaLimits`, `video` as `Sampling`,
    `context_length` (32768).
    """

    def __init__(self, config: StageConfig) -> None:
        options = config.options
        self._context_length = int(options.get("context_length", 32_768))
        self._senses = Senses(MediaLimits.of(options), Sampling.of(options))
        store = MediaStore(
            lambda made: cast(Perceived, made).size,
            int(options.get("store_bytes", DEFAULT_BYTES)),
            int(options.get("cache_bytes", DEFAULT_BYTES)),
        )
        workers, max_queue = int(options.get("workers", 2)), int(options.get("max_queue", 256))
        super().__init__(config.wake, store, workers=workers, max_queue=max_queue)

    def prepare(self, job: Job, check: Check) -> Handover:
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
        check_context(prompt_tokens, job.settings, self._context_length)
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
