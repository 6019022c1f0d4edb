"""How many frames of speech make the next chunk: few first, then twice as many each time, and never too late.

Small chunks are heard early, large ones cost less. A chunk may wait for its frames only while a player that plays in
real time still has something to play; when that runs low, what is there goes out.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class ChunkRamp:
    most: int
    """Frames of a chunk once the ramp is up."""
    margin_s: float
    """Seconds of speech that a player should still have when the next chunk is begun."""
    plays_until: float | None = None
    """When a player that began with the first chunk runs dry; None before that."""
    full: int = 1
    """Frames of a full chunk before `most` caps it; at the beginning, those of the first chunk."""

    @property
    def size(self) -> int:
        """Frames of the next chunk when there is time to wait for them."""
        return min(self.full, self.most)

    def frames(self, ready: int, ended: bool, now: float) -> int:
        """Frames of the chunk to make now of `ready` ones; 0 is to wait. `ended`: no frames follow."""
        if ready >= self.size or ended or self.plays_until is None:
            return min(ready, self.size)
        due = self.due(ready)
        return ready if due is not None and due <= now else 0

    def due(self, ready: int) -> float | None:
        """When `ready` frames must go out although the chunk isn't full; None when there are none to wait for."""
        if not ready or self.plays_until is None:
            return None
        return self.plays_until - self.margin_s

    def sent(self, frames: int, seconds: float, now: float) -> None:
        """A chunk of `frames` frames went out, `seconds` of speech."""
        if frames >= self.size:
            self.full = 2 * self.size
        started = now if self.plays_until is None else max(now, self.plays_until)
        self.plays_until = started + seconds
