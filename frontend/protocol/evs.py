"""The near-duplicate filter (EVS, efficient video sampling): which frames are too like the last one that was kept.

Two frames are compared by their thumbnails, 64×64 RGB, as `1 - mean((a - b)²) / 255²` over all values (the filter of
vLLM-Omni's streaming video endpoint). The measure is lenient: at the usual threshold of 0.95 a uniform change of 57
grey levels of 255 is still a duplicate.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

SIDE: Final = 64
"""Pixels of a thumbnail on each side."""

Thumbnail = npt.NDArray[np.uint8]
"""[64, 64, 3], RGB."""

_FULL_SCALE: Final = 255.0**2


def similarity(a: Thumbnail, b: Thumbnail) -> float:
    """1 for equal thumbnails and for no others, 0 for black against white."""
    rows = np.subtract(a, b, dtype=np.float32).reshape(SIDE, -1)
    # The squares of a row sum up to less than 2**24, so that float32 is exact; floats are four times as fast.
    squares = np.einsum("ij,ij->i", rows, rows).sum(dtype=np.float64)
    return 1.0 - float(squares) / rows.size / _FULL_SCALE


class NearDuplicates:
    """Compares each frame with the last one that was kept, however long ago that was."""

    def __init__(self, threshold: float) -> None:
        """`threshold` is the similarity, 0 to 1, from which on a frame is a duplicate."""
        self._threshold = threshold
        self._reference: Thumbnail | None = None

    def keep(self, thumbnail: Thumbnail) -> bool:
        """Whether a frame is to be kept; if so, the next ones are compared with it. The first one always is."""
        if self._reference is not None and similarity(self._reference, thumbnail) >= self._threshold:
            return False
        self._reference = thumbnail
        return True
