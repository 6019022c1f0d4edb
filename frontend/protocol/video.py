"""The streaming video protocol: frames and sound come in as they are seen and heard, and are asked about.

    CONFIG ── session.config ──► OPEN ── video.done ──► DRAINING ── the last turn ends ──► CLOSED

Messages take effect in the order in which they came. A frame is looked at by a worker first, so what came after it
waits in a lane behind it; only what can't wait, such as stopping an answer that is being interrupted, happens at once.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Final

import orjson
import pybase64

from frontend.protocol.frames import Frame
from frontend.protocol.lane import Lane
from frontend.protocol.session import Action, Close, Send, Work
from frontend.protocol.video_answer import Event
from frontend.protocol.video_audio import Hearing
from frontend.protocol.video_config import SessionConfig, parse
from frontend.protocol.video_deployment import Deployment
from frontend.protocol.video_dialogue import Dialogue, Query
from frontend.protocol.video_sight import Sight, error, refusal
from omni.contract.chunk import Chunk
from omni.contract.errors import InvalidRequest, OmniError, TooLarge

MAX_LANE: Final = 1024
"""Messages that may wait behind a frame; a client that sends more is not in earnest."""
MAX_SHOWN: Final = 100
"""Characters of an unknown type that an error repeats."""


class State(enum.Enum):
    CONFIG = enum.auto()
    OPEN = enum.auto()
    DRAINING = enum.auto()
    CLOSED = enum.auto()


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
        self._waiting: Query | None = None
        """The question that is in the lane."""
        self._configure(SessionConfig())

    def _configure(self, config: SessionConfig) -> None:
        self._sight = Sight(config, self._deployment)
        self._dialogue = Dialogue(config, self._deployment, self._sight, self._hearing, self._do, self._send)

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
        self._dialogue.feed(turn, chunk, now)

    def ended(self, turn: int, error: OmniError | None, now: float) -> None:
        self._dialogue.ended(turn, error)
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
        busy = self._unsent or self._lane or self._dialogue.answering
        return None if self.state is not State.OPEN or busy else self._since + self._limits.idle_timeout

    def actions(self) -> list[Action]:
        out, self._out = self._out, []
        return out

    def lost(self, now: float) -> None:
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
            self._do(Work(frame.number, look))

    def _on_audio(self, event: Mapping[str, Any], now: float) -> None:
        self._hear(event.get("data"))

    def _on_query(self, event: Mapping[str, Any], now: float) -> None:
        """An answer that is being given is stopped at once; the new question waits for the frames before it."""
        self._dialogue.cut_off()
        if self._waiting is not None:
            self._hearing.give_back(self._waiting.pcm)
        self._hear(event.get("audio_data"))
        query = self._waiting = Query(event.get("text") or "", self._hearing.take())
        self._then(lambda _: self._ask(query))

    def _on_done(self, event: Mapping[str, Any], now: float) -> None:
        self.state = State.DRAINING
        self._dialogue.stop_reading()

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
        if self._lane or self._dialogue.answering:
            return
        if self.state is State.DRAINING:
            self._send([{"type": "session.done"}])
            self._do(Close(1000, "done"))
            self._close()
        elif self.state is State.OPEN:
            self._dialogue.read_ahead()

    def _ask(self, query: Query) -> None:
        if query is self._waiting:  # no other one has overtaken it
            self._waiting = None
            self._dialogue.ask(query)

    # -- sending and ending

    def _do(self, action: Action) -> None:
        self._out.append(action)

    def _send(self, events: Iterable[Event]) -> None:
        for event in events:
            if self.state is not State.CLOSED:
                self._unsent = True
                self._do(Send(event))

    def _fail(self, message: str, close: Close, code: str = InvalidRequest.code) -> None:
        """End the session for a reason that the client is told."""
        self._dialogue.cut_off()
        self._send([error(message, code, fatal=True)])
        self._do(close)
        self._close()

    def _close(self) -> None:
        self._dialogue.drop()
        self.state = State.CLOSED
        self._sight.release(self._lane.clear())
        self._sight.close()
        self._hearing.clear()
        self._waiting = None


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
