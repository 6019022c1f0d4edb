"""What a realtime client may say: JSON in, frozen commands out. OpenAI's GA names; dialects are translated before.

`parse` raises `BadEvent` for whatever isn't one of these, and changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import orjson
import pybase64

from frontend.protocol.fields import BadEvent, Fields
from omni.contract.job import Role

MAX_ID: Final = 64
MAX_PARTS: Final = 64
MAX_ITEMS: Final = 256
_ID = re.compile(r"[\x21-\x7e]{1,64}")
_DATA_URL = re.compile(r"data:[^,]{0,100};base64,", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class RawPart:
    """A content part, its media still as the client sent them, but out of base64."""

    type: Literal["input_text", "input_audio", "input_image", "output_text", "output_audio"]
    text: str = ""
    """Also the transcript of sound."""
    data: bytes = b""
    param: str = ""


@dataclass(frozen=True, slots=True)
class RawItem:
    id: str | None
    role: Role
    content: tuple[RawPart, ...]


@dataclass(frozen=True, slots=True)
class Reference:
    """An item of the conversation, by its id."""

    id: str


@dataclass(frozen=True, slots=True)
class Update:
    session: Fields


@dataclass(frozen=True, slots=True)
class Append:
    audio: bytes
    """In the session's input format."""


@dataclass(frozen=True, slots=True)
class AppendImage:
    image: bytes
    at_ms: float | None
    """On the timeline of the appended audio; None is now."""


@dataclass(frozen=True, slots=True)
class Commit:
    pass


@dataclass(frozen=True, slots=True)
class Clear:
    pass


@dataclass(frozen=True, slots=True)
class CreateItem:
    item: RawItem
    after: str | None
    """Id of the item before it, `root` for the beginning, None for the end."""


@dataclass(frozen=True, slots=True)
class RetrieveItem:
    id: str


@dataclass(frozen=True, slots=True)
class DeleteItem:
    id: str


@dataclass(frozen=True, slots=True)
class TruncateItem:
    id: str
    content_index: int
    audio_end_ms: int


@dataclass(frozen=True, slots=True)
class CreateResponse:
    response: Fields
    """What the response overrides of the session; read by `realtime_config.for_response`."""
    in_conversation: bool = True
    metadata: Mapping[str, str] | None = None
    input: tuple[RawItem | Reference, ...] | None = None
    """Instead of the conversation."""


@dataclass(frozen=True, slots=True)
class CancelResponse:
    id: str | None


Command = (
    Update | Append | AppendImage | Commit | Clear | CreateItem | RetrieveItem | DeleteItem | TruncateItem
    | CreateResponse | CancelResponse
)  # fmt: skip


def read(message: str | bytes) -> dict[str, Any]:
    """The event in a message. Raises `BadEvent`. Half a surrogate pair isn't JSON to us: nobody could answer it."""
    if isinstance(message, bytes):
        raise BadEvent("Events are text messages that hold JSON; sound goes into them as base64.", "invalid_type")
    try:
        event = orjson.loads(message)
    except orjson.JSONDecodeError:
        raise BadEvent("The event isn't valid JSON.", "invalid_json") from None
    if not isinstance(event, dict):
        raise BadEvent("The event must be a JSON object.", "invalid_type")
    return event


def event_id(event: Mapping[str, Any]) -> str | None:
    """The client's own id of an event, for errors about it; None when it has none that can be repeated."""
    found = event.get("event_id")
    return found if isinstance(found, str) and len(found) <= 512 else None


def parse(event: Mapping[str, Any]) -> Command:
    """The command that `event` is. Raises `BadEvent`."""
    fields = Fields(event)
    fields.string("event_id", most=512)
    kind = fields.needed("type", fields.string("type", most=256))
    reader = _READERS.get(kind)
    if reader is None:
        raise BadEvent(f"type must be one of {', '.join(_READERS)}.", "invalid_value", "type")
    command = reader(fields)
    fields.end()
    return command


def _update(fields: Fields) -> Command:
    return Update(fields.needed("session", fields.object("session")))


def _append(fields: Fields) -> Command:
    fields.skip("sglang")
    return Append(base64_of(fields, "audio"))


def _append_image(fields: Fields) -> Command:
    extra = fields.object("sglang")
    at_ms = None
    if extra is not None:
        at_ms = extra.number("t_ms", 0, 1e12)
        extra.end()
    return AppendImage(base64_of(fields, "image"), at_ms)


def _create_item(fields: Fields) -> Command:
    after = fields.string("previous_item_id", most=MAX_ID)
    item = _item(fields.needed("item", fields.object("item")))
    return CreateItem(item, after)


def _truncate(fields: Fields) -> Command:
    item = _needed_id(fields, "item_id")
    index = fields.needed("content_index", fields.whole("content_index", 0, 1 << 16))
    end = fields.needed("audio_end_ms", fields.whole("audio_end_ms", 0, 1 << 40))
    return TruncateItem(item, index, end)


def _create_response(fields: Fields) -> Command:
    asked = fields.object("response") or Fields({}, "response")
    where = asked.string("conversation", most=MAX_ID)
    if where not in (None, "auto", "none"):
        raise BadEvent("response.conversation must be auto or none.", "invalid_value", "response.conversation")
    inputs = asked.items("input", most=MAX_ITEMS)
    return CreateResponse(
        asked,
        where != "none",
        _metadata(asked),
        None if inputs is None else tuple(_input(one, f"response.input.{n}") for n, one in enumerate(inputs)),
    )


def _metadata(asked: Fields) -> Mapping[str, str] | None:
    found = asked.raw("metadata")
    if found is None:
        return None
    sound = isinstance(found, Mapping) and len(found) <= 16
    if not sound or not all(len(k) <= 64 and isinstance(v, str) and len(v) <= 512 for k, v in found.items()):
        raise BadEvent(
            "response.metadata may have 16 pairs of strings, of 64 and 512 characters.",
            "invalid_value",
            "response.metadata",
        )
    return dict(found)


def _input(data: Any, path: str) -> RawItem | Reference:
    fields = Fields(data, path)
    if fields.raw("type") == "item_reference":
        found = Reference(_needed_id(fields, "id"))
        fields.end()
        return found
    return _item(fields)


_PARTS: Final[Mapping[Role, tuple[str, ...]]] = {
    "user": ("input_text", "input_audio", "input_image"),
    "system": ("input_text",),
    "assistant": ("output_text", "output_audio"),
}


def _item(fields: Fields) -> RawItem:
    fields.skip("object", "status", "phase")
    kind = fields.needed("type", fields.string("type", most=256))
    if kind in ("function_call", "function_call_output"):
        raise BadEvent("Tools aren't supported.", "unsupported", fields.at("type"))
    if kind != "message":
        raise BadEvent(f"{fields.at('type')} must be message.", "invalid_value", fields.at("type"))
    role: Role = fields.needed("role", fields.choice("role", tuple(_PARTS)))
    content = fields.needed("content", fields.items("content", most=MAX_PARTS))
    if not content:
        raise BadEvent(f"{fields.at('content')} must not be empty.", "invalid_value", fields.at("content"))
    path = fields.at("content")
    parts = tuple(_part(Fields(one, f"{path}.{n}"), _PARTS[role]) for n, one in enumerate(content))
    item = RawItem(_id(fields, "id"), role, parts)
    fields.end()
    return item


def _part(fields: Fields, allowed: tuple[str, ...]) -> RawPart:
    # Beta clients write text and audio for what an assistant said.
    beta = {"text": "output_text", "audio": "output_audio"}
    named = fields.needed("type", fields.string("type", most=64))
    kind = beta.get(named, named)
    if kind not in allowed:
        raise BadEvent(f"{fields.at('type')} must be one of {', '.join(allowed)}.", "invalid_value", fields.at("type"))
    part = _READ_PART[kind](fields)
    fields.end()
    return part


def _text_part(fields: Fields) -> RawPart:
    kind = "output_text" if str(fields.raw("type")) in ("text", "output_text") else "input_text"
    return RawPart(kind, fields.needed("text", fields.string("text")), param=fields.at("text"))  # type: ignore[arg-type]


def _audio_part(fields: Fields) -> RawPart:
    transcript = fields.string("transcript") or ""
    return RawPart("input_audio", transcript, base64_of(fields, "audio"), fields.at("audio"))


def _said_part(fields: Fields) -> RawPart:
    fields.skip("audio")
    transcript = fields.needed("transcript", fields.string("transcript"))
    return RawPart("output_audio", transcript, param=fields.at("transcript"))


def _image_part(fields: Fields) -> RawPart:
    fields.choice("detail", ("auto", "low", "high"))
    fields.skip("file_id")
    param = fields.at("image_url")
    url = fields.needed("image_url", fields.string("image_url", most=1 << 30))
    head = _DATA_URL.match(url)
    if head is None:
        raise BadEvent(f"{param} must be a data URL with ;base64, in it.", "invalid_value", param)
    return RawPart("input_image", "", _decoded(url[head.end() :], param), param)


_READ_PART = {
    "input_text": _text_part,
    "output_text": _text_part,
    "input_audio": _audio_part,
    "output_audio": _said_part,
    "input_image": _image_part,
}


def base64_of(fields: Fields, name: str) -> bytes:
    """The bytes that the field holds; it must be there."""
    text = fields.needed(name, fields.string(name, most=1 << 30))
    return _decoded(text, fields.at(name))


def _decoded(text: str, param: str) -> bytes:
    try:
        return pybase64.b64decode(text.encode("ascii"), validate=True)
    except ValueError:
        raise BadEvent(f"{param} isn't valid base64.", "invalid_value", param) from None


def _id(fields: Fields, name: str) -> str | None:
    found = fields.string(name, most=MAX_ID)
    if found is not None and not _ID.fullmatch(found):
        param = fields.at(name)
        raise BadEvent(f"{param} must be 1 to {MAX_ID} visible ASCII characters.", "invalid_value", param)
    return found


def _needed_id(fields: Fields, name: str) -> str:
    return fields.needed(name, fields.string(name, most=MAX_ID))  # type: ignore[no-any-return]


_READERS = {
    "session.update": _update,
    "input_audio_buffer.append": _append,
    "input_audio_buffer.commit": lambda fields: Commit(),
    "input_audio_buffer.clear": lambda fields: Clear(),
    "conversation.item.create": _create_item,
    "conversation.item.retrieve": lambda fields: RetrieveItem(_needed_id(fields, "item_id")),
    "conversation.item.delete": lambda fields: DeleteItem(_needed_id(fields, "item_id")),
    "conversation.item.truncate": _truncate,
    "response.create": _create_response,
    "response.cancel": lambda fields: CancelResponse(fields.string("response_id", most=MAX_ID)),
    "sglang.input_image.append": _append_image,
}
