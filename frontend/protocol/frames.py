"""The frames of a session: how many are held, and which of them a question is about."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from omni.contract.job import MediaPart

ECHOED: Final = ("frame_id", "pts_ms", "source_pts_ms", "quality_profile", "capture_ts_ms")
"""Fields of a frame that its client gets back as it gave them."""
OVERHEAD: Final = 1024
"""Bytes that a frame counts for besides its own."""


@dataclass(slots=True, eq=False)
class Frame:
    """One picture, encoded."""

    number: int
    """Its place in the session, from 1."""
    data: bytes
    meta: Mapping[str, Any]
    """The fields of `ECHOED`, None where the client gave none."""
    received_ms: float
    """When it came, milliseconds of the server's steady clock."""
    digest: str = ""
    """Hexadecimal SHA-256 of `data`, once it was looked at."""

    @property
    def param(self) -> str:
        """What errors call it."""
        return f"frame {self.number}"

    @property
    def size(self) -> int:
        """Bytes that it counts for."""
        return len(self.data) + OVERHEAD

    @property
    def at_ms(self) -> float:
        """Where on the session's timeline it belongs: as the client says, or else when it came."""
        pts = self.meta.get("pts_ms")
        if isinstance(pts, (int, float)) and not isinstance(pts, bool) and math.isfinite(pts):
            return float(pts)
        return self.received_ms

    def part(self) -> MediaPart:
        """For a job."""
        return MediaPart("image", self.data, self.digest, self.param, self.at_ms)


class FrameBuffer:
    """The newest frames, bounded in number and in bytes. Asking doesn't use them up."""

    def __init__(self, most: int, most_bytes: int, *, halve: bool) -> None:
        """When it is full, `halve` lets go of the older half at once, which keeps beginnings of prompts the same for
        long; otherwise the oldest frame makes room for the new one."""
        self._most = most
        self._most_bytes = most_bytes
        self._halve = halve
        self._frames: list[Frame] = []
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._frames)

    def __iter__(self) -> Iterator[Frame]:
        return iter(self._frames)

    @property
    def nbytes(self) -> int:
        """Bytes that the frames count for."""
        return self._bytes

    def append(self, frame: Frame) -> list[Frame]:
        """Take in a frame; what had to go for it, the oldest first."""
        gone: list[Frame] = []
        while self._frames and (len(self._frames) >= self._most or self._bytes + frame.size > self._most_bytes):
            gone += self._drop_oldest(max(1, len(self._frames) // 2) if self._halve else 1)
        self._frames.append(frame)
        self._bytes += frame.size
        return gone

    def remove(self, digest: str) -> list[Frame]:
        """Let go of all copies of a picture."""
        gone = [frame for frame in self._frames if frame.digest == digest]
        self._frames = [frame for frame in self._frames if frame.digest != digest]
        self._bytes -= sum(frame.size for frame in gone)
        return gone

    def clear(self) -> list[Frame]:
        return self._drop_oldest(len(self._frames))

    def _drop_oldest(self, count: int) -> list[Frame]:
        gone = self._frames[:count]
        del self._frames[:count]
        self._bytes -= sum(frame.size for frame in gone)
        return gone


def stride(count: int, wanted: int) -> Iterable[int]:
    """Places of `wanted` frames of `count`: from the oldest on in equal steps, and the newest.

    The steps are `count // wanted` (vLLM-Omni's formula), so that much of the end may be passed over: 50 frames give
    0, 12, 24 and 49 for 4.
    """
    if count <= wanted:
        return range(count)
    step = count // wanted
    return [*(n * step for n in range(wanted - 1)), count - 1]


def uniform(count: int, wanted: int) -> Iterable[int]:
    """Places of `wanted` frames of `count`, spread evenly from the oldest to the newest; for one, the newest."""
    if count <= wanted:
        return range(count)
    if wanted == 1:
        return [count - 1]
    return [round(n * (count - 1) / (wanted - 1)) for n in range(wanted)]


def select(frames: Sequence[Frame], wanted: int, how: str) -> list[Frame]:
    """The frames of a question by `stride` or `uniform`."""
    places = uniform(len(frames), wanted) if how == "uniform" else stride(len(frames), wanted)
    return [frames[place] for place in places]
