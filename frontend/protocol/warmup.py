"""Incremental prefill: the frames that are there are read into the thinker before anyone asks about them.

One warm-up at a time, always of the newest context; what came while it ran is in the next one. It never delays a
question, which stops it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from frontend.protocol.frames import Frame, FrameBuffer
from frontend.protocol.video_prompt import Conversation
from omni.contract.errors import InvalidMedia, MediaMissing, OmniError, TooLarge

_CURABLE: Final = (MediaMissing, InvalidMedia, TooLarge)
MAX_FAILURES: Final = 3
"""Failures in a row after which only a new context is tried."""


class Warmup:
    """What was prefilled, and what is being prefilled now."""

    def __init__(self, enabled: bool) -> None:
        self.enabled = enabled
        self.running: int | None = None
        """The number of the job under way."""
        self._job_frames: Sequence[Frame] = ()
        self._attempted: tuple[object, ...] = ()
        self._failures = 0

    def due(self, conversation: Conversation, frames: FrameBuffer) -> bool:
        """Whether there is something to prefill that wasn't tried yet."""
        return (
            self.enabled
            and self.running is None
            and len(frames) > 0
            and self._attempted != _signature(conversation, list(frames))
        )

    def begin(self, number: int, conversation: Conversation, frames: Sequence[Frame]) -> None:
        self.running = number
        self._job_frames = frames
        self._attempted = _signature(conversation, frames)

    def end(self, error: OmniError | None) -> Sequence[Frame]:
        """The job is done; its frames. One that failed for want of something that can be put right is tried again."""
        self._failures = 0 if error is None else self._failures + 1
        if isinstance(error, _CURABLE) and self._failures < MAX_FAILURES:
            self._attempted = ()
        frames, self._job_frames = self._job_frames, ()
        self.running = None
        return frames

    def stop(self) -> int | None:
        """Give up what runs, to begin with it again later; its number, to be cancelled."""
        number, self.running, self._job_frames = self.running, None, ()
        if number is not None:
            self._attempted = ()
        return number


def _signature(conversation: Conversation, frames: Sequence[Frame]) -> tuple[object, ...]:
    return (conversation.history, frames[0].number, frames[-1].number, len(frames))
