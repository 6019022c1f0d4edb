"""Speech from a synthesiser (espeak-ng), with the time of every word; for benchmarks and tests."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache
from typing import Any

import espeakng_loader
import numpy as np
import soxr

from omni.contract.names import SAMPLE_RATE

_SYNCHRONOUS = 2
_UTF8 = 1
_WORD = 1


class _Event(ctypes.Structure):
    _fields_ = [
        ("type", ctypes.c_int),
        ("unique_identifier", ctypes.c_uint),
        ("text_position", ctypes.c_int),
        ("length", ctypes.c_int),
        ("audio_position", ctypes.c_int),
        ("sample", ctypes.c_int),
        ("user_data", ctypes.c_void_p),
        ("id", ctypes.c_char * 8),
    ]


_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.POINTER(_Event))


@dataclass(frozen=True)
class Spoken:
    pcm: bytes
    """PCM16."""
    words: tuple[tuple[int, float], ...]
    """Where each word begins: its place in the text, and milliseconds."""


@cache
def _library() -> tuple[Any, int]:
    library = ctypes.CDLL(espeakng_loader.get_library_path())
    native = library.espeak_Initialize(_SYNCHRONOUS, 0, str(espeakng_loader.get_data_path()).encode(), 0)
    return library, native


@cache
def speak(text: str, voice: str = "en", rate: int = SAMPLE_RATE) -> Spoken:
    """`text`, which is ASCII, at `rate` hertz and about half of full scale."""
    library, native = _library()
    pieces: list[Any] = []
    words: list[tuple[int, float]] = []

    def hear(samples: Any, count: int, events: Any) -> int:
        if samples and count:
            pieces.append(np.ctypeslib.as_array(samples, (count,)).copy())
        at = 0
        while events[at].type:
            if events[at].type == _WORD:
                words.append((events[at].text_position - 1, float(events[at].audio_position)))
            at += 1
        return 0

    callback = _CALLBACK(hear)
    library.espeak_SetSynthCallback(callback)
    library.espeak_SetVoiceByName(voice.encode())
    data = text.encode()
    library.espeak_Synth(data, ctypes.c_size_t(len(data) + 1), 0, 0, 0, _UTF8, None, None)
    library.espeak_Synchronize()
    sound = np.concatenate(pieces).astype(np.float32)
    sound = soxr.resample(sound, native, rate) * 0.5
    return Spoken(np.rint(np.clip(sound, -32768, 32767)).astype("<i2").tobytes(), tuple(words))


def silence(seconds: float, rate: int = SAMPLE_RATE) -> bytes:
    """Not digital silence, but a room: noise at -70 dB."""
    noise = np.random.default_rng(0).normal(0, 10, int(seconds * rate))
    return noise.astype("<i2").tobytes()
