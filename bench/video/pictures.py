"""JPEG frames of a made-up scene, always the same."""

from __future__ import annotations

import io
from functools import cache
from typing import Literal

import numpy as np
from PIL import Image

Content = Literal["distinct", "static"]


@cache
def jpegs(width: int, height: int, count: int, content: Content) -> tuple[bytes, ...]:
    """`distinct`: each frame is far from the one before it, so that a filter keeps it; `static`: a scene that drifts by
    a pixel per frame, with noise, of which a filter keeps the first. In bytes they are like a camera's at quality 80.
    """
    random = np.random.default_rng(7)
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    waves = (np.sin(x / 31 + y / 83), np.sin(x / 67 - y / 41 + 1), np.cos(x / 19 + y / 57))
    scene = np.stack([128 + 85 * wave for wave in waves], -1)
    scene += random.normal(0, 5, (height, width, 1))
    for _ in range(20):
        left, top = random.integers(0, width), random.integers(0, height)
        scene[top : top + height // 6, left : left + width // 6] = random.integers(0, 256, 3)
    out = []
    for number in range(count):
        if content == "distinct":
            picture = np.roll(scene, (number * 11, number * 23), (0, 1))
            picture = 255 - picture if number % 2 else picture
            # The scene comes round again; the corners don't.
            picture[: height // 8, : width // 8] = number % 16 * 16
            picture[: height // 8, -width // 8 :] = number // 16 % 16 * 16
            picture[-height // 8 :, : width // 8] = number // 256 % 16 * 16
        else:
            picture = np.roll(scene, number, 1) + random.normal(0, 1.5, (height, width, 1))
        file = io.BytesIO()
        Image.fromarray(np.clip(picture, 0, 255).astype(np.uint8)).save(file, "JPEG", quality=80)
        out.append(file.getvalue())
    return tuple(out)
