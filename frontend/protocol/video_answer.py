"""How a turn of the streaming video protocol looks on the wire, from `response.start` to `response.done`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pybase64

from frontend.protocol.frames import Frame
from frontend.protocol.pcm import wav
from frontend.protocol.turns import Outcome, Turn
from frontend.protocol.video_config import SessionConfig
from omni.contract.chunk import Chunk
from omni.contract.errors import InvalidRequest, OmniError
from omni.contract.names import SAMPLE_RATE

Event = Mapping[str, Any] | bytes

_FRAME_KEYS: Final = ("frame_id", "pts_ms", "source_pts_ms", "quality_profile")


class Answer:
    """Turns the chunks of one turn into events. Text is said in full, and each terminator once."""

    def __init__(self, turn: Turn, config: SessionConfig, streamed: bool, frames: Sequence[Frame], named: bool) -> None:
        """`streamed` sends pieces as they come, otherwise all at the end. `frames` are the ones in the prompt; whether
        their use is reported depends on `named`: the client gave an id to some frame of the session."""
        self.turn = turn
        self.frames = frames
        self._config = config
        self._streamed = streamed
        self._named = named
        self._ready_ms = 0.0
        """When the stages had read the prompt."""
        self._consumed = False
        self._text_done = False
        self._speaking = False
        self._held: list[bytes] = []
        """Speech that waits for the end."""

    def feed(self, chunk: Chunk, now: float) -> Iterator[Event]:
        """What a chunk means to the client; `now` is seconds of the server's steady clock."""
        self.turn.feed(chunk)
        if not self.turn.started:
            self.turn.started = True
            self._ready_ms = now * 1000
            yield self._event("response.start")
        if (chunk.tokens or chunk.text or chunk.audio or chunk.finish) and not self._consumed:
            self._consumed = True
            if self._named:
                yield self._frames_consumed(now * 1000)
        if not self._streamed:
            self._held.append(chunk.audio)
            return
        if chunk.text and self._config.text:
            yield self._event("response.text.delta", delta=chunk.text)
        if chunk.finish or (chunk.audio and not self._config.text):
            yield from self._finish_text()
        if chunk.audio and self._config.speech:
            yield self._audio(chunk.audio)

    def end(self, outcome: Outcome, error: OmniError | None = None) -> Iterator[Event]:
        """What is missing of the turn; the last event is its terminator. Nothing when the turn has ended before.

        A turn that the client wasn't told the start of only gets its terminator, unless it completed without a word.
        """
        if not self.turn.end(outcome):
            return
        if outcome == "completed" and not self.turn.started:
            self.turn.started = True
            yield self._event("response.start")
        if error is not None:
            yield self._failure(error)
        if self.turn.started:
            yield from self._finish_text()
        held = b"".join(self._held)
        if held and self._config.speech and outcome == "completed":
            yield self._audio(held)
        if self._speaking:
            yield self._event("response.output_audio.done")
        yield self._event("response.done", status=outcome, usage=usage(self.turn))

    def _failure(self, error: OmniError) -> Event:
        if isinstance(error, InvalidRequest) and not self.turn.started:
            return self._event("error", message=f"Preprocess failed: {error.message}", code=error.code)
        return self._event("error", message="Query processing failed", code=error.code, detail=error.message)

    def _finish_text(self) -> Iterator[Event]:
        if not self._text_done:
            self._text_done = True
            yield self._event("response.text.done", text=self.turn.text if self._config.text else "")

    def _audio(self, pcm: bytes) -> Event:
        """One event, made in one go: it is the largest of all, and its base64 needs no escaping."""
        self._speaking = True
        pcm16 = self._config.audio_format == "pcm16"
        data = pybase64.b64encode(pcm if pcm16 else wav(pcm, SAMPLE_RATE))
        how = b'"pcm16","sample_rate":%d' % SAMPLE_RATE if pcm16 else b'"wav"'
        return b'{"type":"response.output_audio.delta","data":"%b","format":%b,"request_id":"%b"}' % (
            data, how, self.turn.id.encode(),
        )  # fmt: skip

    def _frames_consumed(self, now_ms: float) -> Event:
        return {
            "type": "video.frames.consumed",
            "request_id": self.turn.id,
            "model_selected_ts_ms": now_ms,
            "frame_ids": [id for frame in self.frames if isinstance(id := frame.meta.get("frame_id"), str)],
            "frames": [
                {key: frame.meta.get(key) for key in _FRAME_KEYS}
                | {"receiver_received_ts_ms": frame.received_ms, "decoded_ready_ts_ms": self._ready_ms}
                for frame in self.frames
            ],
            "latest_pts_ms": self.frames[-1].meta.get("pts_ms") if self.frames else None,
        }

    def _event(self, type: str, **fields: Any) -> dict[str, Any]:
        return {"type": type, **fields, "request_id": self.turn.id}


def usage(turn: Turn) -> dict[str, Any]:
    """Tokens that the turn read and wrote, and seconds of speech that it made."""
    counts = turn.usage.to_json()
    total = turn.usage.prompt_tokens + turn.usage.completion_tokens
    return {**counts, "total_tokens": total, "audio_seconds": round(turn.samples / SAMPLE_RATE, 3)}
