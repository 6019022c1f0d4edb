"""What a picture shows: people, and the classes of ImageNet that a small classifier is sure of, by the kinds of things
that they are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps

from omni.stages.demo.models import CLASSIFIER, session
from omni.stages.demo.people import People

_SIZE: Final = (224, 224)
_MEAN: Final = 127.0
_SCALE: Final = 128.0
"""A pixel is (value - mean) / scale for this family of models (tensorflow/tpu, efficientnet/lite)."""
_SURE: Final = 0.2
"""Probability from which a kind of thing is named."""
_EXACT: Final = 0.6
"""Share of a kind's probability from which its likeliest class is named in its place."""
_MOST: Final = 3


class Seeing:
    """The classifier and the detector. One call at a time."""

    def __init__(self) -> None:
        self._classifier = session(CLASSIFIER)
        classes = self._classifier.get_modelmeta().custom_metadata_map["classes"].split("\n")
        self._names = [line.partition("|")[0] for line in classes]
        self._kinds = [line.rpartition("|")[2] for line in classes]
        self._people = People()

    def things(self, pixels: npt.NDArray[np.uint8]) -> list[str]:
        """Names of what is in RGB uint8 [height, width, 3], people first, then the surest, never none."""
        (probabilities,) = self._classifier.run(None, {"x": _views(pixels)})
        people = self._people.count(pixels)
        shown = ["group of people" if people > 1 else "person"] if people else []
        return [*shown, *name(probabilities.mean(axis=0), self._names, self._kinds, least=1 - len(shown))]


def name(
    probabilities: npt.NDArray[np.float32], names: Sequence[str], kinds: Sequence[str], least: int = 1
) -> list[str]:
    """What to call the things behind float [classes]: a kind, or its likeliest class when that stands out.

    When none is sure, the `least` likeliest.
    """
    members: dict[str, list[int]] = defaultdict(list)
    for at, kind in enumerate(kinds):
        members[kind].append(at)
    weights = {kind: float(probabilities[at].sum()) for kind, at in members.items()}
    ranked = sorted(weights, key=lambda kind: -weights[kind])
    out = []
    for kind in [one for one in ranked[:_MOST] if weights[one] >= _SURE] or ranked[:least]:
        best = max(members[kind], key=lambda at: float(probabilities[at]))
        out.append(names[best] if probabilities[best] >= _EXACT * weights[kind] else kind)
    return out


def _views(pixels: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """float32 [2, 3, 224, 224]: the middle of the picture, and all of it with grey around."""
    image = Image.fromarray(pixels)
    views = (
        ImageOps.fit(image, _SIZE, Image.Resampling.BICUBIC),
        ImageOps.pad(image, _SIZE, Image.Resampling.BICUBIC, color=(127, 127, 127)),
    )
    stacked = np.stack([np.asarray(view, np.float32).transpose(2, 0, 1) for view in views])
    return (stacked - _MEAN) / _SCALE
