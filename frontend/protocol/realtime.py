"""`/v1/realtime`: one conversation of speech, text and pictures, as OpenAI's GA protocol has it.

This is the only state machine; the other dialects are translations of what goes in and out (`realtime_dialects`). Time
is counted in samples of the sound that came in, except for how long a client may be idle and how long a session lives.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

from frontend.protocol import realtime_events as say
from frontend.protocol.answers import Answers
from frontend.protocol.conversation import Item, Picture
from frontend.protocol.fields import BadEvent, Fields
from frontend.protocol.history import History
from frontend.protocol.intake import Intake
from frontend.protocol.realtime_config import Config, Detection, Offer, for_response, updated
from frontend.protocol.realtime_dialects import OPENAI, Dialect, dialect_of
from frontend.protocol.realtime_limits import Limits
from frontend.protocol.senses import Senses
from frontend.protocol.session import Action, Close, Hear, Send, Work
from frontend.protocol.turn_taking import TurnTaking
from omni.contract.chunk import Chunk
from omni.contract.errors import OmniError
from omni.contract.job import MediaPart

Event = dict[str, Any]

GOING_AWAY: Final = 1001
"""Close code of a session that was idle for too long or is too old."""


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
        ahead_s: float | None = None,
        session: Mapping[str, Any] | None = None,
        new_id: Callable[[str], str] | None = None,
        on_speech: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`created` is Unix time; `prefill` whether pictures are read ahead; `ahead_s` the seconds of
        speech that are read ahead at a time, None for none; `session` is what it begins with, as in a GA
        `session.update`; `on_speech` hears what voice detection found. Raises `BadEvent` when `session` can't be."""
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
        conversation_id = self._new_id("conv")
        self._history = History(limits, send=self._send, live=self._live, gone=lambda id: self._answers.forget(id))
        self._answers = Answers(
            self._id,
            conversation_id,
            self._history.conversation,
            senses,
            most=limits.responses,
            send=self._send,
            do=self._out.append,
            new_id=self._new_id,
            forget_oldest=self._history.forget_oldest,
        )
        self._user = TurnTaking(
            self._config,
            limits,
            senses,
            self,
            ahead_s=ahead_s,
            send=self._send,
            do=self._out.append,
            new_id=self._new_id,
            on_speech=on_speech,
        )
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
        self._user.owed = True
        self._next(now)

    @property
    def heard_ms(self) -> float:
        """Where the sound that has come so far ends on the session's timeline."""
        return self._user.listening.now_ms

    @property
    def waiting_ms(self) -> float:
        """Sound that is in no turn yet."""
        return self._user.listening.samples * 1000 / self._user.listening.rate

    @property
    def listen_rate(self) -> int:
        """Hertz of the sound that comes in."""
        return self._user.listening.rate

    @property
    def detection(self) -> Detection | None:
        """How turns are found."""
        return self._config.detection

    @property
    def quiet(self) -> bool:
        """Whether all sound has been listened to, and no answer lives or is due."""
        return self._user.listening.idle and not self._user.owed and self._answers.idle

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
        try:
            if not isinstance(key, MediaPart):
                self._user.heard(key, result, now)
            elif self._user.looked(key, result) and self._prefill:
                self._answers.prefill(self._config, self._user.seen())
        except BadEvent as problem:
            self._error(problem)
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
            self._user.nudge()
            self._next(now)

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
        # The parts of a session know each other, so it waits, perhaps for minutes, for the garbage collector; not so
        # the megabytes of sound and pictures.
        self._history.conversation.clear()
        self._out[:] = [action for action in self._out if not isinstance(action, Send | Work | Hear | Close)]

    # Commands

    def _obey(self, command: say.Command, now: float) -> None:
        match command:
            case say.Append(audio):
                self._user.append(audio)
            case say.AppendImage(image, at_ms):
                at = self.heard_ms if at_ms is None else at_ms
                self._user.show(self._intake.image(image, "image", at))
            case say.Update(session):
                self._configure(updated(self._config, session, self._offer))
                self._send({"type": "session.updated", "session": self._session_json()})
            case say.Commit():
                self._user.commit()
                self._answers.settle()
            case say.Clear():
                self._user.clear()
            case say.CreateItem(item, after):
                self._create(item, after)
            case say.RetrieveItem(id):
                self._history.retrieve(id)
            case say.DeleteItem(id):
                self._history.delete(id)
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
        self._config = config
        self._user.configure(config)

    def _create(self, raw: say.RawItem, after: str | None) -> None:
        item = self._item(raw)
        self._history.add(item, after)
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
                self._history.conversation.find(one.id) if isinstance(one, say.Reference) else self._item(one)
                for one in command.input
            ]
        self._answers.ask(config, in_conversation=command.in_conversation, metadata=command.metadata, items=items)
        if command.in_conversation:
            self._user.answered()

    def _truncate(self, command: say.TruncateItem, now: float) -> None:
        index = command.content_index
        speech = self._history.speech(command.id, index)
        live = self._answers.live
        if live is not None and live.item.id == command.id:
            self._answers.cancel(live, "client_cancelled", now)
        speech.truncate(command.audio_end_ms)
        where = {"item_id": command.id, "content_index": index, "audio_end_ms": command.audio_end_ms}
        self._send({"type": "conversation.item.truncated", **where})

    # Turns of the user

    def spoke_up(self, now: float) -> None:
        """Barge-in."""
        live, detection = self._answers.live, self._config.detection
        if live is not None and detection is not None and detection.interrupt_response:
            self._answers.cancel(live, "turn_detected", now)

    def ahead(self, item: Item) -> None:
        self._answers.prefill(self._config, [item])

    def turn(self, item: Item) -> None:
        before = self._history.conversation.last
        self._send({"type": "input_audio_buffer.committed", "previous_item_id": before, "item_id": item.id})
        self._history.add(item)
        self._answers.transcribe(item, self._config)

    def _next(self, now: float) -> None:
        """What is due after anything happened: the answer to a turn, and the next piece for the ear."""
        if self._closed:
            return
        if self._user.owed and self._answers.live is None and not self._user.speaking:
            self._user.owed = False
            self._ask()
        self._answers.settle()
        self._user.listen()

    def _ask(self) -> None:
        try:
            self._answers.ask(self._config)
        except BadEvent as problem:
            self._error(problem)

    # Items

    def _item(self, raw: say.RawItem) -> Item:
        """Raises `BadEvent`."""
        return self._intake.item(raw, raw.id or self._new_id("item"), self._config.listen)

    def _live(self) -> Item | None:
        """What is being spoken."""
        return None if self._answers.live is None else self._answers.live.item

    # Saying things

    def _send(self, event: Event) -> None:
        for shown in self._dialect.outbound(event):
            self._out.append(Send({"type": shown["type"], "event_id": self._new_id("event"), **shown}))

    def _error(self, problem: BadEvent, about: str | None = None) -> None:
        kind = "server_error" if problem.code == "turn_detection_failed" else "invalid_request_error"
        words = {"type": kind, "code": problem.code, "message": problem.message, "param": problem.param}
        self._send({"type": "error", "error": {**words, "event_id": about}})

    def _finish(self, message: str, code: str, now: float) -> None:
        self.stop(now)
        self._error(BadEvent(message, code))
        self.close(GOING_AWAY, code, now)

    def _session_json(self) -> Event:
        own = {"id": self._id, "object": "realtime.session", "expires_at": self._expires_at}
        return {**own, **self._config.to_json()}

    # Timers

    def _idle_due(self) -> float | None:
        return self._active + self._limits.idle_s if self._answers.idle else None

    def _nudge_due(self) -> float | None:
        """When the idle timeout of the turn detection comes: it counts from when the last answer has been played."""
        answers = self._answers
        if answers.live is not None or not answers.last_ended:
            return None
        return self._user.nudge_due(max(answers.last_ended, answers.playing_until))


def _conversation_json(id: str) -> Event:
    return {"id": id, "object": "realtime.conversation"}
