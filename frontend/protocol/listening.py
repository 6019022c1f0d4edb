"""What the user says: sound that waits to be part of a turn, counted in samples, and the ear that follows it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from frontend.protocol.fields import BadEvent
from frontend.protocol.pcm import PcmBuffer
from frontend.protocol.realtime_config import Detection
from frontend.protocol.speech import WINDOW_MS, Split, Started, Stopped, TurnDetector, Window

PIECE_MS: Final = 512
"""Most sound that the ear is given at a time, so that others get their turn."""
LAG_MS: Final = 1
"""Sound that an ear may hold back before it has a window, in a change of rates."""
LEAST_COMMIT_MS: Final = 100
"""As OpenAI has it: less than this isn't taken for a turn."""

Happening = Started | Stopped | Split


class Ear(Protocol):
    """Tells voices from other sound. It is asked one thing at a time."""

    def hear(self, pcm: bytes) -> Sequence[Window]:
        """The windows that are complete with these samples, which follow the ones before without a gap."""

    def reset(self, *, pitch: bool) -> None:
        """What comes next is another recording; `pitch` tells whether that of a voice is wanted."""


class Listening:
    """The input buffer of a session at `rate` hertz.

    Nobody waits in it for ever: without a voice it keeps no more than the padding of a turn.
    """

    def __init__(self, ear: Ear, rate: int, *, buffer_s: float, turn_s: float, began_ms: float = 0.0) -> None:
        self.ear = ear
        self.rate = rate
        self._window = rate * WINDOW_MS // 1000
        self._lag = rate * LAG_MS // 1000
        self._most = int(buffer_s * rate)
        self._most_turn = int(turn_s * rate)
        self._began_ms = began_ms
        self._buffer = PcmBuffer()
        self._detection: Detection | None = None
        self._detector: TurnDetector | None = None
        self._given = 0
        self._fresh = self._stale = self._busy = False

    @property
    def samples(self) -> int:
        """Samples that wait."""
        return len(self._buffer)

    @property
    def idle(self) -> bool:
        """Whether the ear has heard everything, or isn't asked to."""
        return self._detector is None or (not self._busy and not self._due)

    @property
    def speaking(self) -> bool:
        return self._detector is not None and self._detector.start is not None

    @property
    def turn_start(self) -> int | None:
        """Where the turn begins that is being spoken, or that will be committed; None while there is none."""
        return self._buffer.start if self._detector is None else self._detector.start

    @property
    def end(self) -> int:
        """The sample after the last that came."""
        return self._buffer.end

    @property
    def now_ms(self) -> float:
        """Where the sound that has come so far ends on the session's timeline."""
        return self.ms(self._buffer.end)

    def ms(self, sample: int) -> float:
        return self._began_ms + sample * 1000 / self.rate

    def detect(self, detection: Detection | None) -> None:
        """Find turns from now on like this, or not at all."""
        if detection == self._detection:
            return
        self._detection = detection
        self._restart()

    def append(self, pcm: bytes) -> None:
        """Raises `BadEvent` when the buffer is full; then nothing was taken."""
        if len(self._buffer) + len(pcm) // 2 > self._most:
            seconds = self._most // self.rate
            raise BadEvent(
                f"The input audio buffer is full: {seconds} seconds wait. Commit or clear them, or send more slowly.",
                "input_audio_buffer_full",
                "audio",
            )
        self._buffer.append(pcm)

    def clear(self) -> None:
        self._buffer.clear()
        self._restart()

    def commit(self) -> tuple[bytes, float]:
        """Everything that waits, and where it began, in ms. Raises `BadEvent` when it is next to nothing."""
        has = len(self._buffer) * 1000 / self.rate
        if has < LEAST_COMMIT_MS:
            raise BadEvent(
                f"The input audio buffer is too small to commit: {has:.0f} ms, and {LEAST_COMMIT_MS} are needed.",
                "input_audio_buffer_commit_empty",
            )
        began = self.ms(self._buffer.start)
        pcm = self._buffer.take()
        self._restart()
        return pcm, began

    def read(self, start: int, end: int) -> bytes:
        """Samples that stay where they are."""
        return self._buffer.read(start, end)

    def cut(self, start: int, end: int) -> bytes:
        """The samples of a turn; they and all before them leave the buffer."""
        pcm = self._buffer.read(start, end)
        self._buffer.drop(end)
        return pcm

    @property
    def _due(self) -> bool:
        """Whether there is another window for the ear."""
        if self._detector is None or self._given >= self._buffer.end:
            return False
        return self._buffer.end - self._detector.position >= self._window + self._lag

    def next_piece(self) -> bytes | None:
        """What the ear has to hear next, if there is something; one thing at a time. Its windows go to `heard`."""
        if self._busy or not self._due:
            return None
        end = min(self._buffer.end, self._given + PIECE_MS * self.rate // 1000)
        pcm = self._buffer.read(self._given, end)
        self._given = end
        if self._fresh:
            self.ear.reset(pitch=self._detection is not None and self._detection.type == "semantic_vad")
        self._fresh = self._stale = False
        self._busy = True
        return pcm

    def heard(self, windows: Sequence[Window] | None) -> list[Happening]:
        """What happened, in order. None means that the ear failed: what waits is let go of."""
        self._busy = False
        detector = self._detector
        if windows is None:
            self.clear()
            return []
        if detector is None or self._stale:
            return []
        out = [happening for window in windows if (happening := detector.feed(window)) is not None]
        if not out:
            self._buffer.drop(detector.needed_from)
        return out

    def _restart(self) -> None:
        """The ear begins anew with what waits."""
        self._fresh = self._stale = True
        self._given = start = self._buffer.start
        detection = self._detection
        self._detector = None if detection is None else TurnDetector(detection, self.rate, start, self._most_turn)
