"""A realtime session without a socket, a clock or a model: what a client says goes in, what it is told comes out."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from openai.types.realtime import RealtimeServerEvent
from pydantic import TypeAdapter

from frontend.protocol.realtime import Realtime
from frontend.protocol.realtime_config import Format, Offer
from frontend.protocol.realtime_dialects import OPENAI, Dialect
from frontend.protocol.realtime_limits import Limits
from frontend.protocol.realtime_profile import SessionProfile
from frontend.protocol.realtime_profile_offer import DEFAULTS
from frontend.protocol.session import Cancel, Close, Hear, Send, Session, Start, Work
from frontend.protocol.speech import WINDOW_MS, Window
from omni.contract.chunk import KEPT, Chunk, FinishReason, Usage
from omni.contract.errors import InvalidMedia, OmniError
from omni.contract.job import Job, MediaPart
from omni.contract.names import SAMPLE_RATE

SERVER_EVENT: TypeAdapter[Any] = TypeAdapter(RealtimeServerEvent)
OFFER = Offer(models=("qwen3-omni",), voices=("Ethan", "Chelsie"))


def sound(ms: float, value: int = 0, rate: int = SAMPLE_RATE) -> bytes:
    """PCM16 of one value; to the `LoudEar`, anything but 0 is a voice."""
    return np.full(int(ms * rate / 1000), value, "<i2").tobytes()


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


class LoudEar:
    """Hears a voice wherever it isn't silent."""

    def __init__(self, rate: int) -> None:
        self._size = rate * WINDOW_MS // 1000
        self._rest = b""
        self.resets = 0

    def hear(self, pcm: bytes) -> Sequence[Window]:
        samples = np.frombuffer(self._rest + pcm, np.int16)
        whole = len(samples) // self._size * self._size
        self._rest = samples[whole:].tobytes()
        return [Window(float(bool(one.any()))) for one in samples[:whole].reshape(-1, self._size)]

    def reset(self, *, pitch: bool) -> None:
        self._rest = b""
        self.resets += 1


class HalfAlignment:
    """Letters and samples go together."""

    def __init__(self) -> None:
        self.samples = 0

    def hear(self, pcm: bytes) -> None:
        self.samples += len(pcm) // 2

    def kept(self, transcript: str, samples: int, *, complete: bool) -> str:
        letters = len(transcript) * samples // self.samples
        return transcript[:letters].rsplit(" ", 1)[0]

    def finished(self, transcript: str) -> None:
        assert self.samples or not transcript


class Plain:
    def encode(self, pcm: bytes) -> bytes:
        return pcm

    def finish(self) -> bytes:
        return b""


class FakeSenses:
    def __init__(self) -> None:
        self.jobs = 0
        self.ears: list[LoudEar] = []

    def ear(self, rate: int) -> LoudEar:
        self.ears.append(LoudEar(rate))
        return self.ears[-1]

    def decode(self, data: bytes, format: Format) -> bytes:
        return data

    def encoder(self, format: Format) -> Plain:
        return Plain()

    def alignment(self) -> HalfAlignment:
        return HalfAlignment()

    def image(self, data: bytes, param: str, at_ms: float | None = None) -> MediaPart:
        if not data.startswith(b"IMG"):
            raise InvalidMedia(f"{param} is not an image.", param=param)
        return MediaPart.of("image", data, param, at_ms)

    def thumbnail(self, data: bytes) -> Any:
        return np.full((64, 64, 3), data[3], np.uint8)

    def job_id(self) -> str:
        self.jobs += 1
        return f"job-{self.jobs}"


class Talk:
    """A client and the world around one session. Work is done at once; generations are for the test to feed."""

    def __init__(
        self,
        limits: Limits | None = None,
        dialect: Dialect = OPENAI,
        offer: Offer = OFFER,
        *,
        check: bool = True,
        kept: bool = True,
        profile: bool | None = None,
        senses: Any = None,
        **options: Any,
    ) -> None:
        """`check` holds each event against OpenAI's types; with `kept` media arrive at once, else when the test says
        so; `profile` puts the SGLang profile around the session, from
        the beginning or when its client wants it; `senses` are others than `FakeSenses`."""
        self.now = 100.0
        self.check = check
        self.kept = kept
        self.senses = senses or FakeSenses()
        self.got: list[dict[str, Any]] = []
        self.started: dict[int, Job] = {}
        self.live: list[int] = []
        """Generations that run, the oldest first."""
        self.cancelled: list[int] = []
        self.closed: Close | None = None
        self._ids = 0
        options.setdefault("new_id", self._id)
        limits = limits or Limits()
        if profile:
            options["session"] = DEFAULTS
        self.inner = Realtime(offer, limits, self.senses, now=self.now, created=1_000.0, dialect=dialect, **options)
        self.session: Session = self.inner
        if profile is not None:
            self.session = SessionProfile(self.inner, limits, now=self.now, engaged=profile)
        self._act()

    def _id(self, kind: str) -> str:
        self._ids += 1
        return f"{kind}_{self._ids}"

    def say(self, type: str, **fields: Any) -> list[dict[str, Any]]:
        """Send an event; what came of it."""
        return self.say_raw(json.dumps({"type": type, **fields}))

    def say_raw(self, message: str | bytes) -> list[dict[str, Any]]:
        seen = len(self.got)
        self.session.receive(message, self.now)
        self._act()
        return self.got[seen:]

    def hear(self, pcm: bytes, piece_ms: float = 100) -> list[dict[str, Any]]:
        """Append sound, piece by piece, as a microphone would."""
        seen = len(self.got)
        step = int(piece_ms * SAMPLE_RATE / 1000) * 2
        for at in range(0, len(pcm), step):
            self.say("input_audio_buffer.append", audio=b64(pcm[at : at + step]))
            self.now += piece_ms / 1000
        return self.got[seen:]

    def feed(self, *chunks: Chunk | str, turn: int | None = None) -> list[dict[str, Any]]:
        """Chunks of the newest generation; a text is one token and 100 ms of speech, if there is any."""
        seen = len(self.got)
        number = self.live[-1] if turn is None else turn
        for chunk in chunks:
            speech = self.started[number].settings.speech
            made = chunk
            if isinstance(chunk, str):
                made = Chunk(text=chunk, tokens=1, audio=sound(100, 7) if speech else b"")
            assert isinstance(made, Chunk)
            self.session.feed(number, made, self.now)
            self._act()
        return self.got[seen:]

    def end(
        self, error: OmniError | None = None, finish: FinishReason = "stop", turn: int | None = None
    ) -> list[dict[str, Any]]:
        seen = len(self.got)
        number = self.live[-1] if turn is None else turn
        if error is None:
            usage = Usage(prompt_tokens=10, completion_tokens=3, cached_tokens=4, audio_tokens=5)
            self.session.feed(number, Chunk(finish=finish, usage=usage), self.now)
            self._act()
        if number in self.live:  # else it was cancelled when it was heard
            self.live.remove(number)
            self.session.ended(number, error, self.now)
            self._act()
        return self.got[seen:]

    def wait(self, seconds: float) -> list[dict[str, Any]]:
        """Time passes."""
        seen = len(self.got)
        until = self.now + seconds
        while (at := self.session.next_timer()) is not None and at <= until:
            self.now = max(self.now, at)
            before = at
            self.session.handle_timer(self.now)
            self._act()
            assert self.session.next_timer() != before, "the timer doesn't move on"
        self.now = until
        return self.got[seen:]

    @property
    def job(self) -> Job:
        """The newest generation's."""
        return self.started[self.live[-1]]

    def prompt(self) -> list[tuple[str, list[str]]]:
        """Of the newest generation: roles, and their parts as text or kind."""
        return [(m.role, [p.kind if isinstance(p, MediaPart) else p.text for p in m.parts]) for m in self.job.messages]

    def _act(self) -> None:
        while actions := self.session.actions():
            for action in actions:
                assert self.closed is None, "something was done after the end"
                match action:
                    case Send(event):
                        assert not isinstance(event, bytes)
                        self._told(json.loads(json.dumps(dict(event))))
                    case Work(key, function):
                        result: Any
                        try:
                            result = function()
                        except Exception as failure:
                            result = failure
                        self.session.worked(key, result, self.now)
                    case Hear(key, ear, pcm):
                        self.session.worked(key, self._heard(ear, pcm), self.now)
                    case Start(turn, job):
                        assert turn not in self.started, "a number was used twice"
                        self.started[turn] = job
                        self.live.append(turn)
                        if self.kept and job.tells_kept:
                            self.session.feed(turn, Chunk(event=KEPT), self.now)
                    case Cancel(turn):
                        self.live.remove(turn)
                        self.cancelled.append(turn)
                    case Close():
                        self.closed = action

    def _heard(self, ear: Any, pcm: bytes) -> Any:
        try:
            return ear.hear(pcm)
        except Exception as failure:
            return failure

    def _told(self, event: dict[str, Any]) -> None:
        if self.check:
            SERVER_EVENT.validate_python(event)
        self.got.append(event)


def types(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"] for event in events]


def user(*content: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": list(content), **more}


def text(words: str) -> dict[str, Any]:
    return {"type": "input_text", "text": words}


def image(data: bytes = b"IMG0") -> dict[str, Any]:
    return {"type": "input_image", "image_url": f"data:image/png;base64,{b64(data)}"}
