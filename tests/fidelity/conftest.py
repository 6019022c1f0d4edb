"""The tiny checkpoint and `transformers` on it, once per session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from support.device import DEVICE, PRETENDED
from support.pretended_gpu import pretended_gpu
from support.qwen3_omni import Reference, tiny_checkpoint
from support.thinking import Thinking

from omni.stages.drive import Drive
from omni.stages.qwen3_omni.checkpoint import Place, load_thinker


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    """The same sums in the same order, and no other test's cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session", autouse=True)
def _device() -> Iterator[None]:
    """Puts all stages on the device of the tests; the experts of float32 have but one kernel that can be captured."""
    if DEVICE == "cpu":
        yield
        return
    of = Place.of
    elsewhere = {"device": DEVICE, "experts": "batched_mm"}
    with (
        pretended_gpu() if PRETENDED else nullcontext(),
        mock.patch.object(Place, "of", lambda options: of({**elsewhere, **options})),
    ):
        yield


@pytest.fixture(scope="session")
def checkpoint() -> Path:
    """Folder of the tiny checkpoint."""
    return tiny_checkpoint()


@pytest.fixture(scope="session")
def reference(checkpoint: Path) -> Reference:
    return Reference(checkpoint)


@pytest.fixture(scope="session")
def preprocess(checkpoint: Path) -> Iterator[Drive]:
    """The stage, sampling clips as the reference does."""
    options = {"video": {"min_pixels": 4096}, "context_length": 2000}
    with Drive("preprocess", "qwen3_omni", checkpoint=str(checkpoint), **options) as drive:
        yield drive


@pytest.fixture(scope="session")
def thinker_model(checkpoint: Path) -> Any:
    """The thinker as its stage loads it."""
    return load_thinker(Place.of({"checkpoint": checkpoint}))


@pytest.fixture
def thinking(preprocess: Drive, checkpoint: Path, thinker_model: Any) -> Callable[..., Thinking]:
    """Makes a thinker with the options that it is given."""
    return partial(Thinking, preprocess, checkpoint, thinker_model)
