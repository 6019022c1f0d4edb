"""How much a single part may hold, and the one way in which a defect of a part is reported."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

from omni.contract.errors import InvalidMedia, OmniError

Check = Callable[[], None]
"""Called every now and then by a decoder; raises to stop it."""


def unchecked() -> None:
    """The `Check` that never stops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaLimits:
    """Limits of one part; over them is `TooLarge`. A profile sets them under `limits` of preprocess."""

    image_pixels: int = 50_000_000
    """Most pixels of an image, and of one frame of a clip as it is encoded."""
    audio_seconds: float = 3600.0
    video_seconds: float = 3600.0
    video_frames: int = 768
    """Most frames sampled of one clip; a request for more gets so many."""
    video_pixels: int = 90_316_800
    """Most pixels over all sampled frames of one clip; frames are scaled down to it (3 bytes each)."""

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            if not getattr(self, name) > 0:
                raise ValueError(f"limits.{name} must be over 0")

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Self:
        """The limits under `limits` of a profile's options. Raises ValueError for an unknown or impossible one."""
        own = options.get("limits", {})
        if unknown := own.keys() - cls.__dataclass_fields__.keys():
            raise ValueError(f"unknown limits: {', '.join(sorted(unknown))}")
        return cls(**own)


@contextmanager
def decoding(what: str, param: str) -> Iterator[None]:
    """Turns whatever a decoder raises into `InvalidMedia` that names the part and says nothing of the decoder.

    Decoders answer broken files with exceptions of nearly every type; running out of memory isn't the file's fault.
    """
    try:
        yield
    except (OmniError, MemoryError):
        raise
    except Exception:
        raise InvalidMedia(f"The {what} can't be decoded: it is broken or of an unknown format.", param=param) from None
