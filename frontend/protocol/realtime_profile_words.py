"""What a client of the SGLang session profile is told instead of GA's events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from frontend.protocol.realtime_limits import Limits
from frontend.protocol.realtime_profile_offer import limits_json
from omni.contract.names import SAMPLE_RATE

Event = dict[str, Any]
_CODES: Final = {
    "input_audio_buffer_full": "buffer_overflow",
    "too_large": "buffer_overflow",
    "unsupported": "not_supported",
    "response_cancel_not_active": "invalid_state",
    "input_audio_buffer_commit_empty": "invalid_state",
    "item_not_found": "invalid_state",
    "too_many_responses": "invalid_state",
    "turn_detection_failed": "internal",
    "session_expired": "session_expired",
    "session_idle": "session_idle",
    "session_update_timeout": "session_update_timeout",
    "invalid_state": "invalid_state",
    "not_applicable": "not_applicable",
}
_FATAL: Final = frozenset({"session_expired", "session_idle", "session_update_timeout"})
_UNSAID: Final = (
    "conversation.", "response.output_item.", "response.content_part.", "input_audio_buffer.committed",
    "input_audio_buffer.timeout_triggered",
)  # fmt: skip
_TRANSCRIPTION: Final = "conversation.item.input_audio_transcription."


@dataclass(slots=True)
class _Answer:
    """What was sent of one response."""

    unit: int
    pieces: int = 0
    letters: int = 0
    samples: int = 0


class Words:
    """Remembers how far each answer is."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._answers: dict[str, _Answer] = {}
        self._ids = 0
        self.text = True
        """Whether text was asked for, next to speech."""
        self.tail_policy = "flush"
        self.units = 0
        """Answers so far."""
        self.accepted_ms = 0.0
        """Where the sound that was taken ends."""

    def of(self, event: Event) -> Iterator[Event]:
        """What is said instead of an event of GA."""
        kind = event["type"]
        if kind.startswith(_UNSAID) and not kind.startswith(_TRANSCRIPTION):
            return
        if kind == "error":
            yield self._error(event)
        elif kind in ("session.created", "session.updated"):
            granted = None if kind == "session.created" else self._granted(event["session"])
            yield {**event, "session": {**event["session"], "sglang": {"granted": granted}}}
        elif kind.startswith("response."):
            yield from self._answer(event)
        else:
            yield event

    def _error(self, event: Event) -> Event:
        error = event["error"]
        code = _CODES.get(error["code"], "invalid_request")
        return {**event, "sglang": {"fatal": code in _FATAL}, "error": {**error, "code": code}}

    def _granted(self, session: Mapping[str, Any]) -> Event:
        speaks = "audio" in session["output_modalities"]
        return {
            "output_modalities": ["text", "audio"] if speaks and self.text else session["output_modalities"],
            "audio": session["audio"],
            "tail_policy": self.tail_policy,
            "limits": limits_json(self._limits),
            "rejections": [],
        }

    def _answer(self, event: Event) -> Iterator[Event]:
        kind = event["type"]
        id = event["response"]["id"] if "response" in event else event["response_id"]
        if kind == "response.created":
            self.units += 1
            self._answers[id] = _Answer(self.units)
        state = self._answers.get(id) or _Answer(0)
        out = dict(event)
        if "response" in out:
            out["response"] = {**out["response"], "usage": None}
        if kind.startswith("response.output_audio_transcript.") and self.text:
            out["type"] = kind.replace("output_audio_transcript", "output_text")
            if "transcript" in out:
                out["text"] = out.pop("transcript")
        state.pieces += 1
        out["sglang"] = {
            "unit_id": state.unit,
            "chunk_seq": state.pieces - 1,
            "media_time": {"end_ms": round(self.accepted_ms)},
        }
        yield out
        if kind.endswith(("output_text.delta", "transcript.delta")):
            state.letters += len(event["delta"])
        elif kind == "response.output_audio.delta":
            state.samples += len(event["delta"]) * 3 // 4 // 2
            progress = {"text_end": state.letters, "audio_ms": state.samples * 1000 // SAMPLE_RATE}
            yield self.numbered({"type": "sglang.response.progress", "response_id": id, **progress})
        elif kind == "response.done":
            self._answers.pop(id, None)
            yield self.numbered({"type": "sglang.unit.done", "sglang": {"unit_id": state.unit}})

    def numbered(self, event: Event) -> Event:
        """An event of the profile's own, with an id."""
        self._ids += 1
        return {"type": event["type"], "event_id": f"sglang_{self._ids}", **event}
