"""A video file as a live client would send it: JPEG frames at a steady rate, and its sound."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass

import av
import numpy as np

LISTEN_RATE = 16_000
"""Hertz of the sound that is sent, mono, signed 16-bit."""


class Unreadable(Exception):
    """The file isn't a video that can be read; the message says so."""


@dataclass(frozen=True, slots=True)
class Picture:
    jpeg: bytes
    pts_ms: float
    """Where in the clip it belongs, milliseconds."""


def duration(path: str) -> float:
    """Seconds of a clip; 0 when it doesn't say. Raises `Unreadable`."""
    try:
        with av.open(path) as clip:
            return (clip.duration or 0) / av.time_base
    except (OSError, av.FFmpegError) as problem:
        raise Unreadable(f"{path} can't be read as a video: {problem}") from None


def pictures(path: str, fps: float, quality: int = 80, longest: int = 1280) -> Iterator[Picture]:
    """`fps` frames per second of a clip, each side at most `longest` pixels. Raises `Unreadable`."""
    due = 0.0
    try:
        with av.open(path) as clip:
            if not clip.streams.video:
                raise Unreadable(f"{path} has no pictures")
            for frame in clip.decode(video=0):
                at = frame.time or 0.0
                if at + 1e-6 < due:
                    continue
                due = max(due + 1 / fps, at)
                image = frame.to_image()  # type: ignore[no-untyped-call]
                image.thumbnail((longest, longest))
                file = io.BytesIO()
                image.save(file, "JPEG", quality=quality)
                yield Picture(file.getvalue(), round(at * 1000, 3))
    except (OSError, av.FFmpegError) as problem:
        raise Unreadable(f"{path} can't be read as a video: {problem}") from None


def sound(path: str) -> bytes:
    """The clip's sound as PCM16 at `LISTEN_RATE`; empty when it has none. Raises `Unreadable`."""
    pieces: list[bytes] = []
    try:
        with av.open(path) as clip:
            if not clip.streams.audio:
                return b""
            resampler = av.AudioResampler("s16", "mono", LISTEN_RATE)
            for frame in (*clip.decode(audio=0), None):
                pieces += [np.asarray(one.to_ndarray()).tobytes() for one in resampler.resample(frame)]
    except (OSError, av.FFmpegError) as problem:
        raise Unreadable(f"the sound of {path} can't be read: {problem}") from None
    return b"".join(pieces)
