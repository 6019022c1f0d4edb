"""Stop strings in a text that grows piece by piece."""

from __future__ import annotations

from collections.abc import Sequence


class StopStrings:
    """Gives out text as it comes, but holds back an end that may be the start of a stop string.

    Which stop string counts is the same however the text is cut into pieces: the one that is complete first, and of
    those that end at the same place the longest.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.found = False
        """Whether a stop string was met; nothing is given out after that."""

    def feed(self, text: str, armed: bool = True) -> str:
        """What may be shown now. A stop string that is complete before `armed` is text like any other."""
        if self.found:
            return ""
        text = self._held + text
        if armed and (at := self._first(text)) is not None:
            self.found, self._held = True, ""
            return text[:at]
        keep = max((self._overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def flush(self) -> str:
        """The rest, when no more text comes."""
        rest, self._held = self._held, ""
        return rest

    def _first(self, text: str) -> int | None:
        """Where the stop string begins that is complete first; None when there is none."""
        met = [(at + len(stop), at) for stop in self._stops if (at := text.find(stop)) >= 0]
        return min(met)[1] if met else None

    @staticmethod
    def _overlap(text: str, stop: str) -> int:
        """Length of the longest end of `text` that `stop` begins with, without all of `stop`."""
        longest = min(len(text), len(stop) - 1)
        return next((n for n in range(longest, 0, -1) if text.endswith(stop[:n])), 0)
