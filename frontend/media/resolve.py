"""From the media of a request, as the client wrote them, to checked bytes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable
from typing import Protocol

import anyio
import pybase64
from anyio.lowlevel import RunVar

from frontend.media.check import check, too_large
from frontend.media.fetch import Claim, unclaimed
from frontend.media.limits import MediaLimits
from frontend.media.sources import NOWHERE, Sources
from omni.contract.errors import InvalidMedia, InvalidRequest, TooLarge
from omni.contract.job import MediaKind, MediaPart

OFFLOAD_BYTES = 256 * 1024
"""From this size on, decoding and hashing go to a worker thread."""
AT_ONCE = 8
"""Parts of one request that are resolved at a time."""
WORKERS = 4
"""Worker threads over all requests."""

Encoded = str | bytes | bytearray
_DATA_URL = re.compile(rb"data:[^,]{0,200}?;base64,", re.IGNORECASE)

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


async def resolve(
    references: Iterable[Reference], limits: MediaLimits, sources: Sources = NOWHERE, claim: Claim = unclaimed
) -> list[MediaPart]:
    """The parts of `references`, in their order; `claim` is told of the bytes that come from `sources`.

    `AT_ONCE` of them are worked on together, so that slow hosts are waited for together too. Raises `InvalidMedia`,
    `TooLarge` or `NotSupported`, each with the `param` of the part at fault, as soon as one is; the rest is given up.
    """
    wanted = list(references)
    if len(wanted) > limits.parts:
        raise TooLarge(
            f"A request may hold {limits.parts} images, sounds and videos.", param=wanted[limits.parts].param
        )
    room = limits.request_bytes
    turns = asyncio.Semaphore(AT_ONCE)

    def take(size: int) -> None:
        nonlocal room
        room -= size
        if room < 0:
            raise TooLarge(f"the media of a request may be {limits.request_bytes} bytes in all.")

    def take_and_claim(size: int) -> None:
        take(size)
        claim(size)

    async def resolved(one: Reference) -> MediaPart:
        async with turns:
            try:
                if (start := _start(one)) is None:
                    data = await sources.read(_text(one.source), limits.item_bytes, take_and_claim)
                    return await _off_loop(len(data), _part, one, data, limits)
                part = await _inline(one, start, limits)
                take(len(part.data or b""))
                return part
            except InvalidRequest as problem:
                if problem.param is not None:
                    raise
                raise type(problem)(f"{one.param}: {problem.message}", param=one.param) from None

    if len(wanted) == 1:
        return [await resolved(wanted[0])]
    tasks = [asyncio.create_task(resolved(one), name="media of a request") for one in wanted]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        return [task.result() for task in tasks if task in done]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _start(one: Reference) -> int | None:
    """Where the base64 of `one` begins; None when it is somewhere else."""
    if (head := _DATA_URL.match(_ascii(one.source[:300], one.param))) is not None:
        return head.end()
    if one.bare:
        return 0
    if _ascii(one.source[:5], one.param).lower() == b"data:":
        raise InvalidMedia(f"{one.param} must be a data URL with ;base64, in it.", param=one.param)
    return None


async def _inline(one: Reference, start: int, limits: MediaLimits) -> MediaPart:
    # Three bytes for every four characters, up to two bytes of padding.
    if (len(one.source) - start) // 4 * 3 - 2 > limits.item_bytes:
        raise too_large(one.param, limits)
    return await _off_loop(len(one.source), _decoded, one, start, limits)


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


def _text(source: Encoded) -> str:
    return source if isinstance(source, str) else source.decode("ascii", "replace")


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
