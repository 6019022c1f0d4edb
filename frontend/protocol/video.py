"""The streaming video protocol: frames and sound come in as they are seen and heard, and are asked about.

    CONFIG ── session.config ──► OPEN ── video.done ──► DRAINING ── the last turn ends ──► CLOSED

Messages take effect in the order in which they came. A frame is looked at by a worker first, so what came after it
waits in a lane behind it; only what can't wait, such as stopping an answer that is being interrupted, happens at once.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
import pybase64

from frontend.protocol.frames import Frame
from frontend.protocol.lane import Lane
from frontend.protocol.session import Action, Cancel, Close, Send, Start, Work
from frontend.protocol.turns import Outcome, Turns
from frontend.protocol.video_answer import Answer, Event
from frontend.protocol.video_audio import Hearing
from frontend.protocol.video_config import SessionConfig, parse
from frontend.protocol.video_deployment import Deployment
from frontend.protocol.video_prompt import Conversation
from frontend.protocol.video_sight import Sight, error, refusal
from frontend.protocol.warmup import Warmup
from omni.contract.chunk import Chunk
from omni.contract.errors import InvalidMedia, InvalidRequest, MediaMissing, OmniError, TooLarge

MAX_LANE: Final = 1024
"""Messages that may wait behind a frame; a client that sends more is not in earnest."""
MAX_SHOWN: Final = 100
"""Characters of an unknown type that an error repeats."""
MAX_RESENDS: Final = 2
"""How often the stages may say that they lack the bytes of frames before a turn has failed."""


class State(enum.Enum):
    CONFIG = enum.auto()
    OPEN = enum.auto()
    DRAINING = enum.auto()
    CLOSED = enum.auto()


@dataclass(slots=True, eq=False)
class _Query:
    """A question, from its message until its turn is over."""

    text: Any
    pcm: bytes
    frames: list[Frame] = field(default_factory=list)
    resends: int = 0


class VideoSession:
    """One connection, as `frontend.protocol.session.Session`."""

    def __init__(self, deployment: Deployment, now: float) -> None:
        self.state = State.CONFIG
        self._deployment = deployment
        self._limits = deployment.limits
        self._out: list[Action] = []
        self._since = now
        """When the client was last heard or the last thing for it was done; the clock of both timeouts."""
        self._unsent = False
        self._lane: Lane[Frame] = Lane()
        self._hearing = Hearing(self._limits.audio_bytes, self._limits.audio_overflow, deployment.budget)
        self._turns = Turns()
        self._waiting: _Query | None = None
        """The question that is in the lane."""
        self._query: _Query | None = None
        """The question that is being answered,"""
        self._answer: Answer | None = None
        """and its answer. Both are there while a turn lives."""
        self._configure(SessionConfig())

    def _configure(self, config: SessionConfig) -> None:
        self._config = config
        self._sight = Sight(config, self._deployment)
        self._conversation = Conversation(self._deployment.new_id(), config)
        self._warmup = Warmup(self._deployment.prefill)

    # -- what the driver tells

    def receive(self, message: str | bytes, now: float) -> None:
        if self.state is State.CONFIG:
            self._receive_config(message)
        elif self.state is State.OPEN:
            self._receive_open(message, now)
        self._since = now
        self._settle()

    def worked(self, key: Hashable, result: Any, now: float) -> None:
        self._lane.release(key, result)
        self._settle()

    def feed(self, turn: int, chunk: Chunk, now: float) -> None:
        if self._warmup.heard(turn) or self._turns.find(turn) is None:
            return
        assert self._query is not None
        assert self._answer is not None
        for frame in self._query.frames:
            frame.delivered = True
        self._send(self._answer.feed(chunk, now))

    def ended(self, turn: int, error: OmniError | None, now: float) -> None:
        if self._warmup.running == turn:
            self._end_warmup(error)
        elif self._turns.find(turn) is not None and not (error and self._ask_again(error)):
            self._end_turn("completed" if error is None else "failed", error)
        self._since = now
        self._settle()

    def flushed(self, now: float) -> None:
        if self._unsent:
            self._unsent = False
            self._since = now

    def handle_timer(self, now: float) -> None:
        timer = self.next_timer()
        if timer is None or now < timer:
            return
        if self.state is State.CONFIG:
            self._fail("Timeout waiting for session.config", Close(1008, "no session.config"), "timeout")
        else:
            self._fail("Idle timeout", Close(4408, "idle"), "timeout")

    def next_timer(self) -> float | None:
        if self.state is State.CONFIG:
            return self._since + self._limits.config_timeout
        busy = self._unsent or self._lane or self._turns.live is not None
        return None if self.state is not State.OPEN or busy else self._since + self._limits.idle_timeout

    def actions(self) -> list[Action]:
        out, self._out = self._out, []
        return out

    def lost(self, now: float) -> None:
        if (turn := self._turns.live) is not None:
            self._out.append(Cancel(turn.number))
            self._turns.end("cancelled")
        self._close()

    # -- messages

    def _receive_config(self, message: str | bytes) -> None:
        close = Close(1008, "no session.config")
        try:
            event = orjson.loads(message) if isinstance(message, str) else message
        except orjson.JSONDecodeError:
            return self._fail("Invalid JSON in session.config", close)
        kind = event.get("type") if isinstance(event, dict) else type(event).__name__
        if not isinstance(event, dict) or kind != "session.config":
            return self._fail(f"Expected session.config, got: {_shown(kind)}", close)
        of = self._deployment
        try:
            self._configure(parse(event, voices=of.voices, speech=of.speech, max_text=self._limits.text_chars))
        except InvalidRequest as problem:
            return self._fail(f"Invalid session config: {problem.message}", Close(1008, "invalid session.config"))
        self.state = State.OPEN
        return None

    def _receive_open(self, message: str | bytes, now: float) -> None:
        try:
            event = orjson.loads(message) if isinstance(message, str) else message
        except orjson.JSONDecodeError:
            return self._tell(error("Invalid JSON"))
        if isinstance(event, bytes):
            return self._tell(error("Binary messages are not supported"))
        if not isinstance(event, dict):
            return self._tell(error("Messages must be JSON objects"))
        kind = event.get("type")
        handler = _HANDLERS.get(kind) if isinstance(kind, str) else None
        if handler is None:
            return self._tell(error(f"Unknown type: {_shown(kind)}"))
        return handler(self, event, now)

    def _on_ping(self, event: Mapping[str, Any], now: float) -> None:
        self._tell({"type": "pong"})

    def _on_frame(self, event: Mapping[str, Any], now: float) -> None:
        data = event.get("data")
        if not data:
            return
        try:
            frame = self._sight.read(data, event, now)
        except OmniError as problem:
            self._tell(refusal(problem))
            return
        look = self._sight.look(frame)

        def take(result: Any) -> None:
            self._send(self._sight.take(frame, result))

        if self._sight.is_quick(frame):
            self._lane.add(take, frame, _tried(look))
        else:
            self._lane.hold(frame.number, take, frame)
            self._out.append(Work(frame.number, look))

    def _on_audio(self, event: Mapping[str, Any], now: float) -> None:
        self._hear(event.get("data"))

    def _on_query(self, event: Mapping[str, Any], now: float) -> None:
        """An answer that is being given is stopped at once; the new question waits for the frames before it."""
        self._end_turn("cancelled")
        if self._waiting is not None:
            self._hearing.give_back(self._waiting.pcm)
        self._hear(event.get("audio_data"))
        query = self._waiting = _Query(event.get("text") or "", self._hearing.take())
        self._then(lambda _: self._ask(query))

    def _on_done(self, event: Mapping[str, Any], now: float) -> None:
        self.state = State.DRAINING
        self._stop_warmup()

    def _hear(self, data: Any) -> None:
        """Whatever isn't base64 is skipped, as the protocol has it."""
        if not data:
            return
        if not isinstance(data, str):
            self._tell(error("Invalid audio data"))
            return
        try:
            pcm = pybase64.b64decode(data)
        except ValueError:
            return
        if not self._hearing.append(pcm):
            self._tell(error("Audio buffer overflow", TooLarge.code))

    # -- the lane

    def _then(self, run: Callable[[Any], None]) -> None:
        """Do something once everything that came before has taken effect."""
        self._lane.add(run)
        if len(self._lane) > MAX_LANE:
            self._fail("Too many messages", Close(1013, "too many messages"), "overloaded")

    def _tell(self, event: Event) -> None:
        """Answer a message, in its turn."""
        self._then(lambda _: self._send([event]))

    def _settle(self) -> None:
        """Bring everything as far as it goes."""
        self._lane.run()
        if self._lane or self._turns.live is not None:
            return
        if self.state is State.DRAINING:
            self._send([{"type": "session.done"}])
            self._out.append(Close(1000, "done"))
            self._close()
        elif self.state is State.OPEN:
            self._warm_up()

    # -- turns

    def _ask(self, query: _Query) -> None:
        if query is not self._waiting:  # another one has overtaken it
            return None
        self._waiting = None
        query.frames = self._sight.question()
        problem = self._config.sampling_problem
        if not isinstance(query.text, str):
            problem = InvalidRequest("text must be a string")
        elif len(query.text) > self._limits.text_chars:
            problem = TooLarge(f"text may have {self._limits.text_chars} characters")
        if not query.frames:
            self._send([error("No frames buffered")])
        elif problem is not None:
            self._send([error(f"Failed to build request: {problem.message}", problem.code)])
        else:
            self._stop_warmup()
            return self._begin_turn(query)
        self._hearing.give_back(query.pcm)
        return None

    def _begin_turn(self, query: _Query) -> None:
        id = self._deployment.new_id()
        turn = self._turns.begin(f"video-{id[:12]}")
        streamed = self._deployment.streamed()
        self._query = query
        self._answer = Answer(turn, self._config, streamed, query.frames, self._sight.named)
        self._out.append(Start(turn.number, self._conversation.query(id, query.frames, query.pcm, query.text)))

    def _ask_again(self, error: OmniError) -> bool:
        """Whether the turn, of which the client has seen nothing yet, could be asked for once more."""
        query, turn, answer = self._query, self._turns.live, self._answer
        if query is None or turn is None or answer is None or turn.started:
            return False
        if isinstance(error, MediaMissing) and query.resends < MAX_RESENDS:
            query.resends += 1
            self._resend(query.frames)
        elif (bad := self._undecodable(error, query.frames)) is not None:
            query.frames = answer.frames = [frame for frame in query.frames if frame.digest != bad.digest]
        else:
            return False
        turn.number = self._turns.number()
        job = self._conversation.query(self._deployment.new_id(), query.frames, query.pcm, query.text)
        self._out.append(Start(turn.number, job))
        return True

    def _end_turn(self, outcome: Outcome, error: OmniError | None = None) -> None:
        """Say what is missing of the living turn, if there is one. Only a completed one is remembered."""
        turn, query, answer = self._turns.live, self._query, self._answer
        if turn is None or query is None or answer is None:
            return
        if outcome == "cancelled":
            self._out.append(Cancel(turn.number))
        self._send(answer.end(outcome, error))
        self._turns.end(outcome)
        self._query = self._answer = None
        if outcome == "completed":
            self._conversation = self._conversation.after(query.text, turn.text)
        else:
            self._hearing.give_back(query.pcm)

    def _undecodable(self, problem: OmniError, asked: Iterable[Frame]) -> Frame | None:
        """The frame that the stages couldn't decode, which is let go of."""
        if not isinstance(problem, (InvalidMedia, TooLarge)):
            return None
        bad = self._sight.undecodable(problem.param, asked)
        if bad is not None:
            self._send([error("Frame decode failed", InvalidMedia.code)])
        return bad

    def _resend(self, frames: Iterable[Frame]) -> None:
        """The stages lost what they were given."""
        self._sight.forget_delivery()
        for frame in frames:
            frame.delivered = False

    # -- prefill

    def _warm_up(self) -> None:
        if self._warmup.due(self._conversation, self._sight.frames):
            number = self._turns.number()
            frames = list(self._sight.frames)
            self._warmup.begin(number, self._conversation, frames)
            self._out.append(Start(number, self._conversation.warmup(self._deployment.new_id(), frames)))

    def _end_warmup(self, problem: OmniError | None) -> None:
        frames = self._warmup.end(problem)
        if isinstance(problem, MediaMissing):
            self._resend(frames)
        elif problem is not None:
            self._undecodable(problem, frames)

    def _stop_warmup(self) -> None:
        if (number := self._warmup.stop()) is not None:
            self._out.append(Cancel(number))

    # -- sending and ending

    def _send(self, events: Iterable[Event]) -> None:
        for event in events:
            if self.state is not State.CLOSED:
                self._unsent = True
                self._out.append(Send(event))

    def _fail(self, message: str, close: Close, code: str = InvalidRequest.code) -> None:
        """End the session for a reason that the client is told."""
        self._end_turn("cancelled")
        self._send([error(message, code, fatal=True)])
        self._out.append(close)
        self._close()

    def _close(self) -> None:
        self._stop_warmup()
        self.state = State.CLOSED
        self._sight.release(self._lane.clear())
        self._sight.close()
        self._hearing.clear()
        self._waiting = self._query = self._answer = None


def _tried(function: Callable[[], Any]) -> Any:
    """What a function returns, or the error that it raises, as a worker would tell it."""
    try:
        return function()
    except OmniError as problem:
        return problem


def _shown(value: Any) -> str:
    """What a client sent, for an error to the same client."""
    return str(value)[:MAX_SHOWN]


_HANDLERS: Final[Mapping[str, Callable[[VideoSession, Mapping[str, Any], float], None]]] = {
    "ping": VideoSession._on_ping,
    "video.frame": VideoSession._on_frame,
    "audio.chunk": VideoSession._on_audio,
    "video.query": VideoSession._on_query,
    "video.done": VideoSession._on_done,
}
"""All that a client may say once the session is open."""
