"""How long media took to decode, by kind: what the metrics of a preprocess stage say of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import wraps
from typing import Final, ParamSpec, TypeVar

from omni.contract.job import MEDIA_KINDS, MediaKind

P = ParamSpec("P")
R = TypeVar("R")

SECONDS: Final[dict[MediaKind, float]] = dict.fromkeys(MEDIA_KINDS, 0.0)
"""Seconds that all threads together have spent, also on what couldn't be decoded."""
DECODED: Final[dict[MediaKind, int]] = dict.fromkeys(MEDIA_KINDS, 0)
"""On so many of each kind."""
_LOCK = threading.Lock()


def timed(kind: MediaKind) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Count the calls of a decoder."""

    def around(decode: Callable[P, R]) -> Callable[P, R]:
        @wraps(decode)
        def counted(*args: P.args, **kwargs: P.kwargs) -> R:
            began = time.perf_counter()
            try:
                return decode(*args, **kwargs)
            finally:
                spent = time.perf_counter() - began
                with _LOCK:
                    SECONDS[kind] += spent
                    DECODED[kind] += 1

        return counted

    return around
