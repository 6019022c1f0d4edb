# ruff: noqa: E402  (what needs the models is imported after asking for them)
from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from support.demo import need_demo

from omni.contract.chunk import TextDelta
from omni.contract.errors import ContextExceeded, Overloaded
from omni.contract.handover import Handover
from omni.contract.job import PROBE_PRIORITY
from omni.contract.params import SamplingParams, Settings
from omni.contract.tensors import StageMessage
from omni.stages.drive import Drive

need_demo()

from omni.stages.demo.language import Ended, Piece
from omni.stages.demo.prompt import render

pytestmark = pytest.mark.process
SLOTS = 2
CAPITAL = "What is the capital of France?"


@pytest.fixture(scope="module")
def drive() -> Iterator[Drive]:
    with Drive(
        "thinker", "demo", max_generations=SLOTS, max_queue=2, context_length=512, sampling={"max_tokens": 40}
    ) as drive:
        yield drive


def asking(*turns: str, **meta: Any) -> StageMessage:
    roles = ("user", "assistant")
    text = render([(roles[at % 2], turn) for at, turn in enumerate(turns)])
    return StageMessage(handover=Handover({"prompt": text, "priority": 0, **meta}), eos=True)


def settings(**sampling: Any) -> Settings:
    return Settings(sampling={"thinker": SamplingParams(**sampling)})


def deltas(said: list[StageMessage]) -> list[TextDelta]:
    return [message.text for message in said if message.text is not None]


def joined(said: list[StageMessage]) -> str:
    return joined_deltas(deltas(said))


def joined_deltas(said: list[TextDelta]) -> str:
    return "".join(delta.text for delta in said)


def event(said: list[StageMessage]) -> Any:
    (news,) = [message.event for message in said if message.event is not None]
    return news


def test_it_knows_the_capital_of_france(drive: Drive) -> None:
    said = drive.run([asking(CAPITAL)])
    assert "Paris" in joined(said)
    assert said[-1].eos
    last = deltas(said)[-1]
    assert last.finish == "stop"
    assert last.usage is not None
    assert last.usage.completion_tokens == sum(delta.tokens for delta in deltas(said))
    assert event(said) == {
        "type": "prompt",
        "prompt_tokens": last.usage.prompt_tokens,
        "cached_tokens": last.usage.cached_tokens,
    }


def test_text_comes_token_by_token(drive: Drive) -> None:
    assert len([delta for delta in deltas(drive.run([asking(CAPITAL)])) if delta.text]) > 4


def test_only_what_is_new_in_a_prompt_is_read(drive: Drive) -> None:
    first = drive.run([asking("Tell me something about the sea.")])
    cached, size = event(first)["cached_tokens"], event(first)["prompt_tokens"]
    assert cached > 80
    second = drive.run([asking("Tell me something about the sea.", joined(first), "And the sky?")])
    assert event(second)["cached_tokens"] >= size


def test_a_prefill_says_nothing_and_is_remembered(drive: Drive) -> None:
    said = drive.run([asking("A question about ships that nobody asked yet")], Settings(prefill=True))
    assert event(said)["type"] == "prefilled"
    assert not deltas(said)
    assert event(drive.run([asking("A question about ships that nobody asked yet")]))["cached_tokens"] > 105


def test_most_tokens(drive: Drive) -> None:
    said = drive.run([asking("Tell me a long story.")], settings(max_tokens=3))
    assert deltas(said)[-1].finish == "length"
    assert deltas(said)[-1].usage.completion_tokens == 3  # type: ignore[union-attr]


def test_a_stop_string_ends_the_answer_and_is_not_in_it(drive: Drive) -> None:
    whole = joined(drive.run([asking(CAPITAL)]))
    said = drive.run([asking(CAPITAL)], settings(stop=("Paris",)))
    assert joined(said) == whole[: whole.index("Paris")]
    assert deltas(said)[-1].finish == "stop"
    assert deltas(said)[-1].usage is not None


def test_a_seed_gives_the_same_answer_again(drive: Drive) -> None:
    def answer(seed: int) -> str:
        return joined(
            drive.run([asking("Write a line of a poem.")], settings(temperature=1.5, seed=seed, max_tokens=8))
        )

    first = answer(1)
    assert answer(1) == first
    assert {answer(2), answer(3)} != {first}


def test_log_probabilities(drive: Drive) -> None:
    said = deltas(drive.run([asking(CAPITAL)], settings(logprobs=2)))
    first = said[0].logprobs[0]
    assert first["logprob"] <= 0
    assert bytes(first["bytes"]).decode() == first["token"] == said[0].text
    assert first["top_logprobs"][0]["token"] == first["token"]
    assert len(first["top_logprobs"]) == 2


def test_several_are_answered_at_once_and_in_turn(drive: Drive) -> None:
    order: list[str] = []
    for name in ("a", "b"):
        drive.open(name, settings(max_tokens=12, ignore_eos=True))
        drive.push(name, asking(f"Count to twenty, {name}."))
    while len(drive.stage):  # type: ignore[arg-type]
        drive._woken.wait(1)
        drive._woken.clear()
        order += [generation for generation, message in drive.step() if message.text is not None]
    assert {"a", "b"} == set(order[2:8])
    drive.said.clear()


def test_a_probe_is_answered_while_all_places_are_taken(drive: Drive) -> None:
    for n in range(SLOTS + 1):
        drive.open(str(n), settings(max_tokens=200, ignore_eos=True))
        drive.push(str(n), asking(f"Count to a thousand, {n}."))
    drive.open("probe", settings(max_tokens=1))
    drive.push("probe", asking("ping", priority=PROBE_PRIORITY))
    while not (drive.said["probe"] and drive.said["probe"][-1].eos):
        drive._woken.wait(1)
        drive._woken.clear()
        drive.step()
    assert joined(drive.said["probe"])
    assert not any(said and said[-1].eos for name, said in drive.said.items() if name != "probe")
    for name in list(drive.said):
        drive.abort(name)


def test_what_is_aborted_stops_within_a_token(drive: Drive) -> None:
    drive.open("gone", settings(max_tokens=300, ignore_eos=True))
    drive.push("gone", asking("Tell me a long story."))
    while not any(message.text for message in drive.said["gone"]):
        drive._woken.wait(1)
        drive._woken.clear()
        drive.step()
    drive.abort("gone")
    assert len(drive.stage) == 0  # type: ignore[arg-type]
    left = drive.stage._news  # type: ignore[attr-defined]
    left.clear()
    time.sleep(1.0)
    assert len(left) <= 1  # the token that was under way
    assert drive.step() == []


def test_the_model_is_told_to_stop_by_its_listener(drive: Drive) -> None:
    language = drive.stage._language  # type: ignore[attr-defined]
    heard: list[Any] = []

    def hear(news: Any) -> bool:
        heard.append(news)
        return not isinstance(news, Piece)

    language.generate(render([("user", CAPITAL)]), SamplingParams(max_tokens=200, ignore_eos=True), hear)
    assert len([news for news in heard if isinstance(news, Piece)]) == 1
    assert not any(isinstance(news, Ended) for news in heard)


def test_a_prompt_that_is_too_long(drive: Drive) -> None:
    (message,) = drive.run([asking("word " * 600)])
    assert isinstance(message.error, ContextExceeded)
    assert message.error.param == "messages"
    (message,) = drive.run([asking(CAPITAL)], settings(max_tokens=500))
    assert isinstance(message.error, ContextExceeded)
    assert message.error.param == "max_tokens"


def test_what_preprocess_knows_is_said_as_it_is(drive: Drive) -> None:
    said = drive.run([asking("Transcribe this.", answer="Ever tried, ever failed.")])
    assert joined(said) == "Ever tried, ever failed."
    assert deltas(said)[-1].finish == "stop"


def test_speech_is_told_to_the_talker_once(drive: Drive) -> None:
    said = drive.run([asking(CAPITAL)], Settings(speech=True, stage={"talker": {"voice": "heart"}}))
    assert [message.handover.meta for message in said if message.handover is not None] == [{"voice": "heart"}]


def test_least_tokens(drive: Drive) -> None:
    whole = deltas(drive.run([asking(CAPITAL)]))
    short = sum(delta.tokens for delta in whole)
    said = deltas(drive.run([asking(CAPITAL)], settings(min_tokens=short + 6, stop=("Paris",))))
    assert joined_deltas(said).startswith(joined_deltas(whole))
    assert said[-1].usage is not None
    assert said[-1].usage.completion_tokens == sum(delta.tokens for delta in said) >= short + 6
    assert said[-1].usage.prompt_tokens == whole[-1].usage.prompt_tokens  # type: ignore[union-attr]
    same = deltas(drive.run([asking(CAPITAL)], settings(min_tokens=4, logprobs=0)))
    assert joined_deltas(same) == joined_deltas(whole)
    assert all(delta.logprobs for delta in same if delta.text)
    most = deltas(drive.run([asking(CAPITAL)], settings(min_tokens=12, max_tokens=12)))
    assert most[-1].finish == "length"
    assert most[-1].usage.completion_tokens == 12  # type: ignore[union-attr]


def test_too_many_are_refused(drive: Drive) -> None:
    for n in range(SLOTS + 2):
        drive.open(str(n))
    with pytest.raises(Overloaded):
        drive.open("more")
    for n in range(SLOTS + 2):
        drive.abort(str(n))
    assert len(drive.stage) == 0  # type: ignore[arg-type]
