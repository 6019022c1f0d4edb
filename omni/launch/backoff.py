"""How long to wait before the next restart."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Backoff:
    """The first restart is immediate; each further one in a row waits twice as long, up to `longest`."""

    base: float = 1.0
    """Seconds before the second restart in a row."""
    longest: float = 30.0
    """Seconds that no wait exceeds."""
    calm: float = 60.0
    """A server that ran this many seconds broke the row."""
    in_a_row: int = 0
    total: int = 0

    def after(self, ran: float) -> float:
        """Seconds to wait, now that a server has failed that was up for `ran` seconds (0 if it never was)."""
        if ran >= self.calm:
            self.in_a_row = 0
        self.in_a_row += 1
        self.total += 1
        if self.in_a_row == 1:
            return 0.0
        return min(self.longest, self.base * 2.0 ** min(self.in_a_row - 2, 32))
