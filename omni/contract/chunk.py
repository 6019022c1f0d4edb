"""What comes back: the pieces of an answer, as stages pass them on and as the front door receives them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from omni.contract.errors import UNREADABLE, OmniError
from omni.contract.names import SAMPLE_RATE

KEPT: Final[Mapping[str, Any]] = {"type": "kept"}
"""What preprocess tells a session as soon as it holds the media that came with a job: later jobs may name them."""

FinishReason = Literal["stop", "length"]
_FINISHES: Final = (None, *get_args(FinishReason))


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens that a generation read and wrote."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    """Thinker tokens of the answer."""
    cached_tokens: int = 0
    """Prompt tokens whose state was reused."""
    audio_tokens: int = 0
    """Prompt tokens that stand for sound."""

    def to_json(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in Usage.__dataclass_fields__}


@dataclass(frozen=True, slots=True)
class TextDelta:
    """The next piece of the answer's text. Deltas, concatenated, are the text; a piece may be empty."""

    text: str = ""
    tokens: int = 0
    """Thinker tokens that this piece stands for."""
    finish: FinishReason | None = None
    """Set on the last piece."""
    usage: Usage | None = None
    """Set on the last piece."""
    logprobs: tuple[Mapping[str, Any], ...] = ()
    """One entry per token when asked for: {token, logprob, bytes, top_logprobs}, as OpenAI has it."""

    def __add__(self, later: TextDelta) -> TextDelta:
        return TextDelta(
            self.text + later.text,
            self.tokens + later.tokens,
            later.finish or self.finish,
            later.usage or self.usage,
            self.logprobs + later.logprobs,
        )

    def dumps(self) -> bytes:
        body: dict[str, Any] = {"text": self.text, "tokens": self.tokens}
        if self.finish is not None:
            body["finish"] = self.finish
        if self.usage is not None:
            body["usage"] = self.usage.to_json()
        if self.logprobs:
            body["logprobs"] = self.logprobs
        return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()

    @classmethod
    def loads(cls, data: bytes) -> TextDelta:
        """Raises `OmniError` when `data` isn't a delta."""
        try:
            body = json.loads(data)
            usage = Usage(**body["usage"]) if "usage" in body else None
            delta = cls(body["text"], body["tokens"], body.get("finish"), usage, tuple(body.get("logprobs", ())))
            if not delta._well_typed:
                raise ValueError
            if b"\\u" in data:
                delta.dumps()  # where half a surrogate pair, which isn't text, is an error
            return delta
        except UNREADABLE:
            raise OmniError("A text delta can't be read.") from None

    @property
    def _well_typed(self) -> bool:
        """Whether every field is of its type."""
        counts = (self.tokens, *(() if self.usage is None else self.usage.to_json().values()))
        return (
            isinstance(self.text, str)
            and all(type(count) is int for count in counts)
            and self.finish in _FINISHES
            and all(isinstance(one, Mapping) for one in self.logprobs)
        )


@dataclass(frozen=True, slots=True)
class Chunk:
    """One piece of an answer as the front door's engine yields it. Any field may be empty.

    A generation is a run of chunks; it ends when the run ends, or by an `OmniError`.
    """

    text: str = ""
    tokens: int = 0
    """Thinker tokens that `text` stands for."""
    audio: bytes = b""
    """Speech: mono signed 16-bit little-endian at `SAMPLE_RATE`, a whole number of samples."""
    finish: FinishReason | None = None
    """Why the text ended; set once. Speech may still follow."""
    usage: Usage | None = None
    """Set once, with `finish`."""
    logprobs: tuple[Mapping[str, Any], ...] = ()
    event: Mapping[str, Any] | None = None
    """News of the stages that is neither text nor sound, such as {"type": "prompt", "prompt_tokens": 12}."""

    @property
    def kept(self) -> bool:
        """Whether all that it says is that the media are held."""
        return self.event == KEPT and not (self.text or self.audio or self.finish)

    @property
    def audio_seconds(self) -> float:
        return len(self.audio) / 2 / SAMPLE_RATE
