"""Fetching, against a web of our own: names, addresses and pages are the test's."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest
import trustme

from frontend.media.fetch import Fetcher, FetchLimits
from omni.contract.errors import InvalidMedia, InvalidRequest, NotSupported, Overloaded, TooLarge

pytestmark = [pytest.mark.process, pytest.mark.anyio]

PUBLIC = "93.184.215.14"
PICTURE = b"a picture"


@dataclass
class Page:
    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Web(httpx2.AsyncBaseTransport):
    """Names and their addresses, and what each URL answers. Keeps which connections were made."""

    names: dict[str, list[str]] = field(default_factory=lambda: {"example.com": [PUBLIC]})
    pages: dict[str, Page] = field(default_factory=dict)
    down: set[str] = field(default_factory=set)
    lookups: list[str] = field(default_factory=list)
    requests: list[httpx2.Request] = field(default_factory=list)

    async def lookup(self, host: str, port: int) -> list[str]:
        self.lookups.append(host)
        if host not in self.names:
            raise OSError
        return self.names[host]

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        if request.url.host in self.down:
            raise httpx2.ConnectError("down")
        url = f"{request.url.scheme}://{request.headers['host']}{request.url.raw_path.decode()}"
        page = self.pages.get(url) or Page(404)
        return httpx2.Response(page.status, headers=page.headers, stream=httpx2.ByteStream(page.body))

    def fetcher(self, **limits: Any) -> Fetcher:
        return Fetcher(FetchLimits(**limits), self, self.lookup)

    async def refused(self, url: str, max_bytes: int = 100, **limits: Any) -> InvalidRequest:
        with pytest.raises(InvalidRequest) as refusal:
            await self.fetcher(**limits).fetch(url, max_bytes)
        return refusal.value


def redirect(location: str, status: int = 302) -> Page:
    return Page(status, headers={"location": location})


async def test_the_connection_goes_to_the_address_that_was_checked_and_tls_to_the_name() -> None:
    web = Web(pages={"https://example.com/a?b=c": Page(200, PICTURE)})
    assert await web.fetcher().fetch("https://example.com/a?b=c#d", 100) == PICTURE
    [request] = web.requests
    assert request.url.host == PUBLIC
    assert request.extensions["sni_hostname"] == "example.com"
    assert request.headers["host"] == "example.com"
    assert request.headers["accept-encoding"] == "identity"
    assert "authorization" not in request.headers
    assert "cookie" not in request.headers
    assert web.lookups == ["example.com"]


PRIVATE = ["127.0.0.1", "::1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "169.254.169.254", "fe80::1%2", "2002:a00:1::"]


@pytest.mark.parametrize("address", PRIVATE)
async def test_one_address_that_is_not_public_is_enough_to_refuse(address: str) -> None:
    for addresses in ([address], [PUBLIC, address], [address, PUBLIC]):
        web = Web(names={"example.com": addresses})
        assert isinstance(await web.refused("http://example.com/"), NotSupported)
        assert not web.requests


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.1", "2130706433", "0x7f000001", "017700000001", "[::1]", "[::ffff:127.0.0.1]",
             "localhost", "169.254.169.254", "[fd00::1]", "0"]
)  # fmt: skip
async def test_spellings_of_this_machine_and_its_network(host: str) -> None:
    web = Web()
    fetcher = Fetcher(FetchLimits(), web)  # with the resolver of this machine
    with pytest.raises(InvalidRequest):
        await fetcher.fetch(f"http://{host}/", 100)
    assert not web.requests


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_every_redirect_is_checked_again(status: int) -> None:
    web = Web(names={"example.com": [PUBLIC], "inside": ["10.0.0.1"], "www.example.com": ["93.184.215.15"]})
    web.pages = {
        "http://example.com/1": redirect("/2", status),
        "http://example.com/2": redirect("https://www.example.com/3", status),
        "https://www.example.com/3": Page(200, PICTURE),
        "http://example.com/in": redirect("http://inside/", status),
        "http://example.com/odd": redirect("http://example.com:22/", status),
        "http://example.com/file": redirect("file:///etc/passwd", status),
        "http://example.com/me": redirect("http://user:secret@example.com/", status),
        "http://example.com/bad": redirect("http://[", status),
    }
    assert await web.fetcher().fetch("http://example.com/1", 100) == PICTURE
    assert web.lookups == ["example.com", "example.com", "www.example.com"]
    for path in ("in", "odd", "file", "me", "bad"):
        web.requests.clear()
        await web.refused(f"http://example.com/{path}")
        assert len(web.requests) == 1, path


async def test_a_name_that_changes_its_address_gains_nothing() -> None:
    web = Web(pages={"http://example.com/": redirect("http://example.com/2")})
    answers = iter([[PUBLIC], ["127.0.0.1"]])

    async def lookup(host: str, port: int) -> list[str]:
        return next(answers)

    with pytest.raises(NotSupported):
        await Fetcher(FetchLimits(), web, lookup).fetch("http://example.com/", 100)
    assert [request.url.host for request in web.requests] == [PUBLIC]


async def test_too_many_redirects() -> None:
    web = Web(pages={"http://example.com/": redirect("/")})
    assert "redirects more than 2 times" in (await web.refused("http://example.com/", redirects=2)).message
    assert len(web.requests) == 3


async def test_ports() -> None:
    web = Web(pages={"http://example.com:8080/": Page(200, PICTURE)})
    assert isinstance(await web.refused("http://example.com:8080/"), NotSupported)
    assert not web.lookups
    assert await web.fetcher(ports=frozenset({8080})).fetch("http://example.com:8080/", 100) == PICTURE
    assert isinstance(await web.refused("https://example.com/", ports=frozenset({80})), NotSupported)


@pytest.mark.parametrize("allowed", ["inside", "inside:9000"])
async def test_private_hosts_that_are_allowed(allowed: str) -> None:
    web = Web(names={"inside": ["10.0.0.1"]}, pages={"http://Inside:9000/": Page(200, PICTURE)})
    web.pages["http://inside:9000/"] = web.pages["http://Inside:9000/"]
    hosts = frozenset({allowed})
    assert await web.fetcher(private_hosts=hosts).fetch("http://Inside:9000/", 100) == PICTURE
    if ":" in allowed:
        assert isinstance(await web.refused("http://inside/", private_hosts=hosts), NotSupported)
    assert isinstance(await web.refused("http://inside:9000/", private_hosts=frozenset({"inside.com"})), NotSupported)


@pytest.mark.parametrize(
    "url", ["ftp://example.com/", "http:///x", "http://", "http://user@example.com/", "http://a:b@example.com/",
            "http://example.com:99999/", "http://exa mple.com/", "http://example.com/\n", "http://nowhere.example/",
            "http://[/", "http://example.com/" + "x" * 9000, "http://" + "a" * 300 + ".com/", "http://.../"]
)  # fmt: skip
async def test_urls_that_are_no_good(url: str) -> None:
    web = Web()
    assert "example" not in (await web.refused(url)).message
    assert not web.requests


async def test_the_next_address_when_one_is_down() -> None:
    web = Web(names={"example.com": [PUBLIC, "93.184.215.15"]}, down={PUBLIC})
    web.pages = {"http://example.com/": Page(200, PICTURE)}
    assert await web.fetcher().fetch("http://example.com/", 100) == PICTURE
    web.down.add("93.184.215.15")
    assert isinstance(await web.refused("http://example.com/"), InvalidMedia)


@pytest.mark.parametrize("status", [204, 206, 304, 400, 401, 404, 500])
async def test_another_status_is_told(status: int) -> None:
    web = Web(pages={"http://example.com/": Page(status)})
    assert (await web.refused("http://example.com/")).message == f"the URL answered with status {status}."


async def test_a_compressed_answer_is_not_unpacked() -> None:
    page = Page(200, b"\x1f\x8b", {"content-encoding": "gzip"})
    assert isinstance(await Web(pages={"http://example.com/": page}).refused("http://example.com/"), InvalidMedia)


@asynccontextmanager
async def site(answer: Callable[[asyncio.StreamWriter], Any], tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """A server of bytes as they are; yields its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            await answer(writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    async with server:
        yield server.sockets[0].getsockname()[1]


def says(data: bytes) -> Callable[[asyncio.StreamWriter], Any]:
    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()

    return answer


async def home(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


async def fetch(port: int, max_bytes: int = 100, claim: Any = lambda _: None, **limits: Any) -> bytes:
    fetcher = Fetcher(FetchLimits(private_hosts=frozenset({"here"}), **limits), lookup=home)
    try:
        return await fetcher.fetch(f"http://here:{port}/", max_bytes, claim)
    finally:
        await fetcher.close()


OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    "answer",
    [
        OK + b"Content-Length: 100\r\n\r\n" + bytes(100),
        OK + b"Transfer-Encoding: chunked\r\n\r\n64\r\n" + bytes(100) + b"\r\n0\r\n\r\n",
        OK + b"\r\n" + bytes(100),
    ],
)
async def test_a_size_up_to_the_limit_however_it_is_sent(answer: bytes) -> None:
    claimed: list[int] = []
    async with site(says(answer)) as port:
        assert await fetch(port, 100, claimed.append) == bytes(100)
        assert sum(claimed) == 100
        with pytest.raises(TooLarge):
            await fetch(port, 99)


async def test_an_answer_without_end_is_cut_at_the_limit() -> None:
    async def flood(writer: asyncio.StreamWriter) -> None:
        writer.write(OK + b"\r\n")
        while True:
            writer.write(bytes(10_000))
            await writer.drain()

    async with site(flood) as port:
        with pytest.raises(TooLarge):
            await fetch(port, 1_000_000)


async def test_a_claim_that_is_refused_ends_the_fetch() -> None:
    def full(size: int) -> None:
        raise Overloaded("Full.")

    async with site(says(OK + b"Content-Length: 5\r\n\r\nhello")) as port:
        with pytest.raises(Overloaded):
            await fetch(port, claim=full)


@pytest.mark.parametrize(
    "answer",
    [b"", b"nonsense\r\n\r\n", OK + b"Content-Length: 100\r\n\r\nshort", b"HTTP/1.1 200 OK\r\n" + b"a" * 200_000],
)
async def test_answers_that_are_broken(answer: bytes) -> None:
    async with site(says(answer)) as port:
        with pytest.raises(InvalidMedia):
            await fetch(port)


@pytest.mark.parametrize("begun", [b"", OK + b"Content-Length: 9\r\n\r\n", OK + b"Content-Length: 9\r\n\r\nab"])
async def test_time_is_limited_as_a_whole(begun: bytes) -> None:
    async def dawdle(writer: asyncio.StreamWriter) -> None:
        writer.write(begun)
        await asyncio.sleep(60)

    async with site(dawdle) as port:
        with pytest.raises(InvalidMedia, match=r"within 0\.2 seconds"):
            await fetch(port, seconds=0.2)


async def test_tls_still_checks_the_name() -> None:
    authority = trustme.CA()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("here").configure_cert(tls)
    trust = ssl.create_default_context()
    authority.configure_trust(trust)
    hosts = frozenset({"here", "there"})
    async with site(says(OK + b"Content-Length: 5\r\n\r\nhello"), tls) as port:
        fetcher = Fetcher(FetchLimits(private_hosts=hosts), httpx2.AsyncHTTPTransport(verify=trust), home)
        assert await fetcher.fetch(f"https://here:{port}/", 100) == b"hello"
        with pytest.raises(InvalidMedia):
            await fetcher.fetch(f"https://there:{port}/", 100)
        await fetcher.close()
        fetcher = Fetcher(FetchLimits(private_hosts=hosts), lookup=home)
        with pytest.raises(InvalidMedia):
            await fetcher.fetch(f"https://here:{port}/", 100)
        await fetcher.close()
