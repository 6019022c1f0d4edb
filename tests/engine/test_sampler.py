from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from omni.contract.params import THINKER_DEFAULTS, SamplingParams
from omni.engine.sampler import Sampler

pytestmark = pytest.mark.pure
VOCAB = 50
END = 7


def sampling(**values: Any) -> SamplingParams:
    return SamplingParams(**values).over(THINKER_DEFAULTS)


def logits(seed: int, steps: int = 12) -> torch.Tensor:
    return 3 * torch.randn(steps, VOCAB, generator=torch.Generator().manual_seed(seed))


def run(params: SamplingParams, scores: torch.Tensor, prompt: list[int] | None = None) -> list[int]:
    sampler = Sampler(1, VOCAB)
    sampler.open(0, params, prompt=prompt or (), ends=[END])
    return [sampler([0], row[None])[0].token for row in scores]


def reference(params: SamplingParams, scores: torch.Tensor, prompt: list[int]) -> list[int]:
    """What `generate()` does with these logits, by its own processors in its own order."""
    from transformers.generation import logits_process as p

    processors: list[Any] = []
    if params.repetition_penalty != 1.0:
        processors.append(p.RepetitionPenaltyLogitsProcessor(params.repetition_penalty))
    if params.min_tokens:
        processors.append(
            p.MinNewTokensLengthLogitsProcessor(len(prompt), params.min_tokens, torch.tensor([END]), device="cpu")
        )
    if params.temperature:
        if params.temperature != 1.0:
            processors.append(p.TemperatureLogitsWarper(float(params.temperature)))
        if params.top_k and params.top_k > 0:
            processors.append(p.TopKLogitsWarper(params.top_k))
        if params.top_p is not None and params.top_p < 1:
            processors.append(p.TopPLogitsWarper(params.top_p))
        if params.min_p:
            processors.append(p.MinPLogitsWarper(params.min_p))
        torch.manual_seed(params.seed or 0)
    ids = list(prompt)
    for row in scores:
        out = row[None].clone()
        for process in processors:
            out = process(torch.tensor([ids]), out)
        ids.append(int(torch.multinomial(out.softmax(-1), 1) if params.temperature else out.argmax()))
    return ids[len(prompt) :]


@settings(max_examples=60)
@given(
    temperature=st.sampled_from([0.0, 0.4, 1.0, 1.7]),
    top_k=st.sampled_from([-1, 0, 1, 5, 40, 99]),
    top_p=st.sampled_from([1.0, 0.95, 0.5, 0.05]),
    min_p=st.sampled_from([0.0, 0.05, 0.9]),
    repetition_penalty=st.sampled_from([1.0, 1.3, 0.7]),
    min_tokens=st.integers(0, 8),
    seed=st.integers(0, 1 << 40),
)
def test_one_request_is_sampled_as_generate_does(seed: int, **values: Any) -> None:
    params, scores, prompt = sampling(seed=seed, **values), logits(seed), [3, 4, 4, 11]
    assert run(params, scores, prompt) == reference(params, scores, prompt)


def test_a_seed_gives_the_same_whatever_else_is_in_the_batch() -> None:
    rules = [
        sampling(temperature=0.8, seed=1, top_p=0.9, logprobs=2),
        sampling(),
        sampling(temperature=1.2, seed=2, top_k=5, repetition_penalty=1.4, frequency_penalty=0.5),
        sampling(temperature=1.0, seed=3, min_p=0.1, presence_penalty=1.0, logit_bias={4: 5.0}),
        sampling(temperature=1.0, seed=-5),
    ]
    scores = torch.stack([logits(n) for n in range(len(rules))])
    alone = [run(params, scores[n]) for n, params in enumerate(rules)]
    sampler = Sampler(8, VOCAB)
    got: list[list[int]] = [[] for _ in rules]
    for step in range(scores.shape[1] + len(rules)):
        # Request n joins at step n, and so every step sees another batch.
        at = [n for n in range(len(rules)) if 0 <= step - n < scores.shape[1]]
        for n in at:
            if step == n:
                sampler.open(n + 2, rules[n], ends=[END])
        if at:
            choices = sampler([n + 2 for n in at], torch.stack([scores[n, step - n] for n in at]))
            for n, choice in zip(at, choices, strict=True):
                got[n].append(choice.token)
    assert got == alone


def test_without_a_seed_two_requests_differ() -> None:
    flat = torch.zeros(30, VOCAB)
    assert run(sampling(temperature=1.0), flat) != run(sampling(temperature=1.0), flat)


def test_bias_bans_and_forces() -> None:
    scores = logits(0)
    best = int(scores[0].argmax())
    assert run(sampling(logit_bias={best: -100.0}), scores[:1]) != [best]
    assert run(sampling(logit_bias={9: 100.0, VOCAB + 3: 100.0}), scores[:4]) == [9] * 4


def test_frequency_and_presence_push_repeated_tokens_down() -> None:
    row = torch.zeros(1, VOCAB)
    row[0, 5], row[0, 6] = 1.0, 0.6
    same = row.expand(6, -1)
    assert run(sampling(), same) == [5] * 6
    # 5 at 1.0, then 0.7, then under 0.6.
    assert run(sampling(frequency_penalty=0.3), same)[:3] == [5, 5, 6]
    assert run(sampling(presence_penalty=0.5), same)[:3] == [5, 6, 5]


def test_the_end_waits_for_min_tokens_and_suppressed_tokens_never_come() -> None:
    row = torch.zeros(4, VOCAB)
    row[:, END], row[:, 8], row[:, 9] = 3.0, 2.0, 4.0
    sampler = Sampler(1, VOCAB)
    sampler.open(0, sampling(min_tokens=2), ends=[END], suppress=[9])
    assert [sampler([0], one[None])[0].token for one in row] == [8, 8, END, END]


def test_log_probabilities_are_the_models_own() -> None:
    scores = logits(4)[:1]
    sampler = Sampler(2, VOCAB)
    sampler.open(0, sampling(logprobs=3, temperature=0.5, seed=1, repetition_penalty=2.0), prompt=[1], ends=[])
    sampler.open(1, sampling(), ends=[])
    asked, other = sampler([0, 1], scores.expand(2, -1))
    expected = scores[0].log_softmax(-1)
    assert asked.logprob == pytest.approx(float(expected[asked.token]))
    assert [token for token, _ in asked.top] == expected.topk(3).indices.tolist()
    assert [value for _, value in asked.top] == pytest.approx(expected.topk(3).values.tolist())
    assert other.logprob is None
    assert other.top == ()


def test_a_reused_slot_remembers_nothing() -> None:
    sampler, row = Sampler(1, VOCAB), torch.zeros(1, VOCAB)
    row[0, 5], row[0, 6] = 1.0, 0.9
    sampler.open(0, sampling(presence_penalty=1.0), prompt=[5])
    assert sampler([0], row)[0].token == 5
    assert sampler([0], row)[0].token == 6
    sampler.close(0)
    sampler.open(0, sampling(presence_penalty=1.0, repetition_penalty=2.0))
    assert sampler([0], row)[0].token == 5
