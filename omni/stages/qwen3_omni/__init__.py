"""Qwen3-Omni: preprocess, thinker, talker and code2wav on the modules of `transformers`.

Importing this package first makes `transformers` importable beside any torchvision, which nothing here needs.
"""

from __future__ import annotations

import importlib.util
import warnings


def _tolerate_torchvision() -> None:
    """Declares the operators without which torchvision can't be imported.

    `transformers` imports torchvision whenever it is installed, and its wheels are built for CUDA: beside a torch for
    CPUs their compiled operators are missing, and the import fails where it describes two of them.
    """
    if importlib.util.find_spec("torchvision") is None:
        return
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            import torchvision
        except RuntimeError:
            for name in ("nms", "qnms"):
                torch.library.define(f"torchvision::{name}", "(Tensor boxes, Tensor scores, float overlap) -> Tensor")
            import torchvision  # noqa: F401


_tolerate_torchvision()
