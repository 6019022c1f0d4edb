"""The microphone, where the `sounddevice` package is installed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from omni.client.common import Refused

RATE = 24_000
"""Hertz; what is heard is PCM16, mono."""


def recorded(seconds: float) -> bytes:
    """So much of what the microphone hears. Raises `Refused` when there is none."""
    try:
        device: Any = import_module("sounddevice")
    except (ImportError, OSError):
        raise Refused("the microphone needs the sounddevice package; without it, give a file") from None
    try:
        with device.RawInputStream(samplerate=RATE, channels=1, dtype="int16") as stream:
            data, _ = stream.read(int(seconds * RATE))
    except device.PortAudioError as problem:
        raise Refused(f"the microphone can't be used: {problem}") from None
    return bytes(data)
