"""A conversation of items, as OpenAI has it, and the prompt that it makes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import pybase64

from frontend.protocol.alignment import Alignment
from frontend.protocol.fields import BadEvent
from frontend.protocol.pcm import BYTES_PER_SAMPLE
from omni.contract.job import MediaPart, Message, Part, Role, TextPart
from omni.contract.names import SAMPLE_RATE

ROOT: Final = "root"
"""As `previous_item_id`: before everything else."""

Status = Literal["in_progress", "completed", "incomplete"]


@dataclass(slots=True)
class Text:
    """Something written."""

    type: Literal["input_text", "output_text"]
    text: str

    def to_json(self) -> dict[str, Any]:
        return {"type": self.type, "text": self.text}

    with_media = to_json

    @property
    def part(self) -> Part:
        return TextPart(self.text)

    @property
    def nbytes(self) -> int:
        return 0

    @property
    def chars(self) -> int:
        return len(self.text)


@dataclass(slots=True)
class Sound:
    """Something that the user said."""

    part: MediaPart
    """A WAV file."""
    pcm_at: int
    """Where in the file the samples begin."""
    transcript: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {"type": "input_audio", "transcript": self.transcript}

    def with_media(self) -> dict[str, Any]:
        assert self.part.data is not None
        return {**self.to_json(), "audio": pybase64.b64encode_as_string(self.part.data[self.pcm_at :])}

    @property
    def nbytes(self) -> int:
        return len(self.part.data or b"")

    @property
    def chars(self) -> int:
        return 0


@dataclass(slots=True)
class Picture:
    """Something that the user showed."""

    part: MediaPart

    def to_json(self) -> dict[str, Any]:
        return {"type": "input_image"}

    def with_media(self) -> dict[str, Any]:
        assert self.part.data is not None
        kind = "png" if self.part.data.startswith(b"\x89PNG") else "jpeg"
        return {
            "type": "input_image",
            "image_url": f"data:image/{kind};base64,{pybase64.b64encode_as_string(self.part.data)}",
        }

    @property
    def nbytes(self) -> int:
        return len(self.part.data or b"")

    @property
    def chars(self) -> int:
        return 0


@dataclass(slots=True)
class Speech:
    """Something that the assistant said aloud."""

    transcript: str = ""
    pcm: bytearray | None = field(default_factory=bytearray)
    """At `SAMPLE_RATE`; None once it was let go of, and for speech that wasn't made here."""
    samples: int = 0
    alignment: Alignment | None = None
    complete: bool = False
    """Whether all of the transcript was spoken."""

    def hear(self, pcm: bytes) -> None:
        self.samples += len(pcm) // BYTES_PER_SAMPLE
        if self.pcm is not None:
            self.pcm += pcm
        if self.alignment is not None:
            self.alignment.hear(pcm)

    def truncate(self, ms: int) -> None:
        """Keep the first `ms` of the sound and the words that were spoken in them. Raises `BadEvent`."""
        samples = ms * SAMPLE_RATE // 1000
        if samples > self.samples:
            has = self.samples * 1000 // SAMPLE_RATE
            raise BadEvent(f"The audio is only {has} ms long.", "invalid_value", "audio_end_ms")
        if samples < self.samples and self.alignment is not None:
            self.transcript = self.alignment.kept(self.transcript, samples, complete=self.complete)
        self.samples, self.complete, self.alignment = samples, True, None
        if self.pcm is not None:
            del self.pcm[samples * BYTES_PER_SAMPLE :]

    def to_json(self) -> dict[str, Any]:
        return {"type": "output_audio", "transcript": self.transcript}

    def with_media(self) -> dict[str, Any]:
        sound = {} if self.pcm is None else {"audio": pybase64.b64encode_as_string(bytes(self.pcm))}
        return {**self.to_json(), **sound}

    @property
    def part(self) -> Part:
        return TextPart(self.transcript)

    @property
    def nbytes(self) -> int:
        return len(self.pcm or b"")

    @property
    def chars(self) -> int:
        return len(self.transcript)


Content = Text | Sound | Picture | Speech


@dataclass(slots=True)
class Item:
    id: str
    role: Role
    content: list[Content]
    status: Status = "completed"

    def to_json(self, *, media: bool = False) -> dict[str, Any]:
        """As a client sees it; sound and images only when asked for."""
        content = [one.with_media() if media else one.to_json() for one in self.content]
        return {
            "id": self.id,
            "object": "realtime.item",
            "type": "message",
            "status": self.status,
            "role": self.role,
            "content": content,
        }

    @property
    def nbytes(self) -> int:
        """Bytes of media that it holds."""
        return sum(one.nbytes for one in self.content)

    @property
    def chars(self) -> int:
        return sum(one.chars for one in self.content)


class Conversation:
    """Items in order, found by id."""

    def __init__(self) -> None:
        self._items: dict[str, Item] = {}

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Item]:
        return iter(self._items.values())

    def __contains__(self, id: object) -> bool:
        return id in self._items

    @property
    def last(self) -> str | None:
        """Id of the last item."""
        return next(reversed(self._items), None)

    @property
    def nbytes(self) -> int:
        return sum(item.nbytes for item in self)

    @property
    def chars(self) -> int:
        return sum(item.chars for item in self)

    def clear(self) -> None:
        self._items.clear()

    def find(self, id: str) -> Item:
        """Raises `BadEvent`."""
        if (item := self._items.get(id)) is None:
            raise BadEvent("There is no item with this id.", "item_not_found", "item_id")
        return item

    def add(self, item: Item, after: str | None = None) -> str | None:
        """Puts `item` behind the item called `after`, or last; returns the id of the item before it.

        Raises `BadEvent` when its id is taken or there is no such item.
        """
        if item.id in self._items or item.id == ROOT:
            raise BadEvent("There already is an item with this id.", "item_already_exists", "item.id")
        if after is None or after == self.last:
            before = self.last
            self._items[item.id] = item
            return before
        if after != ROOT and after not in self._items:
            raise BadEvent("There is no item with this id.", "item_not_found", "previous_item_id")
        ordered: dict[str, Item] = {item.id: item} if after == ROOT else {}
        for id, one in self._items.items():
            ordered[id] = one
            if id == after:
                ordered[item.id] = item
        self._items = ordered
        return None if after == ROOT else after

    def remove(self, id: str) -> Item:
        """Raises `BadEvent`."""
        item = self.find(id)
        del self._items[id]
        return item

    def oldest_turn(self) -> list[str]:
        """Ids of the first items up to before the second turn of the user; none when only one turn is left.

        What a system said stays: it is not part of a turn.
        """
        out: list[str] = []
        answered = False
        for item in self:
            if item.role == "system":
                continue
            if item.role == "user" and answered:
                return out
            answered |= item.role == "assistant"
            out.append(item.id)
        return []


def messages(items: Iterable[Item], instructions: str = "") -> tuple[Message, ...]:
    """The prompt. Items of one role that follow each other are one message, so that a question, its pictures and its
    sound are seen together; there is always at least one message."""
    out: list[tuple[Role, list[Part]]] = [("system", [TextPart(instructions)])] if instructions else []
    for item in items:
        parts = [part for one in item.content if not (isinstance(part := one.part, TextPart) and not part.text)]
        if not parts:
            continue
        if out and out[-1][0] == item.role and item.role != "system":
            out[-1][1].extend(parts)
        else:
            out.append((item.role, parts))
    return tuple(Message(role, tuple(parts)) for role, parts in out) or (Message("user", (TextPart(""),)),)
