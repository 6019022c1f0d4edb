"""What the clients of the session protocols have in common: JSON events over a WebSocket."""

from __future__ import annotations

import json
from typing import Any

from websockets.sync.client import ClientConnection

from omni.client.common import PATIENCE_S, Refused


def send(ws: ClientConnection, **event: Any) -> None:
    ws.send(json.dumps(event))


def receive(ws: ClientConnection) -> dict[str, Any]:
    """The next event. Raises `Refused` when the server is silent for too long."""
    try:
        event: dict[str, Any] = json.loads(ws.recv(timeout=PATIENCE_S))
    except TimeoutError:
        raise Refused("nothing was heard from the server for too long") from None
    return event
