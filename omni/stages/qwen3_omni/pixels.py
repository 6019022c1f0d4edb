"""Pictures as the vision encoder wants them: sized in preprocess, cut into patches beside the encoder.

Between the two, pixels travel as they are, one byte each: a quarter of what normalised patches would take for a clip
and an eighth for an image. Sizes, resizing and patches are those of `Qwen2VLImageProcessor` and `Qwen2VLVideoProcessor`
of `transformers`, bit for bit.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from omni.contract.errors import InvalidMedia
from omni.stages.qwen3_omni.checkpoint import Figures

MOST_ELONGATED: Final = 200
"""Ratio of the sides over which a picture is refused, as `transformers` does."""

RESCALE: Final = 1 / 255
"""From bytes to values of 0 to 1, which `transformers` folds into mean and deviation; so its rounding is kept."""


def fit(height: int, width: int, factor: int, least: int, most: int, param: str = "") -> tuple[int, int]:
    """The `(height, width)` in multiples of `factor`, of nearly the same shape, with `least` to `most` pixels.

    Raises `InvalidMedia` for a picture that is hardly more than a line.
    """
    if max(height, width) > MOST_ELONGATED * min(height, width):
        raise InvalidMedia(f"The picture is more than {MOST_ELONGATED} times as long as it is wide.", param=param)
    tall, wide = round(height / factor) * factor, round(width / factor) * factor
    if tall * wide > most:
        scale = math.sqrt(height * width / most)
        return (
            max(factor, math.floor(height / scale / factor) * factor),
            max(factor, math.floor(width / scale / factor) * factor),
        )
    if tall * wide < least:
        scale = math.sqrt(least / (height * width))
        return math.ceil(height * scale / factor) * factor, math.ceil(width * scale / factor) * factor
    return tall, wide


def resize(image: npt.NDArray[np.uint8], height: int, width: int) -> npt.NDArray[np.uint8]:
    """RGB [height, width, 3] scaled by torch's antialiased bicubic filter on bytes."""
    if image.shape[:2] == (height, width):
        return image
    planes = torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1)))[None]
    scaled = torch.nn.functional.interpolate(
        planes, size=(height, width), mode="bicubic", align_corners=False, antialias=True
    )
    return np.ascontiguousarray(scaled[0].permute(1, 2, 0).numpy())


def grid(shape: tuple[int, ...], figures: Figures) -> tuple[int, int, int]:
    """Temporal, vertical and horizontal patches of frames of `shape`, [frames, height, width, 3]."""
    frames, height, width, _ = shape
    return -(-frames // figures.temporal_patch), height // figures.patch, width // figures.patch


def patches(frames: Tensor, figures: Figures) -> Tensor:
    """Normalised patches, float32 [patches, 3 * temporal_patch * patch * patch], of RGB uint8 [frames, height, width,
    3]; the last frame is repeated until they fill the last patch. On the device of `frames`."""
    missing = -len(frames) % figures.temporal_patch
    if missing:
        frames = torch.cat([frames, frames[-1:].expand(missing, -1, -1, -1)])
    mean = torch.tensor(figures.mean, device=frames.device) * (1 / RESCALE)
    std = torch.tensor(figures.std, device=frames.device) * (1 / RESCALE)
    values = frames.float().sub_(mean).div_(std)
    t, h, w = grid(tuple(frames.shape), figures)
    values = values.view(
        t, figures.temporal_patch,
        h // figures.merge, figures.merge, figures.patch,
        w // figures.merge, figures.merge, figures.patch,
        3,
    )  # fmt: skip
    # By merged cell, then by patch in it, then colour, time and pixel.
    return values.permute(0, 2, 5, 3, 6, 8, 1, 4, 7).reshape(t * h * w, -1)
