"""The same session in the words of other clients."""

from __future__ import annotations

from typing import Any

import pytest
from support.realtime import Talk, b64, sound, text, types, user

from frontend.protocol.realtime_dialects import BETA, SGLANG

pytestmark = pytest.mark.pure


def flat(**session: Any) -> dict[str, Any]:
    return session


def error(events: list[dict[str, Any]]) -> dict[str, Any]:
    (event,) = events
    assert event["type"] == "error"
    return event["error"]  # type: ignore[no-any-return]


# Beta


def beta() -> Talk:
    return Talk(dialect=BETA, check=False)


def test_beta_sessions_are_flat() -> None:
    talk = beta()
    assert talk.got[0]["session"]["modalities"] == ["text", "audio"]
    (event,) = talk.say(
        "session.update",
        session=flat(
            modalities=["text"],
            instructions="Be brief.",
            voice="alloy",
            input_audio_format="g711_ulaw",
            output_audio_format="pcm16",
            input_audio_transcription={"model": "whisper-1"},
            turn_detection={"type": "server_vad", "silence_duration_ms": 300},
            tools=[],
            tool_choice="auto",
            temperature=0.8,
            max_response_output_tokens="inf",
        ),
    )
    session = event["session"]
    assert session["modalities"] == ["text"]
    assert session["input_audio_format"] == "g711_ulaw"
    assert session["output_audio_format"] == "pcm16"
    assert session["input_audio_transcription"]["model"] == "whisper-1"
    assert session["turn_detection"]["silence_duration_ms"] == 300
    assert session["max_response_output_tokens"] == "inf"
    talk.say("response.create")
    assert talk.job.settings.sampling["thinker"].temperature == 0.8


def test_beta_answers() -> None:
    talk = beta()
    events = talk.say("conversation.item.create", item=user(text("Hi")))
    assert types(events) == ["conversation.item.created"]
    events = talk.say("response.create", response={"modalities": ["text", "audio"], "temperature": 0.7})
    events += talk.feed("Hello.") + talk.end()
    assert types(events) == [
        "response.created",
        "response.output_item.added",
        "conversation.item.created",
        "response.content_part.added",
        "response.audio_transcript.delta",
        "response.audio.delta",
        "response.audio.done",
        "response.audio_transcript.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.done",
    ]
    response = events[-1]["response"]
    assert response["modalities"] == ["text", "audio"]
    assert response["output"][0]["content"] == [{"type": "audio", "transcript": "Hello."}]
    assert response["usage"]["total_tokens"] == 15
    talk.say("response.create", response={"modalities": ["text"]})
    assert "response.text.delta" in types(talk.feed("Yes"))


def test_beta_takes_ga_sessions_too() -> None:
    (event,) = beta().say("session.update", session={"type": "realtime", "output_modalities": ["text"]})
    assert event["session"]["modalities"] == ["text"]


def test_a_flat_first_update_makes_a_client_beta() -> None:
    talk = Talk(check=False)
    (event,) = talk.say("session.update", session=flat(modalities=["text"]))
    assert event["session"]["modalities"] == ["text"]


def test_beta_names_formats() -> None:
    said = error(beta().say("session.update", session=flat(input_audio_format="opus")))
    assert said["param"] == "session.input_audio_format"


# SGLang's standard speech pipeline


def sglang(**session: Any) -> Talk:
    talk = Talk(dialect=SGLANG, check=False)
    talk.say("session.update", session=flat(input_audio_transcription=None, **session))
    return talk


def speak(talk: Talk) -> list[dict[str, Any]]:
    return talk.say("input_audio_buffer.append", audio=b64(sound(300, 5, 16_000) + sound(700, 0, 16_000)))


def test_sglang_one_turn() -> None:
    talk = sglang(modalities=["text", "audio"])
    events = speak(talk) + talk.feed("Hello.") + talk.end()
    assert types(events) == [
        "input_audio_buffer.speech_started",
        "input_audio_buffer.speech_stopped",
        "input_audio_buffer.committed",
        "response.created",
        "response.text.delta",
        "response.audio.delta",
        "response.audio.done",
        "response.text.done",
        "response.done",
    ]
    response = events[-1]["response"]
    assert response["output"][0]["content"] == [
        {"type": "text", "text": "Hello."},
        {"type": "audio", "transcript": "Hello."},
    ]
    assert response["usage"] == {"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13}
    assert [event.get("content_index") for event in events[4:7]] == [0, 1, 1]


def test_sglang_begins_with_text_16_khz_and_transcription() -> None:
    talk = Talk(dialect=SGLANG, check=False)
    session = talk.got[0]["session"]
    assert session["modalities"] == ["text"]
    events = speak(talk) + talk.feed("Hello.")
    assert types(events)[-1] == "response.text.delta"
    answer, transcript = talk.live
    assert (talk.started[answer].media[0].data or b"")[24:28] == (16_000).to_bytes(4, "little")
    events = talk.end(turn=answer) + talk.feed("hi", turn=transcript) + talk.end(turn=transcript)
    assert types(events)[-2:] == [
        "conversation.item.input_audio_transcription.delta",
        "conversation.item.input_audio_transcription.completed",
    ]


@pytest.mark.parametrize(
    "message",
    [
        b"\x00\x01",
        "not json",
        "[]",
        '{"type": "no.such"}',
        '{"type": "input_audio_buffer.append", "audio": 3}',
        '{"type": "input_audio_buffer.commit"}',
        '{"type": "session.update", "session": {"input_audio_format": "opus"}}',
        '{"type": "session.update", "session": {"modalities": ["video"]}}',
        '{"type": "response.cancel", "event_id": 123}',
        '{"type": "response.cancel"}',
    ],
)
def test_a_bad_frame_is_reported_and_the_session_serves_the_next_one(message: str | bytes) -> None:
    talk = Talk(dialect=SGLANG, check=False)
    error(talk.say_raw(message))
    (event,) = talk.say("session.update", session=flat(modalities=["text", "audio"]))
    assert event["type"] == "session.updated"
    assert event["session"]["modalities"] == ["text", "audio"]


def test_61_seconds_of_silence_are_nothing() -> None:
    talk = Talk(dialect=SGLANG, check=False)
    for _ in range(61):
        assert talk.say("input_audio_buffer.append", audio=b64(sound(1000, 0, 16_000))) == []
    assert types(speak(talk))[0] == "input_audio_buffer.speech_started"


def test_what_0_1_9_closed_on_works() -> None:
    talk = sglang()
    talk.say("session.update", session=flat(turn_detection=None))
    talk.say("input_audio_buffer.append", audio=b64(sound(300, 5, 16_000)))
    assert types(talk.say("input_audio_buffer.commit")) == ["input_audio_buffer.committed"]
    assert talk.say("conversation.item.create", item=user(text("What?"))) == []
    assert types(talk.say("response.create")) == ["response.created"]
    assert talk.prompt() == [("user", ["audio", "What?"])]
