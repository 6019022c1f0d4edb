"""The life of one response: its item, its deltas and its end, as OpenAI's GA events."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol

import pybase64

from frontend.protocol.alignment import Alignment
from frontend.protocol.conversation import Item, Speech, Text
from frontend.protocol.realtime_config import Config
from frontend.protocol.turns import Outcome, Turn
from omni.contract.chunk import Chunk, Usage
from omni.contract.errors import OmniError
from omni.contract.job import Message
from omni.contract.names import CODEC_FRAME_SAMPLES

Event = dict[str, Any]
Reason = Literal["turn_detected", "client_cancelled"]
AddItem = Callable[[Item], str | None]
"""Puts an item into the conversation and tells the id of the one before."""


class Encoder(Protocol):
    """Speech to the format that the client hears."""

    def encode(self, pcm: bytes) -> bytes:
        """The next samples, PCM16 at `SAMPLE_RATE`."""

    def finish(self) -> bytes:
        """What was held back."""


class Response:
    """Chunks in, events out. It says `response.done` exactly once."""

    def __init__(
        self,
        turn: Turn,
        item_id: str,
        config: Config,
        *,
        prompt: tuple[Message, ...] | None,
        encoder: Encoder,
        alignment: Alignment,
        conversation_id: str | None,
        metadata: Mapping[str, str] | None,
        add: AddItem | None,
    ) -> None:
        """`prompt` is None for the conversation as it stands when asked; `add` is None outside of the conversation."""
        self.turn = turn
        self.config = config
        self.prompt = prompt
        self.metadata = metadata
        self.tries = 0
        """Times that it was asked for again."""
        self._conversation_id = conversation_id
        self._add = add
        self._encoder = encoder
        self._part = Speech(alignment=alignment) if config.speech else Text("output_text", "")
        self.item = Item(item_id, "assistant", [self._part], "in_progress")
        self._opened = False
        self._before: str | None = None
        self._prompt_news: Mapping[str, Any] = {}
        self._tokens = 0

    @property
    def in_conversation(self) -> bool:
        return self._add is not None

    @property
    def began(self) -> bool:
        """Whether something was said; before, it may be tried again without anybody noticing."""
        return self._opened

    def created(self) -> Event:
        return {"type": "response.created", "response": self._json("in_progress")}

    def feed(self, chunk: Chunk) -> list[Event]:
        self.turn.feed(chunk)
        self._tokens += chunk.tokens
        if chunk.event is not None and chunk.event.get("type") == "prompt":
            self._prompt_news = chunk.event
        if not chunk.text and not chunk.audio:
            return []
        out = [] if self._opened else self._open()
        if chunk.text:
            out.append(self._said(chunk.text))
        if chunk.audio and isinstance(self._part, Speech):
            self._part.hear(chunk.audio)
            out += self._sound(self._encoder.encode(chunk.audio))
        return out

    def end(self, outcome: Outcome, reason: Reason | None = None, error: OmniError | None = None) -> list[Event]:
        """The events that end it; none when it had ended. `reason` goes with cancelled, `error` with failed."""
        if not self.turn.end(outcome):
            return []
        cut = outcome == "completed" and self.turn.finish == "length"
        self.item.status = "incomplete" if outcome != "completed" or cut else "completed"
        out = [] if self._opened or outcome != "completed" else self._open()
        if self._opened:
            out += self._close(complete=outcome == "completed")
        status: str = "incomplete" if cut else outcome
        details: dict[str, Any] = {"type": status}
        if cut:
            details["reason"] = "max_output_tokens"
        if reason is not None:
            details["reason"] = reason
        if error is not None:
            details["error"] = {"type": "server_error", "code": error.code, "message": error.message}
        body = {**self._json(status), "status_details": details, "usage": self._usage()}
        return [*out, {"type": "response.done", "response": body}]

    def _open(self) -> list[Event]:
        self._opened = True
        empty = {**self.item.to_json(), "content": []}
        out: list[Event] = [
            {"type": "response.output_item.added", "response_id": self.turn.id, "output_index": 0, "item": empty}
        ]
        if self._add is not None:
            self._before = self._add(self.item)
            out.append({"type": "conversation.item.added", "previous_item_id": self._before, "item": empty})
        return [*out, self._event("response.content_part.added", part=self._part_json())]

    def _close(self, *, complete: bool) -> list[Event]:
        out: list[Event] = []
        if isinstance(self._part, Speech):
            self._part.complete = complete
            if complete and self._part.alignment is not None:
                self._part.alignment.finished(self._part.transcript)
            out += self._sound(self._encoder.finish())
            out.append(self._event("response.output_audio.done"))
            out.append(self._event("response.output_audio_transcript.done", transcript=self._part.transcript))
        else:
            out.append(self._event("response.output_text.done", text=self._part.text))
        out.append(self._event("response.content_part.done", part=self._part_json()))
        item = self.item.to_json()
        if self._add is not None:
            out.append({"type": "conversation.item.done", "previous_item_id": self._before, "item": item})
        out.append({"type": "response.output_item.done", "response_id": self.turn.id, "output_index": 0, "item": item})
        return out

    def _said(self, text: str) -> Event:
        if isinstance(self._part, Speech):
            self._part.transcript += text
            return self._event("response.output_audio_transcript.delta", delta=text)
        self._part.text += text
        return self._event("response.output_text.delta", delta=text)

    def _sound(self, data: bytes) -> list[Event]:
        if not data:
            return []
        return [self._event("response.output_audio.delta", delta=pybase64.b64encode_as_string(data))]

    def _event(self, type: str, **fields: Any) -> Event:
        where = {"response_id": self.turn.id, "item_id": self.item.id, "output_index": 0, "content_index": 0}
        return {"type": type, **where, **fields}

    def _part_json(self) -> dict[str, Any]:
        if isinstance(self._part, Speech):
            return {"type": "audio", "transcript": self._part.transcript}
        return {"type": "text", "text": self._part.text}

    def _json(self, status: str) -> dict[str, Any]:
        config = self.config
        return {
            "object": "realtime.response",
            "id": self.turn.id,
            "status": status,
            "status_details": None,
            "output": [self.item.to_json()] if self._opened and status != "in_progress" else [],
            "conversation_id": self._conversation_id,
            "output_modalities": ["audio"] if config.speech else ["text"],
            "max_output_tokens": "inf" if config.max_output_tokens is None else config.max_output_tokens,
            "audio": {"output": {"format": config.speak.to_json(), "voice": config.voice}},
            "usage": None,
            "metadata": None if self.metadata is None else dict(self.metadata),
        }

    def _usage(self) -> dict[str, Any]:
        """Tokens in and out; a codec frame of speech is a token. Images count among the text tokens of the prompt."""
        news = self._prompt_news
        known = self.turn.usage
        if known == Usage():
            # It ended before the stages counted: what they said at its beginning has to do.
            known = Usage(int(news.get("prompt_tokens", 0)), self._tokens, int(news.get("cached_tokens", 0)))
        frames = -(-self.turn.samples // CODEC_FRAME_SAMPLES)
        written = known.completion_tokens
        return {
            "total_tokens": known.prompt_tokens + written + frames,
            "input_tokens": known.prompt_tokens,
            "output_tokens": written + frames,
            "input_token_details": {
                "text_tokens": known.prompt_tokens - known.audio_tokens,
                "audio_tokens": known.audio_tokens,
                "cached_tokens": known.cached_tokens,
            },
            "output_token_details": {"text_tokens": written, "audio_tokens": frames},
        }
