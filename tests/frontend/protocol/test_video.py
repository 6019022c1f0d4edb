from __future__ import annotations

import base64
import gc
import json
import logging
import sys
from typing import Any

import psutil
import pytest
from support.video import BAD, Talk, grey, limits, only, types

from frontend.protocol.budget import Budget
from frontend.protocol.video import MAX_LANE, State
from omni.contract.chunk import KEPT, Chunk, Usage
from omni.contract.errors import (
    ContextExceeded,
    InvalidMedia,
    MediaMissing,
    OmniError,
    Overloaded,
    StageFailed,
)
from omni.contract.job import MediaPart, TextPart

pytestmark = pytest.mark.pure

TEXT = {"modalities": ["text"]}
PLAIN = {"modalities": ["text"], "enable_frame_filter": False}


def pcm(samples: int) -> str:
    return base64.b64encode(bytes(2 * samples)).decode()


def parts(talk: Talk) -> list[str]:
    """The last message of the newest job, part by part."""
    return [part.text if isinstance(part, TextPart) else part.kind for part in talk.job.messages[-1].parts]


def sound(talk: Talk) -> int:
    """Samples of sound in the newest job, whose bytes may have gone with an earlier one."""
    sent = {part.digest: len(part.data) for job in talk.jobs.values() for part in job.media if part.data is not None}
    return sum((sent[part.digest] - 44) // 2 for part in talk.job.media if part.kind == "audio")


class TestConfig:
    def test_it_may_not_take_too_long(self) -> None:
        talk = Talk(limits(config_timeout=10))
        assert talk.wait(9.9) == []
        assert talk.wait(0.2)[0]["message"] == "Timeout waiting for session.config"
        assert talk.closed is not None
        assert talk.closed.code == 1008

    @pytest.mark.parametrize(
        ("message", "answer"),
        [
            ("{", "Invalid JSON in session.config"),
            ('{"type":"video.frame"}', "Expected session.config, got: video.frame"),
            ("{}", "Expected session.config, got: None"),
            ("[]", "Expected session.config, got: list"),
            ("5", "Expected session.config, got: int"),
            (b"{}", "Expected session.config, got: bytes"),
            ('{"type":"session.config","num_frames":0}', "Invalid session config: num_frames must be an integer"),
        ],
    )
    def test_what_else_comes_first_ends_the_session(self, message: str | bytes, answer: str) -> None:
        talk = Talk()
        (event,) = talk.raw(message)
        assert event["message"].startswith(answer)
        assert event["fatal"]
        assert talk.closed is not None
        assert talk.closed.code == 1008
        assert talk.session.next_timer() is None

    def test_it_isnt_acknowledged(self) -> None:
        assert Talk(config={}).events == []

    def test_it_comes_once(self) -> None:
        assert Talk(config={}).say("session.config")[0]["message"] == "Unknown type: session.config"


class TestBadMessages:
    @pytest.mark.parametrize(
        ("message", "answer"),
        [
            ("{", "Invalid JSON"),
            ("", "Invalid JSON"),
            ("NaN", "Invalid JSON"),
            ("[" * 5000, "Invalid JSON"),
            ("[]", "Messages must be JSON objects"),
            ("null", "Messages must be JSON objects"),
            ("{}", "Unknown type: None"),
            ('{"type":5}', "Unknown type: 5"),
            ('{"type":{}}', "Unknown type: {}"),
            ('{"type":"_internal.frame_decode_failed"}', "Unknown type: _internal.frame_decode_failed"),
            (b"\x00\x01", "Binary messages are not supported"),
            ('{"type":"video.frame","data":5}', "Invalid image data"),
            ('{"type":"video.frame","data":"@@@"}', "Invalid image data"),
            ('{"type":"video.frame","data":"\u00e4"}', "Invalid image data"),
            ('{"type":"audio.chunk","data":5}', "Invalid audio data"),
            ('{"type":"video.query","text":"?"}', "No frames buffered"),
        ],
    )
    def test_an_error_and_the_session_goes_on(self, message: str | bytes, answer: str) -> None:
        talk = Talk(config=PLAIN)
        (event,) = talk.raw(message)
        assert (event["type"], event["message"], event["fatal"]) == ("error", answer, False)
        talk.frame(1)
        talk.say("video.query", text="?")
        assert types(talk.answer()) == [
            "response.start", "response.text.delta", "response.text.done", "response.done",
        ]  # fmt: skip

    @pytest.mark.parametrize(
        "message",
        [
            '{"type":"video.frame"}',
            '{"type":"video.frame","data":""}',
            '{"type":"video.frame","data":null,"frame_id":"a"}',
            '{"type":"audio.chunk"}',
            '{"type":"audio.chunk","data":"@@##"}',
            '{"type":"audio.chunk","data":"\u00e4"}',
        ],
    )
    def test_some_are_passed_over(self, message: str) -> None:
        talk = Talk(config=PLAIN)
        assert talk.raw(message) == []

    def test_ping(self) -> None:
        assert Talk(config={}).say("ping") == [{"type": "pong"}]

    def test_an_unknown_type_is_repeated_in_part(self) -> None:
        assert len(Talk(config={}).say("x" * 5000)[0]["message"]) < 200

    def test_metadata_is_bounded(self) -> None:
        talk = Talk(config=PLAIN)
        assert "4096" in talk.frame(1, pts_ms="x" * 5000)[0]["message"]

    def test_metadata_that_cant_be_sent_back(self) -> None:
        talk = Talk(config=PLAIN)
        deep: Any = None
        for _ in range(253):
            deep = [deep]
        assert talk.frame(1, frame_id="a", pts_ms=deep)[0]["message"] == "Invalid image data"

    def test_frame_size_is_bounded_by_its_base64(self) -> None:
        talk = Talk(limits(frame_chars=8), PLAIN)
        assert talk.say("video.frame", data="A" * 12)[0]["message"] == "Frame too large"
        assert talk.say("video.frame", data=grey(1)[:8], frame_id="x") != []

    def test_too_many_messages_behind_a_frame(self) -> None:
        talk = Talk(config=TEXT)
        talk.frame(1, look=False)
        for _ in range(MAX_LANE + 1):
            talk.say("ping", look=False)
        assert talk.closed is not None
        assert talk.closed.code == 1013
        talk.lose()
        assert talk.budget.held == 0


class TestFrames:
    def test_a_large_one_is_looked_at_by_a_worker_without_the_filter_too(self) -> None:
        talk = Talk(config=PLAIN)
        large = base64.b64encode(b"grey 1" + b" " * 300_000).decode()
        assert talk.say("video.frame", data=large, frame_id="a", look=False) == []
        assert types(talk.frame(2, frame_id="b", look=False)) == []
        assert [ack["frame_id"] for ack in talk.look()] == ["a", "b"]

    def test_acknowledged_when_named(self) -> None:
        talk = Talk(config=PLAIN)
        (ack,) = talk.frame(1, frame_id="a", pts_ms=40, capture_ts_ms="x")
        assert ack == {
            "type": "video.frame.ack",
            "frame_id": "a",
            "pts_ms": 40,
            "capture_ts_ms": "x",
            "accepted": True,
            "buffered_frames": 1,
            "server_receive_ts_ms": 100_000.0,
        }
        assert talk.frame(2) == []
        assert talk.frame(2, frame_id="") == []
        assert talk.frame(2, frame_id=5) == []

    def test_duplicates_are_dropped(self) -> None:
        talk = Talk(config=TEXT)
        acks = [talk.frame(level, frame_id=str(level))[0] for level in (0, 57, 58)]
        assert [ack["accepted"] for ack in acks] == [True, False, True]
        assert acks[1]["reason"] == "filtered"
        assert [ack["buffered_frames"] for ack in acks] == [1, 1, 2]

    def test_the_oldest_goes(self) -> None:
        talk = Talk(config={**PLAIN, "max_frames": 2})
        acks = [talk.frame(n, frame_id=str(n))[0] for n in range(4)]
        assert [ack.get("dropped_frame_id") for ack in acks] == [None, None, "0", "1"]

    def test_undecodable_with_the_filter(self) -> None:
        talk = Talk(config=TEXT)
        (event,) = talk.say("video.frame", data=BAD, frame_id="a")
        assert event["message"] == "Invalid image data"
        assert talk.budget.held == 0

    def test_undecodable_without_the_filter(self) -> None:
        talk = Talk(config=PLAIN)
        ack, event = talk.say("video.frame", data=BAD, frame_id="a")
        assert ack["accepted"]
        assert ack["buffered_frames"] == 1
        assert event["message"] == "Frame decode failed"
        assert talk.say("video.query", text="?")[0]["message"] == "No frames buffered"

    def test_they_take_effect_in_their_order(self) -> None:
        talk = Talk(config=TEXT)
        for level in (0, 10, 200):
            talk.frame(level, look=False, frame_id=str(level))
        talk.say("ping", look=False)
        assert talk.look(3) == []
        assert types(talk.look(1)) == ["video.frame.ack"]
        assert types(talk.look(2)) == ["video.frame.ack", "video.frame.ack", "pong"]

    def test_all_sessions_together_are_bounded(self) -> None:
        budget = Budget(3000)
        one, other = Talk(config=PLAIN, budget=budget), Talk(config=PLAIN, budget=budget)
        assert one.frame(1) == one.frame(2) == []
        assert other.frame(3)[0]["code"] == "overloaded"
        one.lose()
        assert other.frame(3) == []

    def test_told_to_the_metrics(self) -> None:
        heard: list[str] = []
        talk = Talk(config=TEXT, on_frame=heard.append)
        talk.frame(1)
        talk.frame(2)
        talk.say("video.frame", data=BAD)
        assert heard == ["kept", "filtered", "failed"]


class TestTurn:
    def test_text(self) -> None:
        talk = Talk(config=PLAIN)
        talk.frame(1)
        assert talk.say("video.query", text="What?") == []
        assert parts(talk) == ["image", "What?"]
        talk.chunk(event={"type": "prompt"})
        assert types(talk.events) == ["response.start"]
        for word in ("1", "0", "0", "0"):
            talk.chunk(word)
        talk.chunk(finish="stop", usage=Usage(prompt_tokens=5, completion_tokens=4))
        talk.end()
        assert "".join(event["delta"] for event in only(talk.events, "response.text.delta")) == "1000"
        (done,) = only(talk.events, "response.text.done")
        assert done["text"] == "1000"
        end = talk.events[-1]
        assert (end["type"], end["status"]) == ("response.done", "completed")
        assert end["usage"]["prompt_tokens"] == 5
        assert end["usage"]["total_tokens"] == 9
        assert {event["request_id"] for event in talk.events} == {end["request_id"]}
        assert end["request_id"].startswith("video-")
        assert len(end["request_id"]) == 18

    def test_speech(self) -> None:
        talk = Talk(config={})
        talk.frame(1)
        talk.say("video.query", text="What?")
        assert talk.job.settings.speech
        talk.chunk("One ")
        talk.chunk(audio=b"\1\0" * 10)
        talk.chunk("two", finish="stop")
        talk.chunk(audio=b"\2\0" * 10)
        talk.end()
        assert types(talk.events) == [
            "response.start", "response.text.delta", "response.output_audio.delta", "response.text.delta",
            "response.text.done", "response.output_audio.delta", "response.output_audio.done", "response.done",
        ]  # fmt: skip
        assert next(only(talk.events, "response.text.done"))["text"] == "One two"
        assert all(event["format"] == "wav" for event in only(talk.events, "response.output_audio.delta"))

    def test_speech_alone(self) -> None:
        talk = Talk(config={"modalities": ["audio"]})
        talk.frame(1)
        talk.say("video.query", text="What?")
        talk.chunk("One ")
        talk.chunk(audio=bytes(20))
        talk.chunk("two", finish="stop")
        talk.end()
        assert types(talk.events) == [
            "response.start", "response.text.done", "response.output_audio.delta",
            "response.output_audio.done", "response.done",
        ]  # fmt: skip
        assert talk.events[1]["text"] == ""

    def test_speech_as_bare_samples(self) -> None:
        talk = Talk(config={"audio_format": "pcm16"})
        talk.frame(1)
        talk.say("video.query", text="What?")
        talk.chunk(audio=b"abcd")
        (delta,) = only(talk.events, "response.output_audio.delta")
        assert base64.b64decode(delta["data"]) == b"abcd"
        assert (delta["format"], delta["sample_rate"]) == ("pcm16", 24_000)

    def test_whole_at_its_end(self) -> None:
        talk = Talk(config={}, streamed=lambda: False)
        talk.frame(1, frame_id="a")
        talk.say("video.query", text="What?")
        talk.events.clear()
        talk.chunk("One ")
        talk.chunk("two", finish="stop")
        talk.chunk(audio=bytes(10))
        talk.chunk(audio=bytes(10))
        talk.end()
        assert types(talk.events) == [
            "response.start", "video.frames.consumed", "response.text.done", "response.output_audio.delta",
            "response.output_audio.done", "response.done",
        ]  # fmt: skip

    def test_without_a_word(self) -> None:
        talk = Talk(config=PLAIN)
        talk.frame(1)
        talk.say("video.query", text="What?")
        assert types(talk.end()) == ["response.start", "response.text.done", "response.done"]

    @pytest.mark.parametrize("text", [None, "", False])
    def test_without_a_question(self, text: Any) -> None:
        talk = Talk(config=PLAIN)
        talk.frame(1)
        talk.say("video.query", text=text)
        assert parts(talk) == ["image"]

    def test_voice(self) -> None:
        talk = Talk(config={"voice": "Aiden"})
        talk.frame(1)
        talk.say("video.query", text="?")
        assert talk.job.settings.stage == {"talker": {"voice": "Aiden"}}

    def test_system_prompt_and_history(self) -> None:
        talk = Talk(config={**PLAIN, "system_prompt": "Be kind."})
        talk.frame(1)
        for n in range(3):
            talk.say("video.query", text=f"q{n}")
            talk.answer(f"a{n}")
        talk.say("video.query", text="q3")
        assert [(m.role, m.text) for m in talk.job.messages] == [
            ("system", "Be kind."), ("user", "q2"), ("assistant", "a2"), ("user", "q3"),
        ]  # fmt: skip
        assert all(isinstance(part, TextPart) for message in talk.job.messages[:-1] for part in message.parts)

    def test_sound_comes_between_frames_and_text(self) -> None:
        talk = Talk(config=PLAIN)
        talk.frame(1)
        talk.say("audio.chunk", data=pcm(100))
        talk.say("video.query", text="?", audio_data=pcm(60))
        assert parts(talk) == ["image", "audio", "?"]
        assert sound(talk) == 160
        talk.answer()
        talk.say("video.query", text="?")
        assert parts(talk) == ["image", "?"]

    def test_sound_is_heard_by_the_question_that_follows_it(self) -> None:
        talk = Talk(config=TEXT)
        talk.frame(1, look=False)
        talk.say("audio.chunk", data=pcm(100), look=False)
        talk.say("video.query", text="?", look=False)
        talk.say("audio.chunk", data=pcm(7), look=False)
        talk.look()
        assert sound(talk) == 100

    def test_overflow(self) -> None:
        talk = Talk(limits(audio_bytes=200), PLAIN)
        talk.frame(1)
        talk.say("audio.chunk", data=pcm(100))
        assert talk.say("audio.chunk", data=pcm(1))[0]["message"] == "Audio buffer overflow"
        assert talk.say("video.query", text="?", audio_data=pcm(101))[0]["message"] == "Audio buffer overflow"
        assert parts(talk) == ["image", "?"]

    @pytest.mark.parametrize(
        ("config", "query", "message"),
        [
            (
                {"sampling_params_list": [{"bogus": 1}]},
                {"text": "?"},
                "Failed to build request: sampling_params_list[0]",
            ),
            ({}, {"text": 5}, "Failed to build request: text must be a string"),
            ({}, {"text": "x" * 99}, "Failed to build request: text may have 50 characters"),
        ],
    )
    def test_a_question_that_cant_be_asked(self, config: Any, query: Any, message: str) -> None:
        talk = Talk(limits(text_chars=50), {**PLAIN, **config})
        talk.frame(1)
        talk.say("audio.chunk", data=pcm(9))
        (event,) = talk.say("video.query", **query)
        assert event["message"].startswith(message)
        assert talk.jobs == {}
        assert talk.session._hearing.nbytes == 18


class TestConsumed:
    def ask(self, talk: Talk) -> list[dict[str, Any]]:
        talk.say("video.query", text="?")
        talk.chunk(event={"type": "prompt"})
        talk.now += 1
        talk.new()
        return talk.chunk("a")

    def test_told_at_the_first_output(self) -> None:
        talk = Talk(config={**PLAIN, "num_frames": 2})
        for n in range(5):
            talk.frame(n, frame_id=str(n), pts_ms=n * 10, quality_profile={"x": 1}, source_pts_ms="s")
        consumed, delta = self.ask(talk)
        assert set(consumed) == {
            "type", "request_id", "model_selected_ts_ms", "frame_ids", "frames", "latest_pts_ms",
        }  # fmt: skip
        assert consumed["frame_ids"] == ["0", "4"]
        assert consumed["latest_pts_ms"] == 40
        frame = consumed["frames"][0]
        assert set(frame) == {
            "frame_id", "pts_ms", "source_pts_ms", "quality_profile", "receiver_received_ts_ms", "decoded_ready_ts_ms",
        }  # fmt: skip
        received, ready = frame["receiver_received_ts_ms"], frame["decoded_ready_ts_ms"]
        assert received <= ready < consumed["model_selected_ts_ms"]
        assert delta["type"] == "response.text.delta"

    def test_told_with_a_token_that_is_only_half_a_character(self) -> None:
        talk = Talk(config=PLAIN)
        talk.frame(1, frame_id="a")
        talk.say("video.query", text="?")
        talk.new()
        talk.session.feed(talk.running[-1], Chunk(tokens=1), talk.now)
        talk.act()
        assert types(talk.new()) == ["response.start", "video.frames.consumed"]

    def test_not_without_any_id(self) -> None:
        talk = Talk(config=PLAIN)
        talk.frame(1, pts_ms=5)
        talk.frame(2, frame_id="")
        assert types(self.ask(talk)) == ["response.text.delta"]

    def test_an_id_that_wasnt_selected_is_enough(self) -> None:
        talk = Talk(config={**PLAIN, "num_frames": 1})
        talk.frame(1, frame_id="a")
        talk.frame(2)
        consumed = self.ask(talk)[0]
        assert consumed["frame_ids"] == []
        assert [frame["frame_id"] for frame in consumed["frames"]] == [None]

    def test_ids_that_are_no_strings(self) -> None:
        talk = Talk(config=PLAIN)
        for id in ("a", 7, "", None):
            talk.frame(1, frame_id=id)
        consumed = self.ask(talk)[0]
        assert consumed["frame_ids"] == ["a", ""]
        assert [frame["frame_id"] for frame in consumed["frames"]] == ["a", 7, "", None]

    def test_uniform(self) -> None:
        talk = Talk(config={**PLAIN, "num_frames": 4, "frame_sampling": "uniform"})
        for n in range(10):
            talk.frame(n, frame_id=str(n))
        assert self.ask(talk)[0]["frame_ids"] == ["0", "3", "6", "9"]

    @pytest.mark.parametrize(("keep", "ids"), [(True, ["a", "c"]), (False, ["a"])])
    def test_the_newest_is_seen_though_it_was_filtered(self, keep: bool, ids: list[str]) -> None:
        talk = Talk(limits(keep_newest=keep), TEXT)
        for id, level in (("a", 1), ("b", 2), ("c", 3)):
            talk.frame(level, frame_id=id)
        assert self.ask(talk)[0]["frame_ids"] == ids

    def test_unless_a_newer_one_was_kept(self) -> None:
        talk = Talk(config=TEXT)
        for id, level in (("a", 1), ("b", 2), ("c", 200)):
            talk.frame(level, frame_id=id)
        assert self.ask(talk)[0]["frame_ids"] == ["a", "c"]


class TestFailure:
    def ask(self, config: dict[str, Any] | None = None, **fields: Any) -> Talk:
        talk = Talk(config=PLAIN if config is None else config, **fields)
        for n in range(3):
            talk.frame(n * 80, frame_id=str(n))
        talk.say("audio.chunk", data=pcm(10))
        talk.say("video.query", text="?")
        return talk

    def test_in_the_middle(self) -> None:
        talk = self.ask({})
        talk.chunk("half ")
        talk.chunk(audio=bytes(10))
        talk.new()
        events = talk.end(StageFailed("The thinker broke."))
        assert types(events) == ["error", "response.text.done", "response.output_audio.done", "response.done"]
        assert events[0]["message"] == "Query processing failed"
        assert events[0]["code"] == "stage_failed"
        assert events[1]["text"] == "half "
        assert events[-1]["status"] == "failed"
        talk.say("video.query", text="again")
        assert sound(talk) == 10
        assert len(talk.job.messages) == 1

    @pytest.mark.parametrize(
        ("error", "message"),
        [
            (ContextExceeded("Too long."), "Preprocess failed: Too long."),
            (Overloaded("Full."), "Query processing failed"),
            (OmniError("Oops."), "Query processing failed"),
        ],
    )
    def test_before_anything(self, error: OmniError, message: str) -> None:
        talk = self.ask()
        talk.new()
        events = talk.end(error)
        assert types(events) == ["error", "response.done"]
        assert events[0]["message"] == message
        assert events[1]["status"] == "failed"

    def test_a_frame_that_the_stages_cant_decode_is_left_out(self) -> None:
        talk = self.ask()
        bad = [part.param for part in talk.job.media][1]
        (event,) = talk.end(InvalidMedia("Broken.", param=bad))
        assert event["message"] == "Frame decode failed"
        assert len(talk.running) == 1
        assert [part.kind for part in talk.job.media] == ["image", "image", "audio"]
        talk.chunk("fine")
        assert next(only(talk.events, "video.frames.consumed"))["frame_ids"] == ["0", "2"]
        talk.end()
        talk.say("video.query", text="again")
        assert len(talk.job.media) == 2

    def test_and_isnt_replaced_by_another(self) -> None:
        talk = self.ask({**PLAIN, "num_frames": 1})
        talk.end(InvalidMedia("Broken.", param=talk.job.media[0].param))
        assert [part.kind for part in talk.job.media] == ["audio"]
        talk.chunk("fine")
        consumed = next(only(talk.events, "video.frames.consumed"))
        assert (consumed["frame_ids"], consumed["frames"], consumed["latest_pts_ms"]) == ([], [], None)

    def test_sound_that_cant_be_decoded_fails_the_turn(self) -> None:
        talk = self.ask()
        talk.new()
        assert types(talk.end(InvalidMedia("Broken.", param="audio"))) == ["error", "response.done"]

    def test_bytes_travel_once(self) -> None:
        talk = self.ask()
        assert all(part.data is not None for part in talk.job.media)
        talk.answer()
        talk.frame(255)
        talk.say("video.query", text="?")
        images = [part for part in talk.job.media if part.kind == "image"]
        assert [part.data is not None for part in images] == [False, False, False, True]

    def test_bytes_are_sent_again_when_they_are_missing(self) -> None:
        talk = self.ask()
        talk.answer()
        talk.say("video.query", text="?")
        assert talk.end(MediaMissing("Gone.")) == []
        assert all(part.data is not None for part in talk.job.media)
        talk.end(MediaMissing("Gone."))
        assert types(talk.end(MediaMissing("Gone."))) == ["error", "response.done"]


class TestBargeIn:
    def test_the_old_turn_is_closed_first(self) -> None:
        talk = Talk(config={})
        talk.frame(1)
        talk.say("audio.chunk", data=pcm(10))
        talk.say("video.query", text="a")
        talk.chunk("hel")
        talk.chunk(audio=bytes(10))
        old = talk.running[0]
        talk.new()
        events = talk.say("video.query", text="b", audio_data=pcm(5))
        assert types(events) == ["response.text.done", "response.output_audio.done", "response.done"]
        assert (events[0]["text"], events[-1]["status"]) == ("hel", "cancelled")
        assert talk.cancelled == [old]
        assert sound(talk) == 15
        talk.session.feed(old, Chunk("lo"), talk.now)
        talk.session.ended(old, None, talk.now)
        talk.act()
        assert talk.new() == []
        assert types(talk.answer())[0] == "response.start"

    def test_a_turn_that_wasnt_started_only_ends(self) -> None:
        talk = Talk(config=PLAIN)
        talk.frame(1)
        talk.say("video.query", text="a")
        assert types(talk.say("video.query", text="b")) == ["response.done"]

    def test_a_question_in_the_lane_is_overtaken_without_a_word(self) -> None:
        talk = Talk(config=TEXT)
        talk.frame(1, look=False)
        talk.say("video.query", text="a", look=False, audio_data=pcm(3))
        talk.say("video.query", text="b", look=False, audio_data=pcm(4))
        assert talk.look() == []
        assert parts(talk)[-1] == "b"
        assert sound(talk) == 7
        assert len(talk.jobs) == 1

    def test_a_question_about_nothing_still_stops_the_answer(self) -> None:
        talk = Talk(config={**PLAIN, "max_frames": 1})
        talk.frame(1)
        talk.say("video.query", text="a")
        talk.end(InvalidMedia("Broken.", param=talk.job.media[0].param))
        talk.new()
        events = talk.say("video.query", text="b")
        assert types(events) == ["response.done", "error"]
        assert len(talk.cancelled) == 1

    def test_frames_come_in_meanwhile(self) -> None:
        talk = Talk(config=PLAIN)
        talk.frame(1)
        talk.say("video.query", text="a")
        assert types(talk.frame(2, frame_id="x")) == ["video.frame.ack"]
        talk.answer()
        talk.say("video.query", text="b")
        assert parts(talk) == ["image", "image", "b"]


class TestEnd:
    def test_at_once(self) -> None:
        talk = Talk(config={})
        assert types(talk.say("video.done")) == ["session.done"]
        assert talk.closed is not None
        assert talk.closed.code == 1000
        assert talk.session.state is State.CLOSED

    def test_after_the_answer(self) -> None:
        talk = Talk(config=PLAIN)
        talk.frame(1)
        talk.say("video.query", text="a")
        talk.say("video.done")
        assert talk.say("video.query", text="ignored") == []
        assert types(talk.answer())[-2:] == ["response.done", "session.done"]

    def test_after_frames_that_wait_to_be_looked_at(self) -> None:
        talk = Talk(config=TEXT)
        talk.frame(1, look=False, frame_id="a")
        talk.say("video.query", text="a", look=False)
        assert talk.say("video.done", look=False) == []
        assert types(talk.look()) == ["video.frame.ack"]
        assert types(talk.answer())[-1] == "session.done"

    @pytest.mark.parametrize("moment", ["config", "open", "looking", "reading", "asked", "answering", "done"])
    def test_a_client_that_is_gone_leaves_nothing(self, moment: str) -> None:
        talk = Talk(config=None if moment == "config" else {}, prefill=moment == "reading")
        if moment != "config":
            talk.frame(1)
            talk.frame(2)
            talk.say("audio.chunk", data=pcm(5))
        if moment == "looking":
            talk.frame(3, look=False)
        if moment in ("asked", "answering", "done"):
            talk.say("video.query", text="?")
        if moment == "answering":
            talk.chunk("a")
        if moment == "done":
            talk.say("video.done")
        assert len(talk.running) == (moment in ("reading", "asked", "answering", "done"))
        talk.new()
        talk.lose()
        assert talk.new() == []
        assert talk.running == []
        assert talk.budget.held == 0
        assert talk.session.next_timer() is None


class TestIdle:
    def test_after_a_minute(self) -> None:
        talk = Talk(limits(idle_timeout=60), PLAIN)
        assert talk.wait(59.9) == []
        (event,) = talk.wait(0.2)
        assert (event["message"], event["fatal"]) == ("Idle timeout", True)
        assert talk.closed is not None
        assert talk.closed.code == 4408

    def test_any_message_is_life(self) -> None:
        talk = Talk(limits(idle_timeout=60), PLAIN)
        for _ in range(5):
            talk.wait(50)
            talk.say("ping")
            talk.flush()
        assert talk.closed is None

    def test_the_clock_stands_still_while_answering_and_sending(self) -> None:
        talk = Talk(limits(idle_timeout=60), PLAIN)
        talk.frame(1)
        talk.say("video.query", text="?")
        talk.wait(1000)
        talk.chunk("a")
        talk.end()
        talk.wait(1000)
        talk.flush()
        talk.wait(59)
        assert talk.closed is None
        talk.wait(2)
        assert talk.closed is not None

    def test_a_frame_that_is_looked_at_is_no_idleness(self) -> None:
        talk = Talk(limits(idle_timeout=60), TEXT)
        talk.frame(1, look=False)
        talk.wait(1000)
        assert talk.closed is None


class TestPrefill:
    def talk(self, **config: Any) -> Talk:
        return Talk(config={**PLAIN, **config}, prefill=True)

    def finish(self, talk: Talk) -> None:
        """The warm-up under way is done."""
        turn = talk.running[-1]
        talk.chunk(event={"type": "prefilled"}, turn=turn)
        talk.end(turn=turn)

    def test_frames_are_read_as_they_come(self) -> None:
        talk = self.talk(system_prompt="Be kind.")
        talk.frame(1)
        job = talk.job
        assert job.settings.prefill
        assert job.priority < 0
        assert not job.settings.speech
        assert [m.role for m in job.messages] == ["system", "user"]
        assert types(talk.events) == []

    def test_one_at_a_time_and_the_newest_wins(self) -> None:
        talk = self.talk()
        for n in range(5):
            talk.frame(n)
        assert len(talk.jobs) == 1
        self.finish(talk)
        assert len(talk.jobs) == 2
        assert len(talk.job.media) == 5
        assert [part.data is not None for part in talk.job.media] == [False, True, True, True, True]
        self.finish(talk)
        assert len(talk.jobs) == 2
        assert talk.running == []

    def test_a_question_stops_it_and_has_the_same_beginning(self) -> None:
        talk = self.talk(num_frames=1)
        for n in range(3):
            talk.frame(n)
        self.finish(talk)
        warm = talk.job
        talk.frame(3)
        (running,) = talk.running
        talk.say("video.query", text="?", audio_data=pcm(5))
        assert running in talk.cancelled
        job = talk.job
        assert not job.settings.prefill
        assert [part.digest for part in job.media if part.kind == "image"][:3] == [part.digest for part in warm.media]
        assert parts(talk) == ["image"] * 4 + ["audio", "?"]
        assert job.settings.session == warm.settings.session

    def test_a_question_waits_for_the_frames_under_way_and_names_them(self) -> None:
        talk = Talk(config=PLAIN, prefill=True, kept=False)
        talk.frame(1)
        warmup = talk.running[0]
        talk.say("video.query", text="?")
        assert talk.running == [warmup]
        assert talk.chunk(event=KEPT, turn=warmup) == []
        assert talk.cancelled == [warmup]
        assert [part.data for part in talk.job.media] == [None]
        assert types(talk.answer()) == ["response.start", "response.text.delta", "response.text.done", "response.done"]

    def test_a_question_that_interrupts_another_at_once_names_its_frames(self) -> None:
        talk = Talk(config=PLAIN, kept=False)
        talk.frame(1)
        talk.say("video.query", text="one?")
        first = talk.running[0]
        assert types(talk.say("video.query", text="two?")) == ["response.done"]
        talk.chunk(event=KEPT, turn=first)
        assert talk.cancelled == [first]
        assert [part.data for part in talk.job.media] == [None]

    def test_frames_of_a_warmup_that_failed_on_its_way_are_sent_with_the_question(self) -> None:
        talk = Talk(config=PLAIN, prefill=True, kept=False)
        talk.frame(1)
        talk.say("video.query", text="?")
        talk.end(Overloaded("Full."), turn=talk.running[0])
        assert all(part.data is not None for part in talk.job.media)
        assert len(talk.running) == 1

    def test_not_while_an_answer_is_given_but_after_it(self) -> None:
        talk = self.talk()
        talk.frame(1)
        self.finish(talk)
        talk.say("video.query", text="q")
        talk.frame(2)
        assert len(talk.running) == 1
        talk.answer("a")
        assert talk.job.settings.prefill
        assert [(m.role, m.text) for m in talk.job.messages] == [("user", "q"), ("assistant", "a"), ("user", "")]

    def test_also_for_speech(self) -> None:
        talk = Talk(config={"enable_frame_filter": False}, prefill=True)
        talk.frame(1)
        self.finish(talk)
        talk.say("video.query", text="q")
        assert talk.job.settings.speech
        assert [part.data for part in talk.job.media] == [None]

    def test_a_full_buffer_loses_its_older_half(self, caplog: pytest.LogCaptureFixture) -> None:
        talk = self.talk(max_frames=4)
        acks = [talk.frame(n, frame_id=str(n))[-1] for n in range(5)]
        assert acks[-1]["buffered_frames"] == 3
        assert acks[-1]["dropped_frame_id"] == "0"
        assert "older half" in caplog.text

    def test_a_filtered_newest_frame_comes_last(self) -> None:
        talk = Talk(config=TEXT, prefill=True)
        for level in (0, 100, 101):
            talk.frame(level)
        talk.say("video.query", text="q")
        assert parts(talk) == ["image", "image", "image", "q"]

    def test_one_that_fails_isnt_tried_until_there_is_something_new(self) -> None:
        talk = self.talk()
        talk.frame(1)
        talk.end(Overloaded("Full."))
        assert talk.running == []
        talk.frame(2)
        assert len(talk.running) == 1

    def test_missing_bytes_are_sent_again_but_not_for_ever(self) -> None:
        talk = self.talk()
        talk.frame(1)
        self.finish(talk)
        talk.frame(2)
        talk.end(MediaMissing("Gone."))
        assert all(part.data is not None for part in talk.job.media)
        talk.end(MediaMissing("Gone."))
        talk.end(MediaMissing("Gone."))
        assert talk.running == []

    def test_a_frame_that_cant_be_decoded_is_left_out(self) -> None:
        talk = self.talk()
        talk.frame(1)
        talk.frame(2)
        assert types(talk.end(InvalidMedia("Broken.", param=talk.job.media[0].param))) == ["error"]
        assert len(talk.job.media) == 1

    def test_stopped_at_the_end(self) -> None:
        talk = self.talk()
        talk.frame(1)
        talk.say("video.done")
        assert talk.running == []
        assert talk.closed is not None


def test_memory_is_flat_for_a_day(caplog: pytest.LogCaptureFixture) -> None:
    """A frame a second and a question every two minutes for 24 hours; what is held at noon is all that ever is."""
    caplog.set_level(logging.ERROR)  # what pytest keeps of warnings isn't ours
    talk = Talk(config={**PLAIN, "max_frames": 50}, prefill=True)
    pictures = [base64.b64encode(b"grey %d " % level + bytes(2048)).decode() for level in range(64)]
    frames = [json.dumps({"type": "video.frame", "data": data, "frame_id": "x", "pts_ms": 1}) for data in pictures]
    session, process, day = talk.session, psutil.Process(), 24 * 3600
    blocks: list[int] = []
    memory: list[int] = []
    for second in range(day):
        talk.now += 1
        session.receive(frames[second % len(frames)], talk.now)
        talk.act()
        if second % 30 == 7:
            talk.end()
        if second % 120 == 119:
            session.receive(json.dumps({"type": "video.query", "text": "?", "audio_data": pcm(8000)}), talk.now)
            talk.act()
            talk.chunk("word " * 20)
            talk.end()
        talk.events.clear()
        talk._shown = 0
        talk.jobs.clear()
        talk.cancelled.clear()
        if second in (day // 2 - 1, day - 1):
            gc.collect()
            blocks.append(sys.getallocatedblocks())
            memory.append(process.memory_info().rss)
    assert blocks[1] - blocks[0] < 1000
    assert memory[1] - memory[0] < 4 << 20
    assert len(session._sight.frames) <= 50
    assert talk.budget.held <= 51 * 4096
    assert not session._lane
    assert not session._lane._waiting
    assert isinstance(session._dialogue.conversation.history[0].parts[0], TextPart)
    assert not any(
        isinstance(part, MediaPart) for message in session._dialogue.conversation.history for part in message.parts
    )
