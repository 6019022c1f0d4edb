"""The microphone, where the `sounddevice` package is installed."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

from omni.client.common import Refused

RATE = 24_000
"""Hertz; what is heard is PCM16, mono."""


def live(seconds: float, piece_ms: int) -> Iterator[bytes]:
    """So much of what the microphone hears, in pieces as they come. Raises `Refused` at once when there is none."""
    try:
        device: Any = import_module("sounddevice")
    except (ImportError, OSError):
        raise Refused("the microphone needs the sounddevice package; without it, give a file") from None

    def pieces() -> Iterator[bytes]:
        size = RATE * piece_ms // 1000
        try:
            with device.RawInputStream(samplerate=RATE, channels=1, dtype="int16") as stream:
                for _ in range(max(1, round(seconds * 1000 / piece_ms))):
                    data, _ = stream.read(size)
                    yield bytes(data)
        except device.PortAudioError as problem:
            raise Refused(f"the microphone can't be used: {problem}") from None

    return pieces()
