"""From the chunks of an answer to OpenAI's shapes: one JSON object, or the events of a stream. Pure.

A stream of text and speech:

    {"delta": {"role": "assistant", "content": "Hi", "audio": {"transcript": "Hi"}}}     text, at once
    {"delta": {"audio": {"id": "audio-...", "data": "UklGR..."}}}                        speech, as it comes
    {"delta": {"audio": {"expires_at": 1700000000}}}                                     speech is over
    {"delta": {}, "finish_reason": "stop"}                                               all is over
    {"choices": [], "usage": {...}}                                                      when asked for
    [DONE]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import orjson
import pybase64

from frontend.openai.speech_format import SpeechEncoder, chunk_encoder, whole
from frontend.openai.to_job import Wanted
from omni.contract.chunk import Chunk, FinishReason, Usage

DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """What all objects of one answer have in common."""

    id: str
    """Of the job; the answer is `chatcmpl-<id>`, its speech `audio-<id>`."""
    created: int
    """Seconds since 1970."""
    version: str
    """Of the server."""

    def head(self, kind: str, model: str) -> dict[str, Any]:
        return {
            "id": f"chatcmpl-{self.id}",
            "object": kind,
            "created": self.created,
            "model": model,
            "system_fingerprint": f"omni-{self.version}",
        }

    @property
    def audio_id(self) -> str:
        return f"audio-{self.id}"

    @property
    def expires_at(self) -> int:
        """Speech isn't kept for later turns, so it expires as it is made."""
        return self.created


def event(body: Any) -> bytes:
    """One event of a stream."""
    return b"data: " + json_bytes(body) + b"\n\n"


def usage_object(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens, "audio_tokens": usage.audio_tokens},
        "completion_tokens_details": {
            "reasoning_tokens": 0,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


_NO_DRAFTS: Mapping[str, float] = {
    "spec_verify_ct": 0,
    "spec_num_proposed_drafts": 0,
    "spec_num_correct_drafts": 0,
    "spec_accept_rate": 0.0,
    "spec_accept_length": 0.0,
}
"""Statistics of speculative decoding under the names that SGLang gives them."""


class _Tally:
    """What an answer says once, at its end."""

    def __init__(self) -> None:
        self.finish: FinishReason | None = None
        self._usage: Usage | None = None
        self._tokens = 0
        self._prompt_tokens = 0
        self._spec: Mapping[str, Any] = _NO_DRAFTS

    def add(self, chunk: Chunk) -> None:
        self._tokens += chunk.tokens
        if chunk.finish is not None or chunk.usage is not None or chunk.event is not None:
            self._note(chunk)

    def _note(self, chunk: Chunk) -> None:
        if chunk.finish is not None and self.finish is None:
            self.finish = chunk.finish
        if chunk.usage is not None:
            self._usage = chunk.usage
        if chunk.event is not None:
            self._hear(chunk.event)

    def _hear(self, event: Mapping[str, Any]) -> None:
        if event.get("type") == "prompt":
            self._prompt_tokens = int(event.get("prompt_tokens", 0))
        elif event.get("type") == "spec_tokens_details":
            self._spec = {name: value for name, value in event.items() if name != "type"}

    @property
    def usage(self) -> dict[str, Any]:
        """Counted here when the stages didn't say."""
        counted = Usage(prompt_tokens=self._prompt_tokens, completion_tokens=self._tokens)
        return usage_object(self._usage or counted)

    @property
    def sglext(self) -> dict[str, Any]:
        return {"spec_tokens_details": dict(self._spec)}


class Answer(Protocol):
    """Makes the body of a response from chunks."""

    @property
    def slow_sound(self) -> bool:
        """Whether `feed` of a chunk with speech takes so long that it should run off the event loop."""

    @property
    def slow_end(self) -> bool:
        """Whether `finish` does."""

    def feed(self, chunk: Chunk) -> bytes:
        """The piece of the body that a chunk gives; empty when it has nothing to show yet."""

    def finish(self) -> bytes:
        """The rest of the body."""


class ChatStream:
    """An `Answer` in events."""

    def __init__(self, envelope: Envelope, wanted: Wanted) -> None:
        self._envelope = envelope
        self._wanted = wanted
        self._tally = _Tally()
        self._speech: SpeechEncoder | None = None if wanted.speech is None else chunk_encoder(wanted.speech)
        self._spoke = False
        head = envelope.head("chat.completion.chunk", wanted.model)
        self._open = b"data: " + json_bytes(head)[:-1]
        usage = b',"usage":null' if wanted.include_usage else b""
        # All of a delta but its text or sound never changes, so it is made once. The first delta carries the role too.
        self._delta = self._open + b',"choices":[{"index":0,"delta":{'
        self._head = self._delta + b'"role":"assistant",'
        self._usage = usage
        self._tail = b'},"logprobs":null,"finish_reason":null}]' + usage + b"}\n\n"
        self._text_tail = (b"}" if wanted.speech else b"") + self._tail
        self._audio = b'"audio":{"id":"' + envelope.audio_id.encode() + b'","data":"'
        self._audio_tail = b'"}' + self._tail

    def feed(self, chunk: Chunk) -> bytes:
        self._tally.add(chunk)
        text = self._text(chunk) if chunk.text or chunk.logprobs else b""
        if not chunk.audio or self._speech is None:
            return text
        return text + self._sound(self._speech.encode(chunk.audio))

    @property
    def slow_sound(self) -> bool:
        return self._speech is not None and self._speech.heavy

    @property
    def slow_end(self) -> bool:
        return self.slow_sound

    def finish(self) -> bytes:
        out = []
        if self._speech is not None:
            out.append(self._sound(self._speech.finish()))
            if self._spoke:
                out.append(self._chunk({"audio": {"expires_at": self._envelope.expires_at}}))
        out.append(self._chunk({}, self._tally.finish or "stop"))
        if self._wanted.include_usage:
            out.append(self._after({"usage": self._tally.usage}))
        if self._wanted.spec_tokens_details:
            out.append(self._after({"sglext": self._tally.sglext}))
        return b"".join((*out, DONE))

    def _text(self, chunk: Chunk) -> bytes:
        text = json_bytes(chunk.text)
        head, self._head = self._head, self._delta
        tail = self._text_tail
        if chunk.logprobs:
            logprobs = b'},"logprobs":{"content":' + json_bytes(chunk.logprobs) + b',"refusal":null}'
            tail = tail.replace(b'},"logprobs":null', logprobs, 1)
        if self._speech is None:
            return b"".join((head, b'"content":', text, tail))
        if self._wanted.text:
            return b"".join((head, b'"content":', text, b',"audio":{"transcript":', text, tail))
        return b"".join((head, b'"audio":{"transcript":', text, tail))

    def _sound(self, encoded: bytes) -> bytes:
        if not encoded:
            return b""
        head, self._head = self._head, self._delta
        self._spoke = True
        return b"".join((head, self._audio, pybase64.b64encode(encoded), self._audio_tail))

    def _chunk(self, delta: dict[str, Any], finish: FinishReason | None = None) -> bytes:
        if self._head is not self._delta:
            self._head = self._delta
            delta = {"role": "assistant", **delta}
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return b"".join((self._open, b',"choices":', json_bytes([choice]), self._usage, b"}\n\n"))

    def _after(self, fields: dict[str, Any]) -> bytes:
        return b"".join((self._open, b',"choices":[],', json_bytes(fields)[1:], b"\n\n"))


class ChatReply:
    """An `Answer` that is one `chat.completion` object."""

    def __init__(self, envelope: Envelope, wanted: Wanted) -> None:
        self._envelope = envelope
        self._wanted = wanted
        self._tally = _Tally()
        self._text: list[str] = []
        self._pcm: list[bytes] = []
        self._logprobs: list[Mapping[str, Any]] = []

    @property
    def slow_sound(self) -> bool:
        return False

    @property
    def slow_end(self) -> bool:
        return any(self._pcm)

    def feed(self, chunk: Chunk) -> bytes:
        self._tally.add(chunk)
        self._text.append(chunk.text)
        self._logprobs.extend(chunk.logprobs)
        if self._wanted.speech is not None:
            self._pcm.append(chunk.audio)
        return b""

    def finish(self) -> bytes:
        text = "".join(self._text)
        message: dict[str, Any] = {"role": "assistant", "content": text if self._wanted.text else None, "refusal": None}
        if self._wanted.speech is not None:
            message["audio"] = self._audio(self._wanted.speech, text)
        choice = {
            "index": 0,
            "message": message,
            "logprobs": {"content": self._logprobs, "refusal": None} if self._wanted.logprobs else None,
            "finish_reason": self._tally.finish or "stop",
        }
        body = self._envelope.head("chat.completion", self._wanted.model)
        body |= {"choices": [choice], "usage": self._tally.usage}
        if self._wanted.spec_tokens_details:
            body["sglext"] = self._tally.sglext
        return json_bytes(body)

    def _audio(self, format: str, transcript: str) -> dict[str, Any]:
        encoded = whole(format, b"".join(self._pcm))
        return {
            "id": self._envelope.audio_id,
            "data": pybase64.b64encode_as_string(encoded),
            "expires_at": self._envelope.expires_at,
            "transcript": transcript,
        }


def json_bytes(value: Any) -> bytes:
    """`value` as JSON. Half a surrogate pair, which has no UTF-8, becomes a question mark."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        return orjson.dumps(_sayable(value))


def _sayable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, Mapping):
        return {_sayable(key): _sayable(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_sayable(one) for one in value]
    return value
