"""Whatever a client sends is answered; nothing of it ends the session."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.realtime import Talk, b64, sound, text, types, user

from frontend.protocol.fields import BadEvent
from frontend.protocol.realtime_events import Append, event_id, parse, read

pytestmark = pytest.mark.pure


@pytest.mark.parametrize(
    ("message", "code", "param", "about"),
    [
        (b"\x00\x01", "invalid_type", None, None),
        (b'{"type": "input_audio_buffer.commit"}', "invalid_type", None, None),
        ("", "invalid_json", None, None),
        ("{", "invalid_json", None, None),
        ("[" * 5000, "invalid_json", None, None),
        ('{"type": NaN}', "invalid_json", None, None),
        ('{"type": "\\ud800"}', "invalid_json", None, None),
        ("[]", "invalid_type", None, None),
        ("3", "invalid_type", None, None),
        ("null", "invalid_type", None, None),
        ("{}", "missing_required_parameter", "type", None),
        ('{"type": 3, "event_id": "e"}', "invalid_type", "type", "e"),
        ('{"type": "no.such", "event_id": "e"}', "invalid_value", "type", "e"),
        ('{"type": "response.create", "event_id": 123}', "invalid_type", "event_id", None),
        ('{"type": "response.create", "response": [], "event_id": "e"}', "invalid_type", "response", "e"),
        ('{"type": "response.create", "response": {"x": 1}}', "unknown_parameter", "response.x", None),
        ('{"type": "response.create", "response": {"conversation": "mine"}}', "invalid_value",
         "response.conversation", None),
        ('{"type": "response.create", "response": {"metadata": {"a": 1}}}', "invalid_value", "response.metadata", None),
        ('{"type": "response.create", "response": {"input": {}}}', "invalid_type", "response.input", None),
        ('{"type": "response.create", "extra": 1}', "unknown_parameter", "extra", None),
        ('{"type": "input_audio_buffer.append"}', "missing_required_parameter", "audio", None),
        ('{"type": "input_audio_buffer.append", "audio": 5}', "invalid_type", "audio", None),
        ('{"type": "input_audio_buffer.append", "audio": "***"}', "invalid_value", "audio", None),
        ('{"type": "input_audio_buffer.append", "audio": "ä"}', "invalid_value", "audio", None),
        ('{"type": "session.update"}', "missing_required_parameter", "session", None),
        ('{"type": "conversation.item.retrieve"}', "missing_required_parameter", "item_id", None),
        ('{"type": "conversation.item.retrieve", "item_id": "x"}', "item_not_found", "item_id", None),
        ('{"type": "conversation.item.truncate", "item_id": "x"}', "missing_required_parameter", "content_index", None),
        ('{"type": "response.cancel", "response_id": 1}', "invalid_type", "response_id", None),
        ('{"type": "response.cancel", "response_id": "r"}', "response_cancel_not_active", None, None),
    ],
)  # fmt: skip
def test_a_bad_event_is_answered(message: str | bytes, code: str, param: str | None, about: str | None) -> None:
    talk = Talk()
    (event,) = talk.say_raw(message)
    assert event["type"] == "error"
    assert (event["error"]["code"], event["error"]["param"], event["error"]["event_id"]) == (code, param, about)
    assert types(talk.say("conversation.item.create", item=user(text("Hi"))))[0] == "conversation.item.added"


def test_an_error_never_repeats_what_the_client_wrote() -> None:
    talk = Talk()
    secret = "my diary"
    for event in (
        {"type": secret},
        {"type": "session.update", "session": {"type": secret}},
        {"type": "session.update", "session": {"audio": {"output": {"voice": secret}}}},
        {"type": "input_audio_buffer.append", "audio": secret},
        {"type": "conversation.item.create", "item": user({"type": secret})},
        {"type": "conversation.item.delete", "item_id": secret},
    ):
        assert secret not in json.dumps(talk.say_raw(json.dumps(event)))


def test_a_name_in_an_error_is_cut() -> None:
    (event,) = Talk().say("session.update", session={"x" * 10_000: 1})
    assert len(event["error"]["param"]) < 100


def test_append() -> None:
    assert parse({"type": "input_audio_buffer.append", "audio": b64(b"abc")}) == Append(b"abc")


def test_an_event_id_that_is_too_long_is_not_repeated() -> None:
    assert event_id({"event_id": "x" * 512}) == "x" * 512
    assert event_id({"event_id": "x" * 513}) is None
    with pytest.raises(BadEvent):
        parse({"type": "input_audio_buffer.commit", "event_id": "x" * 513})


def test_61_seconds_of_sound_in_one_event() -> None:
    talk = Talk()
    assert talk.say("input_audio_buffer.append", audio=b64(sound(61_000))) == []


JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KINDS = (
    "session.update", "input_audio_buffer.append", "conversation.item.create", "conversation.item.truncate",
    "response.create", "response.cancel", "sglang.input_image.append",
)  # fmt: skip
NAMES = ("session", "audio", "item", "item_id", "content_index", "audio_end_ms", "response", "image", "sglang")
INNER = (
    "type", "role", "content", "audio", "input", "output", "format", "turn_detection", "metadata", "output_modalities",
    "instructions", "id", "conversation", "sampling", "max_output_tokens", "truncation", "tools", "transcription",
)  # fmt: skip
NESTED = st.dictionaries(st.sampled_from(INNER), JSON | st.dictionaries(st.sampled_from(INNER), JSON, max_size=4))


@settings(max_examples=400)
@given(st.sampled_from(KINDS), st.dictionaries(st.sampled_from(NAMES), NESTED | JSON, max_size=3))
def test_any_event_is_a_command_or_a_bad_event(kind: str, fields: dict[str, Any]) -> None:
    talk = Talk(check=False)
    talk.say(kind, **fields)
    assert talk.closed is None


@settings(max_examples=200)
@given(st.text() | st.binary())
def test_any_message_is_read_or_refused(message: str | bytes) -> None:
    try:
        read(message)
    except BadEvent:
        return
    assert isinstance(message, str)
