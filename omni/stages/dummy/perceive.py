"""What the dummy preprocess takes in of each part: a few facts, and an array small enough to send along."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from PIL import Image

from omni.contract.job import MediaPart, VideoOptions
from omni.contract.names import LISTEN_RATE
from omni.stages.dummy.words import words
from omni.stages.media.audio import Samples, decode_audio
from omni.stages.media.image import decode_image
from omni.stages.media.limits import Check, MediaLimits
from omni.stages.media.video import Sampling, decode_video

IMAGE_TOKENS: Final = 64
FRAME_TOKENS: Final = 16
"""For each sampled frame of a clip."""
SOUND_TOKENS_PER_SECOND: Final = 13
THUMBNAIL: Final = 32
"""Most pixels on each side of the picture that is sent along."""
SOUND_SENT: Final = 30.0
"""Sound shorter than this, seconds, is sent along as int16 samples."""


@dataclass(frozen=True, slots=True)
class Perceived:
    """A part as the thinker is told of it."""

    facts: Mapping[str, Any]
    array: npt.NDArray[Any] | None = None
    tokens: int = 0
    """Prompt tokens that stand for the part."""
    audio_tokens: int = 0
    """Those of them that stand for sound."""
    size: int = field(init=False, default=512)
    """Bytes that the cache counts for it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", 512 + (0 if self.array is None else self.array.nbytes))


@dataclass(frozen=True, slots=True)
class Senses:
    """How parts are decoded."""

    limits: MediaLimits
    sampling: Sampling

    def text(self, text: str) -> Perceived:
        # A lone surrogate can't be sent on: it has no encoding.
        clean = text.encode("utf-8", "replace").decode()
        return Perceived({"type": "text", "text": clean}, tokens=len(words(clean)))

    def media(self, part: MediaPart, data: bytes, video: VideoOptions, check: Check) -> Perceived:
        """Raises `InvalidMedia` or `TooLarge` naming the part's `param`, and what `check` raises."""
        if part.kind == "image":
            return self.image(data, part.param)
        if part.kind == "audio":
            return self.audio(data, part.param, check)
        return self.video(data, part.param, video, check)

    def image(self, data: bytes, param: str) -> Perceived:
        """Array: RGB uint8 [height, width, 3], each side at most `THUMBNAIL`, of the same mean colour."""
        pixels = decode_image(data, self.limits, param)
        height, width = pixels.shape[:2]
        small = (min(width, THUMBNAIL), min(height, THUMBNAIL))
        thumbnail = np.asarray(Image.fromarray(pixels).resize(small, Image.Resampling.BOX))
        return Perceived({"type": "image", "width": width, "height": height}, thumbnail, IMAGE_TOKENS)

    def audio(self, data: bytes, param: str, check: Check) -> Perceived:
        """Array: int16 [samples] at `LISTEN_RATE`, when it is short."""
        samples = decode_audio(data, self.limits, param, check=check)
        seconds = len(samples) / LISTEN_RATE
        loudness = {"rms": math.sqrt(float(samples @ samples) / len(samples)), "peak": float(np.abs(samples).max())}
        sent = None
        if seconds < SOUND_SENT:
            sent = np.clip(np.rint(samples * 32768), -32768, 32767).astype(np.int16)
        tokens = _sound_tokens(samples)
        return Perceived({"type": "audio", "seconds": seconds, **loudness}, sent, tokens, tokens)

    def video(self, data: bytes, param: str, options: VideoOptions, check: Check) -> Perceived:
        """Array: mean colour of each sampled frame, uint8 [frames, 3]."""
        sampling = self.sampling.asked(options, self.limits)
        clip = decode_video(data, sampling, self.limits, param, sound=options.use_audio, check=check)
        colours = np.rint([frame.mean(axis=(0, 1)) for frame in clip.frames]).astype(np.uint8)
        count, height, width = clip.frames.shape[:3]
        facts = {
            "type": "video",
            "width": width,
            "height": height,
            "frames": count,
            "seconds": clip.seconds,
            "has_audio": clip.sound is not None,
        }
        audio_tokens = 0 if clip.sound is None else _sound_tokens(clip.sound)
        return Perceived(facts, colours, count * FRAME_TOKENS + audio_tokens, audio_tokens)


def _sound_tokens(samples: Samples) -> int:
    return math.ceil(len(samples) * SOUND_TOKENS_PER_SECOND / LISTEN_RATE)
