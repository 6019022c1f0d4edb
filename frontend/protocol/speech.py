"""When a turn of the user begins and ends: decisions over windows of sound, in samples, whatever detects the voice.

`server_vad` waits for a fixed silence. `semantic_vad` here is a heuristic and not a model of meaning: it weighs how the
voice ended. A voice that falls in pitch and fades, or rises as in a question, has probably finished and is answered
soon; one that stops level and loud, or drags a sound, probably goes on, and is given up to the limit of its eagerness.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

import numpy as np

from frontend.protocol.realtime_config import Detection

WINDOW_MS: Final = 32
START_WINDOWS: Final = 2
"""Windows of voice, one behind the other, that make a beginning: a click is shorter."""
HYSTERESIS: Final = 0.15
"""How much less sure of a voice one may be once it speaks (Silero's own value)."""

PATIENCE_MS: Final = {"low": (900, 8_000), "medium": (500, 4_000), "auto": (500, 4_000), "high": (300, 2_000)}
"""By eagerness, the silence after a voice that surely has finished, and the longest, which is OpenAI's."""
_REMEMBERED: Final = 3_000 // WINDOW_MS
_LAST: Final = 5
"""Voiced windows, 160 ms, that are the end of what was said."""


@dataclass(frozen=True, slots=True)
class Window:
    """What was heard in `WINDOW_MS`."""

    voice: float
    """How probable a voice is, 0 to 1."""
    level: float = -100.0
    """Loudness, dB against full scale."""
    pitch: float = 0.0
    """Hertz of the voice; 0 when there is none."""


@dataclass(frozen=True, slots=True)
class Started:
    """The turn begins at this sample, padding included."""

    at: int


@dataclass(frozen=True, slots=True)
class Stopped:
    """The turn ends before this sample, the silence included."""

    start: int
    at: int


@dataclass(frozen=True, slots=True)
class Split:
    """The turn is as long as one may be and goes on as another."""

    start: int
    at: int


class TurnDetector:
    """Listens from sample `origin` on, at `rate` hertz. Windows come without a gap."""

    def __init__(self, detection: Detection, rate: int, origin: int, most_samples: int) -> None:
        self._detection = detection
        self._size = rate * WINDOW_MS // 1000
        self._padding = rate * detection.prefix_padding_ms // 1000
        self._floor = origin
        """No turn begins before: what came earlier belongs to another one."""
        self._most = most_samples
        self.position = origin
        """The sample after the last window."""
        self.start: int | None = None
        """Where the turn that is being spoken began; None while nobody speaks."""
        self._run = 0
        self._silent = 0
        self._voiced: deque[Window] = deque(maxlen=_REMEMBERED)

    @property
    def needed_from(self) -> int:
        """The first sample that may still be part of a turn."""
        if self.start is not None:
            return self.start
        return max(self._floor, self.position - self._padding - self._run * self._size)

    def feed(self, window: Window) -> Started | Stopped | Split | None:
        before = self.position
        self.position += self._size
        threshold = self._detection.threshold - (HYSTERESIS if self.start is not None else 0)
        voice = window.voice >= threshold and window.voice > 0
        if self.start is None:
            self._run = self._run + 1 if voice else 0
            if voice:
                self._voiced.append(window)
            else:
                self._voiced.clear()
            if self._run < START_WINDOWS:
                return None
            began = before - (self._run - 1) * self._size
            self.start = max(self._floor, began - self._padding)
            self._run = self._silent = 0
            return Started(self.start)
        if voice:
            self._silent = 0
            self._voiced.append(window)
        else:
            self._silent += 1
            if self._silent * WINDOW_MS >= self._patience_ms():
                return Stopped(self._cut(), self.position)
        if self.position - self.start >= self._most:
            start, self.start, self._floor = self.start, self.position, self.position
            return Split(start, self.position)
        return None

    def _cut(self) -> int:
        start = self.start
        assert start is not None
        self.start, self._floor = None, self.position
        self._voiced.clear()
        return start

    def _patience_ms(self) -> float:
        if self._detection.type == "server_vad":
            return self._detection.silence_duration_ms
        least, most = PATIENCE_MS[self._detection.eagerness]
        return float(most * (least / most) ** completeness(self._voiced))


def completeness(voiced: deque[Window]) -> float:
    """How finished a voice sounds by its end, 0 to 1; 0.5 when nothing speaks for either.

    Looks at the last 160 ms against the 3 s before: pitch that moved, loudness that fell, and a sound that is held.
    """
    windows = list(voiced)
    if len(windows) < 2 * _LAST:
        return 0.5
    score = 0.5
    fade = float(np.mean([w.level for w in windows[:-_LAST]]) - np.mean([w.level for w in windows[-3:]]))
    score += 0.25 if fade >= 6 else 0.1 if fade >= 3 else -0.15
    pitches = [w.pitch for w in windows[:-_LAST] if w.pitch]
    last = [w.pitch for w in windows[-_LAST:] if w.pitch]
    if len(pitches) >= _LAST and len(last) >= 3:
        moved = float(np.median(last) / np.median(pitches))
        score += 0.25 if moved <= 0.92 or moved >= 1.12 else -0.1
        held = [w.pitch for w in windows[-3 * _LAST :] if w.pitch]
        if len(held) >= 2 * _LAST and float(np.std(held) / np.mean(held)) < 0.02:
            score -= 0.3
    return min(max(score, 0.0), 1.0)
