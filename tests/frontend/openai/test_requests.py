from __future__ import annotations

from typing import Any

import pytest

from frontend.openai.requests import ChatRequest, parse
from frontend.openai.responses import inline_schema
from omni.contract.errors import InvalidRequest

pytestmark = pytest.mark.pure

USER = [{"role": "user", "content": "hi"}]


def part(**fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "system"}, {"role": "user", "content": ["see", fields]}]}


@pytest.mark.parametrize(
    ("body", "param", "says"),
    [
        ({}, "messages", "is required"),
        ({"messages": "hi"}, "messages", "must be a list"),
        ({"messages": ["hi"]}, "messages.0", "must be an object"),
        ({"messages": [{"content": "hi"}]}, "messages.0.role", "is required"),
        ({"messages": [{"role": 5}]}, "messages.0.role", "must be a string"),
        (
            {"messages": [{"role": "user", "content": {}}]},
            "messages.0.content",
            "must be a string or a list of content parts",
        ),
        ({"messages": [{"role": "user", "content": [7]}]}, "messages.0.content.0", "must be an object"),
        (part(), "messages.1.content.1.type", "is required"),
        (part(type="text", text=5), "messages.1.content.1.text", "must be a string"),
        (part(type="image_url", image_url={}), "messages.1.content.1.image_url.url", "is required"),
        (part(type="image_url", image_url={"url": 5}), "messages.1.content.1.image_url.url", "must be a string"),
        (part(type="image_url", image_url=5), "messages.1.content.1.image_url", "must be a string or an object"),
        (
            part(type="input_audio", input_audio={"data": []}),
            "messages.1.content.1.input_audio.data",
            "must be a string",
        ),
        ({"messages": USER, "max_tokens": "5"}, "max_tokens", "must be an integer"),
        ({"messages": USER, "max_tokens": 5.0}, "max_tokens", "must be an integer"),
        ({"messages": USER, "top_k": True}, "top_k", "must be an integer"),
        ({"messages": USER, "temperature": "hot"}, "temperature", "must be a number"),
        ({"messages": USER, "stream": 1}, "stream", "must be true or false"),
        ({"messages": USER, "stop": 5}, "stop", "must be a string or a list of strings"),
        ({"messages": USER, "stop": [5]}, "stop.0", "must be a string"),
        ({"messages": USER, "modalities": "text"}, "modalities", "must be a list"),
        ({"messages": USER, "images": [{}]}, "images.0", "must be a string"),
        ({"messages": USER, "audio": "wav"}, "audio", "must be an object"),
        ({"messages": USER, "audio": {"voice": 5}}, "audio.voice", "must be a string or an object"),
        ({"messages": USER, "stage_sampling": {"thinker": 5}}, "stage_sampling.thinker", "must be an object"),
        ({"messages": USER, "logit_bias": {"5": "x"}}, "logit_bias.5", "must be a number"),
        ({"messages": USER, "response_format": {}}, "response_format.type", "is required"),
        ({"messages": USER, "user": bytearray(b"\xff")}, "user", "must be text in UTF-8"),
    ],
)
def test_a_wrong_type_is_named_by_its_path(body: dict[str, Any], param: str, says: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        parse(ChatRequest, body)
    assert refusal.value.param == param
    assert refusal.value.message == f"{param} {says}."


@pytest.mark.parametrize("body", [None, [], "x", 5])
def test_a_body_that_is_no_object_is_refused(body: Any) -> None:
    with pytest.raises(InvalidRequest, match="must be a JSON object"):
        parse(ChatRequest, body)


def test_unknown_fields_are_ignored_and_null_is_absence() -> None:
    nulls = dict.fromkeys(set(ChatRequest.model_fields) - {"messages"})
    assert parse(ChatRequest, {"messages": USER, "future": {"x": 1}, **nulls}) == parse(ChatRequest, {"messages": USER})


def test_strings_stand_for_objects() -> None:
    short = parse(
        ChatRequest, {"messages": [{"role": "user", "content": ["see", {"type": "image_url", "image_url": "u"}]}]}
    )
    long = parse(
        ChatRequest,
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "see"},
                        {"type": "image_url", "image_url": {"url": "u", "detail": "low"}},
                    ],
                }
            ]
        },
    )
    assert short == long


def test_lifted_bytes_are_text_where_text_is_due_and_stay_bytes_in_media() -> None:
    url = bytearray(b"data:image/png;base64,AAAA")
    request = parse(ChatRequest, {"messages": [{"role": "user", "content": url}], "images": [url]})
    assert request.messages[0].content[0].text == url.decode()
    assert request.images is not None
    assert request.images[0] is url


def test_a_made_up_key_does_not_make_a_long_error() -> None:
    with pytest.raises(InvalidRequest) as refusal:
        parse(ChatRequest, {"messages": USER, "logit_bias": {"x" * 10_000: "y"}})
    assert len(refusal.value.message) < 300


def test_the_schema_is_one_piece_and_has_every_field() -> None:
    schema = inline_schema(ChatRequest)
    assert "$ref" not in str(schema)
    assert schema["properties"].keys() == ChatRequest.model_fields.keys()
    assert schema["required"] == ["messages"]
