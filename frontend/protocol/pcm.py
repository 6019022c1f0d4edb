"""PCM16: signed 16-bit little-endian mono, counted in samples. Audio time is a number of samples, never a clock."""

from __future__ import annotations

import struct
from typing import Final

BYTES_PER_SAMPLE: Final = 2

Buffer = bytes | bytearray | memoryview


class PcmBuffer:
    """Samples by their place in a stream that may go on for ever, of which a window is held.

    Positions are absolute: sample 0 is the first that ever came. A message may end within a sample; its half waits for
    the next one.
    """

    def __init__(self) -> None:
        self._data = bytearray()
        self._start = 0
        self._half = b""

    @property
    def start(self) -> int:
        """Position of the first sample that is held."""
        return self._start

    @property
    def end(self) -> int:
        """Position after the last sample."""
        return self._start + len(self)

    def __len__(self) -> int:
        """Samples that are held."""
        return len(self._data) // BYTES_PER_SAMPLE

    @property
    def nbytes(self) -> int:
        """Bytes of the samples that are held."""
        return len(self._data)

    def append(self, data: Buffer) -> None:
        """Take in what came, of any length."""
        if self._half:
            data = self._half + bytes(data)
        whole = len(data) - len(data) % BYTES_PER_SAMPLE
        self._half = bytes(data[whole:])
        self._data += data[:whole]

    def read(self, begin: int, end: int) -> bytes:
        """The samples from `begin` up to `end`, as far as they are held."""
        first = max(begin - self._start, 0) * BYTES_PER_SAMPLE
        last = max(end - self._start, 0) * BYTES_PER_SAMPLE
        return bytes(self._data[first:last])

    def drop(self, before: int) -> None:
        """Let go of everything before a position."""
        count = min(max(before - self._start, 0), len(self))
        del self._data[: count * BYTES_PER_SAMPLE]
        self._start += count

    def clear(self) -> None:
        """Let go of everything, also of half a sample: what comes next is another recording."""
        self.drop(self.end)
        self._half = b""

    def take(self) -> bytes:
        """Everything that is held, which is let go of."""
        data = bytes(self._data)
        self.clear()
        return data

    def give_back(self, data: bytes) -> None:
        """Put what was taken before in front of what came since. A whole number of samples."""
        assert len(data) % BYTES_PER_SAMPLE == 0, "half a sample was given back"
        self._data[:0] = data
        self._start -= len(data) // BYTES_PER_SAMPLE


def wav_header(nbytes: int, rate: int) -> bytes:
    """The 44 bytes before `nbytes` of PCM16 at `rate` hertz that make a WAV file of them (RIFF, format 1, mono)."""
    block = BYTES_PER_SAMPLE
    return struct.pack(
        "<4sI4s4sIHHIIHH4sI",
        *(b"RIFF", 36 + nbytes, b"WAVE"),
        *(b"fmt ", 16, 1, 1, rate, rate * block, block, 8 * block),
        *(b"data", nbytes),
    )


def wav(pcm: Buffer, rate: int) -> bytes:
    """A WAV file of PCM16 at `rate` hertz."""
    return wav_header(len(pcm), rate) + pcm
