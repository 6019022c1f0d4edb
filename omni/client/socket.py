"""What the clients of the session protocols have in common: JSON events over a WebSocket."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI
from websockets.sync.client import ClientConnection, connect

from omni.client.common import PATIENCE_S, Refused


def address(url: str, path: str) -> str:
    """Where the socket `path` is, by the address of the server or of the socket itself."""
    scheme, host, own, query, _ = urlsplit(url)
    scheme = {"http": "ws", "https": "wss"}.get(scheme, scheme)
    return urlunsplit((scheme, host, own if own.endswith(path) else own.rstrip("/") + path, query, ""))


@contextmanager
def connected(options: argparse.Namespace, path: str) -> Iterator[ClientConnection]:
    """The socket `path` of the server. Raises `Refused` when there is none and when the connection is lost."""
    headers = {"Authorization": f"Bearer {options.key}"} if options.key else {}
    try:
        with connect(address(options.url, path), additional_headers=headers, max_size=None) as ws:
            yield ws
    except (OSError, InvalidHandshake, InvalidURI) as problem:
        raise Refused(f"can't reach {options.url}: {problem}") from None
    except ConnectionClosed as problem:
        raise Refused(f"the server closed the connection: {problem}") from None


def send(ws: ClientConnection, **event: Any) -> None:
    ws.send(json.dumps(event))


def receive(ws: ClientConnection) -> dict[str, Any]:
    """The next event. Raises `Refused` when the server is silent for too long."""
    try:
        event: dict[str, Any] = json.loads(ws.recv(timeout=PATIENCE_S))
    except TimeoutError:
        raise Refused("nothing was heard from the server for too long") from None
    return event
