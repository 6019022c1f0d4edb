"""Prompts that begin as an earlier one did: the same answer, and only the rest is computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from support.qwen3_omni import Reference, audio, image, job, video
from support.thinking import Thinking

from frontend.protocol.pcm import wav
from omni.contract.errors import MediaMissing, Overloaded
from omni.contract.job import Job, MediaPart

pytestmark = pytest.mark.fidelity
Make = Callable[..., Thinking]
RULES: dict[str, Any] = {"speech": True, "max_tokens": 10}


class Counted:
    """A thinker and what a job costs it."""

    def __init__(self, thinking: Thinking) -> None:
        self.thinking = thinking

    def run(self, job: Job) -> tuple[str, int]:
        """The job's id and the prompt tokens that were computed for it."""
        before = self.thinking.stage.computed_tokens
        id = self.thinking.run(job)
        computed = self.thinking.stage.computed_tokens - before
        event = self.thinking.event(id)
        assert computed == event["prompt_tokens"] - event["cached_tokens"]
        return id, computed


def same_as_cold(warm: Thinking, id: str, cold: Thinking, asked: Job) -> None:
    """The same tokens, and for the talker the same states."""
    fresh = cold.run(asked)
    assert cold.event(fresh)["cached_tokens"] == 0
    assert warm.ids(id) == cold.ids(fresh)
    ours, theirs = warm.talker(id), cold.talker(fresh)
    assert ours.user_ids.tolist() == theirs.user_ids.tolist()
    assert ours.hidden.shape == theirs.hidden.shape
    torch.testing.assert_close(ours.hidden, theirs.hidden, rtol=0, atol=1e-5)


def test_a_growing_session_computes_only_what_is_new(thinking: Make, reference: Reference) -> None:
    # An answer that reads back as the same tokens.
    letter = reference.processor.tokenizer.encode("a")[0]
    warm = Counted(thinking(max_prefill_tokens=16, encoder_cache_bytes=0))
    parts = (image(1), video(2, 6), "What is it?")
    first, computed = warm.run(job(*parts, logit_bias={letter: 100.0}, **RULES))
    assert warm.thinking.text(first) == "a" * 10
    prompt = computed
    encoded = warm.thinking.stage.encoded_media
    again = job("And now?", history=(("user", parts), ("assistant", ("a" * 10,))), **RULES)
    second, computed = warm.run(again)
    assert warm.thinking.event(second)["cached_tokens"] == prompt + 10 - 1
    assert computed < 25
    assert warm.thinking.stage.encoded_media == encoded
    same_as_cold(warm.thinking, second, thinking(), again)
    assert warm.thinking.ids(second) == reference.think(again, max_new_tokens=10)


def test_another_session_shares_the_system_prompt(thinking: Make, reference: Reference) -> None:
    warm = Counted(thinking())
    system = "You are a helpful assistant. The answer is yes."
    warm.run(job("Hello", system=system, **RULES))
    asked = job(image(5), "What is in the image?", system=system, **RULES)
    id, _ = warm.run(asked)
    assert warm.thinking.event(id)["cached_tokens"] >= 10
    same_as_cold(warm.thinking, id, thinking(), asked)
    assert warm.thinking.ids(id) == reference.think(asked, max_new_tokens=10)


def test_a_running_generation_shares_its_prompt(thinking: Make) -> None:
    warm = thinking()
    first = warm.start(job(image(5), "Hello", **{**RULES, "max_tokens": 30, "ignore_eos": True}))
    while not warm.ids(first):
        warm.step()
    asked = job(image(5), "Hello, who are you?", **RULES)
    second = warm.start(asked)
    warm.step()
    assert not warm.ended(first)
    warm.finish()
    assert warm.event(second)["cached_tokens"] > 10
    same_as_cold(warm, second, thinking(), asked)


def test_another_picture_in_the_same_place_is_not_taken_for_it(thinking: Make) -> None:
    warm = Counted(thinking())
    warm.run(job(image(1), "What is it?", **RULES))
    asked = job(image(2), "What is it?", **RULES)
    id, _ = warm.run(asked)
    assert 0 < warm.thinking.event(id)["cached_tokens"] < 20
    same_as_cold(warm.thinking, id, thinking(), asked)


@pytest.mark.parametrize(
    "parts", [(audio(1, 3.0), "What?"), (video(1, sound=4.0), "What?"), (image(3), audio(1), video(1, 5), "What?")]
)
def test_the_same_question_again_computes_one_token(thinking: Make, parts: tuple[Any, ...]) -> None:
    warm = Counted(thinking(max_prefill_tokens=16))
    asked = job(*parts, use_audio=True, **RULES)
    warm.run(asked)
    again = job(*parts, use_audio=True, **RULES)
    id, computed = warm.run(again)
    assert computed == 1
    assert warm.thinking.usage(id).cached_tokens == warm.thinking.usage(id).prompt_tokens - 1
    same_as_cold(warm.thinking, id, thinking(), again)


def test_a_clip_heard_with_sound_is_not_the_clip_without(thinking: Make) -> None:
    warm = Counted(thinking())
    clip = video(1, sound=4.0)
    warm.run(job(clip, "What?", **RULES))
    asked = job(clip, "What?", use_audio=True, **RULES)
    id, computed = warm.run(asked)
    assert computed > 50
    same_as_cold(warm.thinking, id, thinking(), asked)


def test_a_session_goes_on_after_a_clip_with_sound(thinking: Make, reference: Reference) -> None:
    # Positions go on from the sound at the end of such a clip, but those of an answer from the largest of all, here
    # the lowest row of a tall picture. In the next turn the answer stands elsewhere: its state mustn't be reused.
    letter = reference.processor.tokenizer.encode("a")[0]
    warm = Counted(thinking())
    parts = (video(1, 2, height=1280, width=32, sound=0.5), "What?")
    first, prompt = warm.run(job(*parts, use_audio=True, logit_bias={letter: 100.0}, **RULES))
    assert warm.thinking.text(first) == "a" * 10
    history = (("user", parts), ("assistant", ("a" * 10,)))
    asked = job("And now?", history=history, use_audio=True, **RULES)
    id, _ = warm.run(asked)
    assert warm.thinking.event(id)["cached_tokens"] == prompt
    same_as_cold(warm.thinking, id, thinking(), asked)
    assert warm.thinking.ids(id) == reference.think(asked, max_new_tokens=10)


def test_a_prefill_job_warms_the_query_that_follows(thinking: Make) -> None:
    warm = Counted(thinking(max_prefill_tokens=16, encoder_cache_bytes=0))
    frames = tuple(image(n) for n in range(4))
    id, _ = warm.run(job(*frames, prefill=True))
    (only,) = warm.thinking.said[id]
    assert only.eos
    assert only.event is not None
    assert only.event["type"] == "prefilled"
    assert only.text is None
    _, computed = warm.run(job(*frames, image(4), prefill=True))
    assert computed < 25
    encoded = warm.thinking.stage.encoded_media
    asked = job(*frames, image(4), "What?", **RULES)
    id, computed = warm.run(asked)
    assert computed < 15
    assert warm.thinking.stage.encoded_media == encoded == 5
    same_as_cold(warm.thinking, id, thinking(), asked)


def test_what_is_held_needs_only_its_name(thinking: Make) -> None:
    warm = thinking(max_prefill_tokens=16)
    parts = (*(image(n) for n in range(3)), audio(5), video(6, sound=2.0))
    named = tuple(part.by_digest(read=True) for part in parts)
    warm.run(job(*parts, prefill=True, use_audio=True))
    encoded = warm.stage.encoded_media
    # With the beginning, and behind another one with the features alone.
    for history in ((), (("user", ("Hello",)), ("assistant", ("Hello, how are you?",)))):
        id = warm.run(job(*named, "What?", history=history, use_audio=True, **RULES))
        same_as_cold(warm, id, thinking(), job(*parts, "What?", history=history, use_audio=True, **RULES))
    assert warm.stage.encoded_media == encoded


@pytest.mark.parametrize("prefill", [True, False])
def test_what_is_held_no_longer_is_missing_and_nothing_else_is_lost(thinking: Make, prefill: bool) -> None:
    parts = tuple(image(n) for n in range(6))
    one = thinking()
    one.run(job(parts[0], prefill=True))
    room = 3 * one.stage._model.encoders._features.bytes
    warm = Counted(thinking(max_prefill_tokens=16, encoder_cache_bytes=room))
    warm.run(job(*parts, prefill=True))
    # Of the six, behind another beginning, only the last three still have features.
    history = (("user", ("Hello",)),)
    order = (*parts[3:], *parts[:3])
    named = tuple(part.by_digest(read=True) for part in order)
    settings = {"prefill": True} if prefill else RULES
    failed = warm.thinking.run(job(*named, "What?", history=history, **settings))
    assert [type(m.error) for m in warm.thinking.said[failed] if m.eos] == [MediaMissing]
    assert len(warm.thinking.stage) == 0
    again = job(*order, "What?", history=history, **settings)
    id, computed = warm.run(again)
    assert computed < warm.thinking.event(id)["prompt_tokens"] - 16
    if not prefill:
        same_as_cold(warm.thinking, id, thinking(), again)


def test_a_prefill_job_waits_for_queries_and_needs_no_slot(thinking: Make) -> None:
    busy = thinking(max_generations=1, max_prefill_tokens=16)
    query = busy.start(job("Hello" * 10, **{**RULES, "max_tokens": 4, "ignore_eos": True}))
    job_id = busy.start(job(image(1), "word " * 60, prefill=True))
    waiting = busy.start(job("Hello" * 10, **{**RULES, "max_tokens": 4, "ignore_eos": True}))
    while not busy.ended(waiting):
        computed = busy.stage.computed_tokens
        busy.step()
        assert not busy.said[job_id]
        if busy.said[query] and not busy.ended(query):
            # It answers, and another query waits for its slot.
            assert busy.stage.computed_tokens - computed <= 16
    busy.finish()
    assert busy.said[job_id][0].event is not None


def test_a_prefill_job_gives_way_when_a_query_needs_its_memory(thinking: Make) -> None:
    small = thinking(kv_tokens=320, max_prefill_tokens=16)
    background = small.start(job("word " * 50, prefill=True))
    small.step()
    small.step()
    asked = job("Hello", **{**RULES, "max_tokens": 150, "ignore_eos": True})
    query = small.start(asked)
    small.step()
    small.step()
    assert small.ids(query)
    small.finish()
    event = small.said[background][-1].event
    assert event is not None
    assert event["cached_tokens"] == 0
    cold = thinking()
    assert small.ids(query) == cold.ids(cold.run(asked))


def test_prefill_jobs_have_their_own_queue(thinking: Make) -> None:
    stage = thinking(max_prefills=1, max_generations=1, max_queue=0)
    stage.start(job("a", prefill=True))
    with pytest.raises(Overloaded):
        stage.start(job("b", prefill=True))
    stage.start(job("c", max_tokens=2))
    stage.finish()


def test_an_aborted_prefill_job_frees_its_memory(thinking: Make) -> None:
    stage = thinking(max_prefill_tokens=8)
    id = stage.start(job("word " * 40, prefill=True))
    stage.step()
    assert stage.stage.kv_blocks[0]
    stage.abort(id)
    assert stage.stage.kv_blocks[0] == 0
    assert stage.stage.wait() is None


def test_what_was_used_longest_ago_is_forgotten_first(thinking: Make) -> None:
    small = Counted(thinking(kv_tokens=320, max_prefill_tokens=64))
    for n in range(12):
        asked = job(image(n), f"Question {n} is this", **RULES)
        id, _ = small.run(asked)
        used, most = small.thinking.stage.kv_blocks
        assert used <= most
        if n in (0, 11):
            same_as_cold(small.thinking, id, thinking(), asked)
    _, recent = small.run(job(image(11), "Question 11 is this", **RULES))
    assert recent == 1
    _, old = small.run(job(image(0), "Question 0 is this", **RULES))
    assert old > 10


def _spoken(seconds: float, loud_at: float) -> Callable[[float], MediaPart]:
    """A sound of tones over noise that is loudest at one moment, and a function that gives its beginning."""
    random = np.random.default_rng(5)
    t = np.arange(int(seconds * 16_000)) / 16_000
    volume = np.where(np.abs(t - loud_at) < 0.5, 0.6, 0.2)
    sound = volume * np.sin(2 * np.pi * (200 + 50 * np.sin(t)) * t) + 1e-4 * random.standard_normal(t.size)
    pcm = (sound * 32767).astype("<i2").tobytes()
    return lambda until: MediaPart.of("audio", wav(pcm[: int(until * 16_000) * 2], 16_000), "spoken")


def test_a_sound_that_goes_on_computes_only_its_last_block(thinking: Make, reference: Reference) -> None:
    warm = Counted(thinking(max_prefill_tokens=64))
    heard = _spoken(18.0, loud_at=2.0)
    _, first = warm.run(job(heard(8.02), prefill=True))
    assert first > 104
    encoded = warm.thinking.stage.encoded_media
    _, second = warm.run(job(heard(16.02), prefill=True))
    assert 104 <= second < 120
    assert warm.thinking.stage.encoded_media == encoded + 2  # the second block, and what there is of the third
    asked = job(heard(18.0), "What?", **RULES)
    id, computed = warm.run(asked)
    assert warm.thinking.event(id)["cached_tokens"] > 208
    assert computed < 26 + 20
    assert warm.thinking.talker(id).audio_feature_lengths.tolist() == [1800]
    same_as_cold(warm.thinking, id, thinking(), asked)
    assert warm.thinking.ids(id) == reference.think(asked, max_new_tokens=10)


def test_a_sound_that_gets_louder_is_computed_anew(thinking: Make, reference: Reference) -> None:
    warm = Counted(thinking(max_prefill_tokens=64))
    heard = _spoken(12.0, loud_at=10.0)
    warm.run(job(heard(8.02), prefill=True))
    asked = job(heard(12.0), "What?", **RULES)
    id, computed = warm.run(asked)
    assert computed > 104
    same_as_cold(warm.thinking, id, thinking(), asked)
    assert warm.thinking.ids(id) == reference.think(asked, max_new_tokens=10)
