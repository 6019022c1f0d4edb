"""Short-lived keys with which a browser may open realtime sessions, so that it never sees an API key."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import monotonic, time
from typing import Any, Final

PREFIX: Final = "ek_"
DEFAULT_S: Final = 600
LEAST_S: Final = 10
MOST_S: Final = 7_200
MOST: Final = 10_000
"""Secrets that may live at a time; the oldest gives way."""


@dataclass(frozen=True, slots=True)
class ClientSecret:
    expires_at: int
    """Unix time, for the client. The clock of the day may be set; what counts is `until`."""
    until: float
    """Seconds of the steady clock."""
    session: Mapping[str, Any]
    """What a session that is opened with it begins with, as in a `session.update`."""


class ClientSecrets:
    """Those that live, by their digest; they are held in memory and end with the process."""

    def __init__(self, clock: Callable[[], float] = monotonic, most: int = MOST) -> None:
        self._clock = clock
        self._most = most
        self._live: dict[bytes, ClientSecret] = {}

    def __len__(self) -> int:
        return len(self._live)

    def make(self, seconds: int, session: Mapping[str, Any]) -> tuple[str, ClientSecret]:
        """A new secret, to be shown once, that lives for `seconds`."""
        now = self._clock()
        self._live = {key: one for key, one in self._live.items() if one.until > now}
        while len(self._live) >= self._most:
            del self._live[next(iter(self._live))]
        value = PREFIX + secrets.token_urlsafe(32)
        made = self._live[_digest(value.encode())] = ClientSecret(int(time() + seconds), now + seconds, session)
        return value, made

    def find(self, value: bytes) -> ClientSecret | None:
        """The secret, while it lives. Looked up by digest, so that the time taken tells nothing."""
        found = self._live.get(_digest(value)) if value.startswith(PREFIX.encode()) else None
        return found if found is not None and found.until > self._clock() else None


def _digest(value: bytes) -> bytes:
    return hashlib.sha256(value).digest()
