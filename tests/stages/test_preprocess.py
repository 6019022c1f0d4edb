from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from omni.contract.chunk import KEPT
from omni.contract.errors import (
    ContextExceeded,
    InvalidMedia,
    InvalidRequest,
    MediaMissing,
    OmniError,
    Overloaded,
    StageFailed,
    TooLarge,
)
from omni.contract.handover import Handover
from omni.contract.job import PROBE_PRIORITY, MediaPart, VideoOptions
from omni.contract.params import SamplingParams, Settings
from omni.contract.tensors import StageMessage, pack, unpack
from omni.stages.drive import Drive
from omni.stages.dummy.perceive import Senses
from omni.stages.dummy.preprocess import Preprocess

pytestmark = pytest.mark.process

JobMaker = Callable[..., StageMessage]


def outcome(drive: Drive, message: StageMessage, generation: str = "g") -> StageMessage:
    drive.open(generation)
    drive.push(generation, message)
    (said,) = drive.finish().get(generation, [])
    del drive.said[generation]
    assert said.eos
    return said


def prompt(drive: Drive, message: StageMessage) -> Handover:
    said = outcome(drive, message)
    assert said.error is None
    handover = unpack(pack("preprocess", said)).handover
    assert handover is not None
    return handover


def failure(drive: Drive, message: StageMessage) -> OmniError:
    said = outcome(drive, message)
    assert said.error is not None
    return said.error


class Gate:
    """Holds every decoder until it is opened."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.order: list[str] = []

    def image(self, senses: Senses, data: bytes, param: str) -> Any:
        self.order.append(param)
        assert self.open.wait(30)
        return original(senses, data, param)


original = Senses.image


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    made = Gate()
    monkeypatch.setattr(Senses, "image", lambda self, data, param: made.image(self, data, param))
    yield made
    made.open.set()


def until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_parts_keep_their_order(
    job: JobMaker, picture: Callable[..., bytes], tone: Callable[..., bytes], clip: Callable[..., bytes]
) -> None:
    parts = [
        "look",
        MediaPart.of("image", picture(size=(640, 480)), "a"),
        MediaPart.of("audio", tone(1.5), "b"),
        "and",
        MediaPart.of("image", picture(colour=(0, 0, 255)), "c"),
        MediaPart.of("video", clip(sound=2.0), "d"),
    ]
    with Drive("preprocess") as drive:
        handover = prompt(drive, job(parts, system="be brief", video=VideoOptions(use_audio=True)))
        assert len(drive.stage) == 0  # type: ignore[arg-type]
    meta = handover.meta
    assert [message["role"] for message in meta["messages"]] == ["system", "user"]
    found = meta["messages"][1]["parts"]
    assert [one["type"] for one in found] == ["text", "image", "audio", "text", "image", "video"]
    assert [one.get("array") for one in found] == [None, "image_0", "audio_0", None, "image_1", "video_0"]
    assert (found[0]["text"], found[1]["width"], found[1]["height"]) == ("look", 640, 480)
    assert found[2]["seconds"] == pytest.approx(1.5)
    assert found[2]["rms"] == pytest.approx(0.5 / 2**0.5, rel=0.01)
    assert found[2]["peak"] == pytest.approx(0.5, rel=0.01)
    assert {key: found[5][key] for key in ("width", "height", "frames", "has_audio")} == {
        "width": 64,
        "height": 48,
        "frames": 4,
        "has_audio": True,
    }
    arrays = handover.arrays
    assert arrays["image_0"].shape == (32, 32, 3)
    assert arrays["image_1"].shape == (30, 32, 3)
    assert (arrays["image_0"] == (255, 128, 64)).all()
    assert (arrays["image_1"] == (0, 0, 255)).all()
    assert (arrays["audio_0"].dtype, arrays["audio_0"].shape) == (np.int16, (24_000,))
    assert arrays["video_0"].shape == (4, 3)
    assert meta["audio_tokens"] == 20 + found[5]["tokens"] - 4 * 16
    assert meta["prompt_tokens"] == 2 + sum(one["tokens"] for m in meta["messages"] for one in m["parts"])


def test_the_mean_colour_survives(job: JobMaker) -> None:
    from io import BytesIO

    from PIL import Image

    pixels = np.random.default_rng(0).integers(0, 256, (101, 333, 3)).astype(np.uint8)
    out = BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    with Drive("preprocess") as drive:
        handover = prompt(drive, job([MediaPart.of("image", out.getvalue())]))
    assert handover.arrays["image_0"].mean(axis=(0, 1)) == pytest.approx(pixels.mean(axis=(0, 1)), abs=0.6)


def test_long_sound_is_described_but_not_sent(job: JobMaker, tone: Callable[..., bytes]) -> None:
    with Drive("preprocess") as drive:
        handover = prompt(drive, job([MediaPart.of("audio", tone(31.0, 16_000))]))
    assert handover.arrays == {}
    assert handover.meta["messages"][0]["parts"][0]["seconds"] == pytest.approx(31.0)


def test_a_bad_part_is_named(job: JobMaker, picture: Callable[..., bytes], tone: Callable[..., bytes]) -> None:
    good = MediaPart.of("image", picture(), "good")
    with Drive("preprocess", limits={"image_pixels": 5000, "audio_seconds": 1}) as drive:
        for kind, data, error in (
            ("image", picture()[:50], InvalidMedia),
            ("audio", b"noise", InvalidMedia),
            ("video", picture(), InvalidMedia),
            ("image", picture(size=(100, 100)), TooLarge),
            ("audio", tone(2.0), TooLarge),
        ):
            bad = MediaPart.of(kind, data, "messages.0.content.1")  # type: ignore[arg-type]
            problem = failure(drive, job([good, bad]))
            assert (type(problem), problem.param) == (error, "messages.0.content.1")
        assert prompt(drive, job([good])).arrays


def test_a_digest_stands_for_its_bytes(job: JobMaker, image_part: Callable[..., MediaPart]) -> None:
    part = image_part()
    with Drive("preprocess") as drive:
        problem = failure(drive, job([part.by_digest()]))
        assert (type(problem), problem.param) == (MediaMissing, part.digest)
        first = prompt(drive, job([part]))
        again = prompt(drive, job([part.by_digest()]))
    assert first.meta == again.meta
    assert np.array_equal(first.arrays["image_0"], again.arrays["image_0"])


def test_a_session_is_told_at_once_that_its_bytes_are_held(
    job: JobMaker, image_part: Callable[..., MediaPart], gate: Gate
) -> None:
    part, session = image_part(), Settings(session="s")
    with Drive("preprocess", workers=1) as drive:
        for name in ("decoding", "waiting"):
            drive.open(name)
            drive.push(name, job([part], settings=session))
        drive.step()
        assert [said == [StageMessage(event=KEPT)] for said in drive.said.values()] == [True, True]
        drive.abort("decoding")
        gate.open.set()
        assert [message.handover is not None for message in drive.finish()["waiting"]] == [False, True]
        for nobody in (job([part]), job([part.by_digest()], settings=session), job(["text"], settings=session)):
            prompt(drive, nobody)  # with nothing said before it


def test_a_store_without_room_forgets(job: JobMaker, image_part: Callable[..., MediaPart]) -> None:
    part = image_part()
    with Drive("preprocess", store_bytes=0, cache_bytes=0) as drive:
        prompt(drive, job([part]))
        assert isinstance(failure(drive, job([part.by_digest()])), MediaMissing)


def test_the_same_part_is_decoded_once(
    job: JobMaker, image_part: Callable[..., MediaPart], gate: Gate, picture: Callable[..., bytes]
) -> None:
    gate.open.set()
    with Drive("preprocess") as drive:
        prompt(drive, job([image_part("a"), image_part("b")]))
        prompt(drive, job(["hello"], [image_part("c")]))
        assert gate.order == ["a"]
        prompt(drive, job([image_part("d", colour="red")]))
        assert gate.order == ["a", "d"]


def test_a_broken_part_is_not_remembered(job: JobMaker, picture: Callable[..., bytes]) -> None:
    with Drive("preprocess") as drive:
        for param in ("first", "second"):
            problem = failure(drive, job([MediaPart.of("image", picture()[:60], param)]))
            assert problem.param == param


def test_the_context_is_bounded(job: JobMaker) -> None:
    with Drive("preprocess", context_length=20) as drive:
        assert prompt(drive, job(["w " * 17])).meta["prompt_tokens"] == 19
        problem = failure(drive, job(["w " * 25]))
        assert isinstance(problem, ContextExceeded)
        assert problem.message == (
            "The prompt has 27 tokens, which is longer than the model's context length of 20 tokens."
        )
        asked = Settings(sampling={"thinker": SamplingParams(max_tokens=11)})
        assert prompt(drive, job(["a b c d e f g h"], settings=asked)).meta["prompt_tokens"] == 9
        problem = failure(drive, job(["a b c d e f g h i"], settings=asked))
        assert isinstance(problem, ContextExceeded)
        assert problem.message.startswith("Requested token count exceeds the model's context length: 10 ")
        assert "11" in problem.message
        assert "20" in problem.message


def test_a_full_queue_is_overloaded(job: JobMaker, image_part: Callable[..., MediaPart], gate: Gate) -> None:
    with Drive("preprocess", workers=1, max_queue=2) as drive:
        for name in "abc":
            drive.open(name)
            drive.push(name, job([image_part(name)]))
        with pytest.raises(Overloaded):
            drive.open("d")
        gate.open.set()
        assert all(said[-1].handover for said in drive.finish().values())
        drive.open("d")


def test_text_waits_for_no_decoder(job: JobMaker, image_part: Callable[..., MediaPart], gate: Gate) -> None:
    with Drive("preprocess", workers=1) as drive:
        drive.open("slow")
        drive.push("slow", job([image_part()]))
        assert drive.stage.wait() is None
        drive.open("fast")
        drive.push("fast", job(["hello"]))
        assert drive.stage.wait() == 0
        assert [name for name, _ in drive.step()] == ["fast"]
        gate.open.set()
        drive.finish()


def test_queries_go_before_prefills(job: JobMaker, image_part: Callable[..., MediaPart], gate: Gate) -> None:
    with Drive("preprocess", workers=1) as drive:
        for number, (name, priority) in enumerate((("a", 0), ("prefill", -1), ("b", 0), ("c", 0))):
            drive.open(name)
            drive.push(name, job([image_part(name, colour=(number, 0, 0))], priority=priority))
        gate.open.set()
        drive.finish()
        assert gate.order == ["a", "b", "c", "prefill"]


def test_a_probe_waits_for_nobody(job: JobMaker, image_part: Callable[..., MediaPart], gate: Gate) -> None:
    with Drive("preprocess", workers=1) as drive:
        for number, (name, priority) in enumerate((("a", 0), ("b", 0), ("probe", PROBE_PRIORITY))):
            drive.open(name)
            drive.push(name, job([image_part(name, colour=(number, 0, 0))], priority=priority))
        until(lambda: sorted(gate.order) == ["a", "probe"])
        gate.open.set()
        drive.finish()
        assert sorted(gate.order) == ["a", "b", "probe"]


def test_abort_forgets_at_once(job: JobMaker, image_part: Callable[..., MediaPart], gate: Gate) -> None:
    with Drive("preprocess", workers=1) as drive:
        for name in ("running", "waiting", "kept"):
            drive.open(name)
            drive.push(name, job([image_part(name)]))
        drive.open("only opened")
        until(lambda: gate.order == ["running"])
        for name in ("running", "waiting", "only opened", "unknown"):
            drive.abort(name)
        assert len(drive.stage) == 1  # type: ignore[arg-type]
        gate.open.set()
        assert list(drive.finish()) == ["kept"]
        assert len(drive.stage) == 0  # type: ignore[arg-type]
        assert drive.stage.wait() is None
        drive.open("running")
        drive.push("running", job([image_part("again")]))
        assert drive.finish()["running"][-1].handover


def test_a_dropped_decode_stops(job: JobMaker, tone: Callable[..., bytes]) -> None:
    with Drive("preprocess", workers=1) as drive:
        drive.open("long")
        drive.push("long", job([MediaPart.of("audio", tone(600.0, 8_000))]))
        drive.abort("long")
        drive.open("next")
        drive.push("next", job([MediaPart.of("audio", tone(0.1))]))
        assert drive.finish()["next"][-1].handover
        assert len(drive.stage.store.decoded) == 1  # type: ignore[attr-defined]


def test_a_surprise_is_a_stage_failure_without_its_text(
    job: JobMaker, image_part: Callable[..., MediaPart], monkeypatch: pytest.MonkeyPatch
) -> None:
    def surprise(*_: object) -> None:
        raise RuntimeError("/secret/path")

    monkeypatch.setattr(Senses, "media", surprise)
    with Drive("preprocess") as drive:
        problem = failure(drive, job([image_part()]))
    assert (type(problem), problem.stage) == (StageFailed, "preprocess")
    assert "secret" not in problem.message


def test_a_message_without_a_job_is_refused() -> None:
    with Drive("preprocess") as drive:
        drive.open("a")
        with pytest.raises(InvalidRequest):
            drive.push("a", StageMessage(eos=True))
        assert len(drive.stage) == 0  # type: ignore[arg-type]


def test_no_thread_is_left(job: JobMaker, image_part: Callable[..., MediaPart]) -> None:
    others = set(threading.enumerate())
    with Drive("preprocess") as drive:
        prompt(drive, job([image_part()]))
        assert isinstance(drive.stage, Preprocess)
        assert [thread for thread in set(threading.enumerate()) - others if thread.name.startswith("preprocess")]
    assert not [thread for thread in set(threading.enumerate()) - others if thread.name.startswith("preprocess")]
