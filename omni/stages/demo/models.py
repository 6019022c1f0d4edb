"""Where the demo's models are, and how each of them is run: on one thread that sleeps when it has nothing to do."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

_BUILT: Final = Path(sys.prefix) / "share" / "omni" / "demo"
"""Beside the packages that they are made of, so that one environment has one set."""
TALKER: Final = _BUILT / "talker.onnx"
CODE2WAV: Final = _BUILT / "code2wav.onnx"
CLASSIFIER: Final = _BUILT / "classifier.onnx"
FACES: Final = _BUILT / "faces.onnx"


class ModelsMissing(ImportError):
    """The demo isn't installed; the message tells an operator what to do."""

    def __init__(self, what: str) -> None:
        super().__init__(f"the demo lacks {what}: run `make demo`, or choose --profile dummy")


def imported(module: str) -> Any:
    """A module of one of the demo's packages. Raises `ModelsMissing`."""
    try:
        return import_module(module)
    except ModuleNotFoundError:
        raise ModelsMissing(f"the package {module.partition('.')[0]}") from None


def packaged(package: str, file: str) -> Path:
    """A file inside an installed package. Raises `ModelsMissing`.

    The package isn't imported: some of them are here for their weights alone, and would import torch.
    """
    spec = find_spec(package)
    path = None if spec is None or spec.origin is None else Path(spec.origin).parent / file
    if path is None or not path.exists():
        raise ModelsMissing(f"the package {package}")
    return path


def session(path: Path) -> Any:
    """An ONNX model on one thread, an `onnxruntime.InferenceSession`. Raises `ModelsMissing`.

    More threads would be faster on an idle machine and fall off a cliff on a busy one, where they wait for each other.
    """
    if not path.exists():
        raise ModelsMissing(path.name)
    onnxruntime = imported("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
