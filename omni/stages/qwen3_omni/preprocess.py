"""preprocess: media decoded and sized, the conversation in tokens and positions.

A sound's features are those that it has as the only one of a request. `transformers` pads the sounds of one call to the
longest of them, by which the last frame of a shorter one differs from call to call; here a part is the same in every
conversation, so that its state can be reused.

A sound is cut into the blocks that the encoder takes one by one, each named by its features. So a sound that begins as
one that was read before shares the state of that beginning, wherever nothing that came later has changed its features:
they depend on the loudest moment of the whole sound.

A part that a job only names by its digest, and of which it says that the thinker has read it with an earlier job, is
only named to the thinker too. What a hundred frames cost then is their names. When the thinker no longer holds what it
needs of a part, it says that it is missing, as preprocess does for bytes; the front door sends it again, and what comes
with its bytes goes on whole.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt

from omni.contract.errors import InvalidMedia
from omni.contract.handover import Handover
from omni.contract.job import Job, MediaPart, VideoOptions
from omni.contract.names import LISTEN_RATE
from omni.contract.stage import Stage, StageConfig
from omni.stages.context import check_context
from omni.stages.media.audio import Samples, decode_audio
from omni.stages.media.image import decode_image
from omni.stages.media.limits import Check, MediaLimits
from omni.stages.media.store import DEFAULT_BYTES, MediaStore, Recent
from omni.stages.media.video import Sampling, decode_video
from omni.stages.qwen3_omni.chat import Chat
from omni.stages.qwen3_omni.checkpoint import Figures
from omni.stages.qwen3_omni.pixels import fit, grid, resize
from omni.stages.qwen3_omni.prompt import Media, lay_out
from omni.stages.workers import Workers

VIDEO_PIXELS: Final[Mapping[str, int]] = {"min_pixels": 128 * 32 * 32, "max_pixels": 768 * 32 * 32}
"""Per frame, where neither the profile nor the request says otherwise: those of `Qwen3OmniMoeProcessor`."""

MOST_NAMED: Final = 16_384
"""Parts of which the facts are remembered, so that they can be named when their pixels and bytes are gone."""

LEAST_SOUND: Final = 400
"""Samples of the shortest sound that has features: one window of the Fourier transform."""


def create(config: StageConfig) -> Stage:
    return Preprocess(config)


class Preprocess(Workers):
    """Options: `checkpoint`; `workers` (2), `max_queue` (256) jobs that wait, `store_bytes` and `cache_bytes` (256 MiB
    each) of encoded and of prepared media that are remembered, `limits` as `MediaLimits`, `video` as `Sampling`,
    `context_length` (32768).
    """

    def __init__(self, config: StageConfig) -> None:
        from transformers import WhisperFeatureExtractor

        options = config.options
        checkpoint = Path(options["checkpoint"])
        self._figures = Figures.of(checkpoint)
        self._chat = Chat(checkpoint)
        self._ears: Any = WhisperFeatureExtractor.from_pretrained(checkpoint, local_files_only=True)
        self._limits = MediaLimits.of(options)
        self._sampling = Sampling.of({"video": {**VIDEO_PIXELS, **options.get("video", {})}})
        self._context_length = int(options.get("context_length", 32_768))
        store = MediaStore(
            lambda made: sum(one.nbytes for one in cast(tuple[Media, ...], made)),
            int(options.get("store_bytes", DEFAULT_BYTES)),
            int(options.get("cache_bytes", DEFAULT_BYTES)),
        )
        self._named: Recent[Hashable, tuple[Media, ...]] = Recent(MOST_NAMED, lambda _: 1)
        workers, max_queue = int(options.get("workers", 2)), int(options.get("max_queue", 256))
        super().__init__(config.wake, store, workers=workers, max_queue=max_queue)

    def prepare(self, job: Job, check: Check) -> Handover:
        prompt = lay_out(
            self._chat.ids(job.messages),
            [one for part in job.media for one in self._made(part, job.video, check)],
            self._figures,
            use_audio_in_video=job.video.use_audio,
            priority=job.priority,
        )
        check_context(len(prompt.ids), job.settings, self._context_length)
        return prompt.to_handover()

    def _made(self, part: MediaPart, options: VideoOptions, check: Check) -> tuple[Media, ...]:
        """One of each part, but of a sound its blocks."""

        def make(data: bytes) -> tuple[Media, ...]:
            if part.kind == "image":
                return (self._image(part, data),)
            if part.kind == "audio":
                samples = decode_audio(data, self._limits, part.param, check=check)
                return self._blocks(self._hear(samples, part.param))
            return (self._video(part, data, options, check),)

        check()
        asked = (part.kind, part.digest, options if part.kind == "video" else None)
        if part.read and (named := self._named.get(asked)) is not None:
            return named
        media = self.store.made(part, asked[2], make)
        self._named.put(asked, tuple(one.named for one in media))
        return media

    def _blocks(self, mel: npt.NDArray[np.float32]) -> tuple[Media, ...]:
        size = self._figures.audio_block
        blocks = [np.ascontiguousarray(mel[:, at : at + size]) for at in range(0, mel.shape[1], size)]
        return tuple(
            Media(
                kind="audio",
                key=hashlib.sha256(block.data).hexdigest(),
                mel=block,
                mel_frames=block.shape[1],
                continues=number > 0,
            )
            for number, block in enumerate(blocks)
        )

    def _image(self, part: MediaPart, data: bytes) -> Media:
        figures = self._figures
        image = decode_image(data, self._limits, part.param)
        height, width, _ = image.shape
        size = fit(height, width, figures.factor, figures.min_pixels, figures.max_pixels, part.param)
        pixels = resize(image, *size)[None]
        return Media(kind="image", key=_key(part), pixels=pixels, grid=grid(pixels.shape, figures))

    def _video(self, part: MediaPart, data: bytes, options: VideoOptions, check: Check) -> Media:
        sampling, figures = self._sampling.asked(options, self._limits), self._figures

        def sized(height: int, width: int, frames: int) -> tuple[int, int]:
            most = max(figures.factor**2, min(sampling.max_pixels, sampling.total_pixels // max(frames, 1)))
            return fit(height, width, figures.factor, min(sampling.min_pixels, most), most, part.param)

        clip = decode_video(data, sampling, self._limits, part.param, sound=options.use_audio, fit=sized, check=check)
        step = 1 / sampling.fps
        if len(clip.times) > 1 and abs(len(clip.times) - clip.seconds * sampling.fps) > 1:
            # A long clip is sampled more thinly than asked for, one with few frames can't be sampled as often.
            step = float(clip.times[-1] - clip.times[0]) / (len(clip.times) - 1)
        heard = clip.sound is not None and len(clip.sound) >= LEAST_SOUND
        mel = self._hear(clip.sound, part.param) if heard and clip.sound is not None else None
        return Media(
            kind="video",
            key=_key(part, sampling, heard),
            pixels=clip.frames,
            mel=mel,
            grid=grid(clip.frames.shape, figures),
            second_per_grid=figures.temporal_patch * step,
            mel_frames=0 if mel is None else mel.shape[1],
        )

    def _hear(self, samples: Samples, param: str) -> npt.NDArray[np.float32]:
        """Log-mel features [mel bins, frames]."""
        if len(samples) < LEAST_SOUND:
            raise InvalidMedia("The audio is too short to be heard.", param=param)
        made = self._ears(
            samples, sampling_rate=LISTEN_RATE, padding=True, truncation=False, return_attention_mask=True
        )
        mel = made["input_features"][0]
        return np.ascontiguousarray(mel[:, : int(made["attention_mask"][0].sum())], np.float32)


def _key(part: MediaPart, *options: object) -> str:
    return hashlib.sha256(repr((part.kind, part.digest, *options)).encode()).hexdigest()
