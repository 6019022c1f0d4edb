"""Bytes that all sessions of a front door may hold together."""

from __future__ import annotations


class Budget:
    """Counts what is held against a limit. Who takes, gives back."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0

    def take(self, size: int) -> bool:
        """False when there is no room for `size` more bytes; nothing is taken then."""
        if self.held + size > self.limit:
            return False
        self.held += size
        return True

    def give(self, size: int) -> None:
        self.held -= size
