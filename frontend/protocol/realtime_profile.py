"""The SGLang session profile: numbered appends, grants, progress and an orderly end, around a `Realtime`.

It is a translation with a memory of its own for what only this dialect counts: sequence numbers, the clock of the
sound that was accepted, and the pieces of each answer. What is said and when is for `Realtime` alone to decide.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pybase64

from frontend.protocol import realtime_events as say
from frontend.protocol.fields import BadEvent, Fields
from frontend.protocol.realtime import Realtime
from frontend.protocol.realtime_config import Detection
from frontend.protocol.realtime_limits import Limits
from frontend.protocol.realtime_profile_offer import DEFAULTS, FIELDS, SAMPLING, TAIL_POLICIES
from frontend.protocol.realtime_profile_words import Words
from frontend.protocol.session import Action, Cancel, Send
from omni.contract.chunk import Chunk
from omni.contract.errors import OmniError

Event = dict[str, Any]
UNIT_MS: Final = 200
"""What `pad` fills up to."""
UPDATE_S: Final = 60.0
"""How long a client may take for its first `session.update`."""
POLICY: Final = 1008
MAX_EVENT_ID: Final = 256


class SessionProfile:
    """A `Session` around `inner`. Until it is engaged it changes nothing."""

    def __init__(self, inner: Realtime, limits: Limits, *, now: float, engaged: bool) -> None:
        """`inner` speaks GA. Without `engaged`, a first `session.update` with `sglang` in it engages the profile."""
        self._inner = inner
        self._words = Words(limits)
        self._out: list[Action] = []
        self._engaged = engaged
        self._first = True
        self._deadline: float | None = now + UPDATE_S if engaged else None
        self._seq = 0
        self._ended = False
        self._drained = False
        self._discarded_ms = self._padding_ms = 0.0
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
        kind = fields.needed("type", fields.choice("type", tuple(FIELDS)))
        for name in FIELDS[kind]:
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
        tail = own.choice("tail_policy", TAIL_POLICIES) or self._words.tail_policy
        own.choice("interaction", ("turn_based", "turn"))
        own.choice("timebase", ("media", "audio"))
        own.skip("max_slice_nums")
        sampling = own.object("sampling")
        own.end()
        if sampling is not None:
            session["sampling"] = _sampling(sampling)
        if self._inner.take({**event, "session": session}, now):
            self._words.tail_policy = tail
            self._deadline = None
            if isinstance(modalities := session.get("output_modalities"), list):
                self._words.text = "text" in modalities

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
            self._words.accepted_ms = self._inner.heard_ms
            ended = round(self._words.accepted_ms)
            self._say({"type": "sglang.input_audio.accepted", "seq": seq, "accepted_end_ms": ended})

    def _image(self, fields: Fields, event: Event, now: float) -> None:
        own = fields.needed("sglang", fields.object("sglang"))
        own.needed("t_ms", own.number("t_ms", 0, 1e12))
        own.end()
        if self._inner.take(event, now):
            self._say({"type": "sglang.input_image.accepted", "sglang": {"unit_id": self._words.units}})

    def _end(self, now: float) -> None:
        """No more sound comes: what waits becomes a last turn, or is let go of."""
        if self._ended:
            raise BadEvent("The sound was ended already.", "invalid_state", "type")
        self._ended = True
        self._say({"type": "sglang.input_audio.ended", "accepted_end_ms": round(self._words.accepted_ms)})
        waiting = self._inner.waiting_ms
        if self._words.tail_policy == "reject":
            self._discarded_ms += waiting
            self._inner.take({"type": "input_audio_buffer.clear"}, now)
            return
        if self._words.tail_policy == "pad" and waiting % UNIT_MS:
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
                "accepted_end_ms": round(self._words.accepted_ms),
                "consumed_ms": round(self._words.accepted_ms - self._discarded_ms),
                "discarded_ms": round(self._discarded_ms),
                "padding_ms": round(self._padding_ms),
            }
            self._say({"type": "sglang.input_audio.drained", **spent})

    def _collect(self) -> None:
        """Take over what `inner` asks for, in this dialect's words."""
        for action in self._inner.actions():
            if isinstance(action, Send) and isinstance(action.event, dict) and self._engaged:
                self._out += [Send(event) for event in self._words.of(action.event)]
            else:
                self._out.append(action)

    def _say(self, event: Event) -> None:
        self._collect()
        self._out.append(Send(self._words.numbered(event)))


def _sampling(asked: Fields) -> Event:
    out: dict[str, dict[str, Any]] = {}
    for name, (stage, inner) in SAMPLING.items():
        if (value := asked.raw(name)) is not None:
            out.setdefault(stage, {})[inner] = value
    asked.end()
    return out


def _closing_ms(detection: Detection) -> float:
    """Silence that surely ends a turn."""
    return 8_500.0 if detection.type == "semantic_vad" else detection.silence_duration_ms + 200.0
