"""Camera frames that wait for the turn whose time they belong to."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

from frontend.protocol.evs import NearDuplicates, Thumbnail
from omni.contract.job import MediaPart

ALIKE: Final = 0.995
"""Similarity from which on a frame shows nothing new (`frontend.protocol.evs`)."""
LEAD_MS: Final = 1_000.0
"""A frame that came so long before its turn began still belongs to it."""


class Camera:
    """The newest frames, at most `most`; `at_ms` of each is its place on the timeline of the sound."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._frames: deque[MediaPart] = deque(maxlen=most)
        self._duplicates = NearDuplicates(ALIKE)

    def __iter__(self) -> Iterator[MediaPart]:
        return iter(self._frames)

    def add(self, frame: MediaPart) -> None:
        self._frames.append(frame)

    def looked(self, frame: MediaPart, thumbnail: Thumbnail | None) -> bool:
        """Drops a frame that can't be seen (None) or shows what the one before did; True when it stays."""
        if frame not in self._frames:
            return False
        if thumbnail is not None and self._duplicates.keep(thumbnail):
            return True
        self._frames.remove(frame)
        return False

    def take(self, began_ms: float, ended_ms: float) -> list[MediaPart]:
        """The frames of a turn in the order of time, which leave: those of its time, or else the last one before.

        Later ones stay."""
        past = sorted((one for one in self._frames if _at(one) <= ended_ms), key=_at)
        self._frames = deque((one for one in self._frames if _at(one) > ended_ms), maxlen=self._most)
        return [one for one in past if _at(one) >= began_ms - LEAD_MS] or past[-1:]

    def clear(self) -> None:
        self._frames.clear()


def _at(frame: MediaPart) -> float:
    return frame.at_ms or 0.0
