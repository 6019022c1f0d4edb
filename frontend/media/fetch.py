"""Media from the web, and from nowhere else: a URL must not become a way into the network of this server.

A host's name is resolved once, every address that it has must be public, and the connection goes to one of those
addresses, while TLS still checks the name. Each redirect is a new URL and checked as the first one was.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import httpx2

from frontend.media.address import is_public
from omni.contract.errors import InvalidMedia, NotSupported, TooLarge

log = logging.getLogger(__name__)

URL_CHARS: Final = 8192
"""Longest URL, characters."""
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_DEFAULT_PORT: Final = {"http": 80, "https": 443}
_HEADERS: Final = {"accept": "*/*", "accept-encoding": "identity", "user-agent": "omni-server"}

Lookup = Callable[[str, int], Awaitable[list[str]]]
"""The addresses of a host and port. Raises OSError when it has none."""
Claim = Callable[[int], None]
"""Told of bytes before they are kept; may raise an `OmniError` to end the fetch."""


def unclaimed(size: int) -> None:
    """The `Claim` of bytes that nobody counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchLimits:
    """What may be fetched, and how long that may take."""

    seconds: float = 30.0
    """From the URL to the last byte, with all redirects."""
    redirects: int = 3
    ports: frozenset[int] = frozenset({80, 443})
    private_hosts: frozenset[str] = frozenset()
    """Hosts, as `name` or `name:port`, that may have any address, and any port unless one is named."""


async def lookup(host: str, port: int) -> list[str]:
    """The addresses of a host, by the resolver of this machine."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


class Fetcher:
    """Fetches URLs. `transport` makes one request of one connection; nothing is shared between two fetches."""

    def __init__(
        self,
        limits: FetchLimits,
        transport: httpx2.AsyncBaseTransport | None = None,
        lookup: Lookup = lookup,
    ) -> None:
        self._limits = limits
        # Connections are pooled by address, but TLS has checked a name: a kept one could serve another host.
        alone = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
        self._transport = transport or httpx2.AsyncHTTPTransport(limits=alone, trust_env=False)
        self._lookup = lookup

    async def fetch(self, url: str, max_bytes: int, claim: Claim = unclaimed) -> bytes:
        """What is at `url`, as it was sent.

        Raises `InvalidMedia` when there is nothing to be had, `NotSupported` when we won't look, and `TooLarge`.
        """
        try:
            async with asyncio.timeout(self._limits.seconds):
                return await self._follow(_parsed(url), max_bytes, claim)
        except TimeoutError:
            raise InvalidMedia(f"the URL didn't deliver within {self._limits.seconds:g} seconds.") from None
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError, ValueError) as problem:
            log.info("a URL could not be fetched", extra={"reason": type(problem).__name__})
            raise InvalidMedia("the URL can't be fetched.") from None

    async def close(self) -> None:
        await self._transport.aclose()

    async def _follow(self, url: httpx2.URL, max_bytes: int, claim: Claim) -> bytes:
        for _ in range(self._limits.redirects + 1):
            async with self._get(url) as response:
                if response.status_code not in _REDIRECTS or "location" not in response.headers:
                    return await _body(response, max_bytes, claim)
                url = _parsed(str(url.join(response.headers["location"])))
        raise InvalidMedia(f"the URL redirects more than {self._limits.redirects} times.")

    @asynccontextmanager
    async def _get(self, url: httpx2.URL) -> AsyncIterator[httpx2.Response]:
        """The response of the first address of the host that takes a connection."""
        addresses = await self._addresses(url)
        for left, address in enumerate(addresses, 1 - len(addresses)):
            request = httpx2.Request(
                "GET",
                url.copy_with(host=address),
                headers={**_HEADERS, "host": url.netloc.decode("ascii")},
                extensions={
                    "sni_hostname": url.raw_host.decode("ascii"),
                    "timeout": httpx2.Timeout(self._limits.seconds).as_dict(),
                },
            )
            try:
                response = await self._transport.handle_async_request(request)
            except (httpx2.ConnectError, httpx2.ConnectTimeout):
                if not left:
                    raise
                continue
            try:
                yield response
            finally:
                await response.aclose()
            return

    async def _addresses(self, url: httpx2.URL) -> list[str]:
        port = url.port or _DEFAULT_PORT[url.scheme]
        private = {url.host.lower(), f"{url.host.lower()}:{port}"} & self._limits.private_hosts
        if not private and port not in self._limits.ports:
            raise NotSupported("media are not fetched from this port.")
        addresses = list(dict.fromkeys(await self._lookup(url.host, port)))
        if not addresses or not (private or all(map(is_public, addresses))):
            raise NotSupported("media are fetched from public addresses only.")
        return addresses


def _parsed(url: str) -> httpx2.URL:
    parsed = httpx2.URL(url) if len(url) <= URL_CHARS else None
    if parsed is None or parsed.scheme not in _DEFAULT_PORT or not parsed.host:
        raise InvalidMedia("the URL must begin with http:// or https:// and name a host.")
    if parsed.userinfo:
        raise NotSupported("the URL must not hold credentials.")
    return parsed.copy_with(fragment=None)


async def _body(response: httpx2.Response, max_bytes: int, claim: Claim) -> bytes:
    if response.status_code != 200:
        raise InvalidMedia(f"the URL answered with status {response.status_code}.")
    if response.headers.get("content-encoding", "identity").lower() != "identity":
        raise InvalidMedia("the URL sent a compressed answer, which was not asked for.")
    announced = response.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > max_bytes:
        raise _too_large(max_bytes)
    data = bytearray()
    async for piece in response.aiter_raw():
        if len(data) + len(piece) > max_bytes:
            raise _too_large(max_bytes)
        claim(len(piece))
        data += piece
    return bytes(data)


def _too_large(max_bytes: int) -> TooLarge:
    return TooLarge(f"what is at the URL is larger than the {max_bytes} bytes that an item may have.")
