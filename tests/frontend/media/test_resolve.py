from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from frontend.media.fetch import Claim, unclaimed
from frontend.media.limits import MediaLimits
from frontend.media.resolve import AT_ONCE, OFFLOAD_BYTES, resolve
from frontend.media.sources import Sources
from omni.contract.errors import InvalidMedia, NotSupported, OmniError, TooLarge
from omni.contract.job import MediaKind, MediaPart

pytestmark = [pytest.mark.process, pytest.mark.anyio]

GIF = b"GIF89a\1\0\1\0\0\0\0,\0\0\0\0\1\0\1\0\0\2\2D\1\0;"
WAV = b"RIFF\x24\0\0\0WAVEfmt "
LIMITS = MediaLimits()


@dataclass(frozen=True)
class Reference:
    kind: MediaKind
    source: str | bytes | bytearray
    param: str = "images.0"
    bare: bool = False


def url(data: bytes, mime: str = "image/gif") -> str:
    return f"data:{mime};base64,{base64.b64encode(data).decode()}"


async def refused(reference: Reference, limits: MediaLimits = LIMITS) -> OmniError:
    with pytest.raises(OmniError) as refusal:
        await resolve([reference], limits)
    assert refusal.value.param == reference.param
    return refusal.value


@pytest.mark.parametrize(
    "source",
    [
        url(GIF),
        url(GIF, ""),
        url(GIF, "text/plain;charset=utf-8"),
        url(GIF).replace("data:", "DATA:").replace("base64", "Base64"),
        bytearray(url(GIF).encode()),
    ],
)
async def test_data_urls_whatever_they_call_themselves(source: str | bytearray) -> None:
    [part] = await resolve([Reference("image", source)], LIMITS)
    assert part == MediaPart("image", GIF, hashlib.sha256(GIF).hexdigest(), "images.0")


@pytest.mark.parametrize("source", [base64.b64encode(WAV).decode(), bytearray(base64.b64encode(WAV)), url(WAV)])
async def test_bare_base64_and_a_data_url_in_its_place(source: str | bytearray) -> None:
    [part] = await resolve([Reference("audio", source, "x", bare=True)], LIMITS)
    assert part.data == WAV


async def test_parts_keep_their_order() -> None:
    references = [
        Reference("image", url(GIF), "a"),
        Reference("audio", url(WAV), "b"),
        Reference("image", url(GIF), "c"),
    ]
    parts = await resolve(references, LIMITS)
    assert [(part.kind, part.param) for part in parts] == [("image", "a"), ("audio", "b"), ("image", "c")]
    assert parts[0].digest == parts[2].digest


@pytest.mark.parametrize(
    "source",
    [
        "data:image/gif,GIF89a",
        "data:image/gif;base64",
        "data:image/gif;base64,not base64!",
        "data:image/gif;base64,R0lG\n",
        "data:image/gif;base64,R0lGO",
        "data:image/gif;base64,R0lG-_==",
        "data:image/gif;base64,",
        "data:image/gif;base64,é",
        "data:" + "x" * 300 + ";base64,R0lG",
    ],
)
async def test_broken_data_urls(source: str) -> None:
    assert isinstance(await refused(Reference("image", source)), InvalidMedia)


async def test_broken_base64() -> None:
    error = await refused(Reference("audio", "?", "messages.0.content.0.input_audio.data", bare=True))
    assert error.message == "messages.0.content.0.input_audio.data isn't valid base64."


@pytest.mark.parametrize("source", ["http://example.com/a.png", "HTTPS://example.com/a.png"])
async def test_urls_are_not_fetched(source: str) -> None:
    error = await refused(Reference("image", source))
    assert isinstance(error, NotSupported)
    assert error.message == "images.0: media URLs are not enabled on this server; send a data URL."


@pytest.mark.parametrize("source", ["/etc/passwd", "file:///etc/passwd", "cars.jpg", ""])
async def test_local_files_are_not_read(source: str) -> None:
    error = await refused(Reference("image", source))
    assert isinstance(error, NotSupported)
    assert error.message == "images.0: local files are not enabled on this server; send a data URL."


class Web(Sources):
    """Sources with a page and a picture."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, int]] = []

    async def read(self, source: str, max_bytes: int, claim: Claim = unclaimed) -> bytes:
        self.asked.append((source, max_bytes))
        if source.endswith("far"):
            raise TooLarge("what is at the URL is too large.")
        return GIF if source.endswith("gif") else b"<html>"


async def test_what_is_fetched_is_checked_too() -> None:
    web = Web()
    [part] = await resolve([Reference("image", "https://example.com/a.gif")], LIMITS, web)
    assert part.data == GIF
    with pytest.raises(InvalidMedia):
        await resolve([Reference("image", bytearray(b"https://example.com/a"))], LIMITS, web)
    assert web.asked == [
        ("https://example.com/a.gif", LIMITS.item_bytes),
        ("https://example.com/a", LIMITS.item_bytes),
    ]


async def test_a_failed_fetch_names_the_part() -> None:
    with pytest.raises(TooLarge) as refusal:
        await resolve([Reference("image", "https://example.com/far")], LIMITS, Web())
    assert refusal.value.param == "images.0"
    assert refusal.value.message == "images.0: what is at the URL is too large."


async def test_limits() -> None:
    sound = WAV + bytes(84)  # 100 bytes

    def reference(size: int) -> Reference:
        return Reference("audio", url(WAV + bytes(size - len(WAV))), "x")

    assert len(await resolve([reference(100)], MediaLimits(item_bytes=100))) == 1
    assert isinstance(await refused(reference(101), MediaLimits(item_bytes=100)), TooLarge)
    two = [Reference("audio", url(sound), "a"), Reference("audio", url(sound), "b")]
    assert len(await resolve(two, MediaLimits(request_bytes=200, parts=2))) == 2
    with pytest.raises(TooLarge) as refusal:
        await resolve(two, MediaLimits(request_bytes=199))
    assert refusal.value.param == "b"
    with pytest.raises(TooLarge) as refusal:
        await resolve(two, MediaLimits(parts=1))
    assert refusal.value.param == "b"


async def test_what_is_far_too_large_is_not_even_decoded() -> None:
    broken = Reference("image", "data:;base64," + "!" * 4000)
    assert isinstance(await refused(broken, MediaLimits(item_bytes=1000)), TooLarge)


async def test_large_media_leave_the_event_loop_alone() -> None:
    data = WAV + bytes(16 << 20)
    reference = Reference("audio", bytearray(url(data).encode()))
    assert len(data) > OFFLOAD_BYTES
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0.001)

    ticking = asyncio.create_task(tick())
    await asyncio.sleep(0)
    before = ticks
    [part] = await resolve([reference], LIMITS)
    ticking.cancel()
    assert part.digest == hashlib.sha256(data).hexdigest()
    assert ticks > before


class SlowWeb(Sources):
    """Every URL takes until `answer`, but for one that fails at once."""

    def __init__(self) -> None:
        super().__init__()
        self.answer = asyncio.Event()
        self.now = self.most = 0
        self.size = len(GIF)

    async def read(self, source: str, max_bytes: int, claim: Claim = unclaimed) -> bytes:
        if source.endswith("gone"):
            raise InvalidMedia("the URL answered with status 404.")
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await self.answer.wait()
        finally:
            self.now -= 1
        claim(self.size)
        return GIF


def remote(count: int) -> list[Reference]:
    return [Reference("image", f"https://example.com/{n}", f"images.{n}") for n in range(count)]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def test_urls_are_fetched_together_but_not_too_many() -> None:
    web = SlowWeb()
    work = asyncio.create_task(resolve(remote(AT_ONCE + 5), LIMITS, web))
    await until(lambda: web.now == AT_ONCE)
    web.answer.set()
    parts = await work
    assert [part.param for part in parts] == [f"images.{n}" for n in range(AT_ONCE + 5)]
    assert web.most == AT_ONCE


async def test_one_that_fails_ends_the_others_at_once() -> None:
    web = SlowWeb()
    with pytest.raises(InvalidMedia) as refusal:
        await resolve([*remote(3), Reference("image", "https://example.com/gone", "images.3")], LIMITS, web)
    assert refusal.value.param == "images.3"
    assert refusal.value.message == "images.3: the URL answered with status 404."
    assert web.now == 0


async def test_a_client_that_leaves_ends_all_fetches() -> None:
    web = SlowWeb()
    work = asyncio.create_task(resolve(remote(3), LIMITS, web))
    await until(lambda: web.now == 3)
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    assert web.now == 0


async def test_what_is_fetched_counts_before_it_is_all_there() -> None:
    web = SlowWeb()
    web.answer.set()
    web.size = 1000
    with pytest.raises(TooLarge, match="2500 bytes in all") as refusal:
        await resolve(remote(4), MediaLimits(request_bytes=2500), web)
    assert refusal.value.param == "images.2"
