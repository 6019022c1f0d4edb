"""Anything may happen in any order; what was promised holds all the same."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.video import BAD, Talk, grey, limits

from frontend.protocol.budget import Budget
from frontend.protocol.video import State
from omni.contract.chunk import KEPT, Usage
from omni.contract.errors import InvalidMedia, MediaMissing, OmniError, Overloaded, StageFailed
from omni.contract.job import TextPart

pytestmark = pytest.mark.pure

AUDIO = base64.b64encode(bytes(30)).decode()
JUNK: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=5),
    lambda one: st.lists(one, max_size=3) | st.dictionaries(st.text(max_size=3), one, max_size=3),
    max_leaves=5,
)
KINDS = ("ping", "video.frame", "audio.chunk", "video.query", "session.config", "_internal.x", "nonsense")
FIELDS = ("type", "data", "text", "audio_data", "frame_id", "pts_ms")


class Session(RuleBasedStateMachine):
    @initialize(
        prefill=st.booleans(),
        streamed=st.booleans(),
        filter=st.booleans(),
        modalities=st.sampled_from([["text"], ["audio"], ["text", "audio"]]),
        overflow=st.sampled_from(["clear", "drop_oldest"]),
        max_frames=st.integers(1, 4),
        room=st.sampled_from([3000, 1 << 30]),
        kept=st.booleans(),
    )
    def begin(
        self,
        prefill: bool,
        streamed: bool,
        filter: bool,
        modalities: Any,
        overflow: Any,
        max_frames: int,
        room: int,
        kept: bool,
    ) -> None:
        self.finished: set[int] = set()
        self.lost = False
        self.talk = Talk(
            limits(audio_bytes=64, audio_overflow=overflow, idle_timeout=60),
            {"modalities": modalities, "enable_frame_filter": filter, "max_frames": max_frames, "num_frames": 2},
            kept=kept,
            prefill=prefill,
            streamed=lambda: streamed,
            budget=Budget(room),
        )

    def turns(self) -> list[int]:
        return [turn for turn in self.talk.running if not self.talk.jobs[turn].settings.prefill]

    @rule(level=st.sampled_from([0, 10, 200]), id=st.sampled_from([None, "a", "", 5]), bad=st.booleans())
    def frame(self, level: int, id: Any, bad: bool) -> None:
        self.talk.say("video.frame", data=BAD if bad else grey(level), frame_id=id, look=False)

    @rule()
    def sound(self) -> None:
        self.talk.say("audio.chunk", data=AUDIO, look=False)

    @rule(text=st.sampled_from(["what?", "", 5]), audio=st.sampled_from([None, AUDIO]))
    def query(self, text: Any, audio: Any) -> None:
        self.talk.say("video.query", text=text, audio_data=audio, look=False)

    @rule(kind=st.sampled_from(KINDS), fields=st.dictionaries(st.sampled_from(FIELDS), JUNK, max_size=4))
    def junk(self, kind: str, fields: dict[str, Any]) -> None:
        self.talk.raw(json.dumps({"type": kind, **fields}))

    @rule(message=st.text(max_size=10) | st.binary(max_size=10))
    def noise(self, message: str | bytes) -> None:
        self.talk.raw(message)

    @precondition(lambda self: self.talk.work)
    @rule(data=st.data())
    def look(self, data: Any) -> None:
        self.talk.look(data.draw(st.sampled_from(sorted(self.talk.work))))

    @precondition(lambda self: self.talk.running)
    @rule(
        data=st.data(),
        text=st.sampled_from(["", "one ", "1"]),
        audio=st.sampled_from([b"", bytes(4)]),
        finish=st.sampled_from([None, "stop"]),
    )
    def chunk(self, data: Any, text: str, audio: bytes, finish: Any) -> None:
        turn = data.draw(st.sampled_from(self.talk.running))
        if self.talk.jobs[turn].settings.prefill:
            self.talk.chunk(turn=turn, event={"type": "prefilled"})
        else:
            if turn in self.finished:  # the text has ended, only speech may follow
                text, finish = "", None
            elif finish:
                self.finished.add(turn)
            self.talk.chunk(text, turn, audio=audio, finish=finish, usage=Usage() if finish else None)

    @precondition(lambda self: self.talk.running)
    @rule(data=st.data())
    def arrive(self, data: Any) -> None:
        self.talk.chunk(turn=data.draw(st.sampled_from(self.talk.running)), event=KEPT)

    @precondition(lambda self: self.talk.running)
    @rule(data=st.data())
    def end(self, data: Any) -> None:
        turn = data.draw(st.sampled_from(self.talk.running))
        params = [part.param for part in self.talk.jobs[turn].media]
        errors: list[OmniError | None] = [None, None, StageFailed("x"), Overloaded("x"), MediaMissing("x")]
        errors += [InvalidMedia("x", param=param) for param in params]
        error = data.draw(st.sampled_from(errors))
        self.lost |= error is not None  # with it, perhaps, what was under way
        self.talk.end(error, turn)

    @precondition(lambda self: self.talk.jobs)
    @rule(data=st.data())
    def straggler(self, data: Any) -> None:
        gone = sorted(set(self.talk.jobs) - set(self.talk.running))
        if gone:
            turn = data.draw(st.sampled_from(gone))
            before = len(self.talk.events)
            self.talk.chunk("late", turn)
            self.talk.session.ended(turn, None, self.talk.now)
            self.talk.act()
            assert len(self.talk.events) == before

    @rule()
    def flush(self) -> None:
        self.talk.flush()

    @rule(seconds=st.sampled_from([1.0, 70.0]))
    def wait(self, seconds: float) -> None:
        self.talk.wait(seconds)

    @precondition(lambda self: self.talk.session.state is State.OPEN)
    @rule()
    def done(self) -> None:
        self.talk.say("video.done", look=False)

    @invariant()
    def promises(self) -> None:
        talk = getattr(self, "talk", None)
        if talk is None:
            return
        if talk.kept:  # else one that was cancelled goes on until its media have arrived
            assert len(self.turns()) <= 1
            assert len(talk.running) <= 1
        if not self.lost:
            jobs = talk.jobs.values()
            sent = [digest for job in jobs for digest in {part.digest for part in job.media if part.data is not None}]
            assert len(set(sent)) == len(sent), "bytes went twice"
        assert talk.budget.held >= 0
        assert talk.session._hearing.nbytes <= 64
        for job in talk.jobs.values():
            assert all(isinstance(part, TextPart) for message in job.messages[:-1] for part in message.parts)
        self.check_turns()

    def check_turns(self) -> None:
        """By request: start, deltas, one text.done, one audio.done, one response.done, in this order."""
        by_id: dict[str, list[dict[str, Any]]] = {}
        for event in self.talk.events:
            if "request_id" in event:
                by_id.setdefault(event["request_id"], []).append(event)
        ids = list(by_id)
        for id, events in by_id.items():
            kinds = [event["type"] for event in events]
            assert kinds.count("response.start") <= 1
            assert kinds.count("response.text.done") <= 1
            assert kinds.count("response.output_audio.done") <= 1
            assert kinds.count("response.done") <= 1
            assert kinds.count("video.frames.consumed") <= 1
            if "response.start" in kinds:
                assert kinds[0] == "response.start"
            if "response.done" in kinds:
                assert kinds[-1] == "response.done"
                assert ("response.start" in kinds) == ("response.text.done" in kinds)
                assert ("response.output_audio.delta" in kinds) == ("response.output_audio.done" in kinds)
            else:
                assert id == ids[-1], "a turn began before the one before it had ended"
            if "response.text.done" in kinds:
                at = kinds.index("response.text.done")
                assert "response.text.delta" not in kinds[at:]
                deltas = "".join(event["delta"] for event in events if event["type"] == "response.text.delta")
                assert not deltas or events[at]["text"] == deltas

    def teardown(self) -> None:
        talk = getattr(self, "talk", None)
        if talk is None:
            return
        self.finish(talk)
        talk.lose()
        assert talk.running == []
        assert talk.budget.held == 0
        assert talk.session.next_timer() is None

    def finish(self, talk: Talk) -> None:
        """However it stands, it comes to an end: no state is stuck."""
        if talk.session.state is State.OPEN:
            talk.say("video.done", look=False)
        for _ in range(10):
            if talk.closed is not None:
                break
            talk.look()
            for turn in list(talk.running):
                talk.end(turn=turn)
        assert talk.closed is not None
        assert talk.session.state is State.CLOSED
        ended = {event["request_id"] for event in talk.events if event["type"] == "response.done"}
        named = {event["request_id"] for event in talk.events if "request_id" in event}
        assert ended == named


Session.TestCase.settings = settings(max_examples=100, stateful_step_count=40)
TestSession = pytest.mark.pure(Session.TestCase)
