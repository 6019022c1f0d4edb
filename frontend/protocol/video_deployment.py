"""What all streaming video sessions of a front door share: their limits, and what they need from outside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from frontend.protocol.budget import Budget
from frontend.protocol.evs import Thumbnail
from frontend.protocol.video_audio import Overflow

MIB: Final = 1 << 20

Look = Callable[[bytes, bool], tuple[str, Thumbnail | None]]
"""Digest (hexadecimal SHA-256) and, if asked for, thumbnail of a picture; raises `InvalidMedia` or `TooLarge`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one session may cost."""

    config_timeout: float = 10.0
    """Seconds until `session.config`."""
    idle_timeout: float = 60.0
    """Seconds without a message while nothing is being answered or sent."""
    frame_chars: int = 10 * MIB
    """Length of a frame's base64."""
    frames_bytes: int = 128 * MIB
    """Frames that are held."""
    audio_bytes: int = 4 * MIB
    """Sound that is held: 131 s."""
    audio_overflow: Overflow = "clear"
    text_chars: int = 256 * 1024
    """A question, or the system prompt."""
    keep_newest: bool = True
    """A question is also about the newest frame when the filter dropped it as a near-duplicate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """What sessions are made from."""

    look: Look
    budget: Budget
    new_id: Callable[[], str]
    """A UUID, 32 hexadecimal digits."""
    limits: Limits = field(default_factory=Limits)
    voices: Sequence[str] = ()
    speech: bool = True
    """Whether there is a talker."""
    prefill: bool = False
    """Whether the thinker reuses prefixes, so that it pays to prefill frames as they come."""
    streamed: Callable[[], bool] = lambda: True
    """Asked for each turn: whether its answer is sent as it comes, or whole at its end."""
    on_frame: Callable[[str], None] = lambda _: None
    """Hears what became of each frame: kept, filtered or failed."""
