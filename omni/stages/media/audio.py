"""Sound: any file to mono samples at one rate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Final

import av
import numpy as np
import numpy.typing as npt
import soxr
from av.audio.frame import AudioFrame
from av.container import InputContainer

from omni.contract.errors import InvalidMedia, TooLarge
from omni.contract.names import LISTEN_RATE
from omni.stages.media.clock import timed
from omni.stages.media.container import frames_of, open_container, sound_of
from omni.stages.media.limits import Check, MediaLimits, decoding, unchecked

Samples = npt.NDArray[np.float32]

PLANES: Final = 7
"""Channels that PyAV 18 reads as planes: it looks for the end of a list that ends by itself only when it isn't full,
and reads memory that isn't the frame's when there are 8 or more."""
LEAST_RATE: Final = 1000
"""Hertz. Slower sounds are none, and a few bytes of one would become minutes of samples."""
_GATHER: Final = 1 << 16
"""Samples that are resampled at once; a codec's frames are too short to be worth a call each."""


@timed("audio")
def decode_audio(
    data: bytes,
    limits: MediaLimits | None = None,
    param: str = "",
    *,
    rate: int = LISTEN_RATE,
    check: Check = unchecked,
) -> Samples:
    """Mono float32 [samples] at `rate` hertz, full scale is 1: the mean of all channels, resampled by soxr HQ.

    Raises `TooLarge` as soon as more than `limits.audio_seconds` are decoded, whatever the header says, and
    `InvalidMedia` for a broken file or one without sound. Both name `param`.
    """
    limits = limits or MediaLimits()
    if not data:
        raise InvalidMedia("The audio is empty.", param=param)
    with decoding("audio", param), open_container(data) as container:
        samples = decode_sound(container, limits.audio_seconds, "audio", param, rate, check)
    if samples is None or not samples.size:
        raise InvalidMedia("The audio holds no sound.", param=param)
    return samples


def decode_sound(
    container: InputContainer, seconds: float, what: str, param: str, rate: int, check: Check
) -> Samples | None:
    """The sound of an open file as `decode_audio` gives it; None when it has no sound track."""
    stream = sound_of(container)
    if stream is None:
        return None
    frames = frames_of(container, stream, AudioFrame, what, param, check)
    pieces = list(_resampled(_at_most(frames, seconds, what, param), rate))
    return np.concatenate(pieces) if pieces else np.empty(0, np.float32)


def mono(frame: AudioFrame) -> Samples:
    """The mean of a frame's channels as float32 [samples], full scale is 1."""
    if frame.format.is_planar and frame.layout.nb_channels > PLANES:
        (frame,) = av.AudioResampler(format=frame.format.packed).resample(frame)
    raw = frame.to_ndarray()
    if not frame.format.is_planar:
        raw = raw.reshape(-1, frame.layout.nb_channels).T
    full_scale = 1.0 if raw.dtype.kind == "f" else float(1 << (8 * raw.itemsize - 1))
    centre = full_scale if raw.dtype.kind == "u" else 0.0
    mean: Samples = ((raw.mean(axis=0, dtype=np.float64) - centre) / full_scale).astype(np.float32)
    return mean


def _at_most(frames: Iterable[AudioFrame], seconds: float, what: str, param: str) -> Iterator[tuple[int, Samples]]:
    heard = Fraction()
    for frame in frames:
        if frame.sample_rate < LEAST_RATE:
            raise InvalidMedia(f"The {what} has fewer than {LEAST_RATE} samples a second.", param=param)
        heard += Fraction(frame.samples, frame.sample_rate)
        if heard > seconds:
            raise TooLarge(f"The {what} is longer than {seconds:g} seconds.", param=param)
        yield frame.sample_rate, mono(frame)


def _resampled(frames: Iterable[tuple[int, Samples]], rate: int) -> Iterator[Samples]:
    """Each run of frames of one rate is one stream for the resampler: a file may change its rate on the way."""
    gathered: list[Samples] = []
    stream: soxr.ResampleStream | None = None
    current = 0

    def flush(last: bool) -> Samples:
        piece = np.concatenate(gathered) if gathered else np.empty(0, np.float32)
        gathered.clear()
        return piece if stream is None else stream.resample_chunk(piece, last=last)

    for own, samples in frames:
        if own != current:
            yield flush(last=True)
            current = own
            stream = None if own == rate else soxr.ResampleStream(own, rate, 1, dtype="float32", quality="HQ")
        gathered.append(samples)
        if sum(map(len, gathered)) >= _GATHER:
            yield flush(last=False)
    yield flush(last=True)
