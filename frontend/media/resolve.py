"""From the media of a request, as the client wrote them, to checked bytes."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

import anyio
import pybase64
from anyio.lowlevel import RunVar

from frontend.media.check import check, too_large
from frontend.media.limits import MediaLimits
from omni.contract.errors import InvalidMedia, NotSupported, TooLarge
from omni.contract.job import MediaKind, MediaPart

OFFLOAD_BYTES = 256 * 1024
"""From this size on, decoding and hashing go to a worker thread."""
WORKERS = 4
"""Worker threads over all requests."""

Encoded = str | bytes | bytearray
Fetch = Callable[[str, MediaKind, int], Awaitable[bytes]]
"""`fetch(url, kind, max_bytes)`: what is at a URL. Raises an `OmniError`; the caller names the part."""

_DATA_URL = re.compile(rb"data:[^,]{0,200}?;base64,", re.IGNORECASE)
_REMOTE = ("http://", "https://")

_workers: RunVar[anyio.CapacityLimiter] = RunVar("media workers")


class Reference(Protocol):
    """One piece of media, as the client wrote it."""

    @property
    def kind(self) -> MediaKind: ...

    @property
    def source(self) -> Encoded:
        """A data URL, another URL, a path, or base64 when `bare`."""

    @property
    def param(self) -> str: ...

    @property
    def bare(self) -> bool: ...


async def resolve(references: Iterable[Reference], limits: MediaLimits, fetch: Fetch | None = None) -> list[MediaPart]:
    """The parts of `references`, in their order. Without `fetch`, only data URLs and base64 are taken.

    Raises `InvalidMedia`, `TooLarge` or `NotSupported`, each with the `param` of the part at fault.
    """
    wanted = list(references)
    if len(wanted) > limits.parts:
        raise TooLarge(
            f"A request may hold {limits.parts} images, sounds and videos.", param=wanted[limits.parts].param
        )
    parts: list[MediaPart] = []
    room = limits.request_bytes
    for one in wanted:
        part = await _resolve(one, limits, fetch)
        room -= len(part.data or b"")
        if room < 0:
            raise TooLarge(f"The media of a request may be {limits.request_bytes} bytes in all.", param=one.param)
        parts.append(part)
    return parts


async def _resolve(one: Reference, limits: MediaLimits, fetch: Fetch | None) -> MediaPart:
    start = 0
    head = _DATA_URL.match(_ascii(one.source[:300], one.param))
    if head is not None:
        start = head.end()
    elif not one.bare:
        if _ascii(one.source[:5], one.param).lower() == b"data:":
            raise InvalidMedia(f"{one.param} must be a data URL with ;base64, in it.", param=one.param)
        data = await _fetched(one, limits, fetch)
        return await _off_loop(len(data), _part, one, data, limits)
    # Three bytes for every four characters, up to two bytes of padding.
    if (len(one.source) - start) // 4 * 3 - 2 > limits.item_bytes:
        raise too_large(one.param, limits)
    return await _off_loop(len(one.source), _decoded, one, start, limits)


async def _fetched(one: Reference, limits: MediaLimits, fetch: Fetch | None) -> bytes:
    source = one.source if isinstance(one.source, str) else one.source.decode("ascii")
    if fetch is None:
        what = "media URLs" if source.lower().startswith(_REMOTE) else "local files"
        raise NotSupported(f"{one.param}: {what} are not enabled on this server; send a data URL.", param=one.param)
    return await fetch(source, one.kind, limits.item_bytes)


def _decoded(one: Reference, start: int, limits: MediaLimits) -> MediaPart:
    # Of bytes, unlike of a str, the decoder takes a view, and it lets other threads run.
    source = _ascii(one.source, one.param)
    try:
        data = pybase64.b64decode(memoryview(source)[start:], validate=True)
    except ValueError:
        raise InvalidMedia(f"{one.param} isn't valid base64.", param=one.param) from None
    return _part(one, data, limits)


def _part(one: Reference, data: bytes, limits: MediaLimits) -> MediaPart:
    check(one.kind, data, one.param, limits)
    return MediaPart.of(one.kind, data, one.param)


def _ascii(text: Encoded, param: str) -> bytes | bytearray:
    if not isinstance(text, str):
        return text
    try:
        return text.encode("ascii")
    except UnicodeEncodeError:
        raise InvalidMedia(f"{param} must be a URL or base64.", param=param) from None


async def _off_loop(size: int, work: Callable[..., MediaPart], *args: object) -> MediaPart:
    if size < OFFLOAD_BYTES:
        return work(*args)
    return await anyio.to_thread.run_sync(work, *args, limiter=_limiter())


def _limiter() -> anyio.CapacityLimiter:
    """One per event loop."""
    if (limiter := _workers.get(None)) is None:
        limiter = anyio.CapacityLimiter(WORKERS)
        _workers.set(limiter)
    return limiter
