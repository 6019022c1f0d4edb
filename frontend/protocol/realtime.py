"""`/v1/realtime`: one conversation of speech, text and pictures, as OpenAI's GA protocol has it.

This is the only state machine; the other dialects are translations of what goes in and out (`realtime_dialects`). Time
is counted in samples of the sound that came in, except for how long a client may be idle and how long a session lives.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from frontend.protocol import realtime_events as say
from frontend.protocol.answers import Answers
from frontend.protocol.camera import Camera
from frontend.protocol.conversation import Conversation, Item, Picture, Speech
from frontend.protocol.fields import BadEvent, Fields
from frontend.protocol.intake import Intake, sound
from frontend.protocol.listening import Happening, Heard, Listening
from frontend.protocol.realtime_config import Config, Detection, Format, Offer, for_response, updated
from frontend.protocol.realtime_dialects import OPENAI, Dialect, dialect_of
from frontend.protocol.senses import Senses
from frontend.protocol.session import Action, Close, Send, Work
from frontend.protocol.speech import Split, Started, Stopped
from omni.contract.chunk import Chunk
from omni.contract.errors import OmniError
from omni.contract.job import MediaPart

Event = dict[str, Any]

GOING_AWAY: Final = 1001
"""Close code of a session that was idle for too long or is too old."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one session may hold."""

    buffer_s: float = 300.0
    """Sound that waits to be part of a turn."""
    turn_s: float = 60.0
    """A turn that is found by its voice is split when it is longer."""
    items: int = 1_000
    chars: int = 400_000
    """Text of the conversation."""
    media_bytes: int = 64 << 20
    """Sound and pictures of the conversation, encoded."""
    image_bytes: int = 8 << 20
    frames: int = 8
    """Camera frames that wait for a turn; the newest are kept."""
    responses: int = 4
    """At a time, in and outside of the conversation."""
    idle_s: float = 900.0
    """Without a word of the client and without an answer."""
    age_s: float = 3_600.0


class Realtime:
    """A `Session`. It begins to speak when it is made."""

    def __init__(
        self,
        offer: Offer,
        limits: Limits,
        senses: Senses,
        *,
        now: float,
        created: float,
        dialect: Dialect = OPENAI,
        prefill: bool = True,
        session: Mapping[str, Any] | None = None,
        new_id: Callable[[str], str] | None = None,
    ) -> None:
        """`created` is Unix time; `prefill` whether pictures are read ahead; `session` is what it
        begins with, as in a GA `session.update`; raises `BadEvent` when it can't."""
        self._offer = offer
        self._limits = limits
        self._senses = senses
        self._dialect = dialect
        self._prefill = prefill
        self._new_id = new_id or (lambda kind: f"{kind}_{uuid.uuid4().hex[:24]}")
        self._out: list[Action] = []
        self._closed = False
        self._id = self._new_id("sess")
        self._expires_at = int(created + limits.age_s)
        self._expires = now + limits.age_s
        self._active = now
        self._config = updated(Config.default(offer), Fields(dialect.defaults, "session"), offer)
        self._config = updated(self._config, Fields(session or {}, "session"), offer)
        self._conversation = Conversation()
        conversation_id = self._new_id("conv")
        self._answers = Answers(
            self._id,
            conversation_id,
            self._conversation,
            senses,
            most=limits.responses,
            send=self._send,
            do=self._out.append,
            new_id=self._new_id,
            forget_oldest=self._forget_oldest,
        )
        self._listening = self._listen(self._config.listen, 0.0)
        self._spoken: str | None = None
        """Id that the turn which is being spoken will have as an item."""
        self._owed = False
        """Whether a turn waits for the answer before it to end."""
        self._nudged = False
        """Whether the idle timeout has come since the last answer."""
        self._camera = Camera(limits.frames)
        self._intake = Intake(
            senses, image_bytes=limits.image_bytes, item_bytes=limits.media_bytes, item_chars=limits.chars
        )
        self._first = True
        self._send({"type": "session.created", "session": self._session_json()})
        self._send({"type": "conversation.created", "conversation": _conversation_json(conversation_id)})

    # Session

    def receive(self, message: str | bytes, now: float) -> None:
        try:
            event = say.read(message)
        except BadEvent as problem:
            self.refuse(problem)
        else:
            self.take(event, now)

    def take(self, event: Event, now: float) -> bool:
        """Obey an event of the client; False when it was answered with an error, and nothing came of it."""
        if self._closed:
            return False
        self._active = now
        if self._first:
            self._first = False
            self._dialect = dialect_of(event, self._dialect)
        try:
            self._obey(say.parse(self._dialect.inbound(event)), now)
        except BadEvent as problem:
            self.refuse(problem, say.event_id(event))
            return False
        self._next(now)
        return True

    def refuse(self, problem: BadEvent, about: str | None = None) -> None:
        """Answer an event with an error; `about` is the event's id."""
        if not self._closed:
            self._error(problem, about)

    def answer(self, now: float) -> None:
        """The user's turn is over, however that is known: it is answered as soon as may be."""
        self._owed = True
        self._next(now)

    @property
    def heard_ms(self) -> float:
        """Where the sound that has come so far ends on the session's timeline."""
        return self._listening.now_ms

    @property
    def waiting_ms(self) -> float:
        """Sound that is in no turn yet."""
        return self._listening.samples * 1000 / self._listening.rate

    @property
    def listen_rate(self) -> int:
        """Hertz of the sound that comes in."""
        return self._listening.rate

    @property
    def detection(self) -> Detection | None:
        """How turns are found."""
        return self._config.detection

    @property
    def quiet(self) -> bool:
        """Whether all sound has been listened to, and no answer lives or is due."""
        return self._listening.idle and not self._owed and self._answers.idle

    def stop(self, now: float) -> None:
        """Cancel everything that lives."""
        self._answers.cancel_all(now)

    def close(self, code: int, reason: str, now: float) -> None:
        """End the session; what still lives is cancelled."""
        self.stop(now)
        self._out.append(Close(code, reason))
        self._closed = True

    def worked(self, key: object, result: Any, now: float) -> None:
        if self._closed:
            return
        if isinstance(key, MediaPart):
            self._looked(key, result)
        elif key is self._listening:  # and not what listened to a format that is no longer spoken
            self._listened(result, now)

    def _listened(self, result: Any, now: float) -> None:
        if not isinstance(result, Heard):
            self._error(BadEvent("The sound could not be listened to; it was dropped.", "turn_detection_failed"))
        for happening in self._listening.heard(result if isinstance(result, Heard) else None):
            self._happened(happening, now)
        self._next(now)

    def feed(self, turn: int, chunk: Chunk, now: float) -> None:
        self._answers.feed(turn, chunk, now)

    def ended(self, turn: int, error: OmniError | None, now: float) -> None:
        self._answers.ended(turn, error, now)
        self._next(now)

    def flushed(self, now: float) -> None:
        return None

    def handle_timer(self, now: float) -> None:
        if self._closed:
            return
        if now >= self._expires:
            minutes = self._limits.age_s / 60
            self._finish(f"The session reached its maximum duration of {minutes:g} minutes.", "session_expired", now)
        elif (due := self._idle_due()) is not None and now >= due:
            self._finish(f"Nothing was heard for {self._limits.idle_s:g} seconds.", "session_idle", now)
        elif (due := self._nudge_due()) is not None and now >= due:
            self._nudge(now)

    def next_timer(self) -> float | None:
        if self._closed:
            return None
        return min(due for due in (self._expires, self._idle_due(), self._nudge_due()) if due is not None)

    def actions(self) -> list[Action]:
        out = self._out[:]
        self._out.clear()
        return out

    def lost(self, now: float) -> None:
        self._answers.cancel_all(now)
        self._closed = True
        self._out[:] = [action for action in self._out if not isinstance(action, Send | Work | Close)]

    # Commands

    def _obey(self, command: say.Command, now: float) -> None:
        match command:
            case say.Append(audio):
                self._listening.append(self._senses.decode(audio, self._config.listen))
            case say.AppendImage(image, at_ms):
                self._show(image, at_ms)
            case say.Update(session):
                self._configure(updated(self._config, session, self._offer))
                self._send({"type": "session.updated", "session": self._session_json()})
            case say.Commit():
                self._commit()
            case say.Clear():
                self._listening.clear()
                self._spoken = None
                self._camera.clear()
                self._send({"type": "input_audio_buffer.cleared"})
            case say.CreateItem(item, after):
                self._create(item, after)
            case say.RetrieveItem(id):
                found = self._conversation.find(id)
                self._send({"type": "conversation.item.retrieved", "item": found.to_json(media=True)})
            case say.DeleteItem(id):
                self._delete(id)
            case say.TruncateItem():
                self._truncate(command, now)
            case say.CreateResponse():
                self._create_response(command)
            case say.CancelResponse(id):
                response = self._answers.find(id)
                if response is None:
                    raise BadEvent("There is no active response to cancel.", "response_cancel_not_active")
                self._answers.cancel(response, "client_cancelled", now)

    def preset(self, session: Mapping[str, Any]) -> None:
        """As a `session.update`, but nothing is said about it. Raises `BadEvent`."""
        self._configure(updated(self._config, Fields(session, "session"), self._offer))

    def _configure(self, config: Config) -> None:
        before, self._config = self._config, config
        if config.listen != before.listen:
            self._listening = self._listen(config.listen, self._listening.now_ms)
        else:
            self._listening.detect(config.detection)
        if not self._listening.speaking:
            self._spoken = None

    def _commit(self) -> None:
        id = self._spoken or self._new_id("item")
        pcm, began = self._listening.commit()
        self._spoken = None
        self._turn(id, pcm, began, self._listening.now_ms)
        self._answers.settle()

    def _create(self, raw: say.RawItem, after: str | None) -> None:
        item = self._item(raw)
        before = self._conversation.add(item, after)
        self._added(item, before)
        self._answers.transcribe(item, self._config)
        self._answers.settle()
        if self._prefill and any(isinstance(one, Picture) for one in item.content):
            self._answers.prefill(self._config, [])

    def _create_response(self, command: say.CreateResponse) -> None:
        config = for_response(self._config, command.response, self._offer)
        command.response.end()
        items: list[Item] | None = None
        if command.input is not None:
            items = [
                self._conversation.find(one.id) if isinstance(one, say.Reference) else self._item(one)
                for one in command.input
            ]
        self._answers.ask(config, in_conversation=command.in_conversation, metadata=command.metadata, items=items)
        if command.in_conversation:
            self._owed = self._nudged = False

    def _delete(self, id: str) -> None:
        live = self._answers.live
        if live is not None and live.item.id == id:
            raise BadEvent("The item is still being spoken; cancel its response first.", "item_in_progress", "item_id")
        self._conversation.remove(id)
        self._answers.forget(id)
        self._send({"type": "conversation.item.deleted", "item_id": id})

    def _truncate(self, command: say.TruncateItem, now: float) -> None:
        item = self._conversation.find(command.id)
        index = command.content_index
        speech = item.content[index] if index < len(item.content) else None
        if not isinstance(speech, Speech):
            raise BadEvent("Only the audio of an assistant's item can be truncated.", "invalid_value", "content_index")
        live = self._answers.live
        if live is not None and live.item is item:
            self._answers.cancel(live, "client_cancelled", now)
        speech.truncate(command.audio_end_ms)
        where = {"item_id": item.id, "content_index": index, "audio_end_ms": command.audio_end_ms}
        self._send({"type": "conversation.item.truncated", **where})

    def _show(self, image: bytes, at_ms: float | None) -> None:
        """A camera frame: it waits for the turn whose time it belongs to."""
        frame = self._intake.image(image, "image", self._listening.now_ms if at_ms is None else at_ms)
        self._camera.add(frame)
        self._out.append(Work(frame, lambda: self._senses.thumbnail(image)))

    def _looked(self, frame: MediaPart, thumbnail: Any) -> None:
        broken = isinstance(thumbnail, Exception)
        if broken:
            self._error(BadEvent("The image can't be decoded.", "invalid_media", "image"))
        if self._camera.looked(frame, None if broken else thumbnail) and self._prefill:
            self._answers.prefill(self._config, [Item("", "user", [Picture(one) for one in self._camera])])

    # Turns of the user

    def _happened(self, happening: Happening, now: float) -> None:
        match happening:
            case Started(at):
                self._nudged = False
                self._spoken = self._new_id("item")
                self._speech("started", audio_start_ms=round(self._listening.ms(at)))
                live, detection = self._answers.live, self._config.detection
                if live is not None and detection is not None and detection.interrupt_response:
                    self._answers.cancel(live, "turn_detected", now)
            case Stopped(start, at):
                self._speech("stopped", audio_end_ms=round(self._listening.ms(at)))
                self._cut(start, at)
                if self._config.detection is not None and self._config.detection.create_response:
                    self._owed = True
            case Split(start, at):
                self._speech("stopped", audio_end_ms=round(self._listening.ms(at)))
                self._cut(start, at)
                self._spoken = self._new_id("item")
                self._speech("started", audio_start_ms=round(self._listening.ms(at)))

    def _cut(self, start: int, end: int) -> None:
        assert self._spoken is not None
        id, self._spoken = self._spoken, None
        self._turn(id, self._listening.cut(start, end), self._listening.ms(start), self._listening.ms(end))

    def _turn(self, id: str, pcm: bytes, began_ms: float, ended_ms: float) -> None:
        """A turn is complete: its sound, behind the camera frames of its time, is an item."""
        seen = map(Picture, self._camera.take(began_ms, ended_ms))
        item = Item(id, "user", [*seen, sound(pcm, self._listening.rate, "audio", began_ms)])
        self._send({"type": "input_audio_buffer.committed", "previous_item_id": self._conversation.last, "item_id": id})
        self._added(item, self._conversation.add(item))
        self._answers.transcribe(item, self._config)

    def _nudge(self, now: float) -> None:
        """The user has said nothing for so long that the model is to speak first."""
        self._nudged = True
        id = self._new_id("item")
        end = self._listening.now_ms
        waiting = self._listening.samples * 1000 / self._listening.rate
        spoke = {"audio_start_ms": round(end - waiting), "audio_end_ms": round(end), "item_id": id}
        self._send({"type": "input_audio_buffer.timeout_triggered", **spoke})
        try:
            pcm, began = self._listening.commit()
        except BadEvent:
            pass  # nothing was heard at all: there is only the conversation to go by
        else:
            self._turn(id, pcm, began, end)
        self._owed = True
        self._next(now)

    def _next(self, now: float) -> None:
        """What is due after anything happened: the answer to a turn, and the next piece for the ear."""
        if self._closed:
            return
        if self._owed and self._answers.live is None and not self._listening.speaking:
            self._owed = False
            self._ask()
        self._answers.settle()
        if (hear := self._listening.work()) is not None:
            self._out.append(Work(self._listening, hear))

    def _ask(self) -> None:
        try:
            self._answers.ask(self._config)
        except BadEvent as problem:
            self._error(problem)

    # Items

    def _item(self, raw: say.RawItem) -> Item:
        """Raises `BadEvent`."""
        return self._intake.item(raw, raw.id or self._new_id("item"), self._config.listen)

    def _added(self, item: Item, before: str | None) -> None:
        shown = item.to_json()
        self._send({"type": "conversation.item.added", "previous_item_id": before, "item": shown})
        self._send({"type": "conversation.item.done", "previous_item_id": before, "item": shown})
        self._fit(item)

    def _fit(self, newest: Item) -> None:
        """Keep the conversation within its limits: let go of speech that was played, then of the oldest turns."""
        limits, conversation = self._limits, self._conversation
        live = self._answers.live
        if conversation.nbytes > limits.media_bytes:
            for item in conversation:
                for one in item.content:
                    if isinstance(one, Speech) and (live is None or item is not live.item):
                        one.pcm = None
        while (
            len(conversation) > limits.items
            or conversation.chars > limits.chars
            or conversation.nbytes > limits.media_bytes
        ):
            if not self._forget_oldest():
                spare = {newest.id, live.item.id if live is not None else ""}
                oldest = next((item.id for item in conversation if item.id not in spare), None)
                if oldest is None:
                    return
                self._delete(oldest)

    def _forget_oldest(self) -> bool:
        """Compaction: the oldest turn leaves the conversation, and the client is told."""
        live = self._answers.live
        gone = [id for id in self._conversation.oldest_turn() if live is None or id != live.item.id]
        for id in gone:
            self._delete(id)
        return bool(gone)

    # Saying things

    def _send(self, event: Event) -> None:
        for shown in self._dialect.outbound(event):
            self._out.append(Send({"type": shown["type"], "event_id": self._new_id("event"), **shown}))

    def _error(self, problem: BadEvent, about: str | None = None) -> None:
        kind = "server_error" if problem.code == "turn_detection_failed" else "invalid_request_error"
        words = {"type": kind, "code": problem.code, "message": problem.message, "param": problem.param}
        self._send({"type": "error", "error": {**words, "event_id": about}})

    def _speech(self, what: str, **when: int) -> None:
        self._send({"type": f"input_audio_buffer.speech_{what}", **when, "item_id": self._spoken})

    def _finish(self, message: str, code: str, now: float) -> None:
        self.stop(now)
        self._error(BadEvent(message, code))
        self.close(GOING_AWAY, code, now)

    def _session_json(self) -> Event:
        own = {"id": self._id, "object": "realtime.session", "expires_at": self._expires_at}
        return {**own, **self._config.to_json()}

    def _listen(self, format: Format, began_ms: float) -> Listening:
        ear = self._senses.ear(format.rate)
        limits = self._limits
        listening = Listening(ear, format.rate, buffer_s=limits.buffer_s, turn_s=limits.turn_s, began_ms=began_ms)
        listening.detect(self._config.detection)
        return listening

    # Timers

    def _idle_due(self) -> float | None:
        return self._active + self._limits.idle_s if self._answers.idle else None

    def _nudge_due(self) -> float | None:
        """When the idle timeout of the turn detection comes: it counts from when the last answer has been played."""
        detection = self._config.detection
        answers = self._answers
        if detection is None or detection.idle_timeout_ms is None or self._nudged or not answers.last_ended:
            return None
        if answers.live is not None or self._listening.speaking or self._owed:
            return None
        return max(answers.last_ended, answers.playing_until) + detection.idle_timeout_ms / 1000


def _conversation_json(id: str) -> Event:
    return {"id": id, "object": "realtime.conversation"}
