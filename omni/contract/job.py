"""What the front door asks of Triton: a conversation, its media, and how to answer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from omni.contract.errors import UNREADABLE, InvalidRequest
from omni.contract.names import OMNI, OMNI_TEXT
from omni.contract.params import Settings

Role = Literal["system", "user", "assistant"]
MediaKind = Literal["image", "audio", "video"]
ROLES: tuple[Role, ...] = ("system", "user", "assistant")
MEDIA_KINDS: tuple[MediaKind, ...] = ("image", "audio", "video")
PROBE_PRIORITY: Final = 1
"""Of a generation that asks whether the server lives: it waits for no client's, or a busy server would seem dead."""


@dataclass(frozen=True, slots=True)
class TextPart:
    text: str


@dataclass(frozen=True, slots=True)
class MediaPart:
    """An image, a sound or a clip, still encoded, as a file of its kind would be."""

    kind: MediaKind
    data: bytes | None
    """The encoded bytes; None names a part that preprocess was sent before, by its digest."""
    digest: str
    """Hexadecimal SHA-256 of the bytes."""
    param: str = ""
    """Where the part stood in the client's request, for error messages."""
    at_ms: float | None = None
    """Where on its session's timeline the part belongs, milliseconds; None outside of sessions."""
    read: bool = False
    """Whether the thinker has read it with an earlier job, so that preprocess need only name it, too."""

    @classmethod
    def of(cls, kind: MediaKind, data: bytes, param: str = "", at_ms: float | None = None) -> MediaPart:
        return cls(kind, data, hashlib.sha256(data).hexdigest(), param, at_ms)

    def by_digest(self, *, read: bool = False) -> MediaPart:
        """The same part without its bytes."""
        return MediaPart(self.kind, None, self.digest, self.param, self.at_ms, read)


Part = TextPart | MediaPart


@dataclass(frozen=True, slots=True)
class Message:
    role: Role
    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, TextPart))


@dataclass(frozen=True, slots=True, kw_only=True)
class VideoOptions:
    """How clips are sampled; None is the deployment's own."""

    fps: float | None = None
    max_frames: int | None = None
    min_pixels: int | None = None
    """Per frame."""
    max_pixels: int | None = None
    """Per frame."""
    total_pixels: int | None = None
    """Over all sampled frames."""
    use_audio: bool = False
    """Hear the clip's own sound, interleaved by time."""

    def __post_init__(self) -> None:
        if self.fps is not None and not 0.01 <= self.fps <= 120:
            raise InvalidRequest("video_fps must be between 0.01 and 120.", param="video_fps")
        for name in ("max_frames", "min_pixels", "max_pixels", "total_pixels"):
            value = getattr(self, name)
            if value is not None and not 1 <= value <= 1 << 40:
                raise InvalidRequest(f"video_{name} must be between 1 and {1 << 40}.", param=f"video_{name}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One generation. `id` is a UUID that the front door makes; it names the generation in every stage."""

    id: str
    messages: tuple[Message, ...]
    settings: Settings = field(default_factory=Settings)
    video: VideoOptions = field(default_factory=VideoOptions)
    priority: int = 0
    """Lower is later: a prefill job yields to every query."""

    @property
    def model(self) -> str:
        """The ensemble that serves this job."""
        return OMNI if self.settings.speech else OMNI_TEXT

    @property
    def media(self) -> tuple[MediaPart, ...]:
        """All media parts in the order of the conversation."""
        return tuple(p for message in self.messages for p in message.parts if isinstance(p, MediaPart))

    @property
    def tells_kept(self) -> bool:
        """Whether preprocess says, with `KEPT`, that it holds the media: they came, and a session may name them."""
        return self.settings.session is not None and any(part.data is not None for part in self.media)


def pack_job(job: Job) -> tuple[bytes, npt.NDArray[np.uint8]]:
    """`(JOB, MEDIA)`: the conversation as JSON, and all encoded media behind each other, uint8 [bytes].

    Parts with the same digest share their bytes.
    """
    head, blobs = pack_blobs(job)
    return head, np.frombuffer(b"".join(blobs), np.uint8)


def pack_blobs(job: Job) -> tuple[bytes, list[bytes]]:
    """The same with MEDIA in its pieces, none of them copied."""
    places: dict[str, tuple[int, int]] = {}
    blobs: list[bytes] = []
    size = 0
    for part in job.media:
        if part.data is not None and part.digest not in places:
            places[part.digest] = (size, len(part.data))
            blobs.append(part.data)
            size += len(part.data)

    def part_json(part: Part) -> dict[str, Any]:
        if isinstance(part, TextPart):
            return {"type": "text", "text": part.text}
        out: dict[str, Any] = {"type": part.kind, "digest": part.digest, "param": part.param}
        if part.at_ms is not None:
            out["at_ms"] = part.at_ms
        if part.read:
            out["read"] = True
        if part.digest in places:
            out["offset"], out["size"] = places[part.digest]
        return out

    options = {name: getattr(job.video, name) for name in VideoOptions.__dataclass_fields__}
    body = {
        "messages": [{"role": m.role, "parts": [part_json(p) for p in m.parts]} for m in job.messages],
        "video": {name: value for name, value in options.items() if value is not None},
        "priority": job.priority,
    }
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode(), blobs


def media_size(job: bytes) -> int:
    """Bytes of MEDIA that JOB speaks of. Raises `InvalidRequest` when that can't be read."""
    try:
        parts = (part for message in json.loads(job)["messages"] for part in message["parts"] if "offset" in part)
        return max((int(part["offset"]) + int(part["size"]) for part in parts), default=0)
    except UNREADABLE:
        raise InvalidRequest("The job can't be read.", param="JOB") from None


def unpack_job(id: str, job: bytes, media: npt.NDArray[np.uint8] | bytes | None, settings: Settings) -> Job:
    """The inverse of `pack_job`. Raises `InvalidRequest` when the tensors aren't a job.

    Of `media` as bytes that are those of one part nothing is copied.
    """
    blob = b"" if media is None else media

    def part(data: Mapping[str, Any]) -> Part:
        kind = data["type"]
        if kind == "text":
            return TextPart(str(data["text"]))
        if kind not in MEDIA_KINDS:
            raise InvalidRequest("A part of the job has an unknown type.", param="JOB")
        encoded: bytes | None = None
        if "offset" in data:
            start, size = int(data["offset"]), int(data["size"])
            if start < 0 or size < 0 or start + size > len(blob):
                raise InvalidRequest("A part of the job points outside of MEDIA.", param="MEDIA")
            encoded = bytes(blob[start : start + size])
        digest = data.get("digest") or hashlib.sha256(encoded or b"").hexdigest()
        at_ms = data.get("at_ms")
        place = None if at_ms is None else float(at_ms)
        return MediaPart(kind, encoded, str(digest), str(data.get("param", "")), place, bool(data.get("read")))

    def message(data: Mapping[str, Any]) -> Message:
        if data["role"] not in ROLES:
            raise InvalidRequest("A message of the job has an unknown role.", param="JOB")
        return Message(data["role"], tuple(part(p) for p in data["parts"]))

    try:
        body = json.loads(job)
        messages = tuple(message(m) for m in body["messages"])
        video = VideoOptions(**body.get("video", {}))
        return Job(id=id, messages=messages, settings=settings, video=video, priority=int(body.get("priority", 0)))
    except UNREADABLE:
        raise InvalidRequest("The job can't be read.", param="JOB") from None
