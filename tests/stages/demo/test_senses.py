"""What preprocess hears and sees, and the prompt that it makes of it."""

# ruff: noqa: E402  (what needs the models is imported after asking for them)
from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.demo import need_demo, packaged, photograph, wav, word_errors

from omni.contract.errors import InvalidMedia, InvalidRequest, MediaMissing, Overloaded
from omni.contract.job import MediaPart, TextPart, VideoOptions
from omni.contract.params import Settings
from omni.contract.tensors import StageMessage
from omni.stages.drive import Drive

need_demo()

from omni.stages.demo import prompt
from omni.stages.demo.hearing import pieces
from omni.stages.demo.people import distinct
from omni.stages.demo.preprocess import changes
from omni.stages.demo.seeing import Seeing, name

pytestmark = pytest.mark.process
BECKETT = "Ever tried. Ever failed. No matter. Try again. Fail again. Fail better."


@pytest.fixture(scope="module")
def drive() -> Iterator[Drive]:
    with Drive("preprocess", "demo", max_queue=3) as drive:
        yield drive


def meta(said: list[StageMessage]) -> dict[str, Any]:
    (message,) = said
    assert message.eos
    assert message.handover is not None, message.error
    return message.handover.meta


def told(said: list[StageMessage]) -> str:
    """The last message of the prompt."""
    text: str = meta(said)["prompt"]
    assert text.startswith(prompt.PREFIX)
    return text.removesuffix("<|im_end|>\n<|im_start|>assistant\n").rpartition("<|im_start|>")[2]


def beckett() -> MediaPart:
    return MediaPart.of("audio", packaged("moonshine_voice", "assets/beckett.wav"), "sound")


def cat(at_ms: float | None = None) -> MediaPart:
    return MediaPart.of("image", photograph("chelsea.png"), "cat", at_ms)


def coffee(at_ms: float | None = None) -> MediaPart:
    return MediaPart.of("image", photograph("coffee.png"), "coffee", at_ms)


def test_speech_becomes_the_users_words(drive: Drive, job: Callable[..., StageMessage]) -> None:
    text = told(drive.run([job([beckett()])]))
    assert text.startswith("user\n")
    assert word_errors(BECKETT, text.removeprefix("user\n")) < 0.15


def test_a_long_recording_is_heard_in_pieces(drive: Drive, job: Callable[..., StageMessage]) -> None:
    sound = MediaPart.of("audio", packaged("moonshine_voice", "assets/two_cities.wav"))
    text = told(drive.run([job([sound])])).lower()
    for words in ("best of times", "age of foolishness", "winter of despair", "superlative degree"):
        assert words in text


def test_what_is_no_speech_is_not_heard_as_words(drive: Drive, job: Callable[..., StageMessage]) -> None:
    noise = (np.random.default_rng(0).standard_normal(48_000) * 3000).astype(np.int16)
    assert told(drive.run([job([MediaPart.of("audio", wav(noise))])])) == f"user\n{prompt.NO_SPEECH}"


def test_a_request_to_transcribe_is_answered_by_the_recogniser(drive: Drive, job: Callable[..., StageMessage]) -> None:
    asked = "Transcribe the speech word for word. Write nothing else."
    assert word_errors(BECKETT, meta(drive.run([job([beckett(), asked])]))["answer"]) < 0.15
    assert "answer" not in meta(drive.run([job([beckett(), "What is this?"])]))
    assert "answer" not in meta(drive.run([job(["Transcribe this."])]))


@pytest.mark.parametrize(
    ("name", "thing"), [("chelsea.png", " cat"), ("coffee.png", "espresso"), ("camera.png", "tripod")]
)
def test_the_main_thing_of_a_picture_is_named(
    drive: Drive, job: Callable[..., StageMessage], name: str, thing: str
) -> None:
    text = told(drive.run([job([MediaPart.of("image", photograph(name)), "What is it?"])]))
    assert text.startswith("user\nThe picture shows ")
    assert thing in text
    assert text.endswith(". What is it?")


def test_people_are_found_by_their_faces() -> None:
    face = Image.open(io.BytesIO(photograph("astronaut.png"))).convert("RGB").crop((120, 0, 320, 200))
    several = Image.new("RGB", (400, 200))
    several.paste(face, (0, 0))
    several.paste(face, (200, 0))
    seeing = Seeing()
    shown = {"alone": face, "several": several, "cat": Image.open(io.BytesIO(photograph("chelsea.png"))).convert("RGB")}
    things = {name: seeing.things(np.asarray(picture)) for name, picture in shown.items()}
    assert things["alone"][0] == "person"
    assert things["several"][0] == "group of people"
    assert "person" not in things["cat"]


def test_boxes_around_one_thing_count_once() -> None:
    boxes = np.array([[0, 0, 2, 2], [0, 0, 2, 1.8], [5, 5, 7, 7], [1.9, 1.9, 4, 4]], np.float32)
    assert distinct(boxes, np.array([1, 2, 3, 4], np.float32)) == 3
    assert distinct(boxes[:0], np.empty(0, np.float32)) == 0


def test_what_is_not_sure_is_named_only_if_nothing_else_is() -> None:
    chances = np.array([0.1, 0.15, 0.05], np.float32)
    assert name(chances, "abc", "xyz") == ["b"]
    assert name(chances, "abc", "xyz", least=0) == []


def test_a_picture_without_a_question_gets_one(drive: Drive, job: Callable[..., StageMessage]) -> None:
    assert told(drive.run([job([cat()])])).endswith(prompt.ASK)
    assert not told(drive.run([job([cat()], settings=Settings(prefill=True))])).endswith(prompt.ASK)


def test_pictures_of_a_timeline_are_a_clip(drive: Drive, job: Callable[..., StageMessage]) -> None:
    text = told(drive.run([job([cat(0), cat(500), coffee(1000), "What happens?"])]))
    shown, _, rest = text.partition(", then ")
    assert shown.startswith("user\nThe video shows a")
    assert shown.endswith(" cat")
    assert "espresso" in rest
    assert rest.endswith(". What happens?")


def test_a_clip_is_told_by_what_changes_in_it(
    drive: Drive, job: Callable[..., StageMessage], clip: Callable[..., bytes]
) -> None:
    part = MediaPart.of("video", clip(size=(224, 224), sound=1.0))
    assert told(drive.run([job([part])])).startswith("user\nThe video shows a")
    heard = told(drive.run([job([part], video=VideoOptions(use_audio=True))]))
    assert prompt.NO_SPEECH in heard


def test_what_was_perceived_is_remembered(drive: Drive, job: Callable[..., StageMessage]) -> None:
    first = told(drive.run([job([coffee(), beckett(), "So?"])]))
    assert told(drive.run([job([coffee().by_digest(), beckett().by_digest(), "So?"])])) == first
    (lost,) = drive.run([job([MediaPart("image", None, "0" * 64)])])
    assert isinstance(lost.error, MediaMissing)
    assert lost.error.param == "0" * 64


def test_a_broken_part_is_named(drive: Drive, job: Callable[..., StageMessage]) -> None:
    (message,) = drive.run([job([MediaPart.of("image", b"no picture", "messages.0.content.0.image_url")])])
    assert isinstance(message.error, InvalidMedia)
    assert message.error.param == "messages.0.content.0.image_url"
    assert message.eos


def test_text_waits_for_no_model(drive: Drive, job: Callable[..., StageMessage]) -> None:
    drive.open("slow")
    drive.push("slow", job([MediaPart.of("audio", packaged("moonshine_voice", "assets/two_cities.wav") + b"\0")]))
    drive.open("quick")
    drive.push("quick", job(["Hello"]))
    assert [generation for generation, _ in drive.step()] == ["quick"]
    drive.abort("slow")
    assert len(drive.stage) == 0  # type: ignore[arg-type]
    drive.said.clear()


def test_too_many_jobs_are_refused(drive: Drive) -> None:
    for n in range(3):
        drive.open(str(n))
    with pytest.raises(Overloaded):
        drive.open("more")
    with pytest.raises(InvalidRequest):
        drive.push("0", StageMessage(eos=True))
    for n in range(3):
        drive.abort(str(n))
    assert len(drive.stage) == 0  # type: ignore[arg-type]


def test_a_lone_surrogate_is_replaced(drive: Drive, job: Callable[..., StageMessage]) -> None:
    assert told(drive.run([job([TextPart("a\ud800b")])])) == "user\na?b"


@pytest.mark.parametrize(
    ("speech", "cut"),
    [
        ("." * 50, []),
        ("." * 20 + "ss" + "." * 20, []),
        ("." * 20 + "s" * 30 + "." * 20, [(12, 58)]),
        ("s" * 30 + "." * 40 + "s" * 30, [(0, 100)]),
        ("s" * 300 + "." * 40 + "s" * 300, [(0, 308), (332, 640)]),
        ("s" * 1000, [(0, 468), (468, 936), (936, 1000)]),
    ],
)
def test_a_recording_is_cut_at_its_pauses(speech: str, cut: list[tuple[int, int]]) -> None:
    assert pieces(np.array([letter == "s" for letter in speech])) == cut


def test_scenes_that_stay_the_same_are_one() -> None:
    assert changes(["a", "a", "b", "a", "a"]) == ["a", "b", "a"]
    assert changes("abcdefgh") == list("cdefgh")
