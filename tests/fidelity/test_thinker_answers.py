"""How an answer ends and what is told of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.qwen3_omni import Reference, audio, image, job, video
from support.thinking import Thinking

from omni.contract.errors import ContextExceeded, OmniError, StageFailed
from omni.contract.handover import Handover
from omni.contract.tensors import StageMessage

pytestmark = pytest.mark.fidelity
Make = Callable[..., Thinking]


def forced(reference: Reference, text: str) -> list[int]:
    ids: list[int] = reference.processor.tokenizer.encode(text)
    return ids


def test_the_first_message_tells_of_the_prompt_and_the_last_of_what_was_used(thinking: Make) -> None:
    mine = thinking()
    id = mine.run(job(audio(1, 1.0), "Hello", max_tokens=3, ignore_eos=True))
    first, *texts = mine.said[id]
    assert first.event == {"type": "prompt", "prompt_tokens": mine.usage(id).prompt_tokens, "cached_tokens": 0}
    assert first.handover is None
    assert all(m.tokens is None for m in texts)
    assert mine.usage(id).audio_tokens == 13
    assert mine.usage(id).completion_tokens == sum(m.text.tokens for m in texts if m.text) == 3


@pytest.mark.parametrize("parts", [(image(1), audio(1), video(1), "?"), ("Hello",)])
def test_the_talker_gets_the_users_turns_and_the_states_of_their_media(
    thinking: Make, reference: Reference, parts: tuple[Any, ...]
) -> None:
    history = (("user", ("Hi",)), ("assistant", ("Hello",)))
    asked = job(*parts, history=history, speech=True, max_tokens=1)
    mine = thinking(max_prefill_tokens=16)
    told = mine.talker(mine.run(asked))
    inputs = reference.inputs(asked)
    config = reference.model.config
    ids = inputs["input_ids"][0]
    media = np.isin(ids.numpy(), [config.thinker_config.image_token_id, config.thinker_config.audio_token_id,
                                  config.thinker_config.video_token_id])  # fmt: skip
    expected = reference.hidden(asked)[media]
    assert told.hidden.shape == expected.shape
    np.testing.assert_allclose(told.hidden.numpy(), expected.numpy(), rtol=0, atol=1e-5)
    text = reference.processor.tokenizer.decode(told.user_ids.tolist())
    assert text.count("<|im_start|>user\n") == 2
    assert "assistant" not in text
    assert "system" not in text
    assert told.image_grid_thw.tolist() == inputs.get("image_grid_thw", np.empty((0, 3))).tolist()
    assert told.video_grid_thw.tolist() == inputs.get("video_grid_thw", np.empty((0, 3))).tolist()


def test_an_answer_of_one_end_token(thinking: Make, reference: Reference) -> None:
    mine = thinking()
    end = reference.eos
    id = mine.run(job("Hello", speech=True, logit_bias={end: 100.0}, max_tokens=5))
    assert mine.ids(id) == [end]
    assert (mine.text(id), mine.finished(id)) == ("", "stop")
    assert mine.said[id][-1].eos


def test_min_tokens_and_ignore_eos(thinking: Make, reference: Reference) -> None:
    end = reference.eos
    mine = thinking()
    id = mine.run(job("Hello", speech=True, logit_bias={end: 100.0}, min_tokens=3, max_tokens=6))
    assert mine.ids(id).index(end) == len(mine.ids(id)) - 1 == 3
    assert mine.finished(id) == "stop"
    id = mine.run(job("Hello", speech=True, logit_bias={end: 100.0}, ignore_eos=True, max_tokens=6))
    assert (mine.ids(id), mine.finished(id)) == ([end] * 6, "length")


def spelling(thinking: Make, reference: Reference, letters: str, **rules: Any) -> tuple[Thinking, str]:
    """An answer that says these letters in turn: each is the likeliest once, by presence penalty."""
    bias = {forced(reference, letter)[0]: 100.0 - n for n, letter in enumerate(letters)}
    mine = thinking()
    rules = {"speech": True, "presence_penalty": 2.0, "max_tokens": len(letters), **rules}
    # 2.0 is more than the step of 1 between two letters, and the model's own logits are far below.
    asked = job("Hello", logit_bias=bias, repetition_penalty=1.0, frequency_penalty=2.0, **rules)
    return mine, mine.run(asked)


def test_a_stop_string_is_neither_shown_nor_spoken(thinking: Make, reference: Reference) -> None:
    mine, id = spelling(thinking, reference, "xqzjk")
    whole = mine.text(id)
    assert len(whole) == 5
    mine, id = spelling(thinking, reference, "xqzjk", stop=(whole[1:3],))
    assert (mine.text(id), mine.finished(id)) == (whole[0], "stop")
    assert mine.usage(id).completion_tokens == 3
    assert reference.processor.tokenizer.decode(mine.ids(id)) == whole[0]
    for message in mine.said[id]:
        # What may become a stop string isn't told before it is known not to be one.
        assert message.text is None or message.text.text in ("", whole[0])


def test_a_stop_string_before_min_tokens_is_text(thinking: Make, reference: Reference) -> None:
    mine, id = spelling(thinking, reference, "xqzjk")
    whole = mine.text(id)
    mine, id = spelling(thinking, reference, "xqzjk", stop=(whole[1:3], whole[4:]), min_tokens=4)
    assert mine.text(id) == whole[:4]


def test_log_probabilities_are_told_for_each_token(thinking: Make, reference: Reference) -> None:
    mine = thinking()
    id = mine.run(job("Hello", speech=True, max_tokens=6, ignore_eos=True, logprobs=2))
    told = [entry for m in mine.said[id] if m.text is not None for entry in m.text.logprobs]
    assert len(told) == len(mine.ids(id)) == 6
    for entry in told:
        assert entry["logprob"] == pytest.approx(entry["top_logprobs"][0]["logprob"])
        assert len(entry["top_logprobs"]) == 2
        assert entry["logprob"] <= 0
    assert bytes(byte for entry in told for byte in entry["bytes"]).decode("utf-8", "replace") == mine.text(id)


def test_the_answer_ends_where_the_context_does(thinking: Make) -> None:
    mine = thinking(context_length=64)
    id = mine.run(job("Hello", ignore_eos=True))
    usage = mine.usage(id)
    assert usage.prompt_tokens + usage.completion_tokens == 64
    assert mine.finished(id) == "length"
    with pytest.raises(ContextExceeded, match=r"has \d+ tokens, .* 64 tokens"):
        mine.start(job("word " * 60))
    assert len(mine.stage) == 0


def test_a_prompt_that_cannot_be_computed_fails_alone(thinking: Make, caplog: pytest.LogCaptureFixture) -> None:
    mine = thinking()
    good = mine.start(job("Hello", speech=True, max_tokens=4, ignore_eos=True))

    def torn(message: StageMessage) -> StageMessage:
        assert message.handover is not None
        arrays = {**message.handover.arrays, "pixels_0": np.zeros((1, 32, 32, 3), np.uint8)}
        return replace(message, handover=Handover(message.handover.meta, arrays))

    bad = mine.start(job(image(), "Hello", max_tokens=4), torn)
    mine.finish()
    assert isinstance(mine.said[bad][-1].error, StageFailed)
    assert len(mine.ids(good)) == 4
    assert (len(mine.stage), mine.stage.slots_in_use) == (0, 0)
    assert "could not be computed" in caplog.text


def test_a_prompt_that_cannot_be_read_is_refused(thinking: Make) -> None:
    mine = thinking()
    mine.stage.open("one", job("Hello").settings)
    with pytest.raises(OmniError):
        mine.stage.push("one", StageMessage(handover=Handover({"nothing": 1}), eos=True))
    assert len(mine.stage) == 0
