"""People in a picture, found by their faces: a classifier of ImageNet has no word for them."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps

from omni.stages.demo.models import FACES, session

_SIZE: Final = 128
_GRIDS: Final = ((16, 2), (8, 6))
"""Cells along each side and boxes in each cell, of the detector's two layers (face_detection_short_range.pbtxt)."""
_SURE: Final = 0.7
"""Probability from which a face is one; at the detector's usual 0.5, a cat has one too."""
_SAME: Final = 0.3
"""Overlap from which two boxes are of one face."""


class People:
    """The detector. One call at a time."""

    def __init__(self) -> None:
        self._detector = session(FACES)
        self._anchors = np.concatenate([_centres(*grid) for grid in _GRIDS])

    def count(self, pixels: npt.NDArray[np.uint8]) -> int:
        """Faces in RGB uint8 [height, width, 3]."""
        whole = ImageOps.pad(Image.fromarray(pixels), (_SIZE, _SIZE), Image.Resampling.BILINEAR)
        x = np.asarray(whole, np.float32).transpose(2, 0, 1)[None] / np.float32(127.5) - 1
        boxes, scores = self._detector.run(["boxes", "scores"], {"x": x})
        sure = scores[0, :, 0] >= np.log(_SURE / (1 - _SURE))
        middles = boxes[0, sure, :2] / _SIZE + self._anchors[sure]
        half = boxes[0, sure, 2:4] / _SIZE / 2
        return distinct(np.concatenate((middles - half, middles + half), axis=1), scores[0, sure, 0])


def distinct(boxes: npt.NDArray[np.float32], scores: npt.NDArray[np.float32]) -> int:
    """How many things boxes [boxes, (left, top, right, bottom)] are around: those of one thing overlap."""
    left = boxes[np.argsort(-scores)]
    count = 0
    while len(left):
        count += 1
        best = left[0]
        shared = np.maximum(np.minimum(left[:, 2:], best[2:]) - np.maximum(left[:, :2], best[:2]), 0).prod(axis=1)
        either = (left[:, 2:] - left[:, :2]).prod(axis=1) + (best[2:] - best[:2]).prod() - shared
        left = left[1:][shared[1:] <= _SAME * either[1:]]
    return count


def _centres(cells: int, boxes: int) -> npt.NDArray[np.float32]:
    """Where each box of a layer is expected, x and y of 0 to 1 [cells * cells * boxes, 2]."""
    at = (np.arange(cells, dtype=np.float32) + np.float32(0.5)) / np.float32(cells)
    y, x = np.meshgrid(at, at, indexing="ij")
    centres: npt.NDArray[np.float32] = np.stack((x, y), axis=-1).reshape(-1, 2).repeat(boxes, axis=0)
    return centres
