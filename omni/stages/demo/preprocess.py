"""The demo's preprocess: hears and sees every part of a job on one thread, and hands the thinker a prompt of words.

Hand-over: `meta` is `{"prompt": the text that the thinker goes on from, "priority"}`, and for a request to write speech
down `"answer"`: the recogniser's own text, which needs no thinker.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Any, Final, cast

import numpy as np

from omni.contract.handover import Handover
from omni.contract.job import Job, MediaPart, Message, Part, TextPart
from omni.contract.stage import Stage, StageConfig
from omni.stages.demo import prompt
from omni.stages.demo.hearing import Hearing
from omni.stages.demo.seeing import Seeing
from omni.stages.media.audio import decode_audio
from omni.stages.media.image import decode_image
from omni.stages.media.limits import Check, MediaLimits, unchecked
from omni.stages.media.store import DEFAULT_BYTES, MediaStore
from omni.stages.media.video import Sampling, decode_video
from omni.stages.workers import Workers

_ENTRY_BYTES: Final = 256
"""What a remembered text counts for beside its own length."""

_MOST_SCENES: Final = 6
"""Of a clip; earlier ones are left out, since the prompt is small."""
_DICTATION: Final = "transcribe "
"""How a request to write speech down begins."""


def create(config: StageConfig) -> Stage:
    return Preprocess(config)


class Preprocess(Workers):
    """Options: `max_queue` (64) jobs that wait, `store_bytes` (256 MiB) of encoded media that are remembered,
    `limits` as `MediaLimits`, `video` as `Sampling`.
    """

    def __init__(self, config: StageConfig) -> None:
        options = config.options
        self._limits = MediaLimits.of(options)
        self._sampling = Sampling.of(options)
        self._hearing = Hearing()
        self._seeing = Seeing()
        self._warm_up()
        store = MediaStore(
            lambda text: _ENTRY_BYTES + len(cast(str, text)), int(options.get("store_bytes", DEFAULT_BYTES))
        )
        super().__init__(config.wake, store, workers=1, max_queue=int(options.get("max_queue", 64)))

    def prepare(self, job: Job, check: Check) -> Handover:
        told = [(message.role, self._told(message, job, check)) for message in job.messages]
        meta: dict[str, Any] = {"prompt": prompt.render(told), "priority": job.priority}
        if job.messages and (sounds := dictation(job.messages[-1])):
            meta["answer"] = " ".join(filter(None, (self._heard(sound, check) for sound in sounds)))
        return Handover(meta)

    def _told(self, message: Message, job: Job, check: Check) -> str:
        """A message in words. Pictures of one timeline that follow each other are a clip."""
        texts: list[str] = []
        scenes: list[MediaPart] = []
        for part in message.parts:
            check()
            if isinstance(part, MediaPart) and part.kind == "image" and part.at_ms is not None:
                scenes.append(part)
                continue
            texts += [self._scenes(scenes, check), *self._words(part, job, check)]
            scenes.clear()
        texts.append(self._scenes(scenes, check))
        asked = any(isinstance(part, TextPart) or part.kind == "audio" for part in message.parts)
        if message.parts and not asked and not job.settings.prefill:
            texts.append(prompt.ASK)
        return " ".join(filter(None, texts))

    def _words(self, part: Part, job: Job, check: Check) -> list[str]:
        if isinstance(part, TextPart):
            # A lone surrogate can't be sent on: it has no encoding.
            return [part.text.encode("utf-8", "replace").decode()]
        return [self._perceived(part, job, check)]

    def _scenes(self, frames: list[MediaPart], check: Check) -> str:
        things: list[str] = []
        for frame in frames:
            check()
            things.append(self._things(frame)[0])
        if not frames:
            return ""
        seen = changes(things)
        return prompt.picture(self._things(frames[0])) if len(frames) == 1 else prompt.clip(seen, None)

    def _things(self, part: MediaPart) -> list[str]:
        """What an image shows, also a remembered one."""
        names = self.store.made(
            part, None, lambda data: "\n".join(self._seeing.things(decode_image(data, self._limits, part.param)))
        )
        return names.split("\n")

    def _perceived(self, part: MediaPart, job: Job, check: Check) -> str:
        """A part in words, also remembered ones. Raises `InvalidMedia`, `TooLarge`, `MediaMissing` or `Cancelled`."""
        if part.kind == "image":
            return prompt.picture(self._things(part))
        if part.kind == "audio":
            return self._heard(part, check) or prompt.NO_SPEECH
        return self.store.made(part, job.video, lambda data: self._watched(data, part.param, job, check))

    def _heard(self, part: MediaPart, check: Check) -> str:
        """What is said in a sound, also in a remembered one; empty when nobody speaks."""
        return self.store.made(
            part,
            None,
            lambda data: self._hearing.write_down(decode_audio(data, self._limits, part.param, check=check), check),
        )

    def _watched(self, data: bytes, param: str, job: Job, check: Check) -> str:
        sampling = self._sampling.asked(job.video, self._limits)
        video = decode_video(data, sampling, self._limits, param, sound=job.video.use_audio, check=check)
        things: list[str] = []
        for frame in video.frames:
            check()
            things.append(self._seeing.things(frame)[0])
        heard = None if video.sound is None else self._hearing.write_down(video.sound, check)
        return prompt.clip(changes(things), heard)

    def _warm_up(self) -> None:
        """Runs every model once: a first run allocates, and would make the first client wait."""
        self._hearing.recognise(np.zeros(8000, np.float32), unchecked)
        self._seeing.things(np.zeros((224, 224, 3), np.uint8))


def changes(things: Iterable[str]) -> list[str]:
    """What was seen one after the other, without repetitions, the latest of them."""
    return [thing for thing, _ in groupby(things)][-_MOST_SCENES:]


def dictation(message: Message) -> list[MediaPart]:
    """The sounds that a message asks to write down; empty when it asks for something else."""
    if not message.text.lower().startswith(_DICTATION):
        return []
    return [part for part in message.parts if isinstance(part, MediaPart) and part.kind == "audio"]
