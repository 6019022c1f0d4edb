"""The two halves of the voice: what they say is understood, and streamed it is what the whole is."""

# ruff: noqa: E402  (what needs the models is imported after asking for them)
from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import soxr
from support.demo import need_demo, word_errors

from omni.contract.chunk import TextDelta
from omni.contract.errors import Overloaded, StageFailed
from omni.contract.params import SamplingParams, Settings
from omni.contract.tensors import StageMessage, pack, unpack
from omni.stages.drive import Drive

need_demo()

from omni.stages.demo.code2wav import Head
from omni.stages.demo.frames import HOP
from omni.stages.demo.frames import unpack as frames_of
from omni.stages.demo.hearing import Hearing
from omni.stages.demo.models import packaged, session
from omni.stages.demo.talker import Voice
from omni.stages.media.limits import unchecked

pytestmark = pytest.mark.process
TEXT = "Good morning! The shop opens at nine, and it closes at seven in the evening. Would you like some coffee?"


@pytest.fixture(scope="module")
def talker() -> Iterator[Drive]:
    with Drive("talker", "demo", max_generations=2, max_queue=0) as drive:
        yield drive


@pytest.fixture(scope="module")
def code2wav() -> Iterator[Drive]:
    with Drive("code2wav", "demo", max_generations=2, max_queue=0) as drive:
        yield drive


def says(text: str, size: int = 5) -> list[StageMessage]:
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    return [*(StageMessage(text=TextDelta(piece, 1)) for piece in pieces), StageMessage(eos=True)]


def frames(said: list[StageMessage]) -> np.ndarray:
    return np.concatenate([message.codes for message in said if message.codes is not None])


def sound(said: list[StageMessage]) -> np.ndarray:
    return np.concatenate([message.audio for message in said if message.audio is not None])


def across(said: list[StageMessage]) -> list[StageMessage]:
    return [unpack(pack("talker", message)) for message in said]


def test_the_recogniser_understands_the_voice(talker: Drive, code2wav: Drive) -> None:
    samples = sound(code2wav.run(across(talker.run(says(TEXT)))))
    heard = Hearing().write_down(soxr.resample(samples / np.float32(32768), 24_000, 16_000), unchecked)
    assert word_errors(TEXT, heard) < 0.15
    assert 0.05 < np.abs(samples / 32768).max() < 1


def test_each_clause_is_spoken_when_it_is_known(talker: Drive) -> None:
    talker.open("one")
    talker.push("one", StageMessage(text=TextDelta("Good morning! The", 4)))
    ((_, first),) = talker.step()
    assert first.codes is not None
    assert talker.stage.wait() is None
    talker.push("one", StageMessage(text=TextDelta(" shop opens.", 3)), StageMessage(eos=True))
    assert len(talker.finish()["one"]) == 2
    talker.said.clear()


def test_streamed_speech_is_the_whole_speech(talker: Drive, code2wav: Drive) -> None:
    codes = frames(talker.run(says(TEXT)))
    whole = code2wav.run([StageMessage(codes=codes, eos=True)], Settings(stage={"code2wav": {"max_chunk_frames": 250}}))
    steps = [StageMessage(codes=codes[at : at + 7]) for at in range(0, len(codes), 7)]
    small = Settings(stage={"code2wav": {"max_chunk_frames": 3}})
    streamed = code2wav.run([*steps, StageMessage(eos=True)], small)
    assert len(sound(whole)) == len(codes) * HOP
    np.testing.assert_array_equal(sound(streamed), sound(whole))


def test_chunks_grow(code2wav: Drive, talker: Drive) -> None:
    said = code2wav.run(across(talker.run(says(TEXT))))
    sizes = [len(message.audio) for message in said if message.audio is not None]
    assert sizes[0] < sizes[1] < sizes[2]
    assert max(sizes) <= (80 + 4) * HOP  # the last chunk brings what was looked ahead


def test_the_same_text_is_the_same_sound(talker: Drive, code2wav: Drive) -> None:
    once, again = (sound(code2wav.run(across(talker.run(says(TEXT, size))))) for size in (5, 200))
    np.testing.assert_array_equal(once, again)


def test_two_speak_at_once_without_mixing(talker: Drive, code2wav: Drive) -> None:
    alone = [
        sound(code2wav.run([StageMessage(codes=frames(talker.run(says(t)))), StageMessage(eos=True)]))
        for t in (TEXT, "Yes.")
    ]
    for name, text in (("a", TEXT), ("b", "Yes.")):
        code2wav.open(name)
        code2wav.push(name, StageMessage(codes=frames(talker.run(says(text))), eos=True))
    said = code2wav.finish()
    np.testing.assert_array_equal(sound(said["a"]), alone[0])
    np.testing.assert_array_equal(sound(said["b"]), alone[1])
    code2wav.said.clear()


def test_both_halves_compute_what_the_whole_graph_does() -> None:
    voice = Voice()
    codes = voice.speak("The shop opens at nine.")
    assert codes is not None
    phonemes = voice._phonemes("The shop opens at nine.")
    ids = np.array([[0, *(voice._ids[p] for p in phonemes if p in voice._ids), 0]], np.int64)
    whole = session(packaged("hibari", "assets/hibari.onnx")).run(None, {"ids": ids, "speed": np.ones(1, np.float32)})
    parts = frames_of(codes)
    for ours, theirs in zip(Head()(parts), whole[:5], strict=True):
        np.testing.assert_array_equal(ours, theirs[0].T)
    np.testing.assert_array_equal(parts.pitch, whole[5][0])


@pytest.mark.parametrize("text", ["", "  \n", "😀", "…", "日本"])
def test_what_has_no_sound_ends_all_the_same(talker: Drive, code2wav: Drive, text: str) -> None:
    said = talker.run(says(text))
    assert said[-1].eos
    assert code2wav.run(across(said))[-1].eos


def test_most_frames(talker: Drive) -> None:
    said = talker.run(says(TEXT), Settings(sampling={"talker": SamplingParams(max_tokens=100)}))
    assert len(frames(said)) == 100
    assert said[-1].eos


@pytest.mark.parametrize("stage", ["talker", "code2wav"])
def test_too_many_are_refused_and_the_aborted_are_forgotten(talker: Drive, code2wav: Drive, stage: str) -> None:
    drive = talker if stage == "talker" else code2wav
    for name in ("a", "b"):
        drive.open(name)
    with pytest.raises(Overloaded):
        drive.open("c")
    for name in ("a", "b", "unknown"):
        drive.abort(name)
    assert len(drive.stage) == 0  # type: ignore[arg-type]
    assert drive.step() == []


def test_what_is_no_frame_fails_its_generation_alone(code2wav: Drive) -> None:
    code2wav.open("bad")
    with pytest.raises(StageFailed):
        code2wav.push("bad", StageMessage(codes=np.zeros((1, 16), np.int32)))
    assert len(code2wav.stage) == 0  # type: ignore[arg-type]
    code2wav.said.clear()
