"""What a client puts into a conversation: checked, and out of its wire format."""

from __future__ import annotations

from typing import Final

from frontend.protocol.conversation import Content, Item, Picture, Sound, Speech, Text
from frontend.protocol.fields import BadEvent
from frontend.protocol.pcm import BYTES_PER_SAMPLE, wav, wav_header
from frontend.protocol.realtime_config import Format
from frontend.protocol.realtime_events import RawItem, RawPart
from frontend.protocol.senses import Senses
from omni.contract.errors import OmniError
from omni.contract.job import MediaPart

_HEADER: Final = len(wav_header(0, 1))


class Intake:
    """Every method raises `BadEvent` for what can't be taken."""

    def __init__(self, senses: Senses, *, image_bytes: int, item_bytes: int, item_chars: int) -> None:
        self._senses = senses
        self._image_bytes = image_bytes
        self._item_bytes = item_bytes
        self._item_chars = item_chars

    def item(self, raw: RawItem, id: str, format: Format) -> Item:
        """`format` is that of its sound."""
        item = Item(id, raw.role, [self._content(part, format) for part in raw.content])
        if item.nbytes > self._item_bytes or item.chars > self._item_chars:
            raise BadEvent("The item is larger than a whole conversation may be.", "too_large", "item.content")
        return item

    def image(self, data: bytes, param: str, at_ms: float | None = None) -> MediaPart:
        if len(data) > self._image_bytes:
            raise BadEvent(f"An image may have {self._image_bytes} bytes.", "too_large", param)
        try:
            return self._senses.image(data, param, at_ms)
        except OmniError as problem:
            raise BadEvent.of(problem, param) from None

    def _content(self, part: RawPart, format: Format) -> Content:
        match part.type:
            case "input_audio":
                pcm = self._senses.decode(part.data, format)
                if not pcm or len(pcm) % BYTES_PER_SAMPLE:
                    raise BadEvent(f"{part.param} must hold whole samples.", "invalid_value", part.param)
                return sound(pcm, format.rate, part.param, transcript=part.text or None)
            case "input_image":
                return Picture(self.image(part.data, part.param))
            case "output_audio":
                return Speech(part.text, None, complete=True)
            case _:
                return Text("output_text" if part.type == "output_text" else "input_text", part.text)


def sound(pcm: bytes, rate: int, param: str, at_ms: float | None = None, transcript: str | None = None) -> Sound:
    """What somebody said, from PCM16 at `rate` hertz."""
    return Sound(MediaPart.of("audio", wav(pcm, rate), param, at_ms), _HEADER, transcript)
