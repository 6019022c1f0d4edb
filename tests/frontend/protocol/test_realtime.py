"""Each client event and what comes of it; OpenAI's own types hold every event that is sent."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from support.realtime import OFFER, Talk, b64, image, sound, text, types, user

from frontend.protocol.pcm import wav
from frontend.protocol.realtime_config import Offer
from frontend.protocol.realtime_limits import Limits
from omni.contract.chunk import Chunk
from omni.contract.errors import ContextExceeded, MediaMissing, Overloaded, StageFailed
from omni.contract.job import MediaPart

pytestmark = pytest.mark.pure

MANUAL = {"type": "realtime", "audio": {"input": {"turn_detection": None}}}
SPOKEN_ANSWER = [
    "response.created",
    "response.output_item.added",
    "conversation.item.added",
    "response.content_part.added",
    "response.output_audio_transcript.delta",
    "response.output_audio.delta",
    "response.output_audio.done",
    "response.output_audio_transcript.done",
    "response.content_part.done",
    "conversation.item.done",
    "response.output_item.done",
    "response.done",
]


def ask(talk: Talk, words: str = "Hi", **response: Any) -> list[dict[str, Any]]:
    talk.say("conversation.item.create", item=user(text(words)))
    return talk.say("response.create", response=response)


def error(events: list[dict[str, Any]]) -> dict[str, Any]:
    (found,) = [event for event in events if event["type"] == "error"]
    return found["error"]  # type: ignore[no-any-return]


def manual() -> Talk:
    talk = Talk()
    talk.say("session.update", session=MANUAL)
    return talk


# Sessions


def test_it_begins_with_what_it_is() -> None:
    talk = Talk()
    assert types(talk.got) == ["session.created", "conversation.created"]
    session = talk.got[0]["session"]
    assert session["object"] == "realtime.session"
    assert session["model"] == "qwen3-omni"
    assert session["output_modalities"] == ["audio"]
    assert session["audio"]["output"]["voice"] == "Ethan"
    assert session["audio"]["input"]["turn_detection"]["type"] == "server_vad"
    assert session["expires_at"] == 1_000 + 3_600


def test_an_update_changes_what_it_names_and_nothing_else() -> None:
    talk = Talk()
    (event,) = talk.say(
        "session.update",
        session={
            "type": "realtime",
            "instructions": "Be brief.",
            "output_modalities": ["text"],
            "max_output_tokens": 64,
            "audio": {"input": {"turn_detection": {"type": "server_vad", "silence_duration_ms": 200}}},
        },
    )
    session = event["session"]
    assert session["instructions"] == "Be brief."
    assert session["output_modalities"] == ["text"]
    assert session["max_output_tokens"] == 64
    assert session["audio"]["input"]["turn_detection"]["silence_duration_ms"] == 200
    assert session["audio"]["input"]["turn_detection"]["threshold"] == 0.5
    assert session["audio"]["output"]["voice"] == "Ethan"


def test_a_refused_update_changes_nothing() -> None:
    talk = Talk()
    said = error(talk.say("session.update", session={"type": "realtime", "instructions": "x", "audio": {"input": 3}}))
    assert said["param"] == "session.audio.input"
    (event,) = talk.say("session.update", session={"type": "realtime"})
    assert event["session"]["instructions"] == ""


@pytest.mark.parametrize(
    ("session", "code", "param"),
    [
        ({"type": "transcription"}, "invalid_value", "session.type"),
        ({"model": "gpt-realtime"}, "model_not_found", "session.model"),
        ({"output_modalities": ["video"]}, "invalid_value", "session.output_modalities"),
        ({"output_modalities": []}, "invalid_value", "session.output_modalities"),
        ({"tools": [{"type": "function", "name": "f"}]}, "unsupported", "session.tools"),
        ({"tool_choice": "required"}, "unsupported", "session.tool_choice"),
        ({"prompt": {"id": "p"}}, "unsupported", "session.prompt"),
        ({"max_output_tokens": 0}, "invalid_value", "session.max_output_tokens"),
        ({"max_output_tokens": "many"}, "invalid_type", "session.max_output_tokens"),
        ({"nonsense": 1}, "unknown_parameter", "session.nonsense"),
        ({"audio": {"output": {"voice": "Nobody"}}}, "invalid_value", "session.audio.output.voice"),
        ({"audio": {"output": {"speed": 1.2}}}, "unsupported", "session.audio.output.speed"),
        ({"audio": {"input": {"format": {"type": "audio/opus"}}}}, "invalid_value", "session.audio.input.format.type"),
        (
            {"audio": {"input": {"format": {"type": "audio/pcm", "rate": 11025}}}},
            "invalid_value",
            "session.audio.input.format.rate",
        ),
        ({"audio": {"input": {"turn_detection": {}}}}, "missing_required_parameter",
         "session.audio.input.turn_detection.type"),
        ({"audio": {"input": {"turn_detection": {"type": "server_vad", "threshold": 2}}}}, "invalid_value",
         "session.audio.input.turn_detection.threshold"),
        ({"audio": {"input": {"turn_detection": {"type": "semantic_vad", "eagerness": "wild"}}}}, "invalid_value",
         "session.audio.input.turn_detection.eagerness"),
        ({"sampling": {"thinker": {"temperature": 9}}}, "invalid_value", "session.sampling.thinker.temperature"),
    ],
)  # fmt: skip
def test_an_update_that_cannot_be_is_refused_by_name(session: dict[str, Any], code: str, param: str) -> None:
    said = error(Talk().say("session.update", event_id="mine", session=session))
    assert (said["code"], said["param"], said["event_id"]) == (code, param, "mine")


def test_what_stock_clients_send_is_taken() -> None:
    """The defaults of @openai/agents-realtime; what isn't done here shows as off."""
    (event,) = Talk().say(
        "session.update",
        session={
            "type": "realtime",
            "output_modalities": ["audio"],
            "audio": {
                "input": {
                    "format": {"type": "audio/pcm", "rate": 24000},
                    "transcription": {"model": "gpt-4o-mini-transcribe"},
                    "turn_detection": {"type": "semantic_vad"},
                    "noise_reduction": {"type": "near_field"},
                },
                "output": {"format": {"type": "audio/pcm", "rate": 24000}, "voice": "ash", "speed": 1},
            },
            "tools": [],
            "tool_choice": "auto",
            "tracing": "auto",
        },
    )
    audio = event["session"]["audio"]
    assert audio["output"]["voice"] == "Ethan"
    assert audio["input"]["noise_reduction"] is None
    assert audio["input"]["turn_detection"]["type"] == "semantic_vad"
    assert event["session"]["tracing"] is None


def test_a_deployment_without_speech_says_so() -> None:
    talk = Talk(offer=Offer(models=("small",), speech=False))
    assert talk.got[0]["session"]["output_modalities"] == ["text"]
    said = error(talk.say("session.update", session={"output_modalities": ["audio"]}))
    assert said["code"] == "unsupported"


# Answers


def test_a_spoken_answer_in_order() -> None:
    talk = Talk()
    events = ask(talk) + talk.feed("Hello.") + talk.end()
    assert types(events) == SPOKEN_ANSWER
    response = events[-1]["response"]
    assert response["status"] == "completed"
    assert response["output"][0]["content"] == [{"type": "output_audio", "transcript": "Hello."}]
    assert response["usage"] == {
        "total_tokens": 15,
        "input_tokens": 10,
        "output_tokens": 5,
        "input_token_details": {"text_tokens": 5, "audio_tokens": 5, "cached_tokens": 4},
        "output_token_details": {"text_tokens": 3, "audio_tokens": 2},
    }


def test_a_written_answer_in_order() -> None:
    talk = Talk()
    events = ask(talk, output_modalities=["text"])
    assert not talk.job.settings.speech
    events += talk.feed("Hel", "lo.") + talk.end()
    assert types(events) == [
        "response.created",
        "response.output_item.added",
        "conversation.item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "conversation.item.done",
        "response.output_item.done",
        "response.done",
    ]


def test_speech_is_the_chunks_and_nothing_else() -> None:
    talk = Talk()
    ask(talk)
    pieces = [bytes([n, 0]) * 100 for n in range(5)]
    events = [event for piece in pieces for event in talk.feed(Chunk(audio=piece))] + talk.end()
    deltas = [event["delta"] for event in events if event["type"] == "response.output_audio.delta"]
    assert b"".join(map(base64.b64decode, deltas)) == b"".join(pieces)


def test_a_response_echoes_its_metadata_and_overrides_the_session() -> None:
    talk = Talk()
    events = ask(
        talk,
        metadata={"client": "livekit"},
        instructions="Whisper.",
        max_output_tokens=7,
        audio={"output": {"voice": "chelsie"}},
    )
    response = events[-1]["response"]
    assert response["metadata"] == {"client": "livekit"}
    assert response["audio"]["output"]["voice"] == "Chelsie"
    assert talk.prompt() == [("system", ["Whisper."]), ("user", ["Hi"])]
    assert talk.job.settings.sampling["thinker"].max_tokens == 7
    assert talk.job.settings.stage["talker"]["voice"] == "Chelsie"
    done = talk.end()[-1]["response"]
    assert done["metadata"] == {"client": "livekit"}
    ask(talk, "Again")
    assert talk.prompt()[0] != ("system", ["Whisper."])


def test_the_next_prompt_holds_the_answer() -> None:
    talk = Talk()
    ask(talk)
    talk.feed("Hello.")
    talk.end()
    ask(talk, "And?")
    assert talk.prompt() == [("user", ["Hi"]), ("assistant", ["Hello."]), ("user", ["And?"])]


def test_one_answer_at_a_time() -> None:
    talk = Talk()
    ask(talk)
    said = error(talk.say("response.create", event_id="second"))
    assert said["code"] == "conversation_already_has_active_response"
    assert said["event_id"] == "second"
    assert len(talk.live) == 1


def test_responses_outside_of_the_conversation() -> None:
    talk = Talk()
    ask(talk)
    spoken = talk.live[-1]
    (created,) = talk.say(
        "response.create",
        response={
            "conversation": "none",
            "output_modalities": ["text"],
            "instructions": "Classify.",
            "input": [user(text("What is it?"))],
            "metadata": {"topic": "x"},
        },
    )
    assert created["response"]["conversation_id"] is None
    assert talk.prompt() == [("system", ["Classify."]), ("user", ["What is it?"])]
    aside = talk.live[-1]
    events = talk.feed("A cat.", turn=aside) + talk.end(turn=aside)
    assert "conversation.item.added" not in types(events)
    talk.feed("Hello.", turn=spoken)
    talk.end(turn=spoken)
    ask(talk, "And?")
    assert ("assistant", ["A cat."]) not in talk.prompt()


def test_input_may_name_items_and_be_empty() -> None:
    talk = Talk()
    talk.say("conversation.item.create", item=user(text("One"), id="one"))
    talk.say("conversation.item.create", item=user(text("Two"), id="two"))
    talk.say("response.create", response={"conversation": "none", "input": [{"type": "item_reference", "id": "two"}]})
    assert talk.prompt() == [("user", ["Two"])]
    talk.end()
    talk.say("response.create", response={"conversation": "none", "input": [], "instructions": "Greet."})
    assert talk.prompt() == [("system", ["Greet."])]
    talk.end()
    said = error(talk.say("response.create", response={"input": [{"type": "item_reference", "id": "three"}]}))
    assert said["code"] == "item_not_found"


def test_few_responses_at_a_time() -> None:
    talk = Talk(Limits(responses=2))
    for _ in range(2):
        talk.say("response.create", response={"conversation": "none"})
    assert error(talk.say("response.create"))["code"] == "too_many_responses"
    assert len(talk.live) == 2


def test_a_cut_answer_is_incomplete() -> None:
    talk = Talk()
    ask(talk)
    talk.feed("Hel")
    response = talk.end(finish="length")[-1]["response"]
    assert response["status"] == "incomplete"
    assert response["status_details"] == {"type": "incomplete", "reason": "max_output_tokens"}
    assert response["output"][0]["status"] == "incomplete"


@pytest.mark.parametrize("words", [[], ["Hel"]])
def test_a_failed_answer_ends_and_the_session_goes_on(words: list[str]) -> None:
    talk = Talk()
    ask(talk)
    talk.feed(*words)
    response = talk.end(StageFailed("The talker broke."))[-1]["response"]
    assert response["status"] == "failed"
    assert response["status_details"]["error"] == {
        "type": "server_error",
        "code": "stage_failed",
        "message": "The talker broke.",
    }
    assert types(ask(talk, "Again"))[-1] == "response.created"


def test_overload_fails_the_answer_alone() -> None:
    talk = Talk()
    ask(talk)
    events = talk.end(Overloaded("The server is busy."))
    assert types(events) == ["response.done"]
    assert talk.closed is None


def test_cancel() -> None:
    talk = Talk()
    (created,) = ask(talk)[-1:]
    talk.feed("Hello, ")
    events = talk.say("response.cancel", response_id=created["response"]["id"])
    assert types(events) == SPOKEN_ANSWER[6:]
    assert events[-1]["response"]["status_details"] == {"type": "cancelled", "reason": "client_cancelled"}
    assert events[-1]["response"]["usage"]["output_token_details"]["text_tokens"] == 1
    assert talk.cancelled
    assert error(talk.say("response.cancel"))["code"] == "response_cancel_not_active"
    ask(talk, "Again")
    assert talk.prompt()[1] == ("assistant", ["Hello, "])


def test_cancel_before_the_first_word_leaves_no_item() -> None:
    talk = Talk()
    ask(talk)
    events = talk.say("response.cancel")
    assert types(events) == ["response.done"]
    assert events[0]["response"]["output"] == []


def test_stragglers_of_a_cancelled_answer_are_ignored() -> None:
    talk = Talk()
    ask(talk)
    turn = talk.live[-1]
    talk.say("response.cancel")
    talk.session.feed(turn, Chunk(text="late"), talk.now)
    talk.session.ended(turn, None, talk.now)
    assert talk.session.actions() == []


# Items


def test_items_keep_their_ids_and_places() -> None:
    talk = Talk()
    talk.say("conversation.item.create", item=user(text("B"), id="b"))
    talk.say("conversation.item.create", item=user(text("D"), id="d"))
    events = talk.say("conversation.item.create", previous_item_id="b", item=user(text("C"), id="c"))
    assert [event["previous_item_id"] for event in events] == ["b", "b"]
    events = talk.say("conversation.item.create", previous_item_id="root", item=user(text("A"), id="a"))
    assert [event["previous_item_id"] for event in events] == [None, None]
    talk.say("response.create")
    assert talk.prompt() == [("user", ["A", "B", "C", "D"])]


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({}, "missing_required_parameter", "item"),
        ({"item": []}, "invalid_type", "item"),
        ({"item": {"type": "message", "role": "user"}}, "missing_required_parameter", "item.content"),
        ({"item": user()}, "invalid_value", "item.content"),
        ({"item": user(text("x"), id="taken")}, "item_already_exists", "item.id"),
        ({"item": user(text("x"), id="a b")}, "invalid_value", "item.id"),
        ({"item": user(text("x"), id="y" * 65)}, "invalid_value", "item.id"),
        ({"item": user(text("x")), "previous_item_id": "nowhere"}, "item_not_found", "previous_item_id"),
        ({"item": user({"type": "output_text", "text": "x"})}, "invalid_value", "item.content.0.type"),
        ({"item": user({"type": "input_text"})}, "missing_required_parameter", "item.content.0.text"),
        ({"item": user({"type": "input_audio", "audio": "!"})}, "invalid_value", "item.content.0.audio"),
        ({"item": user({"type": "input_audio", "audio": "AA=="})}, "invalid_value", "item.content.0.audio"),
        ({"item": user({"type": "input_image", "image_url": "http://x/y.png"})}, "invalid_value",
         "item.content.0.image_url"),
        ({"item": user(image(b"not"))}, "invalid_media", "item.content.0.image_url"),
        ({"item": {"type": "function_call_output", "call_id": "c", "output": ""}}, "unsupported", "item.type"),
        ({"item": {"type": "mcp_call"}}, "invalid_value", "item.type"),
        ({"item": {**user(text("x")), "role": "tool"}}, "invalid_value", "item.role"),
        ({"item": {**user(text("x")), "colour": 1}}, "unknown_parameter", "item.colour"),
    ],
)  # fmt: skip
def test_items_that_cannot_be(fields: dict[str, Any], code: str, param: str) -> None:
    talk = Talk()
    talk.say("conversation.item.create", item=user(text("x"), id="taken"))
    said = error(talk.say("conversation.item.create", event_id="e", **fields))
    assert (said["code"], said["param"], said["event_id"]) == (code, param, "e")
    (event,) = talk.say("conversation.item.retrieve", item_id="taken")
    assert event["item"]["id"] == "taken"


def test_every_role_and_content() -> None:
    talk = Talk()
    pcm = sound(200, 3)
    heard = {"type": "input_audio", "audio": b64(pcm), "transcript": "hello"}
    said = {"type": "output_audio", "transcript": "Hi."}
    wrote = {"type": "output_text", "text": "Bye."}
    talk.say("conversation.item.create", item={"type": "message", "role": "system", "content": [text("Be kind.")]})
    talk.say("conversation.item.create", item=user(text("Look"), image(), heard, id="u"))
    talk.say("conversation.item.create", item={"type": "message", "role": "assistant", "content": [said, wrote]})
    talk.say("conversation.item.create", item=user(text("And?")))
    talk.say("response.create")
    assert talk.prompt() == [
        ("system", ["Be kind."]),
        ("user", ["Look", "image", "audio"]),
        ("assistant", ["Hi.", "Bye."]),
        ("user", ["And?"]),
    ]
    sounds = [part for job in talk.started.values() for part in job.media if part.kind == "audio"]
    assert [part.data for part in sounds if part.data is not None] == [wav(pcm, 24_000)]
    (event,) = talk.say("conversation.item.retrieve", item_id="u")
    shown = event["item"]["content"]
    assert base64.b64decode(shown[2]["audio"]) == pcm
    assert shown[1]["image_url"].endswith(b64(b"IMG0"))


def test_delete() -> None:
    talk = Talk()
    talk.say("conversation.item.create", item=user(text("A"), id="a"))
    talk.say("conversation.item.create", item=user(text("B"), id="b"))
    assert types(talk.say("conversation.item.delete", item_id="a")) == ["conversation.item.deleted"]
    assert error(talk.say("conversation.item.delete", item_id="a"))["code"] == "item_not_found"
    talk.say("response.create")
    assert talk.prompt() == [("user", ["B"])]


def test_what_is_being_spoken_cannot_be_deleted() -> None:
    talk = Talk()
    ask(talk)
    talk.feed("Hel")
    item = talk.got[-1]["item_id"]
    assert error(talk.say("conversation.item.delete", item_id=item))["code"] == "item_in_progress"


# Truncation


def spoken(talk: Talk) -> str:
    ask(talk)
    events = talk.feed("one ", "two ", "three ", "four")
    talk.end()
    return str(events[-1]["item_id"])


def test_truncate_keeps_what_was_heard() -> None:
    talk = Talk()
    item = spoken(talk)
    (event,) = talk.say("conversation.item.truncate", item_id=item, content_index=0, audio_end_ms=250)
    assert event["audio_end_ms"] == 250
    (shown,) = talk.say("conversation.item.retrieve", item_id=item)
    part = shown["item"]["content"][0]
    assert part["transcript"] == "one two"
    assert len(base64.b64decode(part["audio"])) == 250 * 24 * 2
    ask(talk, "And?")
    assert talk.prompt()[1] == ("assistant", ["one two"])


def test_truncate_to_nothing_takes_it_out_of_the_prompt() -> None:
    talk = Talk()
    item = spoken(talk)
    talk.say("conversation.item.truncate", item_id=item, content_index=0, audio_end_ms=0)
    ask(talk, "And?")
    assert talk.prompt() == [("user", ["Hi", "And?"])]


def test_truncate_to_its_whole_length_changes_nothing() -> None:
    talk = Talk()
    item = spoken(talk)
    talk.say("conversation.item.truncate", item_id=item, content_index=0, audio_end_ms=400)
    ask(talk, "And?")
    assert talk.prompt()[1] == ("assistant", ["one two three four"])


def test_truncate_ends_what_is_still_being_spoken() -> None:
    talk = Talk()
    ask(talk)
    item = talk.feed("one ", "two ")[-1]["item_id"]
    events = talk.say("conversation.item.truncate", item_id=item, content_index=0, audio_end_ms=100)
    assert types(events)[-2:] == ["response.done", "conversation.item.truncated"]
    assert talk.live == []


@pytest.mark.parametrize(
    ("change", "code", "param"),
    [
        ({"item_id": "nobody"}, "item_not_found", "item_id"),
        ({"item_id": "mine"}, "invalid_value", "content_index"),
        ({"content_index": 1}, "invalid_value", "content_index"),
        ({"content_index": -1}, "invalid_value", "content_index"),
        ({"audio_end_ms": 401}, "invalid_value", "audio_end_ms"),
        ({"audio_end_ms": -1}, "invalid_value", "audio_end_ms"),
        ({"audio_end_ms": 1.5}, "invalid_type", "audio_end_ms"),
    ],
)
def test_truncations_that_cannot_be(change: dict[str, Any], code: str, param: str) -> None:
    talk = Talk()
    talk.say("conversation.item.create", item=user(text("x"), id="mine"))
    fields = {"item_id": spoken(talk), "content_index": 0, "audio_end_ms": 100, **change}
    said = error(talk.say("conversation.item.truncate", **fields))
    assert (said["code"], said["param"]) == (code, param)


# Sound, committed by the client


def test_commit() -> None:
    talk = manual()
    assert talk.hear(sound(500, 1)) == []
    events = talk.say("input_audio_buffer.commit")
    assert types(events) == ["input_audio_buffer.committed", "conversation.item.added", "conversation.item.done"]
    assert events[0]["item_id"] == events[1]["item"]["id"]
    assert events[1]["item"]["content"] == [{"type": "input_audio", "transcript": None}]
    assert talk.live == [], "the client asks for the answer"
    talk.say("response.create")
    assert talk.job.media[0].data == wav(sound(500, 1), 24_000)


def test_commit_of_next_to_nothing() -> None:
    talk = manual()
    assert error(talk.say("input_audio_buffer.commit"))["code"] == "input_audio_buffer_commit_empty"
    talk.hear(sound(99))
    assert error(talk.say("input_audio_buffer.commit"))["code"] == "input_audio_buffer_commit_empty"
    talk.hear(sound(1))
    assert types(talk.say("input_audio_buffer.commit"))[0] == "input_audio_buffer.committed"


def test_clear() -> None:
    talk = manual()
    talk.hear(sound(500))
    assert types(talk.say("input_audio_buffer.clear")) == ["input_audio_buffer.cleared"]
    assert error(talk.say("input_audio_buffer.commit"))["code"] == "input_audio_buffer_commit_empty"


def test_samples_may_be_split_anywhere() -> None:
    talk = manual()
    data = bytes(range(256)) * 40
    for at in range(0, len(data), 333):
        talk.say("input_audio_buffer.append", audio=b64(data[at : at + 333]))
    talk.say("input_audio_buffer.commit")
    talk.say("response.create")
    assert talk.job.media[0].data == wav(data, 24_000)


def test_a_full_buffer_refuses_more_and_keeps_what_it_has() -> None:
    talk = Talk(Limits(buffer_s=1))
    talk.say("session.update", session=MANUAL)
    talk.hear(sound(1000, 1))
    said = error(talk.say("input_audio_buffer.append", audio=b64(sound(20)), event_id="late"))
    assert (said["code"], said["event_id"]) == ("input_audio_buffer_full", "late")
    talk.say("input_audio_buffer.commit")
    talk.say("response.create")
    assert talk.job.media[0].data == wav(sound(1000, 1), 24_000)


# Sound, with turn detection


def test_a_turn_is_found_and_answered() -> None:
    found: list[str] = []
    talk = Talk(on_speech=found.append)
    events = talk.hear(sound(640) + sound(1280, 5) + sound(1000))
    assert types(events) == [
        "input_audio_buffer.speech_started",
        "input_audio_buffer.speech_stopped",
        "input_audio_buffer.committed",
        "conversation.item.added",
        "conversation.item.done",
        "response.created",
    ]
    assert found == ["speech_started", "speech_stopped"]
    started, stopped, committed = events[:3]
    assert started["audio_start_ms"] == 640 - 300
    assert abs(stopped["audio_end_ms"] - (1920 + 500)) <= 32
    assert started["item_id"] == stopped["item_id"] == committed["item_id"] == events[3]["item"]["id"]
    ms = stopped["audio_end_ms"] - started["audio_start_ms"]
    data = talk.job.media[0].data
    assert data is not None
    assert len(data) == 44 + ms * 48
    assert data[44:].count(b"\x05\x00") == 1280 * 24, "all that was spoken is in it"


def test_nothing_is_lost_between_turns() -> None:
    """Voice that goes on right behind a turn belongs to the next one, from its first sample."""
    talk = Talk()
    talk.say("session.update", session={"audio": {"input": {"turn_detection": {"type": "server_vad",
             "silence_duration_ms": 64, "interrupt_response": False}}}})  # fmt: skip
    stream = b"".join(sound(320, n) + sound(96) for n in range(1, 8)) + sound(500)
    talk.hear(stream, piece_ms=37)
    while talk.live:
        talk.end()
    items = [event["item_id"] for event in talk.got if event["type"] == "input_audio_buffer.committed"]
    heard = b""
    for id in items:
        (event,) = talk.say("conversation.item.retrieve", item_id=id)
        heard += base64.b64decode(event["item"]["content"][0]["audio"])
    for n in range(1, 8):
        assert heard.count(bytes([n, 0])) == 320 * 24, n


def test_barge_in_stops_the_answer() -> None:
    talk = Talk()
    talk.hear(sound(300, 5) + sound(700))
    talk.feed("I ", "say ")
    events = talk.hear(sound(200, 5))
    assert types(events)[0] == "input_audio_buffer.speech_started"
    assert events[-1]["response"]["status_details"] == {"type": "cancelled", "reason": "turn_detected"}
    assert talk.live == []
    assert talk.cancelled


def test_without_interruption_the_answer_goes_on_and_the_turn_is_answered_after_it() -> None:
    talk = Talk()
    detection = {"type": "server_vad", "interrupt_response": False}
    talk.say("session.update", session={"audio": {"input": {"turn_detection": detection}}})
    talk.hear(sound(300, 5) + sound(700))
    talk.feed("I say.")
    first = talk.live[-1]
    talk.hear(sound(300, 5) + sound(700))
    assert talk.live == [first]
    assert types(talk.end(turn=first))[-1] == "response.created"
    assert talk.prompt() == [("user", ["audio"]), ("assistant", ["I say."]), ("user", ["audio"])]


def test_without_create_response_turns_are_only_found() -> None:
    talk = Talk()
    detection = {"type": "server_vad", "create_response": False}
    talk.say("session.update", session={"audio": {"input": {"turn_detection": detection}}})
    assert types(talk.hear(sound(300, 5) + sound(700)))[-1] == "conversation.item.done"
    assert talk.live == []


def test_speaking_on_while_the_answer_is_being_thought_joins_both() -> None:
    talk = Talk()
    talk.hear(sound(300, 5) + sound(600) + sound(300, 6) + sound(700))
    assert talk.prompt() == [("user", ["audio", "audio"])]


def test_an_hour_of_silence_costs_no_memory() -> None:
    talk = Talk()
    for _ in range(360):
        talk.say("input_audio_buffer.append", audio=b64(sound(10_000)))
    assert talk.inner.waiting_ms < 1_000
    events = talk.hear(sound(300, 5) + sound(700))
    assert events[0]["audio_start_ms"] == pytest.approx(3_600_000 - 300, abs=32)


def test_an_endless_turn_is_split_without_loss() -> None:
    talk = Talk(Limits(turn_s=2))
    talk.hear(sound(5_000, 5) + sound(700))
    assert [part.kind for part in talk.job.media] == ["audio"] * 3
    assert sum((part.data or b"").count(b"\x05\x00") for part in talk.job.media) == 5_000 * 24


def test_idle_timeout_lets_the_model_speak_once() -> None:
    talk = Talk()
    detection = {"type": "server_vad", "idle_timeout_ms": 5000}
    talk.say("session.update", session={"audio": {"input": {"turn_detection": detection}}})
    talk.hear(sound(300, 5) + sound(700))
    talk.feed("Hello.")
    talk.end()
    assert talk.wait(4.9) == []
    events = talk.wait(0.3)
    assert types(events)[0] == "input_audio_buffer.timeout_triggered"
    assert types(events)[-1] == "response.created"
    talk.end()
    assert talk.wait(60) == [], "once, until the user says something"


def test_a_committed_turn_while_detecting() -> None:
    talk = Talk()
    talk.hear(sound(300, 5))
    events = talk.say("input_audio_buffer.commit")
    started = next(event for event in talk.got if event["type"] == "input_audio_buffer.speech_started")
    assert events[0]["item_id"] == started["item_id"]
    assert talk.hear(sound(800)) == [], "the turn is over"


def test_a_broken_ear_is_said_and_survived() -> None:
    talk = Talk()
    ear = talk.senses.ears[-1]
    ear.hear = lambda pcm: 1 / 0  # type: ignore[method-assign,assignment,return-value]
    assert error(talk.hear(sound(100, 5)))["code"] == "turn_detection_failed"
    del ear.hear
    assert types(talk.hear(sound(300, 5) + sound(700)))[-1] == "response.created"


def test_another_format_begins_with_an_empty_buffer_and_the_same_clock() -> None:
    talk = Talk()
    talk.hear(sound(1000))
    talk.say("session.update", session={"audio": {"input": {"format": {"type": "audio/pcmu"}}}})
    quiet, voice = sound(500, 0, 8000), sound(300, 5, 8000)
    talk.say("input_audio_buffer.append", audio=b64(quiet + voice + quiet + quiet))
    started = next(event for event in talk.got if event["type"] == "input_audio_buffer.speech_started")
    assert started["audio_start_ms"] == pytest.approx(1000 + 500 - 300, abs=33)


# Transcription


def test_transcription_comes_behind_the_answer() -> None:
    talk = Talk()
    talk.say("session.update", session={"audio": {"input": {"transcription": {"language": "en"}}}})
    talk.hear(sound(300, 5) + sound(700))
    (answer,) = talk.live
    talk.feed("Hello.")
    (_, transcript) = talk.live
    job = talk.started[transcript]
    assert job.priority < 0
    assert not job.settings.speech
    assert [part.kind for part in job.media] == ["audio"]
    events = talk.feed("how ", "are you", turn=transcript) + talk.end(turn=transcript)
    assert types(events) == [
        "conversation.item.input_audio_transcription.delta",
        "conversation.item.input_audio_transcription.delta",
        "conversation.item.input_audio_transcription.completed",
    ]
    assert events[-1]["transcript"] == "how are you"
    assert events[-1]["usage"]["type"] == "tokens"
    talk.end(turn=answer)
    (event,) = talk.say("conversation.item.retrieve", item_id=events[-1]["item_id"])
    assert event["item"]["content"][0]["transcript"] == "how are you"
    talk.say("response.create")
    assert talk.prompt()[0] == ("user", ["audio"]), "the model hears, it doesn't read the transcript"


def test_transcription_without_an_answer() -> None:
    talk = manual()
    talk.say("session.update", session={"audio": {"input": {"transcription": {}}}})
    talk.hear(sound(500, 5))
    talk.say("input_audio_buffer.commit")
    assert len(talk.live) == 1
    events = talk.end(StageFailed("It broke."))
    assert types(events) == ["conversation.item.input_audio_transcription.failed"]


def test_a_deleted_item_is_not_transcribed() -> None:
    talk = manual()
    talk.say("session.update", session={"audio": {"input": {"transcription": {}}}})
    talk.hear(sound(500, 5))
    item = talk.say("input_audio_buffer.commit")[0]["item_id"]
    talk.say("conversation.item.delete", item_id=item)
    assert talk.live == []


# Camera


def test_frames_belong_to_the_turn_of_their_time() -> None:
    talk = manual()
    talk.hear(sound(2000, 1))
    for n, ms in enumerate((900, 100, 1800, 2500)):
        talk.say("sglang.input_image.append", image=b64(b"IMG" + bytes([n * 60])), sglang={"t_ms": ms})
    events = talk.say("input_audio_buffer.commit")
    assert [part["type"] for part in events[1]["item"]["content"]] == ["input_image"] * 3 + ["input_audio"]
    talk.end()  # of the prefill
    talk.say("response.create")
    assert [part.at_ms for part in talk.job.media] == [100, 900, 1800, 0]
    talk.end()
    talk.hear(sound(1000, 1))
    talk.say("input_audio_buffer.commit")
    talk.say("response.create")
    assert [part.kind for part in talk.job.media] == ["image", "image", "image", "audio", "image", "audio"]


def test_frames_that_show_nothing_new_are_dropped() -> None:
    talk = manual()
    for _ in range(3):
        talk.say("sglang.input_image.append", image=b64(b"IMGa"), sglang={"t_ms": 0})
    talk.hear(sound(500, 1))
    events = talk.say("input_audio_buffer.commit")
    assert [part["type"] for part in events[1]["item"]["content"]] == ["input_image", "input_audio"]


def test_the_newest_frames_are_kept() -> None:
    talk = Talk(Limits(frames=2), prefill=False)
    talk.say("session.update", session=MANUAL)
    for n in range(5):
        talk.say("sglang.input_image.append", image=b64(b"IMG" + bytes([n * 50])), sglang={"t_ms": n * 10})
    talk.hear(sound(500, 1))
    talk.say("input_audio_buffer.commit")
    talk.say("response.create")
    assert [part.at_ms for part in talk.job.media] == [30, 40, 0]


def test_frames_and_pictures_are_prefilled() -> None:
    talk = manual()
    talk.say("sglang.input_image.append", image=b64(b"IMGa"), sglang={"t_ms": 0})
    assert talk.job.settings.prefill
    assert not talk.job.settings.speech
    assert talk.job.priority < 0
    assert talk.prompt() == [("user", ["image"])]
    talk.end()
    talk.say("conversation.item.create", item=user(image(b"IMGb")))
    assert talk.job.settings.prefill


def test_speech_is_read_ahead_block_by_block() -> None:
    talk = Talk(ahead_s=2.0)
    talk.hear(sound(960) + sound(1_700, 7))
    assert not talk.started
    talk.hear(sound(100, 7))
    assert talk.prompt() == [("user", ["audio"])]
    assert talk.job.settings.prefill
    (part,) = talk.job.media
    whole = sound(300) + sound(5_000, 7)
    assert part.data == wav(whole[: 2_020 * 48], 24_000)
    talk.hear(sound(2_000, 7))
    assert len(talk.started) == 1, "one at a time"
    talk.end()
    talk.hear(sound(1_000, 7))
    assert len(talk.started) == 1
    talk.hear(sound(1_200, 7))
    assert talk.job.media[0].data == wav((whole + sound(1_000, 7))[: 6_020 * 48], 24_000)
    talk.end()
    talk.hear(sound(700))
    assert not talk.job.settings.prefill
    data = talk.job.media[0].data
    assert data is not None
    assert data[44:].startswith((whole + sound(1_000, 7))[: 6_020 * 48])


def test_what_will_be_committed_is_read_ahead() -> None:
    talk = Talk(ahead_s=2.0)
    talk.say("session.update", session=MANUAL)
    for turn in (1, 2):
        talk.hear(sound(2_100, turn))
        assert len(talk.job.media[-1].data or b"") == 44 + 2_020 * 48
        talk.end()
        talk.say("input_audio_buffer.commit")


@pytest.mark.parametrize("data", ["!", b64(b"not"), b64(b"IMG" + b"x" * 100)])
def test_frames_that_cannot_be(data: str) -> None:
    talk = Talk(Limits(image_bytes=50))
    assert error(talk.say("sglang.input_image.append", image=data))["param"] == "image"


# Limits


def test_old_turns_make_room() -> None:
    talk = Talk(Limits(items=4))
    for n in range(4):
        ask(talk, f"Q{n}")
        talk.feed(f"A{n}")
        talk.end()
    gone = [event["item_id"] for event in talk.got if event["type"] == "conversation.item.deleted"]
    assert len(gone) == 4
    ask(talk, "Q4")
    assert talk.prompt() == [("user", ["Q3"]), ("assistant", ["A3"]), ("user", ["Q4"])]


def test_questions_without_answers_are_bounded_too() -> None:
    talk = Talk(Limits(items=3))
    for n in range(10):
        talk.say("conversation.item.create", item=user(text(f"Q{n}")))
    talk.say("response.create")
    assert talk.prompt() == [("user", ["Q7", "Q8", "Q9"])]


def test_media_are_bounded() -> None:
    talk = Talk(Limits(media_bytes=150_000))
    talk.say("session.update", session=MANUAL)
    for _ in range(10):
        talk.hear(sound(1000, 1))
        talk.say("input_audio_buffer.commit")
    talk.say("response.create")
    assert len(talk.job.media) == 3


def test_an_item_that_is_larger_than_a_conversation_is_refused() -> None:
    talk = Talk(Limits(chars=10))
    assert error(talk.say("conversation.item.create", item=user(text("x" * 11))))["code"] == "too_large"


def test_a_context_that_is_too_long_loses_its_oldest_turns() -> None:
    talk = Talk()
    for n in range(3):
        ask(talk, f"Q{n}")
        talk.feed(f"A{n}")
        talk.end()
    ask(talk, "Q3")
    events = talk.end(ContextExceeded("Too long."))
    assert types(events) == ["conversation.item.deleted"] * 2
    assert talk.prompt()[0] == ("user", ["Q1"])
    talk.feed("Fine.")
    assert talk.end()[-1]["response"]["status"] == "completed"


def test_a_context_that_is_too_long_fails_when_it_must_not_be_cut() -> None:
    talk = Talk()
    talk.say("session.update", session={"truncation": "disabled"})
    for n in range(2):
        ask(talk, f"Q{n}")
        talk.feed("A")
        talk.end()
    ask(talk, "Q2")
    response = talk.end(ContextExceeded("Too long."))[-1]["response"]
    assert response["status_details"]["error"]["code"] == "context_length_exceeded"


def test_a_single_question_that_is_too_long_fails() -> None:
    talk = Talk()
    ask(talk)
    assert talk.end(ContextExceeded("Too long."))[-1]["response"]["status"] == "failed"


def test_media_are_sent_once_and_again_when_they_were_forgotten() -> None:
    talk = Talk()
    talk.say("conversation.item.create", item=user(image()))
    talk.end()  # the prefill
    ask(talk)
    assert talk.job.media[0].data is None
    assert talk.end(MediaMissing("Gone.")) == []
    assert talk.job.media[0].data == b"IMG0"
    talk.feed("A picture.")
    assert talk.end()[-1]["response"]["status"] == "completed"


def test_a_session_ends_when_it_is_old() -> None:
    talk = Talk(Limits(age_s=60, idle_s=1000))
    ask(talk)
    talk.feed("Hel")
    events = talk.wait(61)
    assert types(events)[-2:] == ["response.done", "error"]
    assert error(events)["code"] == "session_expired"
    assert talk.closed is not None
    assert talk.closed.code == 1001
    assert talk.session.next_timer() is None


def test_a_session_ends_when_it_is_idle() -> None:
    talk = Talk(Limits(idle_s=60))
    talk.wait(50)
    talk.hear(sound(100))
    assert talk.wait(50) == []
    assert error(talk.wait(20))["code"] == "session_idle"
    assert talk.closed is not None
    assert talk.closed.reason == "session_idle"


def test_an_answer_is_not_idle() -> None:
    talk = Talk(Limits(idle_s=60))
    ask(talk)
    assert talk.wait(300) == []


def test_a_lost_client_stops_everything() -> None:
    talk = Talk()
    talk.say("session.update", session={"audio": {"input": {"transcription": {}}}})
    talk.hear(sound(300, 5) + sound(700))
    talk.feed("Hello.")
    assert len(talk.live) == 2
    talk.session.lost(talk.now)
    talk._act()
    assert talk.live == []
    assert OFFER.models


def test_media_parts_keep_their_names() -> None:
    talk = Talk()
    talk.say("conversation.item.create", item=user(text("x"), image()))
    (part,) = [part for part in talk.job.media if isinstance(part, MediaPart)]
    assert part.param == "item.content.1.image_url"


def test_instructions_are_bounded() -> None:
    talk = Talk(offer=Offer(models=("m",), instructions_chars=5))
    assert error(talk.say("session.update", session={"instructions": "123456"}))["param"] == "session.instructions"
    assert error(talk.say("response.create", response={"instructions": "123456"}))["param"] == "response.instructions"
    assert types(talk.say("session.update", session={"instructions": "12345"})) == ["session.updated"]


def test_all_that_a_session_asks_for_is_asked_in_its_name() -> None:
    """So preprocess tells when it holds the media, which the next job may then name, and the same server is asked."""
    talk = manual()
    talk.say("session.update", session={"audio": {"input": {"transcription": {}}}})
    talk.hear(sound(500, 5))
    talk.say("input_audio_buffer.commit")
    talk.say("conversation.item.create", item=user(image()))
    talk.say("response.create")
    talk.feed("Hello ")
    jobs = list(talk.started.values())
    assert {part.kind for job in jobs for part in job.media} == {"audio", "image"}
    assert {job.settings.session for job in jobs} == {"sess_1"}


def test_a_session_that_is_over_holds_no_sound_and_no_pictures() -> None:
    """Its parts know each other, so it may wait for the garbage collector for minutes."""
    talk = manual()
    talk.say("conversation.item.create", item=user(image()))
    talk.hear(sound(500, 5))
    talk.say("input_audio_buffer.commit")
    talk.say("response.create")
    talk.feed("Hello ")
    conversation = talk.inner._history.conversation
    assert conversation.nbytes > 500 * 48
    talk.session.lost(talk.now)
    assert (len(conversation), conversation.nbytes) == (0, 0)
