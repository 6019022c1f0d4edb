"""Codec frames as sound and back: two tones for each code group.

A frame of 1920 samples is 16 slots of 120 samples, 5 ms. A slot sounds two tones, one for each half of its byte: 800 to
3800 Hz for the low four bits, 4800 to 7800 Hz for the high ones, 200 Hz apart. Each tone is a whole number of periods
per slot, so all are orthogonal and every slot begins and ends at zero, without a click.

A listener makes the sound of what was recognised and compares: a single sample that is missing, added or changed shows.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from omni.contract.names import CODEC_FRAME_SAMPLES
from omni.stages.dummy.frames import GROUPS, Codes, Unreadable, ended, read

SLOT: Final = CODEC_FRAME_SAMPLES // GROUPS
"""Samples per code group."""

Pcm = npt.NDArray[np.int16]

_AMPLITUDE: Final = 0.35
_TOLERANCE: Final = 1
"""By how much a sample may differ from the sound that was made, in units of 1/32768: one rounding."""

_TIME = np.arange(SLOT) / SLOT
_LOW = np.sin(2 * np.pi * np.arange(4, 20)[:, None] * _TIME)
_HIGH = np.sin(2 * np.pi * np.arange(24, 40)[:, None] * _TIME)
_BYTES = np.arange(256)
_SLOTS: Final = np.rint(32767 * _AMPLITUDE * (_LOW[_BYTES & 15] + _HIGH[_BYTES >> 4])).astype(np.int16)
"""The sound of each byte [256, samples]."""


def sing(codes: Codes) -> Pcm:
    """The sound of codec frames [frames, groups]: int16 [frames * 1920] at 24 kHz. Codes must be bytes."""
    pcm: Pcm = _SLOTS[codes].reshape(-1)
    return pcm


def hear(pcm: Pcm) -> Codes:
    """The codec frames [frames, groups] that are in `pcm`. Raises `Unreadable` when it is anything but their sound."""
    if len(pcm) % CODEC_FRAME_SAMPLES:
        raise Unreadable(f"{len(pcm)} samples are not a whole number of frames")
    slots = pcm.reshape(-1, SLOT).astype(np.float32)
    low = (slots @ _LOW.T.astype(np.float32)).argmax(axis=1)
    high = (slots @ _HIGH.T.astype(np.float32)).argmax(axis=1)
    codes: Codes = (low | high << 4).astype(np.int32).reshape(-1, GROUPS)
    off = np.abs(sing(codes).astype(np.int32) - pcm).reshape(-1, CODEC_FRAME_SAMPLES).max(axis=1, initial=0)
    if wrong := np.flatnonzero(off > _TOLERANCE).tolist():
        raise Unreadable(f"the sound is cut, moved or changed at frame {wrong[0]}")
    return codes


def decode(pcm: Pcm, *, partial: bool = False) -> str:
    """The text that `pcm` says, int16 [samples] at 24 kHz; `partial` allows that the end is missing.

    Raises `Unreadable` for a lost, repeated, moved or changed sample or frame.
    """
    try:
        return read(hear(pcm), partial=partial).decode("utf-8", "ignore" if partial else "strict")
    except UnicodeDecodeError:
        raise Unreadable("what is said is not UTF-8") from None


def align(pcm: Pcm, samples: int) -> str:
    """The words of `pcm` that were said in full before `samples` of it were played. Raises `Unreadable`."""
    codes = hear(pcm[: len(pcm) // CODEC_FRAME_SAMPLES * CODEC_FRAME_SAMPLES])
    said = read(codes, partial=True)
    heard = read(codes[: max(samples, 0) // CODEC_FRAME_SAMPLES], partial=True).decode("utf-8", "ignore")
    rest = said.decode("utf-8", "ignore")[len(heard) :]
    if rest[0].isspace() if rest else ended(codes):
        return heard
    return heard[: max((at + 1 for at, letter in enumerate(heard) if letter.isspace()), default=0)].rstrip()
