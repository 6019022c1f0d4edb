"""Random orders of everything that can happen: no answer without its end, no state that is stuck, no exception."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.realtime import Talk, b64, image, sound, text, user

from frontend.protocol.realtime_limits import Limits
from omni.contract.chunk import KEPT, Chunk
from omni.contract.errors import ContextExceeded, MediaMissing, Overloaded, StageFailed

pytestmark = pytest.mark.pure

LIMITS = Limits(items=6, chars=200, media_bytes=200_000, buffer_s=3, turn_s=2, responses=3, frames=2)
DETECTIONS = (
    None,
    {"type": "server_vad", "silence_duration_ms": 100, "idle_timeout_ms": 1000},
    {"type": "server_vad", "interrupt_response": False},
    {"type": "server_vad", "create_response": False},
    {"type": "semantic_vad", "eagerness": "high"},
)
ERRORS = (StageFailed("x"), Overloaded("x"), MediaMissing("x"), ContextExceeded("x"))


class Conversations(RuleBasedStateMachine):
    @initialize(kept=st.booleans())
    def begin(self, kept: bool) -> None:
        self.talk = Talk(LIMITS, check=False, kept=kept)
        self.lost = False

    @property
    def ids(self) -> list[str]:
        """Of items that were shown, the newest last; some are gone."""
        return [event["item"]["id"] for event in self.talk.got if event["type"] == "conversation.item.added"][-8:]

    def pick(self, data: st.DataObject, fallback: str = "nobody") -> str:
        return data.draw(st.sampled_from(self.ids or [fallback]))

    @rule(detection=st.sampled_from(DETECTIONS), transcribe=st.booleans())
    def update(self, detection: Any, transcribe: bool) -> None:
        heard = {"turn_detection": detection, "transcription": {} if transcribe else None}
        self.talk.say("session.update", session={"audio": {"input": heard}})

    @rule(codec=st.sampled_from(("audio/pcm", "audio/pcmu")), speech=st.booleans())
    def reformat(self, codec: str, speech: bool) -> None:
        session = {
            "audio": {"input": {"format": {"type": codec}}},
            "output_modalities": ["audio" if speech else "text"],
        }
        self.talk.say("session.update", session=session)

    @rule(ms=st.integers(0, 900), value=st.sampled_from((0, 5)))
    def hear(self, ms: int, value: int) -> None:
        self.talk.say("input_audio_buffer.append", audio=b64(sound(ms, value)))

    @rule(kind=st.sampled_from(("commit", "clear")))
    def buffer(self, kind: str) -> None:
        self.talk.say(f"input_audio_buffer.{kind}")

    @rule(data=st.data(), kind=st.sampled_from(("text", "image", "long")))
    def create(self, data: st.DataObject, kind: str) -> None:
        part = {"text": text("hi"), "image": image(), "long": text("x" * 90)}[kind]
        after = data.draw(st.sampled_from([None, "root", *self.ids]))
        self.talk.say("conversation.item.create", item=user(part), previous_item_id=after)

    @rule(data=st.data(), ms=st.integers(0, 500))
    def truncate(self, data: st.DataObject, ms: int) -> None:
        self.talk.say("conversation.item.truncate", item_id=self.pick(data), content_index=0, audio_end_ms=ms)

    @rule(data=st.data(), kind=st.sampled_from(("delete", "retrieve")))
    def item(self, data: st.DataObject, kind: str) -> None:
        self.talk.say(f"conversation.item.{kind}", item_id=self.pick(data))

    @rule(where=st.sampled_from(("auto", "none")), alone=st.booleans())
    def respond(self, where: str, alone: bool) -> None:
        inputs = {"input": [user(text("aside"))]} if alone else {}
        self.talk.say("response.create", response={"conversation": where, **inputs})

    @rule()
    def cancel(self) -> None:
        self.talk.say("response.cancel")

    @rule(shade=st.integers(0, 255))
    def show(self, shade: int) -> None:
        self.talk.say("sglang.input_image.append", image=b64(b"IMG" + bytes([shade])))

    @rule(junk=st.sampled_from(("{", "[]", '{"type":"x"}', b"\x00")))
    def nonsense(self, junk: str | bytes) -> None:
        assert [event["type"] for event in self.talk.say_raw(junk)] == ["error"]

    @precondition(lambda self: self.talk.live)
    @rule(data=st.data(), words=st.lists(st.sampled_from(("a ", "bee ")), max_size=3))
    def feed(self, data: st.DataObject, words: list[str]) -> None:
        self.talk.feed(*words, turn=data.draw(st.sampled_from(self.talk.live)))

    @precondition(lambda self: self.talk.live)
    @rule(data=st.data())
    def arrive(self, data: st.DataObject) -> None:
        self.talk.feed(Chunk(event=KEPT), turn=data.draw(st.sampled_from(self.talk.live)))

    @precondition(lambda self: self.talk.live)
    @rule(data=st.data(), error=st.sampled_from((None, None, None, *ERRORS)))
    def end(self, data: st.DataObject, error: Any) -> None:
        self.lost |= error is not None  # with it, perhaps, what was under way
        self.talk.end(error, turn=data.draw(st.sampled_from(self.talk.live)))

    @rule(seconds=st.sampled_from((0.1, 1.5, 10.0)))
    def wait(self, seconds: float) -> None:
        self.talk.wait(seconds)

    @invariant()
    def answers_end_once(self) -> None:
        created = [e["response"]["id"] for e in self.talk.got if e["type"] == "response.created"]
        done = [e["response"]["id"] for e in self.talk.got if e["type"] == "response.done"]
        assert len(set(created)) == len(created)
        assert len(set(done)) == len(done)
        assert set(done) <= set(created)

    @invariant()
    def it_stays_within_its_limits(self) -> None:
        session = self.talk.inner
        assert len(session._history.conversation) <= LIMITS.items + 2  # answers that are under way
        assert session.waiting_ms <= LIMITS.buffer_s * 1_000
        if self.talk.kept:  # else one that was cancelled goes on until its media have arrived
            assert len(self.talk.live) <= LIMITS.responses + 2
        if not self.lost:
            jobs = self.talk.started.values()
            sent = [digest for job in jobs for digest in {part.digest for part in job.media if part.data is not None}]
            assert len(set(sent)) == len(sent), "bytes went twice"
        assert self.talk.closed is None

    def teardown(self) -> None:
        """Whatever happened: everything can be ended, and then a question is answered."""
        talk = self.talk
        talk.say("session.update", session={"audio": {"input": {"turn_detection": None}}})
        for _ in range(50):
            if not talk.live:
                break
            talk.end()
        assert talk.live == []
        created = sum(event["type"] == "response.created" for event in talk.got)
        done = sum(event["type"] == "response.done" for event in talk.got)
        assert created == done
        talk.say("response.create")
        talk.feed("yes")
        assert talk.end()[-1]["response"]["status"] == "completed"


TestConversations = Conversations.TestCase
TestConversations.settings = settings(max_examples=150, stateful_step_count=40)
