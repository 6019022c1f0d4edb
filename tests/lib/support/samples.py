"""Small media files with known contents."""

from __future__ import annotations

import io
import wave

import av
import numpy as np
from PIL import Image


def picture(size: tuple[int, int] = (64, 48), colour: str = "#ff8040", format: str = "PNG", mode: str = "RGB") -> bytes:
    out = io.BytesIO()
    Image.new("RGB", size, colour).convert(mode).save(out, format)
    return out.getvalue()


def sound(seconds: float = 1.0, rate: int = 16_000, channels: int = 1) -> bytes:
    """A sine of 440 Hz at a quarter of full scale, -15.1 dB, as WAV."""
    one = (8192 * np.sin(2 * np.pi * 440 * np.arange(int(seconds * rate)) / rate)).astype("<i2")
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(np.repeat(one, channels).tobytes())
    return out.getvalue()


def film(frames: int = 20, size: tuple[int, int] = (64, 48), container: str = "mp4", codec: str = "libx264") -> bytes:
    """Ten frames a second of one colour, without sound."""
    out = io.BytesIO()
    with av.open(out, "w", format=container) as file:
        stream = file.add_stream(codec, rate=10)
        stream.width, stream.height = size
        stream.pix_fmt = "yuv420p"
        for _ in range(frames):
            frame = av.VideoFrame.from_ndarray(np.full((size[1], size[0], 3), 128, np.uint8), format="rgb24")
            file.mux(stream.encode(frame))
        file.mux(stream.encode())
    return out.getvalue()
