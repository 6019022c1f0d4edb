"""The SGLang session profile: handshake, numbered sound, clocks, progress and the end."""

from __future__ import annotations

from typing import Any

import pytest
from support.realtime import Talk, b64, sound, types

from frontend.protocol.realtime_limits import Limits
from frontend.protocol.realtime_profile_offer import capabilities

pytestmark = pytest.mark.pure
RATE = 16_000


class Profile(Talk):
    def __init__(self, limits: Limits | None = None, **session: Any) -> None:
        super().__init__(limits, check=False, profile=True)
        self.seq = 0
        self.events = 0
        if session.pop("open", True):
            self.do("session.update", session={"type": "realtime", **session})

    def do(self, type: str, **fields: Any) -> list[dict[str, Any]]:
        self.events += 1
        return self.say(type, event_id=f"c{self.events}", **fields)

    def append(self, ms: float, value: int = 0, **more: Any) -> list[dict[str, Any]]:
        out = self.do("input_audio_buffer.append", audio=b64(sound(ms, value, RATE)), sglang={"seq": self.seq, **more})
        self.seq += not any(event["type"] == "error" for event in out)
        return out


MANUAL: dict[str, Any] = {"audio": {"input": {"turn_detection": None}}}


def error(events: list[dict[str, Any]]) -> tuple[str, str | None, bool]:
    (event,) = [event for event in events if event["type"] == "error"]
    return event["error"]["code"], event["error"]["event_id"], event["sglang"]["fatal"]


def test_the_session_is_created_before_and_granted_after_the_update() -> None:
    talk = Profile(open=False)
    assert types(talk.got) == ["session.created"]
    assert talk.got[0]["session"]["sglang"] == {"granted": None}
    (event,) = talk.do("session.update", session={"type": "realtime", "output_modalities": ["text", "audio"]})
    granted = event["session"]["sglang"]["granted"]
    assert granted["output_modalities"] == ["text", "audio"]
    assert granted["audio"]["input"]["format"] == {"type": "audio/pcm", "rate": RATE}
    assert granted["audio"]["input"]["turn_detection"]["silence_duration_ms"] == 800
    assert granted["limits"]["frames_per_utterance"] == 8
    assert granted["rejections"] == []


def test_nothing_goes_before_the_update() -> None:
    talk = Profile(open=False)
    assert error(talk.append(100)) == ("invalid_state", "c1", False)
    assert types(talk.do("session.close")) == ["session.closed"]


def test_a_session_without_an_update_is_closed() -> None:
    talk = Profile(open=False)
    events = talk.wait(61)
    assert error(events) == ("session_update_timeout", None, True)
    assert talk.closed is not None
    assert talk.closed.code == 1008


def test_every_event_needs_an_id_and_no_more_than_its_fields() -> None:
    talk = Profile()
    assert error(talk.say("input_audio_buffer.clear"))[0] == "invalid_request"
    assert error(talk.say("input_audio_buffer.clear", event_id=""))[0] == "invalid_request"
    assert error(talk.say("input_audio_buffer.clear", event_id="x" * 257))[0] == "invalid_request"
    assert error(talk.do("input_audio_buffer.clear", more=1))[0] == "invalid_request"
    assert error(talk.do("no.such"))[0] == "invalid_request"
    assert error(talk.say_raw(b"\x00"))[0] == "invalid_request"
    assert error(talk.say_raw("{"))[0] == "invalid_request"
    assert types(talk.do("input_audio_buffer.clear")) == ["input_audio_buffer.cleared"]


def test_appends_are_numbered_and_acknowledged() -> None:
    talk = Profile(**MANUAL)
    (event,) = talk.append(100)
    assert (event["type"], event["seq"], event["accepted_end_ms"]) == ("sglang.input_audio.accepted", 0, 100)
    talk.seq = 5
    assert error(talk.append(100))[0] == "invalid_request"
    talk.seq = 1
    assert error(talk.append(100, t_start_ms=50))[0] == "invalid_request"
    (event,) = talk.append(60, t_start_ms=100)
    assert (event["seq"], event["accepted_end_ms"]) == (1, 160)
    assert error(talk.do("input_audio_buffer.append", audio=b64(sound(10))))[0] == "invalid_request"
    assert error(talk.do("input_audio_buffer.append", audio="AA==", sglang={"seq": 2}))[0] == "invalid_request"


def test_over_budget_may_try_the_same_number_again() -> None:
    talk = Profile(Limits(buffer_s=1), **MANUAL)
    talk.append(900)
    assert error(talk.append(200))[0] == "buffer_overflow"
    talk.do("input_audio_buffer.commit")
    assert types(talk.append(200))[-1] == "sglang.input_audio.accepted"


def test_a_commit_is_answered() -> None:
    talk = Profile(output_modalities=["text"], **MANUAL)
    talk.append(300, 5)
    events = talk.do("input_audio_buffer.commit") + talk.feed("Yes.") + talk.end()
    assert types(events) == [
        "response.created",
        "response.output_text.delta",
        "response.output_text.done",
        "response.done",
        "sglang.unit.done",
    ]
    assert [event["sglang"]["chunk_seq"] for event in events[:4]] == [0, 1, 2, 3]
    assert {event["sglang"]["unit_id"] for event in events} == {1}
    assert events[1]["sglang"]["media_time"] == {"end_ms": 300}
    assert events[3]["response"]["usage"] is None


def test_a_spoken_turn_with_text_and_progress() -> None:
    talk = Profile(output_modalities=["text", "audio"])
    talk.append(500, 5)
    talk.append(1000)
    events = talk.feed("Yes.", "No.") + talk.end()
    assert types(events) == [
        "response.output_text.delta",
        "response.output_audio.delta",
        "sglang.response.progress",
        "response.output_text.delta",
        "response.output_audio.delta",
        "sglang.response.progress",
        "response.output_audio.done",
        "response.output_text.done",
        "response.done",
        "sglang.unit.done",
    ]
    assert [(e["text_end"], e["audio_ms"]) for e in events if "progress" in e["type"]] == [(4, 100), (7, 200)]
    assert events[7]["text"] == "Yes.No."


def test_speech_alone_has_a_transcript() -> None:
    talk = Profile(output_modalities=["audio"], **MANUAL)
    talk.append(300, 5)
    talk.do("input_audio_buffer.commit")
    assert types(talk.feed("Yes."))[0] == "response.output_audio_transcript.delta"


def test_frames() -> None:
    talk = Profile(**MANUAL)
    talk.append(300, 5)
    (event,) = talk.do("sglang.input_image.append", image=b64(b"IMG0"), sglang={"t_ms": 100})
    assert event["type"] == "sglang.input_image.accepted"
    assert "unit_id" in event["sglang"]
    for fields in (
        {},
        {"image": "!", "sglang": {"t_ms": 1}},
        {"image": b64(b"no"), "sglang": {"t_ms": 1}},
        {"image": b64(b"IMG1")},
        {"image": b64(b"IMG1"), "sglang": {}},
        {"image": b64(b"IMG1"), "sglang": {"t_ms": -1}},
        {"image": b64(b"IMG1"), "sglang": {"t_ms": 1, "x": 1}},
    ):
        assert error(talk.do("sglang.input_image.append", **fields))[2] is False
    talk.end()
    talk.do("input_audio_buffer.commit")
    assert talk.prompt() == [("user", ["image", "audio"])]


def test_responses_are_not_asked_for() -> None:
    assert error(Profile().do("response.create"))[0] == "not_applicable"
    assert error(Profile().do("response.cancel"))[0] == "invalid_state"


def test_sampling() -> None:
    talk = Profile(sglang={"sampling": {"temperature": 0.5, "max_new_tokens": 9, "talker_top_k": 3}}, **MANUAL)
    talk.append(300, 5)
    talk.do("input_audio_buffer.commit")
    sampling = talk.job.settings.sampling
    assert (sampling["thinker"].temperature, sampling["thinker"].max_tokens) == (0.5, 9)
    assert sampling["talker"].top_k == 3
    assert error(talk.do("session.update", session={"sglang": {"sampling": {"nonsense": 1}}}))[0] == "invalid_request"


def test_the_end_of_the_sound_flushes_the_tail() -> None:
    talk = Profile()
    talk.append(500, 5)
    events = talk.do("sglang.input_audio.end")
    assert types(events)[0] == "sglang.input_audio.ended"
    assert events[0]["accepted_end_ms"] == 500
    assert types(events)[-1] == "response.created", "the last turn is answered"
    events = talk.feed("Bye.") + talk.end()
    drained = events[-1]
    assert drained["type"] == "sglang.input_audio.drained"
    assert (drained["accepted_end_ms"], drained["consumed_ms"], drained["discarded_ms"]) == (500, 500, 0)
    assert error(talk.append(100))[0] == "invalid_state"
    assert error(talk.do("sglang.input_audio.end"))[0] == "invalid_state"
    assert types(talk.do("session.close")) == ["session.closed"]
    assert talk.closed is not None
    assert talk.closed.code == 1000


@pytest.mark.parametrize(
    ("policy", "consumed", "discarded", "padding"), [("flush", 500, 0, 0), ("pad", 500, 0, 100), ("reject", 0, 500, 0)]
)
def test_tail_policies(policy: str, consumed: int, discarded: int, padding: int) -> None:
    talk = Profile(sglang={"tail_policy": policy}, **MANUAL)
    talk.append(500, 5)
    events = talk.do("sglang.input_audio.end")
    if policy != "reject":
        events += talk.end()
    drained = events[-1]
    assert drained["type"] == "sglang.input_audio.drained"
    assert (drained["consumed_ms"], drained["discarded_ms"], drained["padding_ms"]) == (consumed, discarded, padding)


def test_cleared_sound_is_discarded() -> None:
    talk = Profile(**MANUAL)
    talk.append(400)
    talk.do("input_audio_buffer.clear")
    talk.append(300)
    talk.do("sglang.input_audio.end")
    drained = talk.end()[-1]
    assert (drained["accepted_end_ms"], drained["consumed_ms"], drained["discarded_ms"]) == (700, 300, 400)


def test_close_cancels_the_answer() -> None:
    talk = Profile(**MANUAL)
    talk.append(300, 5)
    talk.do("input_audio_buffer.commit")
    talk.feed("Yes")
    events = talk.do("session.close")
    assert types(events)[-3:] == ["response.done", "sglang.unit.done", "session.closed"]
    assert talk.live == []


def test_barge_in_and_truncation() -> None:
    talk = Profile(output_modalities=["audio"])
    talk.append(500, 5)
    talk.append(1000)
    item = talk.feed("one ", "two ")[-2]["item_id"]
    events = talk.append(200, 5)
    assert next(e for e in events if e["type"] == "response.done")["response"]["status"] == "cancelled"
    assert talk.do("conversation.item.truncate", item_id=item, content_index=0, audio_end_ms=100) == []
    talk.append(300, 5)
    talk.append(1000)
    assert talk.prompt() == [("user", ["audio"]), ("assistant", ["one"]), ("user", ["audio"])]


def test_a_first_update_that_names_the_profile_engages_it() -> None:
    talk = Talk(check=False, profile=False)
    assert talk.got[0]["session"]["audio"]["input"]["format"]["rate"] == 24_000
    (event,) = talk.say("session.update", event_id="a", session={"type": "realtime", "sglang": {}})
    assert event["session"]["sglang"]["granted"]["audio"]["input"]["format"]["rate"] == RATE
    assert error(talk.say("response.create", event_id="b"))[0] == "not_applicable"


def test_other_clients_notice_nothing() -> None:
    talk = Talk(profile=False)
    talk.say("session.update", session={"type": "realtime"})
    assert types(talk.say("response.create")) == ["response.created"]
    assert types(talk.feed("Hi") + talk.end())[-1] == "response.done"


def test_idle_and_age_are_fatal() -> None:
    talk = Profile(Limits(idle_s=10))
    assert error(talk.wait(11)) == ("session_idle", None, True)


def test_capabilities() -> None:
    said = capabilities("qwen3-omni", Limits(), speech=True, voices=("Ethan",))
    assert said["model"] == "qwen3-omni"
    assert ["text", "audio"] in said["output"]["modalities"]
    assert "sglang.input_audio.end" in said["client_events"]
    assert capabilities("m", Limits(), speech=False, voices=())["output"]["modalities"] == [["text"]]
