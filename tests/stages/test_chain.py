"""A chain of dummy stages says what each of them would."""

from __future__ import annotations

import uuid

import pytest

from omni.contract.errors import InvalidMedia
from omni.contract.job import Job, MediaPart, Message, Part, TextPart
from omni.contract.names import CODE2WAV, STAGES
from omni.contract.params import Settings
from omni.contract.tensors import StageMessage
from omni.stages.chain import Chain

pytestmark = pytest.mark.process

DUMMY = {stage: {"implementation": "dummy"} for stage in STAGES}


def ask(*parts: Part, speech: bool) -> Job:
    return Job(id=str(uuid.uuid4()), messages=(Message("user", parts),), settings=Settings(speech=speech))


def test_it_speaks_when_asked_to() -> None:
    heard: list[tuple[str, str]] = []

    def listen(stage: str, generation: str, message: StageMessage) -> None:
        if message.audio is not None:
            heard.append((stage, generation))

    with Chain(DUMMY, listen) as chain:
        spoken, written = ask(TextPart("Hello"), speech=True), ask(TextPart("Hello"), speech=False)
        chain.ask(spoken)
        chain.ask(written)
        chain.run()
    assert chain.said[spoken.id].text.text == chain.said[written.id].text.text != ""
    assert len(chain.said[spoken.id].codes) * 1920 == len(chain.said[spoken.id].audio) > 0
    assert len(chain.said[written.id].audio) == 0
    assert set(heard) == {(CODE2WAV, spoken.id)}


def test_a_failure_ends_that_generation_alone() -> None:
    with Chain(DUMMY) as chain:
        broken = ask(MediaPart.of("image", b"no image"), speech=True)
        whole = ask(TextPart("Hello"), speech=True)
        chain.ask(broken)
        chain.ask(whole)
        chain.run()
        assert isinstance(chain.said[broken.id].error, InvalidMedia)
        assert chain.said[whole.id].error is None
        assert len(chain.said[whole.id].audio) > 0
        assert all(len(stage) == 0 for stage in chain.stages.values())  # type: ignore[arg-type]
