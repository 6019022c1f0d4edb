"""The demo's codec frames, 80 of them for a second: what the talker sends and code2wav takes.

A frame is int32 [259]: the 256 numbers of 8 bits that the voice's last layer reads, the zero point that they share, and
as the bits of float32 their scale and the pitch in hertz (0 where there is no voice).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from omni.contract.errors import StageFailed
from omni.contract.names import CODE2WAV

NUMBERS: Final = 256
GROUPS: Final = NUMBERS + 3
HOP: Final = 300
"""Samples of a frame: 12.5 ms at 24 kHz."""

Codes = npt.NDArray[np.int32]


class Frames(NamedTuple):
    """Frames of one clause or of several."""

    numbers: npt.NDArray[np.uint8]
    """[frames, 256]"""
    zero_points: npt.NDArray[np.uint8]
    """[frames]"""
    scales: npt.NDArray[np.float32]
    """[frames]"""
    pitch: npt.NDArray[np.float32]
    """Hertz [frames]."""

    def part(self, part: slice) -> Frames:
        """Some of them."""
        return Frames(self.numbers[part], self.zero_points[part], self.scales[part], self.pitch[part])


def joined(several: Sequence[Frames]) -> Frames:
    """All of them behind each other. Raises ValueError when there are none."""
    return Frames(
        np.concatenate([one.numbers for one in several]),
        np.concatenate([one.zero_points for one in several]),
        np.concatenate([one.scales for one in several]),
        np.concatenate([one.pitch for one in several]),
    )


def pack(frames: Frames) -> Codes:
    """int32 [frames, 259]"""
    codes = np.empty((len(frames.numbers), GROUPS), np.int32)
    codes[:, :NUMBERS] = frames.numbers
    codes[:, NUMBERS] = frames.zero_points
    codes[:, NUMBERS + 1] = frames.scales.view(np.int32)
    codes[:, NUMBERS + 2] = frames.pitch.view(np.int32)
    return codes


def unpack(codes: Codes) -> Frames:
    """The inverse of `pack`. Raises `StageFailed` when `codes` aren't such frames."""
    if codes.ndim != 2 or codes.shape[1] != GROUPS:
        raise StageFailed("The speech of the answer can't be made.", stage=CODE2WAV)
    small = codes[:, : NUMBERS + 1]
    scales, pitch = (np.ascontiguousarray(codes[:, at]).view(np.float32) for at in (NUMBERS + 1, NUMBERS + 2))
    if codes.size and not (0 <= small.min() <= small.max() <= 255 and np.isfinite(scales + pitch).all()):
        raise StageFailed("The speech of the answer can't be made.", stage=CODE2WAV)
    narrow = small.astype(np.uint8)
    return Frames(np.ascontiguousarray(narrow[:, :NUMBERS]), narrow[:, NUMBERS], scales, pitch)
