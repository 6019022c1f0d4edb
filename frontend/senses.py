"""The `Senses` of realtime sessions: voice detection, sound formats, images, and which words were heard."""

from __future__ import annotations

import io
import uuid
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from frontend.ear import SileroEar
from frontend.media import g711
from frontend.media.check import check
from frontend.media.limits import MediaLimits
from frontend.media.resample import Resampler
from frontend.protocol.alignment import Alignment, EstimatedAlignment, Pace
from frontend.protocol.answering import Encoder
from frontend.protocol.evs import SIDE, Thumbnail
from frontend.protocol.listening import Ear
from frontend.protocol.realtime_config import Format
from omni.contract.job import MediaPart
from omni.contract.names import SAMPLE_RATE
from omni.profile import Profile
from omni.stages.dummy import tones
from omni.stages.dummy.frames import Unreadable

Samples = npt.NDArray[np.float32]


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
