"""Media made on the fly."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import av
import numpy as np
import pytest
from PIL import Image

from omni.contract.job import Job, MediaPart, Message, Part, TextPart, VideoOptions
from omni.contract.params import Settings
from omni.contract.tensors import StageMessage


@pytest.fixture
def picture() -> Callable[..., bytes]:
    """An encoded picture of one colour."""

    def make(
        size: tuple[int, int] = (40, 30),
        colour: Any = (255, 128, 64),
        format: str = "PNG",
        mode: str = "RGB",
        **save: Any,
    ) -> bytes:
        out = io.BytesIO()
        Image.new(mode, size, colour).save(out, format, **save)
        return out.getvalue()

    return make


@pytest.fixture
def tone() -> Callable[..., bytes]:
    """An encoded sine of 440 Hz at half of full scale."""

    def make(
        seconds: float = 1.0,
        rate: int = 48_000,
        layout: str = "mono",
        container: str = "wav",
        codec: str = "pcm_s16le",
        hertz: float = 440.0,
    ) -> bytes:
        out = io.BytesIO()
        with av.open(out, "w", format=container) as file:
            stream = file.add_stream(codec, rate=rate, layout=layout)
            time = np.arange(int(seconds * rate)) / rate
            wave = np.repeat((0.5 * np.sin(2 * np.pi * hertz * time)).astype(np.float32), stream.channels)
            frame = av.AudioFrame.from_ndarray(wave[None], format="flt", layout=layout)
            frame.sample_rate = rate
            for piece in av.AudioResampler(stream.format.name, layout, rate, stream.frame_size or None).resample(frame):
                file.mux(stream.encode(piece))
            file.mux(stream.encode())
        return out.getvalue()

    return make


@pytest.fixture
def clip() -> Callable[..., bytes]:
    """An encoded clip: the left half red, the right half of a grey that follows the frame's number."""

    def make(
        times: Sequence[float] = tuple(i / 10 for i in range(20)),
        size: tuple[int, int] = (64, 48),
        container: str = "mp4",
        codec: str = "libx264",
        sound: float | None = None,
    ) -> bytes:
        out = io.BytesIO()
        with av.open(out, "w", format=container) as file:
            film = file.add_stream(codec, rate=10)
            film.width, film.height = size
            film.pix_fmt = "yuv420p"
            film.codec_context.time_base = Fraction(1, 1000 if codec != "mpeg4" else 10)
            speech = None if sound is None else file.add_stream("aac", rate=48_000, layout="mono")
            for number, time in enumerate(times):
                pixels = np.full((size[1], size[0], 3), 10 * number % 256, np.uint8)
                pixels[:, : size[0] // 2] = (255, 0, 0)
                frame = av.VideoFrame.from_ndarray(pixels, format="rgb24")
                frame.time_base = film.codec_context.time_base
                frame.pts = round(time / frame.time_base)
                file.mux(film.encode(frame))
            file.mux(film.encode())
            if speech is not None and sound is not None:
                wave = 0.5 * np.sin(2 * np.pi * 440 * np.arange(int(sound * 48_000)) / 48_000)
                heard = av.AudioFrame.from_ndarray(wave.astype(np.float32)[None], format="fltp", layout="mono")
                heard.sample_rate = 48_000
                for piece in av.AudioResampler("fltp", "mono", 48_000, speech.frame_size).resample(heard):
                    file.mux(speech.encode(piece))
                file.mux(speech.encode())
        return out.getvalue()

    return make


def part(one: Part | str) -> Part:
    return TextPart(one) if isinstance(one, str) else one


@pytest.fixture
def job() -> Callable[..., StageMessage]:
    """The message that preprocess is pushed: user turns of parts, where a string is a text."""

    def make(
        *turns: Sequence[Part | str],
        system: str | None = None,
        settings: Settings | None = None,
        video: VideoOptions | None = None,
        priority: int = 0,
    ) -> StageMessage:
        messages = [Message("user", tuple(part(one) for one in turn)) for turn in turns]
        if system is not None:
            messages.insert(0, Message("system", (TextPart(system),)))
        made = Job(
            id="job",
            messages=tuple(messages),
            settings=settings or Settings(),
            video=video or VideoOptions(),
            priority=priority,
        )
        return StageMessage(job=made, eos=True)

    return make


@pytest.fixture
def image_part(picture: Callable[..., bytes]) -> Callable[..., MediaPart]:
    def make(param: str = "messages.0.content.0.image_url", **options: Any) -> MediaPart:
        return MediaPart.of("image", picture(**options), param)

    return make
