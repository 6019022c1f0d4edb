"""The SGLang session profile: numbered appends, grants, progress and an orderly end, around a `Realtime`.

It is a translation with a memory of its own for what only this dialect counts: sequence numbers, the clock of the
sound that was accepted, and the pieces of each answer. What is said and when is for `Realtime` alone to decide.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pybase64

from frontend.protocol import realtime_events as say
from frontend.protocol.fields import BadEvent, Fields
from frontend.protocol.realtime import Limits, Realtime
from frontend.protocol.realtime_config import Detection
from frontend.protocol.session import Action, Cancel, Send
from omni.contract.chunk import Chunk
from omni.contract.errors import OmniError
from omni.contract.names import SAMPLE_RATE, TALKER, THINKER

Event = dict[str, Any]
NAME: Final = "sglang-session"
RATE: Final = 16_000
UNIT_MS: Final = 200
"""What `pad` fills up to."""
UPDATE_S: Final = 60.0
"""How long a client may take for its first `session.update`."""
POLICY: Final = 1008
MAX_EVENT_ID: Final = 256
TAIL_POLICIES: Final = ("flush", "pad", "reject")
DEFAULTS: Final[Mapping[str, Any]] = {
    "output_modalities": ["text"],
    "audio": {
        "input": {
            "format": {"type": "audio/pcm", "rate": RATE},
            "turn_detection": {"type": "server_vad", "silence_duration_ms": 800},
        }
    },
}

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
_SAMPLING: Final = {
    "temperature": (THINKER, "temperature"),
    "top_p": (THINKER, "top_p"),
    "top_k": (THINKER, "top_k"),
    "min_p": (THINKER, "min_p"),
    "repetition_penalty": (THINKER, "repetition_penalty"),
    "max_new_tokens": (THINKER, "max_tokens"),
    "seed": (THINKER, "seed"),
    "talker_temperature": (TALKER, "temperature"),
    "talker_top_p": (TALKER, "top_p"),
    "talker_top_k": (TALKER, "top_k"),
    "talker_repetition_penalty": (TALKER, "repetition_penalty"),
    "talker_max_new_tokens": (TALKER, "max_tokens"),
}
_FIELDS: Final = {
    "session.update": {"session"},
    "input_audio_buffer.append": {"audio", "sglang"},
    "sglang.input_image.append": {"image", "sglang"},
    "input_audio_buffer.commit": set(),
    "input_audio_buffer.clear": set(),
    "response.create": {"response"},
    "response.cancel": {"response_id"},
    "conversation.item.truncate": {"item_id", "content_index", "audio_end_ms"},
    "sglang.input_audio.end": set(),
    "session.close": set(),
}


@dataclass(slots=True)
class _Answer:
    """What was sent of one response."""

    unit: int
    pieces: int = 0
    letters: int = 0
    samples: int = 0


class SessionProfile:
    """A `Session` around `inner`. Until it is engaged it changes nothing."""

    def __init__(self, inner: Realtime, limits: Limits, *, now: float, engaged: bool) -> None:
        """`inner` speaks GA. Without `engaged`, a first `session.update` with `sglang` in it engages the profile."""
        self._inner = inner
        self._limits = limits
        self._out: list[Action] = []
        self._engaged = engaged
        self._first = True
        self._deadline: float | None = now + UPDATE_S if engaged else None
        self._text = True
        """Whether text was asked for, next to speech."""
        self._tail = "flush"
        self._seq = 0
        self._units = 0
        self._ended = False
        self._drained = False
        self._accepted_ms = self._discarded_ms = self._padding_ms = 0.0
        self._answers: dict[str, _Answer] = {}
        self._ids = 0
        self._collect()

    # Session

    def receive(self, message: str | bytes, now: float) -> None:
        if self._first and not self._engaged:
            self._engage(message, now)
        self._first = False
        if not self._engaged:
            self._inner.receive(message, now)
        else:
            try:
                event = say.read(message)
            except BadEvent as problem:
                self._inner.refuse(problem)
            else:
                try:
                    self._take(event, now)
                except BadEvent as problem:
                    self._inner.refuse(problem, say.event_id(event))
        self._settle(now)

    def worked(self, key: Any, result: Any, now: float) -> None:
        self._inner.worked(key, result, now)
        self._settle(now)

    def feed(self, turn: int, chunk: Chunk, now: float) -> None:
        self._inner.feed(turn, chunk, now)
        self._collect()

    def ended(self, turn: int, error: OmniError | None, now: float) -> None:
        self._inner.ended(turn, error, now)
        self._settle(now)

    def flushed(self, now: float) -> None:
        self._inner.flushed(now)

    def handle_timer(self, now: float) -> None:
        if self._deadline is not None and now >= self._deadline:
            self._deadline = None
            message = f"No session.update came within {UPDATE_S:g} seconds."
            self._inner.refuse(BadEvent(message, "session_update_timeout"))
            self._inner.close(POLICY, "session_update_timeout", now)
        else:
            self._inner.handle_timer(now)
        self._settle(now)

    def next_timer(self) -> float | None:
        own, inner = self._deadline, self._inner.next_timer()
        return inner if own is None or inner is None else min(own, inner)

    def actions(self) -> list[Action]:
        out, self._out = self._out, []
        return out

    def lost(self, now: float) -> None:
        self._inner.lost(now)
        self._out = [action for action in self._out if isinstance(action, Cancel)]
        self._collect()

    # In

    def _engage(self, message: str | bytes, now: float) -> None:
        try:
            event = say.read(message)
        except BadEvent:
            return
        session = event.get("session")
        if event.get("type") == "session.update" and isinstance(session, Mapping) and "sglang" in session:
            self._engaged = True
            self._inner.preset(DEFAULTS)
            self._deadline = now + UPDATE_S

    def _take(self, event: Event, now: float) -> None:
        fields = Fields(event)
        fields.needed("event_id", fields.string("event_id", least=1, most=MAX_EVENT_ID))
        kind = fields.needed("type", fields.choice("type", tuple(_FIELDS)))
        for name in _FIELDS[kind]:
            fields.skip(name)
        fields.end()
        if self._deadline is not None and kind not in ("session.update", "session.close"):
            raise BadEvent("The session must be updated first.", "invalid_state", "type")
        match kind:
            case "session.update":
                self._update(event, now)
            case "input_audio_buffer.append":
                self._append(fields, event, now)
            case "sglang.input_image.append":
                self._image(fields, event, now)
            case "input_audio_buffer.commit":
                if self._inner.take(event, now):
                    self._inner.answer(now)
            case "input_audio_buffer.clear":
                self._discarded_ms += self._inner.waiting_ms
                self._inner.take(event, now)
            case "response.create":
                raise BadEvent("Answers follow turns here; commit one.", "not_applicable", "type")
            case "sglang.input_audio.end":
                self._end(now)
            case "session.close":
                self._inner.stop(now)
                self._say({"type": "session.closed", "reason": "client_closed"})
                self._inner.close(1000, "client_closed", now)
            case _:
                self._inner.take(event, now)

    def _update(self, event: Event, now: float) -> None:
        fields = Fields(event)
        fields.needed("session", fields.object("session"))
        session = dict(event["session"])
        own = Fields(session.pop("sglang", None) or {}, "session.sglang")
        tail = own.choice("tail_policy", TAIL_POLICIES) or self._tail
        own.choice("interaction", ("turn_based", "turn"))
        own.choice("timebase", ("media", "audio"))
        own.skip("max_slice_nums")
        sampling = own.object("sampling")
        own.end()
        if sampling is not None:
            session["sampling"] = _sampling(sampling)
        if self._inner.take({**event, "session": session}, now):
            self._tail = tail
            self._deadline = None
            if isinstance(modalities := session.get("output_modalities"), list):
                self._text = "text" in modalities

    def _append(self, fields: Fields, event: Event, now: float) -> None:
        own = fields.needed("sglang", fields.object("sglang"))
        seq = own.needed("seq", own.whole("seq", 0, 1 << 53))
        starts = own.number("t_start_ms", 0, 1e12)
        own.end()
        if self._ended:
            raise BadEvent("The sound was ended; no more can come.", "invalid_state", "type")
        if seq != self._seq:
            raise BadEvent(f"sglang.seq must be {self._seq}.", "invalid_value", "sglang.seq")
        if starts is not None and abs(starts - self._inner.heard_ms) > 1:
            raise BadEvent(
                f"sglang.t_start_ms must be {self._inner.heard_ms:g}, where the sound so far ends.",
                "invalid_value",
                "sglang.t_start_ms",
            )
        if len(say.base64_of(fields, "audio")) % 2:
            raise BadEvent("audio must hold whole samples.", "invalid_value", "audio")
        if self._inner.take({key: value for key, value in event.items() if key != "sglang"}, now):
            self._seq += 1
            self._accepted_ms = self._inner.heard_ms
            ended = round(self._accepted_ms)
            self._say({"type": "sglang.input_audio.accepted", "seq": seq, "accepted_end_ms": ended})

    def _image(self, fields: Fields, event: Event, now: float) -> None:
        own = fields.needed("sglang", fields.object("sglang"))
        own.needed("t_ms", own.number("t_ms", 0, 1e12))
        own.end()
        if self._inner.take(event, now):
            self._say({"type": "sglang.input_image.accepted", "sglang": {"unit_id": self._units}})

    def _end(self, now: float) -> None:
        """No more sound comes: what waits becomes a last turn, or is let go of."""
        if self._ended:
            raise BadEvent("The sound was ended already.", "invalid_state", "type")
        self._ended = True
        self._say({"type": "sglang.input_audio.ended", "accepted_end_ms": round(self._accepted_ms)})
        waiting = self._inner.waiting_ms
        if self._tail == "reject":
            self._discarded_ms += waiting
            self._inner.take({"type": "input_audio_buffer.clear"}, now)
            return
        if self._tail == "pad" and waiting % UNIT_MS:
            self._padding_ms = UNIT_MS - waiting % UNIT_MS
            self._pad(self._padding_ms, now)
        detection = self._inner.detection
        if detection is not None:
            # Silence ends the turn that is being spoken, if there is one, wherever the ear has got to.
            self._pad(_closing_ms(detection), now)
        elif waiting >= 100 and self._inner.take({"type": "input_audio_buffer.commit"}, now):
            self._inner.answer(now)

    def _pad(self, ms: float, now: float) -> None:
        silence = pybase64.b64encode_as_string(bytes(int(ms * self._inner.listen_rate / 1000) * 2))
        self._inner.take({"type": "input_audio_buffer.append", "audio": silence}, now)

    # Out

    def _settle(self, now: float) -> None:
        self._collect()
        if self._ended and not self._drained and self._inner.quiet:
            self._drained = True
            spent = {
                "accepted_end_ms": round(self._accepted_ms),
                "consumed_ms": round(self._accepted_ms - self._discarded_ms),
                "discarded_ms": round(self._discarded_ms),
                "padding_ms": round(self._padding_ms),
            }
            self._say({"type": "sglang.input_audio.drained", **spent})

    def _collect(self) -> None:
        """Take over what `inner` asks for, in this dialect's words."""
        for action in self._inner.actions():
            if isinstance(action, Send) and isinstance(action.event, dict) and self._engaged:
                self._out += [Send(event) for event in self._words(action.event)]
            else:
                self._out.append(action)

    def _say(self, event: Event) -> None:
        self._collect()
        self._ids += 1
        self._out.append(Send({"type": event["type"], "event_id": f"sglang_{self._ids}", **event}))

    def _words(self, event: Event) -> Iterator[Event]:
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
            "output_modalities": ["text", "audio"] if speaks and self._text else session["output_modalities"],
            "audio": session["audio"],
            "tail_policy": self._tail,
            "limits": limits_json(self._limits),
            "rejections": [],
        }

    def _answer(self, event: Event) -> Iterator[Event]:
        kind = event["type"]
        id = event["response"]["id"] if "response" in event else event["response_id"]
        if kind == "response.created":
            self._units += 1
            self._answers[id] = _Answer(self._units)
        state = self._answers.get(id) or _Answer(0)
        out = dict(event)
        if "response" in out:
            out["response"] = {**out["response"], "usage": None}
        if kind.startswith("response.output_audio_transcript.") and self._text:
            out["type"] = kind.replace("output_audio_transcript", "output_text")
            if "transcript" in out:
                out["text"] = out.pop("transcript")
        state.pieces += 1
        out["sglang"] = {
            "unit_id": state.unit,
            "chunk_seq": state.pieces - 1,
            "media_time": {"end_ms": round(self._accepted_ms)},
        }
        yield out
        if kind.endswith(("output_text.delta", "transcript.delta")):
            state.letters += len(event["delta"])
        elif kind == "response.output_audio.delta":
            state.samples += len(event["delta"]) * 3 // 4 // 2
            progress = {"text_end": state.letters, "audio_ms": state.samples * 1000 // SAMPLE_RATE}
            yield self._numbered({"type": "sglang.response.progress", "response_id": id, **progress})
        elif kind == "response.done":
            self._answers.pop(id, None)
            yield self._numbered({"type": "sglang.unit.done", "sglang": {"unit_id": state.unit}})

    def _numbered(self, event: Event) -> Event:
        self._ids += 1
        return {"type": event["type"], "event_id": f"sglang_{self._ids}", **event}


def _sampling(asked: Fields) -> Event:
    out: dict[str, dict[str, Any]] = {}
    for name, (stage, inner) in _SAMPLING.items():
        if (value := asked.raw(name)) is not None:
            out.setdefault(stage, {})[inner] = value
    asked.end()
    return out


def _closing_ms(detection: Detection) -> float:
    """Silence that surely ends a turn."""
    return 8_500.0 if detection.type == "semantic_vad" else detection.silence_duration_ms + 200.0


def limits_json(limits: Limits) -> Event:
    return {
        "input_buffer_ms": round(limits.buffer_s * 1000),
        "utterance_ms": round(limits.turn_s * 1000),
        "history_chars": limits.chars,
        "image_bytes": limits.image_bytes,
        "frames_per_utterance": limits.frames,
        "idle_ms": round(limits.idle_s * 1000),
        "session_ms": round(limits.age_s * 1000),
    }


def capabilities(model: str, limits: Limits, *, speech: bool, voices: tuple[str, ...]) -> Event:
    """The answer of `GET /v1/realtime/capabilities`."""
    return {
        "object": "realtime.capabilities",
        "dialect": NAME,
        "model": model,
        "input": {
            "audio": {"type": "audio/pcm", "rates": [RATE, SAMPLE_RATE]},
            "image": {"formats": ["jpeg", "png", "webp"], "max_bytes": limits.image_bytes},
        },
        "output": {
            "modalities": [["text"], ["text", "audio"], ["audio"]] if speech else [["text"]],
            "audio": {"type": "audio/pcm", "rate": SAMPLE_RATE},
            "voices": list(voices),
        },
        "turn_detection": ["server_vad", "semantic_vad", None],
        "tail_policies": list(TAIL_POLICIES),
        "sampling": list(_SAMPLING),
        "client_events": list(_FIELDS),
        "limits": limits_json(limits),
    }
