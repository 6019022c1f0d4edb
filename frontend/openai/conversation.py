"""The conversation of a chat request: roles, texts, and media at their places. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from frontend.openai.requests import ChatMessage, ChatRequest, ContentPart, Encoded
from omni.contract.errors import InvalidRequest, NotSupported
from omni.contract.job import MediaKind, Role, TextPart

_ROLES: Mapping[str, Role] = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}

_MEDIA_PARTS: Mapping[str, tuple[str, MediaKind]] = {
    "image_url": ("image_url", "image"),
    "input_image": ("image_url", "image"),
    "audio_url": ("audio_url", "audio"),
    "input_audio": ("input_audio", "audio"),
    "video_url": ("video_url", "video"),
}
"""Part type to the field that holds the media, and its kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaReference:
    """Media of a request that nobody has looked at yet."""

    kind: MediaKind
    source: Encoded
    """A URL, or a path."""
    param: str
    bare: bool = False
    """`source` is base64 itself, without a URL around it."""


Piece = TextPart | MediaReference
Turn = tuple[Role, tuple[Piece, ...]]
"""One message. A text is never empty, so a message may have no part at all."""


def turns(request: ChatRequest) -> tuple[Turn, ...]:
    """The messages, with the media of `images`, `videos` and `audios` after the parts of the user's last message.

    Raises `InvalidRequest` or `NotSupported`.
    """
    said = [
        (_role(message, f"messages.{at}"), _parts(message, f"messages.{at}"))
        for at, message in enumerate(request.messages)
    ]
    lists: tuple[tuple[MediaKind, list[Encoded] | None], ...] = (
        ("image", request.images),
        ("video", request.videos),
        ("audio", request.audios),
    )
    beside = [
        MediaReference(kind=kind, source=source, param=f"{kind}s.{at}")
        for kind, sources in lists
        for at, source in enumerate(sources or ())
    ]
    if beside:
        last = max((at for at, (role, _) in enumerate(said) if role == "user"), default=None)
        if last is None:
            said.append(("user", tuple(beside)))
        else:
            said[last] = ("user", (*said[last][1], *beside))
    if not said:
        raise InvalidRequest("messages must hold at least one message.", param="messages")
    return tuple(said)


def _role(message: ChatMessage, param: str) -> Role:
    if message.role in ("tool", "function"):
        raise NotSupported("Messages of tools aren't supported.", param=f"{param}.role")
    if message.tool_calls or message.function_call is not None:
        raise NotSupported("Messages that call tools aren't supported.", param=f"{param}.tool_calls")
    if message.audio is not None and not message.content:
        raise NotSupported("Earlier speech isn't kept; send its transcript as content.", param=f"{param}.audio")
    if (role := _ROLES.get(message.role)) is None:
        raise InvalidRequest("role must be system, developer, user or assistant.", param=f"{param}.role")
    return role


def _parts(message: ChatMessage, param: str) -> tuple[Piece, ...]:
    parts = (_part(part, f"{param}.content.{at}") for at, part in enumerate(message.content))
    return tuple(part for part in parts if part is not None)


def _part(part: ContentPart, param: str) -> Piece | None:
    """None for an empty text."""
    if part.type in ("text", "input_text"):
        if part.text is None:
            raise InvalidRequest(f"{param}.text is required.", param=f"{param}.text")
        return TextPart(part.text) if part.text else None
    if part.type not in _MEDIA_PARTS:
        known = ", ".join(("text", "input_text", *_MEDIA_PARTS))
        raise InvalidRequest(f"{param}.type must be one of {known}.", param=f"{param}.type")
    name, kind = _MEDIA_PARTS[part.type]
    if part.type == "input_audio":
        if part.input_audio is None:
            raise InvalidRequest(f"{param}.{name} is required.", param=f"{param}.{name}")
        return MediaReference(kind=kind, source=part.input_audio.data, param=f"{param}.{name}.data", bare=True)
    url = getattr(part, name)
    if url is None:
        raise InvalidRequest(f"{param}.{name} is required.", param=f"{param}.{name}")
    return MediaReference(kind=kind, source=url.url, param=f"{param}.{name}.url")
