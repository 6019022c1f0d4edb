"""The `Senses` of realtime sessions: voice detection, sound formats, images, and which words were heard."""

from __future__ import annotations

import io
import threading
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
from frontend.protocol.alignment import Alignment, EstimatedAlignment
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

SPARE_DETECTORS: Final = 32
"""Detectors of sessions that ended, kept for the next ones: loading takes a while."""
_PITCH_FLOOR: Final = 0.35
"""Where a voice is less probable, its pitch isn't looked for."""
_PITCHES: Final = (70.0, 400.0)
"""Hertz between which a voice's pitch is."""

Samples = npt.NDArray[np.float32]


class Detectors:
    """Voice detectors that were loaded and are free, by rate. Usable from many threads."""

    def __init__(self) -> None:
        self._free: dict[int, list[VoiceDetector]] = {}
        self._lock = threading.Lock()

    def take(self, rate: int) -> VoiceDetector:
        with self._lock:
            free = self._free.get(rate)
            found = free.pop() if free else None
        if found is None:
            return VoiceDetector(rate)
        found.reset()
        return found

    def give(self, rate: int, detector: VoiceDetector) -> None:
        with self._lock:
            free = self._free.setdefault(rate, [])
            if len(free) < SPARE_DETECTORS:
                free.append(detector)


class SileroEar:
    """An `Ear` for PCM16 at `rate` hertz."""

    def __init__(self, detectors: Detectors, rate: int) -> None:
        self._detectors = detectors
        self._source = rate
        self._rate = rate if rate in RATES else LISTEN_RATE
        self._detector: VoiceDetector | None = None
        self._busy = threading.Lock()
        self._closed = False
        self._begin()

    def _begin(self) -> None:
        self._resampler = None if self._source == self._rate else Resampler(self._source, self._rate)
        self._rest: Samples = np.empty(0, np.float32)
        self._before: Samples = np.zeros(self._rate * WINDOW_MS // 1000, np.float32)

    def hear(self, pcm: bytes) -> Sequence[Window]:
        with self._busy:
            windows = [] if self._closed else self._windows(pcm)
        if self._closed:
            self.close()
        return windows

    def _windows(self, pcm: bytes) -> list[Window]:
        if self._detector is None:
            self._detector = self._detectors.take(self._rate)
        samples = np.frombuffer(pcm, np.int16).astype(np.float32) / 32768
        if self._resampler is not None:
            samples = self._resampler.feed(samples)
        held = np.concatenate((self._rest, samples))
        size = self._detector.window
        whole = len(held) // size * size
        self._rest = held[whole:]
        return [self._window(self._detector, one) for one in held[:whole].reshape(-1, size)]

    def reset(self) -> None:
        if self._detector is not None:
            self._detector.reset()
        self._begin()

    def close(self) -> None:
        """Its detector is free for another session, at once or when the piece that is being heard ends."""
        self._closed = True
        if self._busy.acquire(blocking=False):
            detector, self._detector = self._detector, None
            self._busy.release()
            if detector is not None:
                self._detectors.give(self._rate, detector)

    def _window(self, detector: VoiceDetector, samples: Samples) -> Window:
        voice = detector.probability(samples)
        level = 10 * float(np.log10(max(float(samples @ samples) / len(samples), 1e-10)))
        pitch = pitch_of(np.concatenate((self._before, samples)), self._rate) if voice > _PITCH_FLOOR else 0.0
        self._before = samples
        return Window(voice, level, pitch)


def pitch_of(samples: Samples, rate: int) -> float:
    """Hertz of a voiced sound, by the first strong peak of its autocorrelation; 0 when it has none."""
    centred = samples - samples.mean()
    spectrum = np.fft.rfft(centred, 2 * len(centred))
    correlation = np.fft.irfft(spectrum * spectrum.conj())[: len(centred)]
    if correlation[0] <= 0:
        return 0.0
    first, last = int(rate / _PITCHES[1]), min(int(rate / _PITCHES[0]), len(centred) - 1)
    peak = first + int(correlation[first:last].argmax())
    return rate / peak if correlation[peak] >= 0.4 * correlation[0] else 0.0


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


class FrontSenses:
    """What the front door gives to each realtime session; `close` ends what one of them used."""

    def __init__(self, detectors: Detectors, images: MediaLimits, *, exact_alignment: bool) -> None:
        self._detectors = detectors
        self._images = images
        self._exact = exact_alignment
        self._ears: list[SileroEar] = []

    def ear(self, rate: int) -> Ear:
        ear = SileroEar(self._detectors, rate)
        self._ears.append(ear)
        return ear

    def decode(self, data: bytes, format: Format) -> bytes:
        if format.codec == "audio/pcmu":
            return g711.decode_ulaw(data)
        return g711.decode_alaw(data) if format.codec == "audio/pcma" else data

    def encoder(self, format: Format) -> Encoder:
        return Pcm24() if format == Format() else Resampled(format)

    def alignment(self) -> Alignment:
        return ExactAlignment() if self._exact else EstimatedAlignment()

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

    def close(self) -> None:
        for ear in self._ears:
            ear.close()


def speaks_tones(profile: Profile) -> bool:
    """Whether the deployment's speech is that of the dummy stages."""
    return profile.stages.get("code2wav", {}).get("implementation") == "dummy"
