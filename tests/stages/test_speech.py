"""The talker and code2wav of the dummy, alone and behind each other."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omni.contract.chunk import TextDelta
from omni.contract.errors import Overloaded, StageFailed
from omni.contract.names import CODEC_FRAME_SAMPLES
from omni.contract.params import SamplingParams, Settings
from omni.contract.stage import StageConfig
from omni.contract.tensors import StageMessage, pack, unpack
from omni.stages.drive import Drive
from omni.stages.dummy.code2wav import Code2wav
from omni.stages.dummy.frames import GROUPS, spell
from omni.stages.dummy.tones import decode, sing

pytestmark = pytest.mark.pure

SPEECH = Settings(speech=True)
END = StageMessage(eos=True)


def say(*pieces: str) -> list[StageMessage]:
    return [StageMessage(text=TextDelta(piece, 1)) for piece in pieces]


def codes_of(said: list[StageMessage]) -> np.ndarray:
    return np.concatenate([m.codes for m in said if m.codes is not None] or [np.empty((0, GROUPS), np.int32)])


def pcm_of(said: list[StageMessage]) -> np.ndarray:
    return np.concatenate([m.audio for m in said if m.audio is not None] or [np.empty(0, np.int16)])


def chunks_of(said: list[StageMessage]) -> list[int]:
    return [len(m.audio) // CODEC_FRAME_SAMPLES for m in said if m.audio is not None]


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_talker_spells_while_the_text_grows() -> None:
    with Drive("talker") as drive:
        drive.open("a", SPEECH)
        assert drive.stage.wait() is None
        drive.push("a", *say("eleven byte"))
        assert drive.stage.wait() is None
        drive.push("a", *say("s and more, over two frames"))
        steps = 0
        while drive.stage.wait() == 0:
            ((name, message),) = drive.step()
            assert (name, message.eos) == ("a", False)
            assert unpack(pack("talker", message)).codes.shape == (1, GROUPS)
            steps += 1
        assert steps == 3
        drive.push("a", END)
        said = drive.finish()["a"]
        assert np.array_equal(codes_of(said), spell("eleven bytes and more, over two frames"))
        assert said[-1].eos
        assert len(drive.stage) == 0  # type: ignore[arg-type]


def test_nothing_to_say_is_no_speech() -> None:
    for messages in ([END], [*say("", ""), END], [StageMessage(text=TextDelta("", 0), eos=True)]):
        with Drive("talker") as talker, Drive("code2wav") as code2wav:
            said = talker.run(messages, SPEECH)
            assert said == [StageMessage(eos=True)]
            assert code2wav.run(said, SPEECH) == [StageMessage(eos=True)]


def test_the_talkers_limit_cuts_the_speech() -> None:
    short = Settings(speech=True, sampling={"talker": SamplingParams(max_tokens=2)})
    text = "this text is longer than two frames of speech"
    with Drive("talker") as drive:
        said = drive.run([*say(text), END], short)
        assert len(drive.stage) == 0  # type: ignore[arg-type]
    assert [message.eos for message in said] == [False, True]
    assert decode(sing(codes_of(said)), partial=True) == text[:22]


def test_text_after_the_talkers_limit_is_ignored() -> None:
    short = Settings(speech=True, sampling={"talker": SamplingParams(max_tokens=1)})
    with Drive("talker") as drive:
        drive.open("a", short)
        drive.push("a", *say("long enough to speak"))
        assert drive.step()[0][1].eos
        drive.push("a", *say("more"), END)
        assert not drive.step()


def test_chunks_grow() -> None:
    codes = spell("x" * 11 * 60)
    with Drive("code2wav") as drive:
        said = drive.run([StageMessage(codes=codes), END], SPEECH)
        assert chunks_of(said) == [1, 2, 4, 8, 16, 25, 4]
        assert np.array_equal(pcm_of(said), sing(codes))
        assert [message.eos for message in said] == [False] * 6 + [True]
        knob = Settings(speech=True, stage={"code2wav": {"max_chunk_frames": 3}})
        assert chunks_of(drive.run([StageMessage(codes=codes[:12]), END], knob)) == [1, 2, 3, 3, 3]
    with Drive("code2wav", max_chunk_frames=5) as drive:
        assert chunks_of(drive.run([StageMessage(codes=codes[:12], eos=True)], SPEECH)) == [1, 2, 4, 5]


def test_a_chunk_waits_for_its_frames_while_a_player_has_something_to_play() -> None:
    codes, clock = spell("x" * 11 * 6), Clock()
    stage = Code2wav(StageConfig({"ramp_margin_ms": 30}), clock)

    def chunks() -> list[int]:
        return chunks_of([message for _, message in stage.step()])

    stage.open("a", SPEECH)
    stage.push("a", StageMessage(codes=codes[:2]))
    assert chunks() == [1]
    assert stage.wait() == pytest.approx(0.05)
    assert chunks() == []
    stage.push("a", StageMessage(codes=codes[2:3]))
    assert chunks() == [2], "all frames of the next chunk are there"
    stage.push("a", StageMessage(codes=codes[3:4]))
    clock.now += 0.22
    assert chunks() == [1], "the player would run dry"
    stage.push("a", StageMessage(codes=codes[4:6]))
    assert chunks() == []
    stage.push("a", END)
    ((_, last),) = stage.step()
    assert (chunks_of([last]), last.eos) == ([2], True)


def test_each_chunk_may_take_its_time() -> None:
    clock = Clock()
    stage = Code2wav(StageConfig({"chunk_delay_ms": 300}), clock)
    stage.open("a", SPEECH)
    stage.push("a", StageMessage(codes=spell("x" * 11 * 10), eos=True))
    times = []
    while (pause := stage.wait()) is not None:
        assert not stage.step()
        clock.now += pause
        times += [clock.now] * len(stage.step())
    assert times == pytest.approx([100.3, 100.6, 100.9, 101.2])
    stage.open("b", Settings(speech=True, stage={"code2wav": {"chunk_delay_ms": 0}}))
    stage.push("b", StageMessage(codes=spell("x")))
    assert stage.wait() == 0


def test_first_chunks_go_first_and_then_who_waited_longest() -> None:
    stage = Code2wav(StageConfig({"frames_per_step": 3, "max_chunk_frames": 2}))
    codes = spell("x" * 11 * 9)
    for name in "ab":
        stage.open(name, SPEECH)
        stage.push(name, StageMessage(codes=codes))

    def step() -> list[str]:
        return [name for name, _ in stage.step()]

    assert step() == ["a", "b"]
    assert step() == ["a", "b"]
    stage.open("new", SPEECH)
    stage.push("new", StageMessage(codes=codes))
    assert step() == ["new", "a"]
    assert step() == ["b", "new"]
    assert step() == ["a", "b"]


@pytest.mark.parametrize(
    "codes", [np.zeros((1, 3), np.int32), np.full((1, GROUPS), 256, np.int32), np.full((2, GROUPS), -1, np.int32)]
)
def test_impossible_codes_fail_their_generation_alone(codes: np.ndarray) -> None:
    with Drive("code2wav") as drive:
        drive.open("good", SPEECH)
        drive.open("bad", SPEECH)
        drive.push("good", StageMessage(codes=spell("fine")))
        with pytest.raises(StageFailed):
            drive.push("bad", StageMessage(codes=codes))
        del drive.said["bad"]
        drive.push("good", END)
        assert decode(pcm_of(drive.finish()["good"])) == "fine"
        assert len(drive.stage) == 0  # type: ignore[arg-type]


@pytest.mark.parametrize("stage", ["talker", "code2wav"])
def test_bounds_and_aborts(stage: str) -> None:
    with Drive(stage, max_generations=1, max_queue=1) as drive:
        drive.open("a", SPEECH)
        drive.open("b", SPEECH)
        with pytest.raises(Overloaded):
            drive.open("c", SPEECH)
        for name in "ab":
            drive.push(name, StageMessage(text=TextDelta("long enough to speak"), codes=spell(name)))
        assert {name for name, _ in drive.step()} == {"a"}
        drive.abort("a")
        drive.abort("unknown")
        drive.push("a", END)
        assert {name for name, _ in drive.step()} <= {"b"}
        drive.abort("b")
        assert len(drive.stage) == 0  # type: ignore[arg-type]
        assert (drive.stage.wait(), list(drive.stage.step())) == (None, [])


texts = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), max_size=4)


@given(st.lists(texts, min_size=1, max_size=4), st.integers(0, 1 << 32))
def test_any_interleaving_of_generations_says_every_text(answers: list[list[str]], seed: int) -> None:
    """Pushes and steps of both stages in any order; each generation's sound is its text, whatever the others do."""
    random = Random(seed)
    with Drive("talker") as talker, Drive("code2wav", max_chunk_frames=3, frames_per_step=4) as code2wav:
        waiting = {str(number): [*say(*pieces), END] for number, pieces in enumerate(answers)}
        passed = dict.fromkeys(waiting, 0)
        for name in waiting:
            talker.open(name, SPEECH)
            code2wav.open(name, SPEECH)
        while any(not said or not said[-1].eos for said in code2wav.said.values()):
            action = random.choice(["talk", "wave", *(name for name in waiting if waiting[name])])
            if action == "talk":
                talker.step()
            elif action == "wave":
                for name, said in talker.said.items():
                    code2wav.push(name, *said[passed[name] :])
                    passed[name] = len(said)
                code2wav.step()
            else:
                talker.push(action, waiting[action].pop(0))
        for number, pieces in enumerate(answers):
            assert decode(pcm_of(code2wav.said[str(number)])) == "".join(pieces)
