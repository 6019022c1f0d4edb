from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omni.contract.chunk import TextDelta, Usage
from omni.contract.errors import Overloaded, StageFailed
from omni.contract.handover import Handover
from omni.contract.params import SamplingParams, Settings
from omni.contract.stage import StageConfig
from omni.contract.tensors import StageMessage, pack, unpack
from omni.stages.drive import Drive
from omni.stages.dummy.describe import OPENINGS, decibel
from omni.stages.dummy.thinker import Thinker
from omni.stages.dummy.words import LONGEST, token_id, words

pytestmark = pytest.mark.pure

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=120)


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value, "tokens": len(words(value))}


def prompt(*turns: Sequence[dict[str, Any]], system: str | None = None, **arrays: np.ndarray) -> StageMessage:
    messages = [{"role": "user", "parts": list(turn)} for turn in turns]
    if system is not None:
        messages.insert(0, {"role": "system", "parts": [text(system)]})
    return of(messages, **arrays)


def of(messages: list[dict[str, Any]], **arrays: np.ndarray) -> StageMessage:
    tokens = sum(1 + sum(part["tokens"] for part in message["parts"]) for message in messages)
    meta = {"messages": messages, "prompt_tokens": tokens, "audio_tokens": 7, "priority": 0}
    return StageMessage(handover=Handover(meta, arrays), eos=True)


def asked(**sampling: Any) -> Settings:
    return Settings(sampling={"thinker": SamplingParams(**sampling)})


def deltas(said: list[StageMessage]) -> list[TextDelta]:
    return [message.text for message in said if message.text is not None]


def joined(said: list[StageMessage]) -> str:
    return "".join(delta.text for delta in deltas(said))


def ask(message: StageMessage, settings: Settings | None = None, **options: Any) -> list[StageMessage]:
    with Drive("thinker", **options) as drive:
        said = drive.run([message], settings or Settings())
        assert len(drive.stage) == 0  # type: ignore[arg-type]
        return said


def test_every_part_is_described_in_order() -> None:
    image = {"type": "image", "width": 640, "height": 480, "array": "image_0", "tokens": 64}
    audio = {"type": "audio", "seconds": 1.5, "rms": 10 ** (-12.3 / 20), "peak": 1.0, "tokens": 20}
    clip = {"type": "video", "width": 320, "height": 240, "frames": 12, "seconds": 2.0, "has_audio": False, "tokens": 9}
    colour = np.full((32, 24, 3), (255, 128, 64), np.uint8)
    parts = [text("look:"), image, audio, clip, {**clip, "has_audio": True}, text("what is\n it? ")]
    assert joined(ask(prompt(parts, image_0=colour))) == (
        "Received text: look:\nimage 640x480 #ff8040\naudio 1.50s -12.3dB\nvideo 320x240 12 frames 2.00s\n"
        "video 320x240 12 frames 2.00s with sound\ntext: what is\n it? "
    )


def test_turns_and_the_system_prompt() -> None:
    assert joined(ask(prompt([text("a")], [text("b")]))) == "Received turn 2: text: b"
    assert joined(ask(prompt([text("a")], system="be brief"))) == "Received system: be brief\ntext: a"
    assert joined(ask(prompt([]))) == "Received nothing"
    assert joined(ask(prompt([text("")]))) == "Received text: "
    assert joined(ask(of([{"role": "assistant", "parts": [text("b")]}]))) == "Received nothing"


def test_loudness() -> None:
    assert decibel(1.0) == 0
    assert decibel(0.0) == decibel(1e-9) == -99.9


@given(texts)
def test_the_text_comes_back_byte_for_byte(value: str) -> None:
    said = ask(prompt([text(value)]))
    assert joined(said) == f"Received text: {value}"
    assert all(delta.tokens == 1 for delta in deltas(said))


@given(texts)
def test_words_are_the_text(value: str) -> None:
    assert "".join(words(value)) == value
    assert all(0 <= token_id(word) < 1 << 31 and len(word.strip()) <= LONGEST for word in words(value))


def test_the_order_of_messages() -> None:
    speech = Settings(speech=True, stage={"talker": {"voice": "Aiden"}})
    said = [unpack(pack("thinker", message)) for message in ask(prompt([text("a b")]), speech)]
    assert said[0].event == {"type": "prompt", "prompt_tokens": 3, "cached_tokens": 0}
    assert said[0].handover == Handover({"voice": "Aiden"}, {})
    assert [d.text for d in deltas(said)] == ["Received", " text:", " a", " b"]
    assert np.concatenate([m.tokens for m in said[1:]]).tolist() == [
        token_id(word) for word in ("Received", " text:", " a", " b")
    ]
    assert [message.eos for message in said] == [False] * 4 + [True]
    last = said[-1].text
    assert last is not None
    assert (last.finish, last.usage) == ("stop", Usage(3, 4, 0, 7))
    assert all(delta.finish is None and delta.usage is None for delta in deltas(said)[:-1])


def test_without_speech_the_talker_is_told_nothing() -> None:
    assert all(message.handover is None and message.tokens is None for message in ask(prompt([text("a b")])))


@pytest.mark.parametrize("most", [1, 2, 3])
def test_max_tokens(most: int) -> None:
    said = ask(prompt([text("a b")]), asked(max_tokens=most))
    assert joined(said) == "".join(["Received", " text:", " a"][:most])
    assert (deltas(said)[-1].finish, deltas(said)[-1].usage) == ("length", Usage(3, most, 0, 7))


def test_the_last_word_may_be_the_last_token() -> None:
    assert deltas(ask(prompt([text("a b")]), asked(max_tokens=4)))[-1].finish == "stop"


def test_the_answer_ends_with_the_context() -> None:
    said = ask(prompt([text("a b c d e f")]), context_length=10)
    assert deltas(said)[-1].finish == "length"
    assert joined(said) == "Received text: a"


def test_the_profile_has_defaults() -> None:
    options = {"sampling": {"max_tokens": 2}}
    assert joined(ask(prompt([text("a b")]), **options)) == "Received text:"
    assert joined(ask(prompt([text("a b")]), asked(max_tokens=3), **options)) == "Received text: a"


def test_ignore_eos_and_min_tokens_go_on() -> None:
    said = ask(prompt([text("a b")]), asked(ignore_eos=True, max_tokens=9))
    assert joined(said) == "Received text: a b\nReceived text: a b\nReceived"
    assert deltas(said)[-1].finish == "length"
    said = ask(prompt([text("a b")]), asked(min_tokens=6))
    assert joined(said) == "Received text: a b\nReceived text:"
    assert deltas(said)[-1].finish == "stop"


@pytest.mark.parametrize(
    ("stop", "shown"),
    [
        (("beta",), "Received text: alpha "),
        (("a be",), "Received text: alph"),
        (("ta gam", "zzz"), "Received text: alpha be"),
        (("gamma delta epsilon",), "Received text: alpha beta "),
        (("gamma delta eta",), "Received text: alpha beta gamma delta epsilon"),
        (("R",), ""),
        (("epsilon",), "Received text: alpha beta gamma delta "),
        (("epsilonx",), "Received text: alpha beta gamma delta epsilon"),
    ],
)
def test_stop_strings(stop: tuple[str, ...], shown: str) -> None:
    value = "alpha beta gamma delta epsilon"
    said = ask(prompt([text(value)]), asked(stop=stop, logprobs=0))
    assert joined(said) == shown
    last = deltas(said)[-1]
    assert last.finish == "stop"
    assert last.usage is not None
    assert sum(delta.tokens for delta in deltas(said)) == last.usage.completion_tokens
    told = "".join(one["token"] for delta in deltas(said) for one in delta.logprobs)
    assert told.startswith(shown)
    assert shown == "" or len(told) - len(shown) < LONGEST


def test_a_stop_string_waits_for_min_tokens() -> None:
    said = ask(prompt([text("a b a b")]), asked(stop=(" a",), min_tokens=4))
    assert joined(said) == "Received text: a b"


def test_what_is_held_back_comes_at_the_limit() -> None:
    said = ask(prompt([text("a b c")]), asked(stop=(" a b c d",), max_tokens=4))
    assert joined(said) == "Received text: a b"
    assert deltas(said)[-1].finish == "length"


def test_seeds() -> None:
    def opening(**sampling: Any) -> str:
        return joined(ask(prompt([text("a")]), asked(**sampling))).split()[0]

    assert opening(seed=5, temperature=0.0) == opening(temperature=1.0) == OPENINGS[0]
    assert {opening(seed=seed, temperature=1.0) for seed in range(8)} == set(OPENINGS)
    assert opening(seed=-3, temperature=0.7) == opening(seed=-3, temperature=0.7)


def test_logprobs_have_their_shape() -> None:
    entries = [one for delta in deltas(ask(prompt([text("é b")]), asked(logprobs=2))) for one in delta.logprobs]
    assert [one["token"] for one in entries] == ["Received", " text:", " é", " b"]
    for one in entries:
        assert bytes(one["bytes"]).decode() == one["token"]
        assert one["logprob"] < 0
        assert len(one["top_logprobs"]) == 2
        assert one["top_logprobs"][0] == {key: one[key] for key in ("token", "logprob", "bytes")}
        assert one["top_logprobs"][1]["logprob"] < one["logprob"]
    assert all(not delta.logprobs for delta in deltas(ask(prompt([text("a")]))))
    entries = [one for delta in deltas(ask(prompt([text("a")]), asked(logprobs=0))) for one in delta.logprobs]
    assert [one["top_logprobs"] for one in entries] == [[]] * 3


def test_a_prefill_says_nothing_and_warms_the_prefix() -> None:
    with Drive("thinker") as drive:
        (said,) = drive.run([prompt([text("a b c")])], Settings(prefill=True))
        assert said == StageMessage(event={"type": "prefilled", "prompt_tokens": 4, "cached_tokens": 0}, eos=True)
        (said,) = drive.run([prompt([text("a b c"), text("d")])], Settings(prefill=True))
        assert said.event == {"type": "prefilled", "prompt_tokens": 5, "cached_tokens": 4}
        first = drive.run([prompt([text("a b c"), text("d"), text("e")])])
        assert first[0].event == {"type": "prompt", "prompt_tokens": 6, "cached_tokens": 5}
        assert deltas(first)[-1].usage == Usage(6, 9, 5, 7)
        other = drive.run([prompt([text("x b c"), text("d")])])
        assert other[0].event == {"type": "prompt", "prompt_tokens": 5, "cached_tokens": 1}


def test_the_answer_is_part_of_the_next_prefix() -> None:
    first = {"role": "user", "parts": [text("a b c")]}
    with Drive("thinker") as drive:
        answer = {"role": "assistant", "parts": [text(joined(drive.run([of([first])])))]}
        said = drive.run([of([first, answer, {"role": "user", "parts": [text("d")]}])])
        assert said[0].event == {"type": "prompt", "prompt_tokens": 12, "cached_tokens": 4 + 6}


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_pace() -> None:
    clock = Clock()
    stage = Thinker(StageConfig({"token_interval_ms": 50}), clock)
    stage.open("a", Settings())
    assert stage.wait() is None
    stage.push("a", prompt([text("a b c d")]))
    assert stage.wait() == 0
    times = []
    for _ in range(40):
        times += [clock.now] * sum(message.text is not None for _, message in stage.step())
        if (pause := stage.wait()) is None:
            break
        assert pause <= 0.05 + 1e-9
        assert not stage.step()
        clock.now += pause
    assert times == pytest.approx([100.0 + 0.05 * n for n in range(6)])


def test_a_request_sets_its_own_pace_and_a_late_step_does_not_make_a_burst() -> None:
    clock = Clock()
    stage = Thinker(StageConfig({"token_interval_ms": 0}), clock)
    stage.open("a", Settings(stage={"thinker": {"token_interval_ms": 1000}}))
    stage.push("a", prompt([text("a b c d e f")]))
    assert len(stage.step()) == 2
    assert stage.wait() == pytest.approx(1.0)
    clock.now += 10
    assert [len(stage.step()) for _ in range(3)] == [1, 1, 0]
    assert stage.wait() == pytest.approx(1.0)


def test_generations_take_turns_and_one_step_is_one_token() -> None:
    with Drive("thinker") as drive:
        for name in "abc":
            drive.open(name)
            drive.push(name, prompt([text(f"{name} {name}")]))
        drive.step()
        for _ in range(2):
            assert sorted(name for name, _ in drive.step()) == ["a", "b", "c"]
        drive.abort("b")
        drive.abort("unknown")
        assert len(drive.stage) == 2  # type: ignore[arg-type]
        assert {name: joined(said) for name, said in drive.finish().items()} == {
            "a": "Received text: a a",
            "c": "Received text: c c",
        }
        assert drive.stage.wait() is None


def test_more_generations_wait_and_then_are_refused() -> None:
    with Drive("thinker", max_generations=2, max_queue=2) as drive:
        for name in "abcd":
            drive.open(name)
            drive.push(name, prompt([text(name)]))
        with pytest.raises(Overloaded):
            drive.open("e")
        assert {name for name, _ in drive.step()} == {"a", "b"}
        assert {name: joined(said) for name, said in drive.finish().items()} == {
            name: f"Received text: {name}" for name in "abcd"
        }


def test_a_prompt_that_makes_no_sense_fails_its_generation_alone() -> None:
    with Drive("thinker") as drive:
        drive.open("bad")
        drive.push("bad", StageMessage(handover=Handover({"messages": [{}]}), eos=True))
        drive.open("good")
        drive.push("good", prompt([text("a")]))
        said = drive.finish()
        (failed,) = said["bad"]
        assert isinstance(failed.error, StageFailed)
        assert joined(said["good"]) == "Received text: a"
        assert len(drive.stage) == 0  # type: ignore[arg-type]
