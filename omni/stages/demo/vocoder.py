"""Frames to samples, in any chunking: a train of pulses and noise, shaped frame by frame and added up.

The formulas are those of the voice's package (hibari 0.2.1, "ONNX interface"): the network gives for each frame and bin
the strength and turn of the pulses, the strength of the noise, and a free part with its phase,

    S = exp(lh) e^(i pi tanh(theta)) STFT(pulses) + exp(ln) Z + exp(lr) e^(i phi)

and the sound is the inverse STFT of S: a Hann window of 1200 samples every 300. A frame needs the pulses of its
neighbours, and a sample the frames around it; what waits for them is kept, so that all chunkings of a stream give the
same samples, the one-shot decode among them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from omni.contract.names import SAMPLE_RATE
from omni.stages.demo.frames import HOP, Frames, joined

Float = npt.NDArray[np.float32]

WINDOW: Final = 1200
BINS: Final = WINDOW // 2 + 1
_OVERLAP: Final = WINDOW // HOP
_HANN: Final = (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(WINDOW) / WINDOW)).astype(np.float32)
_ANALYSIS: Final = _HANN / (WINDOW / 4)
"""Scaled so that a cosine of amplitude 1 has a peak of 1."""
_VOICED: Final = 40.0
"""Hertz over which a frame has a voice."""
_HIGHEST: Final = 11_000.0
"""Hertz of the highest harmonic."""
_LOUDEST: Final = 7.0
"""Where the logarithm of a strength is cut off."""
_SEED: Final = 0
"""Of the noise: the same frames always sound the same."""


class Spectrum(NamedTuple):
    """What the network says of frames, each float32 [frames, 601]."""

    pulses: Float
    turn: Float
    noise: Float
    free: Float
    phase: Float


class Vocoder:
    """One stream of frames. `shape` gives the spectrum of frames, each for itself."""

    def __init__(self, shape: Callable[[Frames], Spectrum]) -> None:
        self._shape = shape
        self._pulses = Pulses()
        self._noise = np.random.default_rng(_SEED)
        self._frames: list[Frames] = []
        """Whose pulses aren't all known yet."""
        self._blocks = np.zeros((2, HOP), np.float32)
        """Pulses from two blocks before the first of them on."""
        self._sums = np.zeros((_OVERLAP - 1, HOP), np.float32)
        self._weights = np.zeros((_OVERLAP - 1, HOP), np.float32)
        """Sums of windowed frames, and of squared windows, to which frames are still to come."""
        self._skip = _OVERLAP // 2
        """Blocks before the first sample: a window is centred on its frame."""

    def feed(self, frames: Frames, last: bool = False) -> Float:
        """The samples that are final now, float32, full scale is 1; all of them with the `last` frames."""
        fresh = self._pulses.feed(frames.pitch, last)
        beyond = np.zeros((int(last), HOP), np.float32)
        self._blocks = np.concatenate((self._blocks, fresh, beyond))
        self._frames.append(frames)
        ready = self._take(max(0, len(self._blocks) - _OVERLAP + 1))
        out = self._add(self._frame_sounds(ready)) if len(ready.numbers) else np.empty((0, HOP), np.float32)
        if last:
            rest = self._sums[: _OVERLAP // 2] / np.maximum(self._weights[: _OVERLAP // 2], 1e-11)
            out = np.concatenate((out, rest))
        skipped = min(self._skip, len(out))
        self._skip -= skipped
        return out[skipped:].reshape(-1)

    def _take(self, count: int) -> Frames:
        """The first `count` frames that wait."""
        waiting = joined(self._frames)
        self._frames = [waiting.part(slice(count, None))]
        return waiting.part(slice(count))

    def _frame_sounds(self, frames: Frames) -> Float:
        """float32 [frames, 1200], windowed."""
        count = len(frames.numbers)
        windows = np.lib.stride_tricks.sliding_window_view(self._blocks.reshape(-1), WINDOW)[::HOP][:count]
        self._blocks = self._blocks[count:]
        part = self._shape(frames)
        sound = np.fft.rfft(windows * _ANALYSIS, axis=1)
        sound *= _polar(part.pulses, np.pi * np.tanh(part.turn))
        noise = self._noise.standard_normal((count, BINS, 2), dtype=np.float32)
        sound += _strength(part.noise) * (noise[..., 0] + 1j * noise[..., 1])
        sound += _polar(part.free, part.phase)
        out: Float = np.fft.irfft(sound, WINDOW, axis=1).astype(np.float32) * _HANN
        return out

    def _add(self, sounds: Float) -> Float:
        """The blocks that are complete with these frames, float32 [frames, 300]."""
        count = len(sounds)
        room = np.zeros((count, HOP), np.float32)
        self._sums = np.concatenate((self._sums, room))
        self._weights = np.concatenate((self._weights, room))
        parts, squares = sounds.reshape(count, _OVERLAP, HOP), (_HANN * _HANN).reshape(_OVERLAP, HOP)
        # From the latest part to the earliest, so that a block adds up its frames in their order whatever the chunking.
        for at in reversed(range(_OVERLAP)):
            self._sums[at : at + count] += parts[:, at]
            self._weights[at : at + count] += squares[at]
        done: Float = self._sums[:count] / np.maximum(self._weights[:count], 1e-11)
        self._sums, self._weights = self._sums[count:], self._weights[count:]
        return done


class Pulses:
    """Band-limited pulses at the pitch: every harmonic up to `_HIGHEST` at amplitude 1, none where there is no voice.

    The pitch is a frame's in its middle and goes linearly from one to the next; the phase runs on through the stream.
    """

    def __init__(self) -> None:
        self._pitch = np.empty(0, np.float32)
        """From the frame before the first that waits."""
        self._cycles = 0.0
        at = ((np.arange(HOP) + 0.5) / HOP - 0.5) % 1.0
        self._later = at.astype(np.float32)
        """Weight of the later one of the two frames that a sample lies between."""

    def feed(self, pitch: Float, last: bool) -> Float:
        """float32 [frames, 300] of the frames whose next one is known, of all with the `last`."""
        before = self._pitch if len(self._pitch) or not len(pitch) else pitch[:1]
        known = np.concatenate((before, pitch))
        if last and len(known):
            known = np.concatenate((known, known[-1:]))
        self._pitch = known[-2:] if len(known) > 2 else known
        if len(known) < 3:
            return np.empty((0, HOP), np.float32)
        half = HOP // 2
        hertz = np.empty((len(known) - 2, HOP), np.float32)
        early, late = self._later[:half], self._later[half:]
        hertz[:, :half] = known[:-2, None] * (1 - early) + known[1:-1, None] * early
        hertz[:, half:] = known[1:-1, None] * (1 - late) + known[2:, None] * late
        return self._train(hertz.reshape(-1)).reshape(-1, HOP)

    def _train(self, hertz: Float) -> Float:
        voiced = hertz > _VOICED
        hertz = np.maximum(hertz, _VOICED)
        # Added up one after the other from where the last chunk ended: any chunking takes the same sums.
        cycles = np.cumsum(np.concatenate(([self._cycles], hertz)), dtype=np.float64)
        self._cycles = float(cycles[-1])
        phase = 2 * np.pi * np.modf(cycles[1:] / SAMPLE_RATE)[0]
        harmonics = np.floor(_HIGHEST / hertz) + 0.5
        below = 2 * np.sin(phase / 2)
        # The sum of cosines in closed form; at the start of a period its limit.
        peak = np.abs(below) <= 2e-3
        train = np.where(peak, harmonics, np.sin(harmonics * phase) / np.where(peak, 1, below)) - 0.5
        return np.where(voiced, train, 0).astype(np.float32)


def _strength(logarithm: Float) -> Float:
    strength: Float = np.exp(np.minimum(logarithm, np.float32(_LOUDEST)))
    return strength


def _polar(logarithm: Float, angle: Float) -> npt.NDArray[np.complex64]:
    out = np.empty(angle.shape, np.complex64)
    strength = _strength(logarithm)
    out.real, out.imag = strength * np.cos(angle), strength * np.sin(angle)
    return out
