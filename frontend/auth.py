"""API keys, for HTTP and for WebSockets."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from frontend.client_secrets import ClientSecrets
from frontend.errors import refuse
from frontend.playground import FILES
from frontend.settings import Settings, SettingsError
from omni.contract.errors import NotAuthorized

OPEN_PATHS: Final = frozenset(
    {"/live", "/health", "/health/ready", "/metrics", "/version", "/docs", "/redoc", "/openapi.json", *FILES}
)
"""What needs no key. Anything else does, also a path that doesn't exist."""

REALTIME_PATH: Final = "/v1/realtime"
"""Where a client secret is as good as a key."""

SUBPROTOCOL: Final = "openai-insecure-api-key."
"""A browser can't set headers on a WebSocket; it offers the key as a subprotocol with this prefix."""


def load_keys(settings: Settings) -> tuple[str, ...]:
    """All API keys of the settings; none means that the server is open. Raises `SettingsError`."""
    keys = [key.get_secret_value() for key in settings.api_keys]
    if settings.api_key_file is not None:
        try:
            lines = settings.api_key_file.read_text("utf-8").splitlines()
        except (OSError, UnicodeError):
            raise SettingsError(f"api_key_file: the file {settings.api_key_file} can't be read") from None
        found = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
        if not found:
            raise SettingsError(f"api_key_file: the file {settings.api_key_file} holds no key")
        keys += found
    return tuple(keys)


def is_open(scope: Scope) -> bool:
    """Whether the request's path, behind the prefix of a proxy, is one of `OPEN_PATHS`."""
    return scope["path"].removeprefix(scope.get("root_path", "")) in OPEN_PATHS


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


class Auth:
    """ASGI middleware that refuses requests without a valid key.

    Every key is compared, in constant time, whatever the first ones gave, so that the time taken tells nothing.
    """

    def __init__(self, app: ASGIApp, keys: Iterable[str], client_secrets: ClientSecrets | None = None) -> None:
        """`client_secrets` open realtime sessions, and nothing else."""
        self.app = app
        self._secrets = client_secrets
        self._digests = tuple(_digest(key.encode()) for key in keys)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket") or is_open(scope) or self._knows(scope):
            return await self.app(scope, receive, send)
        message = "The API key is missing or wrong. Send it as `Authorization: Bearer KEY`."
        await refuse(NotAuthorized(message), scope, receive, send)
        return None

    def _knows(self, scope: Scope) -> bool:
        digest = _digest(offered(scope))
        matches = [hmac.compare_digest(digest, one) for one in self._digests]
        return any(matches) or self._may_talk(scope)

    def _may_talk(self, scope: Scope) -> bool:
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if self._secrets is None or scope["type"] != "websocket" or path != REALTIME_PATH:
            return False
        return self._secrets.find(offered(scope)) is not None


def offered(scope: Scope) -> bytes:
    """The key that the client shows; empty when it shows none."""
    offers = b""
    for name, value in scope["headers"]:
        if name == b"authorization":
            kind, _, key = value.partition(b" ")
            return bytes(key.strip()) if kind.lower() == b"bearer" else b""
        if name == b"sec-websocket-protocol":
            offers += b"," + value
    if scope["type"] == "websocket":
        prefix = SUBPROTOCOL.encode()
        for offer in offers.split(b","):
            if offer.strip().startswith(prefix):
                return offer.strip()[len(prefix) :]
    return b""
