from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, ValidationError, field_validator

from frontend.errors import STATUS, field_path, from_validation, render, stream_event
from omni.contract import errors
from omni.contract.errors import BY_CODE, InvalidRequest

pytestmark = pytest.mark.pure


def test_every_error_has_its_status() -> None:
    assert STATUS.keys() == BY_CODE.keys()


@pytest.mark.parametrize(
    ("error", "status", "type", "stream_code"),
    [
        (errors.InvalidRequest, 400, "invalid_request_error", 400),
        (errors.NotSupported, 400, "invalid_request_error", 400),
        (errors.InvalidMedia, 400, "invalid_request_error", 400),
        (errors.TooLarge, 400, "invalid_request_error", 400),
        (errors.ContextExceeded, 400, "invalid_request_error", 400),
        (errors.MediaMissing, 400, "invalid_request_error", 400),
        (errors.NotAuthorized, 401, "authentication_error", 400),
        (errors.UnknownModel, 404, "invalid_request_error", 400),
        (errors.Cancelled, 499, "server_error", 500),
        (errors.OmniError, 500, "server_error", 500),
        (errors.StageFailed, 500, "server_error", 500),
        (errors.Overloaded, 503, "overloaded_error", 503),
        (errors.Unavailable, 503, "server_error", 503),
        (errors.TimedOut, 504, "server_error", 500),
    ],
)
def test_an_error_has_one_look_per_transport(
    error: type[errors.OmniError], status: int, type: str, stream_code: int
) -> None:
    one = error("What happened.", param="messages.0")
    code, body, headers = render(one, retry_after_s=7)
    assert code == status
    assert body == {"error": {"message": "What happened.", "type": type, "param": "messages.0", "code": error.code}}
    assert headers.get("retry-after") == ("7" if status == 503 else None)
    assert headers.get("www-authenticate") == ("Bearer" if status == 401 else None)
    in_stream = "invalid_request_error" if stream_code == 400 else "server_error"
    assert stream_event(one) == {
        "error": {"message": "What happened.", "type": in_stream, "param": "messages.0", "code": stream_code}
    }


class Text(BaseModel):
    type: Literal["text"]
    text: str


class Image(BaseModel):
    type: Literal["image"]
    url: str


class Chat(BaseModel, extra="forbid"):
    model: str
    temperature: float = Field(1.0, ge=0, le=2)
    top: int = Field(1, gt=0, lt=9)
    stream: bool = False
    role: Literal["user", "system"] = "user"
    stop: str | list[str] = ""
    names: list[str] = Field([], max_length=2)
    title: str = Field("", max_length=3)
    parts: list[Annotated[Text | Image, Field(discriminator="type")]] = []
    seed: int = 0
    own: str = ""
    theirs: str = ""

    @field_validator("own")
    @classmethod
    def _own(cls, value: str) -> str:
        if value:
            raise ValueError(f"leaks {value}")
        return value


SECRET = "rosebud"


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"model": None}, "model", "model must be a string."),
        ({"model": ...}, "model", "model is required."),
        ({"temperature": SECRET}, "temperature", "temperature must be a number."),
        ({"temperature": 3}, "temperature", "temperature must be at most 2.0."),
        ({"temperature": -1}, "temperature", "temperature must be at least 0.0."),
        ({"top": 0}, "top", "top must be greater than 0."),
        ({"top": 9}, "top", "top must be less than 9."),
        ({"seed": 1.5}, "seed", "seed must be an integer."),
        ({"stream": SECRET}, "stream", "stream must be true or false."),
        ({"role": SECRET}, "role", "role must be 'user' or 'system'."),
        ({"names": SECRET}, "names", "names must be a list."),
        ({"names": ["a", "b", SECRET]}, "names", "names must have at most 2 items."),
        ({"title": SECRET}, "title", "title must have at most 3 characters."),
        ({"stop": [1]}, "stop", "stop must be a string."),
        ({"parts": [{"type": SECRET}]}, "parts.0", "parts.0 must have 'type' one of 'text', 'image'."),
        ({"parts": [{}]}, "parts.0", "parts.0 must have the field 'type'."),
        ({"parts": [{"type": "text"}]}, "parts.0.text.text", "parts.0.text.text is required."),
        ({"parts": [SECRET]}, "parts.0", None),
        ({"odd": SECRET}, "odd", "odd is not a known field."),
        ({"own": SECRET}, "own", "own is not valid."),
    ],
)
def test_a_validation_error_names_the_field_in_plain_words(
    fields: dict[str, Any], param: str, message: str | None
) -> None:
    data = {name: value for name, value in {"model": "m", **fields}.items() if value is not ...}
    with pytest.raises(ValidationError) as problem:
        Chat.model_validate(data)
    error = from_validation(problem.value.errors())
    assert error.param == param
    assert message is None or error.message == message
    assert SECRET not in error.message
    assert "pydantic" not in error.message


def test_an_error_of_ours_in_a_validator_keeps_its_words() -> None:
    ours = {"type": "value_error", "loc": ("body", "x"), "ctx": {"error": InvalidRequest("Say please.", param="y")}}
    error = from_validation([ours])
    assert (error.message, error.param) == ("Say please.", "y")


def test_broken_json_is_told_without_a_field() -> None:
    error = from_validation([{"type": "json_invalid", "loc": ("body", 12), "ctx": {"error": SECRET}}])
    assert (error.message, error.param) == ("The body isn't valid JSON.", None)


def test_a_body_that_is_not_an_object() -> None:
    with pytest.raises(ValidationError) as problem:
        Chat.model_validate([SECRET])
    assert from_validation(problem.value.errors()).message == "The body must be an object."


@pytest.mark.parametrize(
    ("loc", "path"),
    [
        (("body", "messages", 0, "content"), "messages.0.content"),
        (("body",), None),
        ((), None),
        (("body", "stop", "list[str]", 0), "stop.0"),
        (("body", "stop", "str"), "stop"),
        (("body", "<script>"), None),
        (("body", "x" * 65), None),
    ],
)
def test_the_path_of_a_field(loc: tuple[int | str, ...], path: str | None) -> None:
    assert field_path(loc) == path
