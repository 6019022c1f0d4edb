"""What a realtime session needs of the world beyond messages and time; `frontend.senses` has the real ones."""

from __future__ import annotations

from typing import Protocol

from frontend.protocol.alignment import Alignment
from frontend.protocol.answering import Encoder
from frontend.protocol.evs import Thumbnail
from frontend.protocol.listening import Ear
from frontend.protocol.realtime_config import Format
from omni.contract.job import MediaPart


class Senses(Protocol):
    def ear(self, rate: int) -> Ear:
        """Something that hears voices in PCM16 at `rate` hertz; cheap to make, and only loaded once it is used."""

    def decode(self, data: bytes, format: Format) -> bytes:
        """Sound from the wire as PCM16 at the format's rate."""

    def encoder(self, format: Format) -> Encoder:
        """For one answer."""

    def alignment(self) -> Alignment:
        """For one answer."""

    def image(self, data: bytes, param: str, at_ms: float | None = None) -> MediaPart:
        """Checks an image by its header. Raises an `OmniError`."""

    def thumbnail(self, data: bytes) -> Thumbnail:
        """An image, small, for a worker thread. May raise anything."""

    def job_id(self) -> str:
        """A UUID."""
