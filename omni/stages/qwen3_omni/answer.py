"""An answer as its tokens come: text, stop strings, log probabilities, and when it ends."""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from omni.contract.chunk import FinishReason, TextDelta, Usage
from omni.contract.params import SamplingParams
from omni.engine.detokenizer import Detokenizer
from omni.engine.sampler import Choice
from omni.stages.stop import StopStrings

LEAST_LOGPROB: Final = -9999.0
"""Stands for minus infinity, which JSON hasn't; OpenAI's value."""


@dataclass(frozen=True, slots=True)
class Piece:
    """The next piece of an answer and the ids of the tokens that it stands for."""

    delta: TextDelta
    tokens: npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class _Token:
    choice: Choice
    start: int
    """Characters of the answer before it."""
    end: int


class Answer:
    """One answer within `params`, which are complete.

    Text that may be the start of a stop string is held back together with its tokens; without stop strings every
    token is given out as it comes, also when its character isn't whole yet. A token of which nothing is shown, because
    a stop string begins before it, is counted but never given out.
    """

    def __init__(self, params: SamplingParams, table: Sequence[bytes], ends: Container[int]) -> None:
        """`table` is that of `byte_table`; `ends` are the ids that end an answer."""
        self._params = params
        self._table = table
        self._ends: Container[int] = () if params.ignore_eos else ends
        self._text = Detokenizer(table)
        self._stop = StopStrings(params.stop or ())
        self._holds = bool(params.stop)
        self._held: deque[_Token] = deque()
        self._length = self._shown = 0
        self.count = 0
        """Tokens so far."""
        self.finish: FinishReason | None = None

    def feed(self, choice: Choice) -> Piece | None:
        """Takes the next token; None when it is held back. Sets `finish` with the last piece."""
        self.count += 1
        ended = choice.token in self._ends
        text = self._text.feed(choice.token)
        self._held.append(_Token(choice, self._length, self._length + len(text)))
        self._length += len(text)
        shown = self._stop.feed(text, armed=self.count >= (self._params.min_tokens or 0))
        if self._stop.found or ended:
            self.finish = "stop"
        elif self._params.max_tokens is not None and self.count >= self._params.max_tokens:
            self.finish = "length"
        if self.finish is not None and not self._stop.found:
            shown += self._stop.feed(self._text.flush()) + self._stop.flush()
        self._shown += len(shown)
        return self._piece(shown)

    def with_usage(self, piece: Piece, usage: Usage) -> Piece:
        """The last piece with what was used."""
        return replace(piece, delta=replace(piece.delta, usage=replace(usage, completion_tokens=self.count)))

    def _piece(self, shown: str) -> Piece | None:
        released: list[_Token] = []
        while self._held and (not self._holds or self._held[0].end <= self._shown):
            released.append(self._held.popleft())
        count = len(released)
        if self.finish is not None:
            count += len(self._held)
            released += [token for token in self._held if not self._stop.found or token.start < self._shown]
            self._held.clear()
        if not shown and not count and self.finish is None:
            return None
        tokens = np.array([token.choice.token for token in released], np.int32)
        delta = TextDelta(shown, count, self.finish, logprobs=self._logprobs(released))
        return Piece(delta, tokens)

    def _logprobs(self, released: Sequence[_Token]) -> tuple[Mapping[str, Any], ...]:
        if self._params.logprobs is None:
            return ()
        said = (token.choice for token in released if token.choice.token not in self._ends)
        return tuple(
            {
                **self._scored(choice.token, choice.logprob),
                "top_logprobs": [self._scored(token, value) for token, value in choice.top],
            }
            for choice in said
        )

    def _scored(self, token: int, logprob: float | None) -> dict[str, Any]:
        data = self._table[token] if token < len(self._table) else b""
        value = LEAST_LOGPROB if logprob is None else max(logprob, LEAST_LOGPROB)
        return {"token": data.decode("utf-8", "replace"), "logprob": value, "bytes": list(data)}
