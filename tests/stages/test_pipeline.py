"""All four dummy stages behind each other, as the ensemble joins them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from omni.contract.job import MediaPart
from omni.contract.params import SamplingParams, Settings
from omni.contract.tensors import StageMessage, pack, unpack
from omni.stages.drive import Drive
from omni.stages.dummy.tones import decode

pytestmark = pytest.mark.process


def across(stage: str, said: list[StageMessage]) -> list[StageMessage]:
    """What `stage` said as the next stage gets it."""
    return [unpack(pack(stage, message)) for message in said]


@pytest.mark.parametrize("stop", [(), ("dB",)])
def test_the_sound_is_the_text(
    job: Callable[..., StageMessage], image_part: Callable[..., MediaPart], tone: Callable[..., bytes], stop: tuple[str]
) -> None:
    settings = Settings(speech=True, sampling={"thinker": SamplingParams(stop=stop)})
    parts = [image_part(size=(640, 480)), MediaPart.of("audio", tone(1.5)), "What's that? 😀\n— 4 4 4"]
    said = [job(parts, settings=settings)]
    text = ""
    for stage in ("preprocess", "thinker", "talker", "code2wav"):
        with Drive(stage) as drive:
            said = across(stage, drive.run(said, settings))
        if stage == "thinker":
            text = "".join(message.text.text for message in said if message.text is not None)
    expected = "Received image 640x480 #ff8040\naudio 1.50s -9.0dB\ntext: What's that? 😀\n— 4 4 4"
    assert text == (expected[: expected.index("dB")] if stop else expected)
    assert decode(np.concatenate([message.audio for message in said if message.audio is not None])) == text
