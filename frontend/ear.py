"""The ears of realtime sessions: Silero VAD for many sessions at a go, with loudness and pitch beside it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from frontend.media.resample import Resampler
from frontend.media.vad import RATES, VoiceDetector, probabilities
from frontend.protocol.speech import Window
from omni.contract.names import LISTEN_RATE

MUTE_DB: Final = -75.0
"""Quieter than any microphone: where it was off for `MUTE_WINDOWS`, the model isn't asked, and there is no voice."""
MUTE_WINDOWS: Final = 8
_PITCH_FLOOR: Final = 0.35
"""Where a voice is less probable, its pitch isn't looked for."""
_PITCHES: Final = (70.0, 400.0)
"""Hertz between which a voice's pitch is."""

Samples = npt.NDArray[np.float32]


class SileroEar:
    """An `Ear` for PCM16 at `rate` hertz."""

    def __init__(self, rate: int) -> None:
        self._source = rate
        self.detector = VoiceDetector(rate if rate in RATES else LISTEN_RATE)
        self.reset(pitch=True)

    def reset(self, *, pitch: bool) -> None:
        self.detector.reset()
        self._pitch = pitch
        rate = self.detector.rate
        self._resampler = None if self._source == rate else Resampler(self._source, rate)
        self._rest: Samples = np.empty(0, np.float32)
        self._before: Samples = np.zeros((1, self.detector.window), np.float32)
        self._mute = 0

    def hear(self, pcm: bytes) -> Sequence[Window]:
        (windows,) = hear_all([(self, pcm)])
        return windows

    def take(self, pcm: bytes) -> Samples:
        """The windows that are complete with these samples [windows, window]."""
        samples = np.frombuffer(pcm, np.int16).astype(np.float32)
        samples *= 1 / 32768
        if self._resampler is not None:
            samples = self._resampler.feed(samples)
        held = np.concatenate((self._rest, samples)) if len(self._rest) else samples
        size = self.detector.window
        whole = len(held) // size * size
        self._rest = held[whole:]
        return held[:whole].reshape(-1, size)

    def audible(self, level: float) -> bool:
        """Whether the model is to judge the next window, which is as loud as this."""
        self._mute = self._mute + 1 if level < MUTE_DB else 0
        return self._mute <= MUTE_WINDOWS

    def tell(self, windows: Samples, voices: list[float], levels: list[float]) -> list[Window]:
        """What was heard, with the pitch of what may be a voice."""
        pitches = [0.0] * len(voices)
        if not self._pitch:
            return [Window(*one) for one in zip(voices, levels, pitches, strict=True)]
        spoken = [n for n, voice in enumerate(voices) if voice > _PITCH_FLOOR]
        if spoken:
            before = np.concatenate((self._before, windows[:-1]))
            found = pitches_of(np.concatenate((before[spoken], windows[spoken]), axis=1), self.detector.rate)
            for n, pitch in zip(spoken, found, strict=True):
                pitches[n] = pitch
        if len(windows):
            self._before = windows[-1:]
        return [Window(*one) for one in zip(voices, levels, pitches, strict=True)]


def hear_all(asked: Sequence[tuple[SileroEar, bytes]]) -> list[list[Window]]:
    """For each ear, which are different ones, the windows that are complete with its samples."""
    ears = [ear for ear, _ in asked]
    heard = [ear.take(pcm) for ear, pcm in asked]
    levels = [_levels(windows) for windows in heard]
    voices = [[0.0] * len(windows) for windows in heard]
    for at in range(max(map(len, heard), default=0)):
        there = [n for n, windows in enumerate(heard) if at < len(windows) and ears[n].audible(levels[n][at])]
        for rate in RATES:
            if same := [n for n in there if ears[n].detector.rate == rate]:
                found = probabilities([ears[n].detector for n in same], [heard[n][at] for n in same])
                for n, voice in zip(same, found, strict=True):
                    voices[n][at] = voice
    return [
        ear.tell(windows, voice, level) for ear, windows, voice, level in zip(ears, heard, voices, levels, strict=True)
    ]


def _levels(windows: Samples) -> list[float]:
    """Loudness of each window, dB against full scale; -100 at least."""
    size = windows.shape[1]
    return [10 * math.log10(max(float(one @ one) / size, 1e-10)) for one in windows]


def pitches_of(sounds: Samples, rate: int) -> list[float]:
    """Hertz of voiced sounds [sounds, samples], by the first strong peak of the autocorrelation; 0 without one."""
    halved = sounds.reshape(len(sounds), -1, 2).sum(axis=2)
    halved -= halved.mean(axis=1, keepdims=True)
    rate //= 2
    size = halved.shape[1]
    spectrum = np.fft.rfft(halved, 2 * size)
    correlations = np.fft.irfft(spectrum.real**2 + spectrum.imag**2)[:, :size]
    first, last = int(rate / _PITCHES[1]), min(int(rate / _PITCHES[0]), size - 2)
    peaks = first + correlations[:, first:last].argmax(axis=1)
    return [_pitch(one, int(peak), rate) for one, peak in zip(correlations, peaks, strict=True)]


def _pitch(correlation: npt.NDArray[np.float64], peak: int, rate: int) -> float:
    before, at, after = correlation[peak - 1 : peak + 2].tolist()
    if at <= 0.4 * correlation[0] or (bend := before - 2 * at + after) >= 0:
        return 0.0
    return float(rate / (peak + 0.5 * (before - after) / bend))
