"""The `Senses` of realtime sessions: voice detection, sound formats, images, and which words were heard."""

from __future__ import annotations

import io
import uuid
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from PIL import Image

from frontend.media import g711
from frontend.media.check import check
from frontend.media.limits import MediaLimits
from frontend.media.resample import Resampler
from frontend.media.vad import RATES, VoiceDetector
from frontend.protocol.alignment import Alignment, EstimatedAlignment, Pace
from frontend.protocol.answering import Encoder
from frontend.protocol.evs import SIDE, Thumbnail
from frontend.protocol.listening import Ear
from frontend.protocol.realtime_config import Format
from frontend.protocol.speech import WINDOW_MS, Window
from omni.contract.job import MediaPart
from omni.contract.names import LISTEN_RATE, SAMPLE_RATE
from omni.profile import Profile
from omni.stages.dummy import tones
from omni.stages.dummy.frames import Unreadable

_PITCH_FLOOR: Final = 0.35
"""Where a voice is less probable, its pitch isn't looked for."""
_PITCHES: Final = (70.0, 400.0)
"""Hertz between which a voice's pitch is."""

Samples = npt.NDArray[np.float32]


class SileroEar:
    """An `Ear` for PCM16 at `rate` hertz."""

    def __init__(self, rate: int) -> None:
        self._source = rate
        self._rate = rate if rate in RATES else LISTEN_RATE
        self._detector = VoiceDetector(self._rate)
        self._begin()

    def _begin(self) -> None:
        self._resampler = None if self._source == self._rate else Resampler(self._source, self._rate)
        self._rest: Samples = np.empty(0, np.float32)
        self._before: Samples = np.zeros(self._rate * WINDOW_MS // 1000, np.float32)

    def hear(self, pcm: bytes) -> Sequence[Window]:
        samples = np.frombuffer(pcm, np.int16).astype(np.float32) / 32768
        if self._resampler is not None:
            samples = self._resampler.feed(samples)
        held = np.concatenate((self._rest, samples))
        size = self._detector.window
        whole = len(held) // size * size
        self._rest = held[whole:]
        return [self._window(one) for one in held[:whole].reshape(-1, size)]

    def reset(self) -> None:
        self._detector.reset()
        self._begin()

    def _window(self, samples: Samples) -> Window:
        voice = self._detector.probability(samples)
        level = 10 * float(np.log10(max(float(samples @ samples) / len(samples), 1e-10)))
        pitch = pitch_of(np.concatenate((self._before, samples)), self._rate) if voice > _PITCH_FLOOR else 0.0
        self._before = samples
        return Window(voice, level, pitch)


def pitch_of(samples: Samples, rate: int) -> float:
    """Hertz of a voiced sound, by the first strong peak of its autocorrelation; 0 when it has none."""
    halved = samples.reshape(-1, 2).sum(axis=1)
    halved -= halved.sum() / len(halved)
    rate //= 2
    spectrum = np.fft.rfft(halved, 2 * len(halved))
    correlation = np.fft.irfft(spectrum.real**2 + spectrum.imag**2)[: len(halved)]
    first, last = int(rate / _PITCHES[1]), min(int(rate / _PITCHES[0]), len(halved) - 2)
    peak = first + int(correlation[first:last].argmax())
    before, at, after = correlation[peak - 1 : peak + 2].tolist()
    if at <= 0.4 * correlation[0] or (bend := before - 2 * at + after) >= 0:
        return 0.0
    return float(rate / (peak + 0.5 * (before - after) / bend))


class Pcm24:
    """Speech as it is."""

    def encode(self, pcm: bytes) -> bytes:
        return pcm

    def finish(self) -> bytes:
        return b""


class Resampled:
    """Speech at another rate, as PCM16 or G.711."""

    def __init__(self, format: Format) -> None:
        self._resampler = Resampler(SAMPLE_RATE, format.rate)
        self._codec = format.codec

    def encode(self, pcm: bytes) -> bytes:
        return self._coded(self._resampler.feed(np.frombuffer(pcm, np.int16)))

    def finish(self) -> bytes:
        return self._coded(self._resampler.finish())

    def _coded(self, samples: Samples) -> bytes:
        pcm = np.clip(np.rint(samples), -32768, 32767).astype(np.int16)
        if self._codec == "audio/pcmu":
            return g711.encode_ulaw(pcm)
        return g711.encode_alaw(pcm) if self._codec == "audio/pcma" else pcm.tobytes()


class ExactAlignment:
    """An `Alignment` for the speech of the dummy stages, which can be read."""

    def __init__(self) -> None:
        self._pcm = bytearray()

    def hear(self, pcm: bytes) -> None:
        self._pcm += pcm

    def kept(self, transcript: str, samples: int, *, complete: bool) -> str:
        try:
            heard = tones.align(np.frombuffer(bytes(self._pcm), np.int16), samples)
        except Unreadable:
            return ""
        return heard if transcript.startswith(heard) else ""

    def finished(self, transcript: str) -> None:
        return None


class FrontSenses:
    """What the front door gives to one realtime session."""

    def __init__(self, images: MediaLimits, *, exact_alignment: bool) -> None:
        self._images = images
        self._exact = exact_alignment
        self._pace = Pace()

    def ear(self, rate: int) -> Ear:
        return SileroEar(rate)

    def decode(self, data: bytes, format: Format) -> bytes:
        if format.codec == "audio/pcmu":
            return g711.decode_ulaw(data)
        return g711.decode_alaw(data) if format.codec == "audio/pcma" else data

    def encoder(self, format: Format) -> Encoder:
        return Pcm24() if format == Format() else Resampled(format)

    def alignment(self) -> Alignment:
        return ExactAlignment() if self._exact else EstimatedAlignment(self._pace)

    def image(self, data: bytes, param: str, at_ms: float | None = None) -> MediaPart:
        check("image", data, param, self._images)
        return MediaPart.of("image", data, param, at_ms)

    def thumbnail(self, data: bytes) -> Thumbnail:
        with Image.open(io.BytesIO(data)) as image:
            image.draft("RGB", (SIDE, SIDE))
            small: Any = image.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR)
        return np.asarray(small, np.uint8)

    def job_id(self) -> str:
        return str(uuid.uuid4())


def speaks_tones(profile: Profile) -> bool:
    """Whether the deployment's speech is that of the dummy stages."""
    return profile.stages.get("code2wav", {}).get("implementation") == "dummy"
