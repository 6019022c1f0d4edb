"""What the clients of the session protocols have in common: JSON events over a WebSocket."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from websockets.sync.client import ClientConnection

from omni.client.common import PATIENCE_S, Refused


def address(url: str, path: str) -> str:
    """Where the socket `path` is, by the address of the server or of the socket itself."""
    scheme, host, own, query, _ = urlsplit(url)
    scheme = {"http": "ws", "https": "wss"}.get(scheme, scheme)
    return urlunsplit((scheme, host, own if own.endswith(path) else own.rstrip("/") + path, query, ""))


def send(ws: ClientConnection, **event: Any) -> None:
    ws.send(json.dumps(event))


def receive(ws: ClientConnection) -> dict[str, Any]:
    """The next event. Raises `Refused` when the server is silent for too long."""
    try:
        event: dict[str, Any] = json.loads(ws.recv(timeout=PATIENCE_S))
    except TimeoutError:
        raise Refused("nothing was heard from the server for too long") from None
    return event
