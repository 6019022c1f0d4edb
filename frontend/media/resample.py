"""Changing the sample rate of a stream by a small ratio, without holding anything back.

A polyphase filter of our own, because a stream resampler that works in blocks (soxr's, 20 to 110 ms here) would keep a
listener or a turn detector waiting for as long.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Samples = npt.NDArray[np.float32]

_TAPS: Final = 48
"""Samples, of the lower rate's period, that the filter reaches over; it delays by half of them."""
_BETA: Final = 8.0
"""Of the Kaiser window: 80 dB."""
_PASS: Final = 0.92
"""The edge of the pass band, of the lower rate's half."""


class Resampler:
    """One mono stream from `source` to `target` hertz; float32 in and out, at any scale."""

    def __init__(self, source: int, target: int) -> None:
        shared = math.gcd(source, target)
        self._up, self._down = target // shared, source // shared
        slow = max(self._up, self._down)
        length = _TAPS * slow // self._up * self._up
        at = np.arange(length) - (length - 1) / 2
        taps = np.sinc(at * _PASS / slow) * np.kaiser(length, _BETA)
        taps *= self._up / taps.sum()
        self._reach = length // self._up
        offsets = [r * self._down // self._up for r in range(self._up)]
        self._taps = np.zeros((self._reach + offsets[-1], self._up), np.float32)
        for r, offset in enumerate(offsets):
            self._taps[offset : offset + self._reach, r] = taps[r * self._down % self._up :: self._up][::-1]
        self._rest: Samples = np.zeros(self._reach - 1, np.float32)

    def feed(self, samples: npt.NDArray[Any]) -> Samples:
        """What can be said of the stream with these samples added."""
        held = np.concatenate((self._rest, samples.astype(np.float32, copy=False)))
        blocks = max(len(held) - len(self._taps) + self._down, 0) // self._down
        used = blocks * self._down
        self._rest = held[used:]
        if not blocks:
            return np.empty(0, np.float32)
        # Each block of `down` samples gives `up` of them: one product of matrices, over overlapping blocks.
        step = held.strides[0]
        shape, strides = (blocks, len(self._taps)), (self._down * step, step)
        overlapping: Samples = np.ndarray(shape, np.float32, held, strides=strides)
        out: Samples = np.ascontiguousarray(overlapping).dot(self._taps).reshape(-1)
        return out

    def finish(self) -> Samples:
        """What the filter still holds."""
        return self.feed(np.zeros(self._reach // 2 + self._down, np.float32))
