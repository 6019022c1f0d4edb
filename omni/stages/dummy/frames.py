"""Text as codec frames: what the dummy talker says and a listener can read back.

A frame has 16 groups, each a byte: two of a counter from 0, one of length and end mark, 11 of text in UTF-8, and two of
a check sum over the other 14. The counter and the end mark tell a frame that is missing, repeated or moved; the check
sum tells a damaged one.
"""

from __future__ import annotations

import binascii
from typing import Final

import numpy as np
import numpy.typing as npt

GROUPS: Final = 16
"""Code groups of a frame, as many as the real codec's."""

BYTES_PER_FRAME: Final = 11
"""Bytes of text in one frame: a second of speech, 12.5 frames, says 137 bytes."""

_TEXT: Final = 3
_SUM: Final = _TEXT + BYTES_PER_FRAME
_END: Final = 0x80

Codes = npt.NDArray[np.int32]


class Unreadable(ValueError):
    """The sound or its frames don't say a whole text; the message tells what is wrong at which frame."""


class Speller:
    """Spells a text that grows piece by piece. A frame is due when it is full and isn't the last, or at the end."""

    def __init__(self) -> None:
        self._pending = bytearray()
        self._ended = False
        self._spoken = 0

    def feed(self, text: str) -> None:
        self._pending += text.encode("utf-8", "replace")

    def end(self) -> None:
        """No more text follows."""
        self._ended = True

    @property
    def due(self) -> bool:
        """Whether `next` has a frame to give."""
        return len(self._pending) > (0 if self._ended else BYTES_PER_FRAME)

    @property
    def done(self) -> bool:
        """Whether everything is said. The last frame of a text is marked; a text of nothing has no frame."""
        return self._ended and not self._pending

    def next(self) -> Codes:
        """The next frame, int32 [1, groups]. Only when `due`."""
        text = bytes(self._pending[:BYTES_PER_FRAME])
        del self._pending[:BYTES_PER_FRAME]
        counter = (self._spoken & 0xFFFF).to_bytes(2, "little")
        self._spoken += 1
        body = counter + bytes([len(text) | (_END if self.done else 0)]) + text.ljust(BYTES_PER_FRAME, b"\0")
        return np.frombuffer(body + _checksum(body), np.uint8).astype(np.int32)[None]


def spell(text: str) -> Codes:
    """All frames of a whole text, int32 [frames, groups]."""
    speller = Speller()
    speller.feed(text)
    speller.end()
    frames = [np.empty((0, GROUPS), np.int32)]
    while speller.due:
        frames.append(speller.next())
    return np.concatenate(frames)


def read(codes: Codes, *, partial: bool = False) -> bytes:
    """The text of frames [frames, groups] as UTF-8. Raises `Unreadable` for a missing, repeated or damaged frame.

    `partial` allows that the end is missing. No frames at all are the empty text.
    """
    out = bytearray()
    over = not len(codes)
    for number, frame in enumerate(codes):
        if frame.min() < 0 or frame.max() > 0xFF:
            raise Unreadable(f"frame {number} is not of bytes")
        body = frame.astype(np.uint8).tobytes()
        counter, length = int.from_bytes(body[:2], "little"), body[2] & ~_END
        if _checksum(body[:_SUM]) != body[_SUM:] or length > BYTES_PER_FRAME:
            raise Unreadable(f"frame {number} is damaged")
        if over:
            raise Unreadable(f"frame {number} comes after the end")
        if counter != number & 0xFFFF:
            raise Unreadable(f"frame {counter} stands in the place of frame {number}")
        out += body[_TEXT : _TEXT + length]
        over = bool(body[2] & _END)
    if not over and not partial:
        raise Unreadable(f"the end is missing after {len(codes)} frames")
    return bytes(out)


def ended(codes: Codes) -> bool:
    """Whether the last of these frames says that the text is complete."""
    return bool(len(codes) and codes[-1, 2] & _END)


def _checksum(body: bytes) -> bytes:
    """CRC-16/IBM-3740, whose start value keeps a frame of zeros from being a whole one."""
    return binascii.crc_hqx(body, 0xFFFF).to_bytes(2, "little")
