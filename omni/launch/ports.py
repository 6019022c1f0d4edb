"""Is a port ours to take?"""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Iterable
from dataclasses import dataclass

from omni.launch.errors import LaunchError


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server is to listen, and which setting moves it."""

    host: str
    port: int
    setting: str
    """As an operator writes it, such as `--port or OMNI_PORT`."""


def _listen(address: Address) -> socket.socket:
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError:
        raise LaunchError(f"there is no address {address.host!r} on this machine to listen on") from None
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(place)
        sock.listen(1)
    except OSError as problem:
        sock.close()
        if problem.errno == errno.EADDRINUSE:
            what = f"port {address.port} on {address.host} is taken; choose another"
        elif problem.errno == errno.EACCES:
            what = f"port {address.port} on {address.host} is reserved for the superuser; choose another"
        else:
            what = f"can't listen on {address.host} port {address.port}; choose another"
        raise LaunchError(f"{what} with {address.setting}") from None
    return sock


def check_free(addresses: Iterable[Address]) -> None:
    """Raises `LaunchError` for the first address that is taken, also when two settings name the same port."""
    with contextlib.ExitStack() as held:
        for address in addresses:
            held.enter_context(_listen(address))


def free_port(host: str = "127.0.0.1") -> int:
    """A port that was free a moment ago."""
    with socket.socket() as sock:
        sock.bind((host, 0))
        return int(sock.getsockname()[1])
