"""Dummy speech that went through a lossy codec: the text is read back, single samples can't be held to account."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from omni.stages.dummy.frames import GROUPS, Codes, Unreadable, ended, read
from omni.stages.dummy.tones import SLOT

_STEP: Final = 4
"""Samples between two places that are tried for the slots' borders; a slot bears to be off by far more."""

_LEAD: Final = 400
"""Slots, 2 seconds, that may come before the first frame: codecs put silence there."""

_TURN = -2j * np.pi * np.arange(SLOT) / SLOT
_LOW: Final = np.exp(np.arange(4, 20)[:, None] * _TURN).astype(np.complex64).T
_HIGH: Final = np.exp(np.arange(24, 40)[:, None] * _TURN).astype(np.complex64).T


def recover(samples: npt.NDArray[Any]) -> str:
    """The text that mono `samples` at 24 kHz say, of any scale, with anything before and after the speech.

    Finds the borders of the slots and then the frame with counter 0; counters, check sums and the end mark must hold.
    Good for MP3, AAC and Opus from 64 to 128 kbit/s on. Raises `Unreadable`.
    """
    padded = np.concatenate((np.zeros(SLOT, np.float32), samples.astype(np.float32), np.zeros(SLOT, np.float32)))
    heard = max((_slots(padded[start:]) for start in range(0, SLOT, _STEP)), key=lambda one: one[0])[1]
    for start in range(min(_LEAD, len(heard))):
        whole = (len(heard) - start) // GROUPS * GROUPS
        frames = _speech(heard[start : start + whole].reshape(-1, GROUPS))
        if frames is not None:
            return read(frames).decode("utf-8", "replace")
    raise Unreadable("there is no beginning of speech")


def _slots(samples: npt.NDArray[np.float32]) -> tuple[float, Codes]:
    """`(how clearly, bytes)` when the slots begin with the first sample."""
    slots = samples[: len(samples) // SLOT * SLOT].reshape(-1, SLOT)
    low, high = np.abs(slots @ _LOW), np.abs(slots @ _HIGH)
    clear = sum(float((2 * tones.max(axis=1) - tones.sum(axis=1)).sum()) for tones in (low, high))
    return clear, (low.argmax(axis=1) | high.argmax(axis=1) << 4).astype(np.int32)


def _speech(frames: Codes) -> Codes | None:
    """The frames up to the end mark, when the first of them is the first of a speech."""
    if not len(frames):
        return None
    try:
        read(frames[:1], partial=True)
    except Unreadable:
        return None
    last = next((n for n in range(1, len(frames)) if ended(frames[:n])), len(frames))
    return frames[:last]
