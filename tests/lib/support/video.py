"""A streaming video session without anything around it: a client, workers and stages that do what a test says."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from frontend.protocol.budget import Budget
from frontend.protocol.evs import SIDE, Thumbnail
from frontend.protocol.session import Action, Cancel, Close, Send, Start, Work
from frontend.protocol.video import VideoSession
from frontend.protocol.video_deployment import Deployment, Limits
from omni.contract.chunk import KEPT, Chunk, Usage
from omni.contract.errors import InvalidMedia, OmniError
from omni.contract.job import Job


def grey(level: int) -> str:
    """A picture of one colour, as `look` understands it, in base64."""
    return base64.b64encode(b"grey %d" % level).decode()


BAD = base64.b64encode(b"no picture").decode()


def look(data: bytes, thumbnail: bool) -> tuple[str, Thumbnail | None]:
    """What the media workers do, for pictures that are the text `grey LEVEL`."""
    if not data.startswith(b"grey "):
        raise InvalidMedia("Invalid image data")
    picture = np.full((SIDE, SIDE, 3), int(data[5:].split()[0]), np.uint8) if thumbnail else None
    return hashlib.sha256(data).hexdigest(), picture


def deployment(limits: Limits | None = None, **fields: Any) -> Deployment:
    numbers = iter(range(1, 1 << 30))
    defaults: dict[str, Any] = {
        "look": look,
        "budget": Budget(1 << 40),
        "new_id": lambda: f"{next(numbers):012x}".ljust(32, "0"),
        "limits": limits or Limits(),
        "voices": ("Ethan", "Aiden"),
    }
    return Deployment(**(defaults | fields))


class Talk:
    """A session, and everything that it asked for so far."""

    def __init__(
        self,
        limits: Limits | None = None,
        config: dict[str, Any] | None = None,
        *,
        kept: bool = True,
        **fields: Any,
    ) -> None:
        """`config` None leaves the session without its `session.config`; with `kept` media arrive at once, else when
        the test says so."""
        self.kept = kept
        self.deployment = deployment(limits, **fields)
        self.now = 100.0
        self.session = VideoSession(self.deployment, self.now)
        self.events: list[dict[str, Any]] = []
        self.work: dict[Any, Callable[[], Any]] = {}
        self.jobs: dict[int, Job] = {}
        """By turn, what was asked of the stages, also of turns that are over."""
        self.running: list[int] = []
        self.cancelled: list[int] = []
        self.closed: Close | None = None
        self._shown = 0
        if config is not None:
            self.say("session.config", **config)

    def raw(self, message: str | bytes) -> list[dict[str, Any]]:
        self.session.receive(message, self.now)
        self.act()
        return self.new()

    def say(self, type: str, *, look: bool = True, **fields: Any) -> list[dict[str, Any]]:
        """A message; what is answered at once, or with `look` once the workers have looked at all frames."""
        self.session.receive(json.dumps({"type": type, **fields}), self.now)
        self.act()
        return self.look() if look else self.new()

    def frame(self, level: int, *, look: bool = True, **fields: Any) -> list[dict[str, Any]]:
        return self.say("video.frame", look=look, data=grey(level), **fields)

    def look(self, key: Any = None) -> list[dict[str, Any]]:
        """The workers look at one frame, or at all that wait."""
        for one in [key] if key is not None else list(self.work):
            function = self.work.pop(one)
            try:
                result = function()
            except OmniError as problem:
                result = problem
            self.session.worked(one, result, self.now)
            self.act()
        return self.new()

    def chunk(self, text: str = "", turn: int | None = None, **fields: Any) -> list[dict[str, Any]]:
        self.session.feed(turn or self.running[-1], Chunk(text, tokens=1 if text else 0, **fields), self.now)
        self.act()
        return self.new()

    def end(self, error: OmniError | None = None, turn: int | None = None) -> list[dict[str, Any]]:
        turn = turn or self.running[-1]
        self.running.remove(turn)
        self.session.ended(turn, error, self.now)
        self.act()
        return self.new()

    def answer(self, text: str = "hello") -> list[dict[str, Any]]:
        """The whole answer of the running turn."""
        usage = Usage(prompt_tokens=3, completion_tokens=1)
        return self.chunk(text, finish="stop", usage=usage) + self.end()

    def flush(self) -> None:
        self.session.flushed(self.now)
        self.act()

    def wait(self, seconds: float) -> list[dict[str, Any]]:
        """Time goes by, and the timer fires when it wants to."""
        until = self.now + seconds
        while (timer := self.session.next_timer()) is not None and timer <= until:
            self.now = max(self.now, timer)
            self.session.handle_timer(self.now)
            self.act()
        self.now = until
        return self.new()

    def lose(self) -> None:
        self.session.lost(self.now)
        self.act()

    @property
    def job(self) -> Job:
        """What was asked for last."""
        return self.jobs[max(self.jobs)]

    @property
    def budget(self) -> Budget:
        return self.deployment.budget

    def new(self) -> list[dict[str, Any]]:
        """The events since the last call."""
        events, self._shown = self.events[self._shown :], len(self.events)
        return events

    def act(self) -> None:
        """Do what the session asks for."""
        while actions := self.session.actions():
            self._do(actions)

    def _do(self, actions: list[Action]) -> None:
        for action in actions:
            assert self.closed is None or isinstance(action, Cancel), f"{action} after the close"
            match action:
                case Send(event):
                    self.events.append(json.loads(event) if isinstance(event, bytes) else dict(event))
                case Work(key, function):
                    assert key not in self.work
                    self.work[key] = function
                case Start(turn, job):
                    assert turn not in self.jobs
                    self.jobs[turn] = job
                    self.running.append(turn)
                    if self.kept and job.tells_kept:
                        self.session.feed(turn, Chunk(event=KEPT), self.now)
                case Cancel(turn):
                    assert turn in self.running, "cancelled what doesn't run"
                    self.running.remove(turn)
                    self.cancelled.append(turn)
                case Close():
                    self.closed = action


def types(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"] for event in events]


def only(events: list[dict[str, Any]], type: str) -> Iterator[dict[str, Any]]:
    return (event for event in events if event["type"] == type)


def limits(**fields: Any) -> Limits:
    return replace(Limits(), **fields)
