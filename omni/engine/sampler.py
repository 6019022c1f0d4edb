"""Picking the next token of many requests at once, each by its own rules and with its own randomness.

For one request the result is that of `generate()` of `transformers` after `torch.manual_seed(seed)`, and it doesn't
depend on what else is in the batch: a draw takes the maximum of p/q, with q ~ Exp(1) from the request's own generator,
which is how `torch.multinomial` draws.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from omni.contract.params import SamplingParams

_INF = float("inf")


@dataclass(frozen=True, slots=True)
class Choice:
    """A token and, when asked for, log probabilities before any penalty or temperature."""

    token: int
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()
    """The likeliest tokens with their log probabilities, the likeliest first."""


class Sampler:
    """State of up to `slots` requests, on `device`. A slot is opened for a request and closed after it."""

    def __init__(self, slots: int, vocab: int, device: torch.device | str = "cpu") -> None:
        self.vocab = vocab
        self._device = torch.device(device)

        def values(fill: float) -> Tensor:
            return torch.full((slots,), fill, device=device)

        self._temperature, self._top_p, self._min_p = values(1.0), values(1.0), values(0.0)
        self._repetition, self._frequency, self._presence = values(1.0), values(0.0), values(0.0)
        self._top_k = torch.full((slots,), vocab, device=device)
        self._prompt = torch.zeros(slots, vocab, dtype=torch.bool, device=device)
        self._counts = torch.zeros(slots, vocab, dtype=torch.int32, device=device)
        self._requests: dict[int, _Request] = {}

    def open(
        self,
        slot: int,
        params: SamplingParams,
        *,
        prompt: Iterable[int] | None = None,
        ends: Iterable[int] = (),
        suppress: Iterable[int] = (),
    ) -> None:
        """Starts a request by `params`, which are complete.

        `prompt` are the tokens that the repetition penalty counts beside the generated ones. `ends` can't be picked
        before `min_tokens`, `suppress` never.
        """
        sampled = bool(params.temperature)
        self._temperature[slot] = params.temperature or 1.0
        self._top_p[slot] = params.top_p if sampled and params.top_p is not None else 1.0
        self._min_p[slot] = params.min_p if sampled and params.min_p is not None else 0.0
        kept = params.top_k if sampled and params.top_k is not None else 0
        self._top_k[slot] = min(kept, self.vocab) if kept > 0 else self.vocab
        self._repetition[slot] = params.repetition_penalty or 1.0
        self._frequency[slot] = params.frequency_penalty or 0.0
        self._presence[slot] = params.presence_penalty or 0.0
        self._prompt[slot] = False
        self._counts[slot] = 0
        if prompt is not None:
            self._prompt[slot, torch.as_tensor(prompt, device=self._device)] = True
        self._requests[slot] = _Request.of(params, ends, suppress, self.vocab, self._device)

    def close(self, slot: int) -> None:
        self._requests.pop(slot, None)

    def generator(self, slot: int) -> torch.Generator | None:
        """The request's own randomness, for what is drawn beside its tokens; None when it takes the likeliest."""
        return self._requests[slot].generator

    @torch.no_grad()
    def __call__(self, slots: Sequence[int], logits: Tensor) -> list[Choice]:
        """The next token for each of `slots`, by `logits` [slots, vocab]. Waits once for the device."""
        requests = [self._requests[slot] for slot in slots]
        most = max(-1 if r.logprobs is None else r.logprobs for r in requests)
        raw = logits.float()
        tokens = self.pick(slots, raw)
        if most < 0:
            return [Choice(token) for token in tokens.tolist()]
        scores = raw.log_softmax(-1)
        chosen = scores.gather(1, tokens[:, None])
        top, ids = scores.topk(most)
        # Ids are exact in float64, and so everything comes in one copy.
        rows = torch.cat([tokens[:, None].double(), chosen.double(), ids.double(), top.double()], 1).tolist()
        return [_choice(row, request.logprobs, most) for row, request in zip(rows, requests, strict=True)]

    def pick(self, slots: Sequence[int], logits: Tensor) -> Tensor:
        """The next token for each of `slots`, int64 [slots] on the device, by float32 `logits` [slots, vocab]."""
        requests = [self._requests[slot] for slot in slots]
        rows = torch.tensor(slots, device=self._device)
        scores = self._penalized(rows, logits, requests)
        tokens = scores.argmax(-1)
        if any(request.generator is not None for request in requests):
            kept = self._kept(rows, scores / self._temperature[rows, None], requests)
            drawn = (kept.softmax(-1) / self._noise(requests)).argmax(-1)
            sampled = torch.tensor([r.generator is not None for r in requests], device=self._device)
            tokens = torch.where(sampled, drawn, tokens)
        self._counts[rows, tokens] += 1
        for request in requests:
            request.count += 1
        return tokens

    def _penalized(self, rows: Tensor, logits: Tensor, requests: Sequence[_Request]) -> Tensor:
        """The order is that of `generate()`: bias, repetition, then bans. Frequency and presence are OpenAI's."""
        scores = logits.clone()
        for row, request in enumerate(requests):
            if request.bias is not None:
                scores[row, request.bias[0]] += request.bias[1]
        if any(request.penalized for request in requests):
            counts = self._counts[rows]
            penalty = self._repetition[rows, None]
            seen = (counts > 0) | self._prompt[rows]
            scores = torch.where(seen, torch.where(scores < 0, scores * penalty, scores / penalty), scores)
            scores -= self._frequency[rows, None] * counts + self._presence[rows, None] * (counts > 0)
        for row, request in enumerate(requests):
            for banned in request.banned():
                scores[row, banned] = -_INF
        return scores

    def _kept(self, rows: Tensor, scores: Tensor, requests: Sequence[_Request]) -> Tensor:
        """`scores` with what top_k, top_p and min_p leave out at minus infinity, in that order."""
        if any(request.narrow for request in requests):
            ordered = scores.sort(-1).values
            least = ordered.gather(1, (self.vocab - self._top_k[rows])[:, None])
            scores = scores.masked_fill(scores < least, -_INF)
            ordered, order = scores.sort(-1)
            top_p = self._top_p[rows, None]
            out = (ordered.softmax(-1).cumsum(-1) <= 1 - top_p) & (top_p < 1)
            out[:, -1] = False
            scores = scores.masked_fill(torch.zeros_like(out).scatter(1, order, out), -_INF)
        probabilities = scores.softmax(-1)
        least = self._min_p[rows, None] * probabilities.amax(-1, keepdim=True)
        return scores.masked_fill(probabilities < least, -_INF)

    def _noise(self, requests: Sequence[_Request]) -> Tensor:
        noise = torch.ones(len(requests), self.vocab, device=self._device)
        for row, request in enumerate(requests):
            if request.generator is not None:
                noise[row].exponential_(generator=request.generator)
        return noise


@dataclass(slots=True)
class _Request:
    generator: torch.Generator | None
    """None when the likeliest token is taken."""
    narrow: bool
    """Whether top_k or top_p leave anything out."""
    penalized: bool
    logprobs: int | None
    least: int
    """Tokens before an end may be picked."""
    ends: Tensor
    suppress: Tensor
    bias: tuple[Tensor, Tensor] | None
    count: int = 0

    @classmethod
    def of(
        cls, params: SamplingParams, ends: Iterable[int], suppress: Iterable[int], vocab: int, device: torch.device
    ) -> _Request:
        generator = None
        if params.temperature:
            generator = torch.Generator(device)
            generator.manual_seed(secrets.randbits(63) if params.seed is None else params.seed)
        top_p = 1.0 if params.top_p is None else params.top_p
        return cls(
            generator=generator,
            narrow=0 < (params.top_k or 0) < vocab or top_p < 1,
            penalized=(params.repetition_penalty or 1.0) != 1.0
            or bool(params.frequency_penalty or params.presence_penalty),
            logprobs=params.logprobs,
            least=params.min_tokens or 0,
            ends=torch.tensor(list(ends), dtype=torch.long, device=device),
            suppress=torch.tensor(list(suppress), dtype=torch.long, device=device),
            bias=_bias(params.logit_bias or {}, vocab, device),
        )

    def banned(self) -> list[Tensor]:
        banned = [self.suppress] if len(self.suppress) else []
        if self.count < self.least:
            banned.append(self.ends)
        return banned


def _bias(bias: Mapping[int, float], vocab: int, device: torch.device) -> tuple[Tensor, Tensor] | None:
    known = {token: value for token, value in bias.items() if token < vocab}
    if not known:
        return None
    return torch.tensor(list(known), device=device), torch.tensor([float(v) for v in known.values()], device=device)


def _choice(row: Sequence[float], asked: int | None, most: int) -> Choice:
    token, chosen, *rest = row
    if asked is None:
        return Choice(int(token))
    top = tuple((int(rest[n]), rest[most + n]) for n in range(asked))
    return Choice(int(token), chosen, top)
