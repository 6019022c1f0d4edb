"""Film: frames sampled over a clip with their real times, and the clip's own sound."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
from av.container import InputContainer
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from omni.contract.errors import InvalidMedia, TooLarge
from omni.contract.job import VideoOptions
from omni.contract.names import LISTEN_RATE
from omni.stages.media.audio import Samples, decode_sound
from omni.stages.media.clock import timed
from omni.stages.media.container import film_of, frames_of, open_container
from omni.stages.media.limits import Check, MediaLimits, decoding, unchecked

Fit = Callable[[int, int, int], tuple[int, int]]
"""`(height, width, frames)` of a clip to the `(height, width)` that its frames are scaled to."""

_SLACK: Final = 1e-3
"""Seconds by which two times may differ and be the same: Matroska and WebM round times to milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How a clip is sampled. The defaults are those that the Qwen models were trained near."""

    fps: float = 2.0
    """Frames per second of the clip."""
    max_frames: int = 768
    """A longer clip is sampled more thinly, evenly over its length."""
    min_pixels: int = 1
    """Per frame; smaller frames are scaled up."""
    max_pixels: int = 602_112
    """Per frame; larger frames are scaled down. It wins over `min_pixels`."""
    total_pixels: int = 90_316_800
    """Over all sampled frames; it wins over both."""

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Self:
        """The sampling under `video` of a profile's options. Raises ValueError for an unknown one."""
        own = options.get("video", {})
        if unknown := own.keys() - cls.__dataclass_fields__.keys():
            raise ValueError(f"unknown video options: {', '.join(sorted(unknown))}")
        return cls(**own)

    def asked(self, options: VideoOptions, limits: MediaLimits) -> Sampling:
        """This sampling with what a request asks for in its place, within `limits`."""
        asked = {f.name: v for f in fields(self) if (v := getattr(options, f.name)) is not None}
        full = replace(self, **asked)
        return replace(
            full,
            max_frames=min(full.max_frames, limits.video_frames),
            total_pixels=min(full.total_pixels, limits.video_pixels),
        )

    def fit(self, height: int, width: int, frames: int) -> tuple[int, int]:
        """The size that keeps the shape of a frame and obeys the bounds on pixels; a `Fit`."""
        most = max(1, min(self.max_pixels, self.total_pixels // max(frames, 1)))
        pixels = height * width
        if pixels <= most and pixels >= min(self.min_pixels, most):
            return height, width
        scale = math.sqrt((most if pixels > most else min(self.min_pixels, most)) / pixels)
        # Rounded down when the frame is too large and up when it's too small, so that the bound holds after rounding.
        whole = math.floor if pixels > most else math.ceil
        tall, wide = max(1, whole(height * scale)), max(1, whole(width * scale))
        return (tall, wide) if tall * wide <= most else (max(1, min(tall, most // wide)), min(wide, most))


@dataclass(frozen=True, slots=True)
class Video:
    """A sampled clip."""

    frames: npt.NDArray[np.uint8]
    """RGB [frames, height, width, 3], upright."""
    times: npt.NDArray[np.float64]
    """When each frame is shown, seconds from the clip's start [frames]."""
    seconds: float
    """Length of the clip."""
    sound: Samples | None = None
    """Mono float32 [samples] at `LISTEN_RATE` from the clip's start; None when not asked for or when there is none."""


@timed("video")
def decode_video(
    data: bytes,
    sampling: Sampling | None = None,
    limits: MediaLimits | None = None,
    param: str = "",
    *,
    sound: bool = False,
    fit: Fit | None = None,
    check: Check = unchecked,
) -> Video:
    """Samples a clip: for every 1/fps seconds, the frame that is shown then; no frame twice.

    The times are the file's own, so that a variable frame rate stays what it is. Raises `TooLarge` before anything is
    decoded when the clip is too long or its frames are too large, and `InvalidMedia` for a broken file or one without
    moving pictures. Both name `param`.
    """
    limits = limits or MediaLimits()
    sampling = sampling or Sampling()
    if not data:
        raise InvalidMedia("The video is empty.", param=param)
    with decoding("video", param):
        with open_container(data) as container:
            start, seconds = _span(container, _film(container, limits, param), check)
        if seconds > limits.video_seconds:
            raise TooLarge(f"The video is longer than {limits.video_seconds:g} seconds.", param=param)
        targets = _targets(seconds, sampling)
        with open_container(data) as container:
            film = _film(container, limits, param)
            shown = _shown(frames_of(container, film, VideoFrame, "video", param, check), film, start)
            frames, times = _sample(shown, targets, fit or sampling.fit)
        if not len(frames):
            raise InvalidMedia("The video holds no frames.", param=param)
        heard = None
        if sound:
            with open_container(data) as container:
                heard = decode_sound(container, limits.video_seconds, "video's sound", param, LISTEN_RATE, check)
        return Video(frames, times, seconds, heard)


def _film(container: InputContainer, limits: MediaLimits, param: str) -> VideoStream:
    film = film_of(container)
    if film is None:
        raise InvalidMedia("The video holds no moving pictures.", param=param)
    width, height = film.codec_context.width, film.codec_context.height
    if width * height > limits.image_pixels:
        raise TooLarge(
            f"The video's frames have {width}x{height} pixels; at most {limits.image_pixels} are allowed.", param=param
        )
    # The header may lie, or a later frame may be larger: the decoder refuses those itself.
    film.codec_context.options = {"max_pixels": str(limits.image_pixels)}
    return film


def _span(container: InputContainer, film: VideoStream, check: Check) -> tuple[float, float]:
    """`(start, length)` of a clip in seconds, from its packets: headers often don't say, or say something wrong."""
    shown: list[tuple[float, float]] = []
    for packet in container.demux(film):
        check()
        stamp = packet.pts if packet.pts is not None else packet.dts
        if stamp is not None and packet.time_base is not None:
            shown.append((float(stamp * packet.time_base), float((packet.duration or 0) * packet.time_base)))
    if not shown:
        return 0.0, 0.0
    first, (last, lasts) = min(shown)[0], max(shown)
    if not lasts:
        lasts = (last - first) / (len(shown) - 1) if len(shown) > 1 else 1 / _rate(film)
    start = first if container.start_time is None else min(first, container.start_time / 1_000_000)
    return start, last + lasts - start


def _rate(film: VideoStream) -> float:
    rate = film.average_rate or film.guessed_rate
    return float(rate) if rate else 25.0


def _targets(seconds: float, sampling: Sampling) -> list[float]:
    count = max(1, math.ceil(seconds * sampling.fps - _SLACK))
    step = 1 / sampling.fps
    if count > sampling.max_frames:
        count = sampling.max_frames
        step = seconds / count
    return [k * step for k in range(count)]


def _shown(frames: Iterable[VideoFrame], film: VideoStream, start: float) -> Iterator[tuple[float, VideoFrame]]:
    """Frames with the time at which each is shown; one without a time follows the one before it by the usual gap."""
    gap, last = 1 / _rate(film), -math.inf
    for frame in frames:
        if frame.pts is not None and frame.time_base is not None:
            last = float(frame.pts * frame.time_base) - start
        else:
            last = max(last + gap, 0.0)
        yield last, frame


def _sample(
    shown: Iterable[tuple[float, VideoFrame]], targets: list[float], fit: Fit
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.float64]]:
    times: list[float] = []
    picked: npt.NDArray[np.uint8] | None = None
    size = (0, 0)

    def pick(time: float, frame: VideoFrame) -> None:
        nonlocal picked, size
        turns = round(frame.rotation / 90) % 4
        if picked is None:
            upright = (frame.width, frame.height) if turns % 2 else (frame.height, frame.width)
            size = fit(*upright, len(targets))
            picked = np.empty((len(targets), *size, 3), np.uint8)
        height, width = reversed(size) if turns % 2 else size
        scaled = frame.reformat(width=width, height=height, format="rgb24", interpolation="BICUBIC")
        picked[len(times)] = np.rot90(scaled.to_ndarray(), turns)
        times.append(max(time, 0.0))

    due = iter(targets)
    target = next(due, None)
    before: tuple[float, VideoFrame] | None = None
    for time, frame in shown:
        taken = False
        while before is not None and target is not None and target < time - _SLACK:
            if not taken:
                pick(*before)
                taken = True
            target = next(due, None)
        if target is None:
            break
        before = time, frame
    if before is not None and target is not None:
        pick(*before)
    if picked is None:
        return np.empty((0, 0, 0, 3), np.uint8), np.empty(0)
    return picked[: len(times)], np.array(times)
