"""An answer as it is generated: token by token, with limits, stop strings and log probabilities."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import Any

from omni.contract.chunk import FinishReason, TextDelta, Usage
from omni.contract.params import MAX_TOKENS_LIMIT, SamplingParams
from omni.stages.dummy.words import token_id, words
from omni.stages.stop import StopStrings


@dataclass(frozen=True, slots=True)
class Piece:
    """The next piece of an answer and the tokens whose text ends in it."""

    delta: TextDelta
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Token:
    word: str
    start: int
    """Characters of the answer before it."""


class Answer:
    """Says `text` within `params`, which are complete. Where it must go on after the end, it says `text` again."""

    def __init__(self, text: str, params: SamplingParams, usage: Usage) -> None:
        self._words = words(text)
        self._most = params.max_tokens or MAX_TOKENS_LIMIT
        self._least = params.min_tokens or 0
        self._endless = bool(params.ignore_eos)
        self._alternatives = params.logprobs
        self._stop = StopStrings(params.stop or ())
        self._usage = usage
        self._count = 0
        self._said: list[str] = []
        self._shown = 0
        self._length = 0
        self._held: deque[_Token] = deque()
        self.finished = False

    @property
    def text(self) -> str:
        """What was said so far."""
        return "".join(self._said)

    def next(self) -> Piece | None:
        """Generates one token; None when all its text is held back. Sets `finished` with the last piece."""
        word = self._word()
        self._held.append(_Token(word, self._length))
        self._length += len(word)
        self._count += 1
        text = self._stop.feed(word, armed=self._count >= self._least)
        finish = self._finish()
        if finish is not None and not self._stop.found:
            text += self._stop.flush()
        self._said.append(text)
        self._shown += len(text)
        piece = self._piece(text, finish)
        return piece if piece.delta.text or piece.delta.tokens or finish else None

    def _word(self) -> str:
        again, place = divmod(self._count, len(self._words))
        return ("\n" if again and not place else "") + self._words[place]

    def _finish(self) -> FinishReason | None:
        ended = self._count >= max(len(self._words), self._least) and not self._endless
        if self._stop.found or ended:
            return "stop"
        return "length" if self._count >= self._most else None

    def _piece(self, text: str, finish: FinishReason | None) -> Piece:
        """A token goes with the end of its text; at the finish, tokens of which nothing is shown are only counted."""
        tokens: list[_Token] = []
        while self._held and self._held[0].start + len(self._held[0].word) <= self._shown:
            tokens.append(self._held.popleft())
        count = len(tokens)
        if finish is not None:
            count += len(self._held)
            tokens += [token for token in self._held if token.start < self._shown]
            self._held.clear()
            self.finished = True
        delta = TextDelta(text, count)
        if self._alternatives is not None:
            delta = replace(delta, logprobs=tuple(logprob(token.word, self._alternatives) for token in tokens))
        if finish is not None:
            delta = replace(delta, finish=finish, usage=replace(self._usage, completion_tokens=self._count))
        return Piece(delta, tuple(token_id(token.word) for token in tokens))


def logprob(word: str, alternatives: int) -> dict[str, Any]:
    """A made-up log probability in the shape of OpenAI's `logprobs.content`; the same for the same word."""
    first = -1e-3 * (1 + token_id(word) % 500)
    ranked = [_scored(word if rank == 0 else f"{word}~{rank}", first - rank) for rank in range(alternatives)]
    return {**_scored(word, first), "top_logprobs": ranked}


def _scored(word: str, value: float) -> dict[str, Any]:
    return {"token": word, "logprob": round(value, 3), "bytes": list(word.encode())}
