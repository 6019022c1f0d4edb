"""The thinker against `generate()` of `transformers`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.qwen3_omni import KINDS, Reference, of_kind
from support.thinking import Thinking

pytestmark = pytest.mark.fidelity
Make = Callable[..., Thinking]
LENGTH = 24


@pytest.mark.parametrize("kind", KINDS)
def test_greedy_answers_are_those_of_generate(thinking: Make, reference: Reference, kind: str) -> None:
    job = of_kind(kind, speech=True, max_tokens=LENGTH)
    full = reference.think(job, max_new_tokens=LENGTH)
    # Prompts in pieces of 16 tokens.
    long = thinking(max_prefill_tokens=16)
    id = long.run(job)
    assert long.ids(id) == full
    assert long.finished(id) == "length"
    assert long.text(id) == reference.processor.tokenizer.decode(full, skip_special_tokens=True)
    eos = reference.early_eos(full)
    short = thinking(ends=[eos])
    id = short.run(of_kind(kind, speech=True, max_tokens=LENGTH))
    assert short.ids(id) == reference.think(job, max_new_tokens=LENGTH, eos=eos) == full[: full.index(eos) + 1]
    assert short.finished(id) == ("stop" if eos in full[: LENGTH - 1] else "length")


@pytest.mark.parametrize("kind", KINDS)
def test_sampled_answers_are_those_of_generate(thinking: Make, reference: Reference, kind: str) -> None:
    rules: dict[str, Any] = {"temperature": 0.9, "top_p": 0.95, "top_k": 40, "repetition_penalty": 1.1}
    job = of_kind(kind, speech=True, max_tokens=LENGTH, min_tokens=4, seed=7, **rules)
    mine = thinking()
    expected = reference.think(job, max_new_tokens=LENGTH, min_new_tokens=4, do_sample=True, seed=7, **rules)
    assert mine.ids(mine.run(job)) == expected
