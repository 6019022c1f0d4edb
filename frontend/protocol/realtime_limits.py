"""What one realtime session may hold, and for how long it may go on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Each is a setting, `realtime_` and its name."""

    buffer_s: float = 300.0
    """Sound that waits to be part of a turn."""
    turn_s: float = 60.0
    """A turn that is found by its voice is split when it is longer."""
    items: int = 1_000
    chars: int = 400_000
    """Text of the conversation."""
    media_bytes: int = 64 << 20
    """Sound and pictures of the conversation, encoded."""
    image_bytes: int = 8 << 20
    frames: int = 8
    """Camera frames that wait for a turn; the newest are kept."""
    responses: int = 4
    """At a time, in and outside of the conversation."""
    idle_s: float = 900.0
    """Without a word of the client and without an answer."""
    age_s: float = 3_600.0
