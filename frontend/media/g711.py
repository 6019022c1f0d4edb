"""G.711, the sound of telephones: 8 bits for each of 8000 samples a second, µ-law or A-law (ITU-T G.711)."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

Pcm = npt.NDArray[np.int16]
Bytes = npt.NDArray[np.uint8]

_BIAS: Final = 33
"""Of the 14-bit magnitude in µ-law, so that every segment begins at a power of two."""


def _ulaw() -> Pcm:
    code = ~np.arange(256, dtype=np.uint8)
    exponent, mantissa = (code >> 4 & 7).astype(int), (code & 15).astype(int)
    magnitude = (((2 * mantissa + _BIAS) << exponent) - _BIAS) * 4
    return np.where(code & 0x80, -magnitude, magnitude).astype(np.int16)


def _alaw() -> Pcm:
    code = np.arange(256, dtype=np.uint8) ^ 0x55
    exponent, mantissa = (code >> 4 & 7).astype(int), (code & 15).astype(int)
    line = 2 * mantissa + 1
    magnitude = np.where(exponent, (line + 32) << np.maximum(exponent - 1, 0), line) * 8
    return np.where(code & 0x80, magnitude, -magnitude).astype(np.int16)


def _inverse(decoded: Pcm) -> Bytes:
    """For each of the 65536 samples, counted from -32768, the code whose sound is nearest."""
    order = np.argsort(decoded, kind="stable")
    levels = decoded[order].astype(np.int32)
    edges = (levels[1:] + levels[:-1] + 1) // 2
    found: Bytes = order[np.searchsorted(edges, np.arange(-32768, 32768), side="right")].astype(np.uint8)
    return found


ULAW: Final = _ulaw()
"""The sample of each code [256]."""
ALAW: Final = _alaw()
_TO_ULAW: Final = _inverse(ULAW)
_TO_ALAW: Final = _inverse(ALAW)


def decode_ulaw(data: bytes) -> bytes:
    """PCM16 of µ-law."""
    return bytes(ULAW[np.frombuffer(data, np.uint8)])


def decode_alaw(data: bytes) -> bytes:
    """PCM16 of A-law."""
    return bytes(ALAW[np.frombuffer(data, np.uint8)])


def encode_ulaw(pcm: Pcm) -> bytes:
    return bytes(_TO_ULAW[pcm.astype(np.int32) + 32768])


def encode_alaw(pcm: Pcm) -> bytes:
    return bytes(_TO_ALAW[pcm.astype(np.int32) + 32768])
