"""A small video file."""

from __future__ import annotations

from pathlib import Path

import av
import numpy as np


def write_clip(path: Path) -> Path:
    """Three seconds: a picture that changes, and a tone."""
    with av.open(str(path), "w") as out:
        video = out.add_stream("mpeg4", rate=10)
        video.width, video.height, video.pix_fmt = 160, 120, "yuv420p"
        audio = out.add_stream("aac", rate=16_000)
        for n in range(30):
            pixels = np.full((120, 160, 3), n * 8, np.uint8)
            out.mux(video.encode(av.VideoFrame.from_ndarray(pixels, "rgb24")))
        tone = (np.sin(np.arange(48_000) * 0.2) * 0.3).astype(np.float32)[None]
        frame = av.AudioFrame.from_ndarray(tone, "fltp", "mono")
        frame.sample_rate = 16_000
        out.mux(audio.encode(frame))
        out.mux(video.encode(None))
        out.mux(audio.encode(None))
    return path
