"""Picking the next token of many requests at once, each by its own rules and with its own randomness.

For one request the result is that of `generate()` of `transformers` after `torch.manual_seed(seed)` on the same kind of
device, and it doesn't depend on what else is in the batch: a draw takes the maximum of p/q, with q ~ Exp(1) from the
request's own generator, which is how `torch.multinomial` draws.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from omni.contract.params import SamplingParams
from omni.engine.transfer import download, upload

_INF = float("inf")


@dataclass(frozen=True, slots=True)
class Choice:
    """A token and, when asked for, log probabilities before any penalty or temperature."""

    token: int
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()
    """The likeliest tokens with their log probabilities, the likeliest first."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What any request of a batch asks for; what none does needn't be computed."""

    sampled: bool
    narrow: bool
    """Whether top_k or top_p leave anything out."""
    penalized: bool
    biased: bool
    banned: bool


class Sampler:
    """State of up to `slots` requests, on `device`. A slot is opened for a request and closed after it.

    Four steps make a token: `needs` on the host, `choose` on the device alone, `took` for what was chosen and `draw`
    for the noise of the next one. `choose` can be captured as a graph: all that it reads stays where it is.
    """

    def __init__(
        self, slots: int, vocab: int, device: torch.device | str = "cpu", beside: tuple[int, int] = (0, 0)
    ) -> None:
        """`beside` are draws that a request makes with each token, after that of the token: how many, and of how many
        values each."""
        self.vocab = vocab
        self._device = torch.device(device)

        def values(fill: float) -> Tensor:
            return torch.full((slots,), fill, device=device)

        def rows(dtype: torch.dtype) -> Tensor:
            return torch.zeros(slots, vocab, dtype=dtype, device=device)

        self._temperature, self._top_p, self._min_p = values(1.0), values(1.0), values(0.0)
        self._repetition, self._frequency, self._presence = values(1.0), values(0.0), values(0.0)
        self._top_k, self._least, self._drawn = (torch.zeros(slots, dtype=torch.long, device=device) for _ in range(3))
        self._prompt, self._banned, self._ends = rows(torch.bool), rows(torch.bool), rows(torch.bool)
        self._counts, self._bias = rows(torch.int32), rows(torch.float32)
        self._noise = torch.ones(slots, vocab, device=device)
        self.sampled = torch.zeros(slots, dtype=torch.bool, device=device)
        """Which requests draw; the others take the likeliest [slots]."""
        self.beside = torch.ones(slots, *beside, device=device)
        """Exponential(1) noise of the draws that go with the next token [slots, draws, values]."""
        self._requests: dict[int, _Request] = {}

    def open(
        self,
        slot: int,
        params: SamplingParams,
        *,
        prompt: Collection[int] = (),
        ends: Iterable[int] = (),
        suppress: Iterable[int] = (),
    ) -> None:
        """Starts a request by `params`, which are complete.

        `prompt` are the tokens that the repetition penalty counts beside the generated ones. `ends` can't be picked
        before `min_tokens`, `suppress` never.
        """
        sampled = bool(params.temperature)
        self.sampled[slot] = sampled
        self._temperature[slot] = params.temperature or 1.0
        self._top_p[slot] = params.top_p if sampled and params.top_p is not None else 1.0
        self._min_p[slot] = params.min_p if sampled and params.min_p is not None else 0.0
        kept = params.top_k if sampled and params.top_k is not None else 0
        self._top_k[slot] = min(kept, self.vocab) if kept > 0 else self.vocab
        self._repetition[slot] = params.repetition_penalty or 1.0
        self._frequency[slot] = params.frequency_penalty or 0.0
        self._presence[slot] = params.presence_penalty or 0.0
        self._least[slot] = params.min_tokens or 0
        self._drawn[slot] = 0
        bias = {token: value for token, value in (params.logit_bias or {}).items() if token < self.vocab}
        suppress = list(suppress)
        for rows, ids in ((self._prompt, prompt), (self._ends, ends), (self._banned, suppress)):
            rows[slot] = False
            self._set(rows[slot], list(ids), True)
        self._counts[slot] = 0
        self._bias[slot] = 0.0
        self._set(self._bias[slot], list(bias), list(bias.values()))
        self._requests[slot] = _Request.of(params, self.vocab, self._device, biased=bool(bias), bans=bool(suppress))
        self.draw([slot])

    def _set(self, row: Tensor, ids: list[int], values: bool | list[float]) -> None:
        if ids:
            row[upload(ids, self._device, torch.long)] = upload(values, self._device, row.dtype)

    def close(self, slot: int) -> None:
        self._requests.pop(slot, None)

    @torch.no_grad()
    def __call__(self, slots: Sequence[int], logits: Tensor) -> list[Choice]:
        """The next token for each of `slots`, by `logits` [slots, vocab]. Waits once for the device."""
        asked = [self._requests[slot].logprobs for slot in slots]
        most = max(-1 if count is None else count for count in asked)
        raw = logits.float()
        tokens = self.pick(slots, raw)
        if most < 0:
            return [Choice(token) for token in download(tokens)().tolist()]
        scores = raw.log_softmax(-1)
        chosen = scores.gather(1, tokens[:, None])
        top, ids = scores.topk(most)
        # Ids are exact in float64, and so everything comes in one copy.
        rows = download(torch.cat([tokens[:, None].double(), chosen.double(), ids.double(), top.double()], 1))
        return [_choice(row, count, most) for row, count in zip(rows().tolist(), asked, strict=True)]

    def pick(self, slots: Sequence[int], logits: Tensor) -> Tensor:
        """The next token for each of `slots`, int64 [slots] on the device, by float32 `logits` [slots, vocab]."""
        needs, rows = self.needs(slots), upload(slots, self._device, torch.long)
        tokens = self.choose(needs, rows, logits)
        self.took(rows, tokens)
        self.draw(slots)
        return tokens

    def needs(self, slots: Sequence[int]) -> Needs:
        """What has to be computed for the next token of each of `slots`. Once per token."""
        requests = [self._requests[slot] for slot in slots]
        needs = Needs(
            sampled=any(request.generator is not None for request in requests),
            narrow=any(request.narrow for request in requests),
            penalized=any(request.penalized for request in requests),
            biased=any(request.biased for request in requests),
            banned=any(request.bans or request.drawn < request.least for request in requests),
        )
        for request in requests:
            request.drawn += 1
        return needs

    def choose(self, needs: Needs, rows: Tensor, logits: Tensor) -> Tensor:
        """The next token for each slot of `rows`, int64 [rows], by float32 `logits` [rows, vocab]."""
        scores = self._penalized(needs, rows, logits)
        tokens = scores.argmax(-1)
        if needs.sampled:
            kept = self._kept(needs, rows, scores / self._temperature[rows, None])
            drawn = (kept.softmax(-1) / self._noise[rows]).argmax(-1)
            tokens = torch.where(self.sampled[rows], drawn, tokens)
        return tokens

    def took(self, rows: Tensor, tokens: Tensor) -> None:
        """Counts the token that each slot of `rows` got; no slot is there twice."""
        self._counts[rows, tokens] += 1
        self._drawn[rows] += 1

    def draw(self, slots: Sequence[int]) -> None:
        """Draws the noise for the next token of each of `slots`. Once per token, after the last one was chosen."""
        for slot in slots:
            if (generator := self._requests[slot].generator) is not None:
                self._noise[slot].exponential_(generator=generator)
                # One call per draw: `generate()` draws so, and a call for all at once gives other numbers.
                for draw in self.beside[slot]:
                    draw.exponential_(generator=generator)

    def _penalized(self, needs: Needs, rows: Tensor, scores: Tensor) -> Tensor:
        """The order is that of `generate()`: bias, repetition, then bans. Frequency and presence are OpenAI's."""
        if needs.biased:
            scores = scores + self._bias[rows]
        if needs.penalized:
            counts = self._counts[rows]
            penalty = self._repetition[rows, None]
            seen = (counts > 0) | self._prompt[rows]
            scores = torch.where(seen, torch.where(scores < 0, scores * penalty, scores / penalty), scores)
            scores = scores - (self._frequency[rows, None] * counts + self._presence[rows, None] * (counts > 0))
        if needs.banned:
            early = (self._drawn[rows] < self._least[rows])[:, None]
            scores = scores.masked_fill(self._banned[rows] | (self._ends[rows] & early), -_INF)
        return scores

    def _kept(self, needs: Needs, rows: Tensor, scores: Tensor) -> Tensor:
        """`scores` with what top_k, top_p and min_p leave out at minus infinity, in that order."""
        if needs.narrow:
            ordered = scores.sort(-1).values
            least = ordered.gather(1, (self.vocab - self._top_k[rows])[:, None])
            scores = scores.masked_fill(scores < least, -_INF)
            ordered, order = scores.sort(-1)
            top_p = self._top_p[rows, None]
            out = (ordered.softmax(-1).cumsum(-1) <= 1 - top_p) & (top_p < 1)
            out[:, -1:].fill_(False)
            scores = scores.masked_fill(torch.zeros_like(out).scatter(1, order, out), -_INF)
        probabilities = scores.softmax(-1)
        least = self._min_p[rows, None] * probabilities.amax(-1, keepdim=True)
        return scores.masked_fill(probabilities < least, -_INF)


@dataclass(slots=True)
class _Request:
    generator: torch.Generator | None
    """None when the likeliest token is taken."""
    narrow: bool
    penalized: bool
    biased: bool
    bans: bool
    logprobs: int | None
    least: int
    """Tokens before an end may be picked."""
    drawn: int = 0

    @classmethod
    def of(cls, params: SamplingParams, vocab: int, device: torch.device, *, biased: bool, bans: bool) -> _Request:
        generator = None
        if params.temperature:
            generator = torch.Generator(device)
            generator.manual_seed(secrets.randbits(63) if params.seed is None else params.seed)
        top_p = 1.0 if params.top_p is None else params.top_p
        return cls(
            generator=generator,
            narrow=generator is not None and (0 < (params.top_k or 0) < vocab or top_p < 1),
            penalized=(params.repetition_penalty or 1.0) != 1.0
            or bool(params.frequency_penalty or params.presence_penalty),
            biased=biased,
            bans=bans,
            logprobs=params.logprobs,
            least=params.min_tokens or 0,
        )


def _choice(row: Sequence[float], asked: int | None, most: int) -> Choice:
    token, chosen, *rest = row
    if asked is None:
        return Choice(int(token))
    top = tuple((int(rest[n]), rest[most + n]) for n in range(asked))
    return Choice(int(token), chosen, top)
