"""The outermost watch over a request: one line in the log, its count in the metrics, and an answer of last resort."""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from time import perf_counter
from typing import Final

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from frontend.errors import INTERNAL, response
from frontend.metrics import Metrics

log = logging.getLogger("frontend.access")

QUIET_PATHS: Final = frozenset({"/live", "/health", "/health/ready", "/metrics"})
"""Asked every few seconds by machines: logged at level debug, whatever the answer."""
_MAX_PATH: Final = 256


class Access:
    """ASGI middleware. What nobody else caught becomes a generic 500, or the end of the stream if one had begun."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            return await self.app(scope, receive, send)
        scope.setdefault("state", {})
        began = perf_counter()
        status, complete, left = 0, False, False

        def watched_send(message: Message) -> Awaitable[None]:  # no coroutine of its own: it is called per delta
            nonlocal status, complete
            kind = message["type"]
            if kind == "http.response.body":
                complete = not message.get("more_body", False)
            elif kind in ("http.response.start", "websocket.http.response.start"):
                status = message["status"]
            elif kind == "websocket.accept":
                status = 101
            elif kind == "websocket.close":
                complete = True
                status = status or 403
            return send(message)

        async def watched_receive() -> Message:
            nonlocal left
            message = await receive()
            if message["type"] == "http.disconnect" and not complete:
                left = True
            return message

        self._metrics.requests_in_progress.inc()
        try:
            await self.app(scope, watched_receive, watched_send)
        except ClientDisconnect:
            left = True
        except Exception as error:
            log.error("request failed unexpectedly", exc_info=error)
            scope["state"]["error"] = INTERNAL.code
            if scope["type"] == "websocket":
                if not complete:
                    await watched_send({"type": "websocket.close", "code": 1011})
            elif not status:
                await response(INTERNAL)(scope, receive, watched_send)
            else:
                status = 500
        except BaseException:
            left = True
            raise
        finally:
            self._metrics.requests_in_progress.dec()
            self._note(scope, status, left, perf_counter() - began)
        return None

    def _note(self, scope: Scope, status: int, left: bool, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "other")
        outcome = (
            "cancelled" if left or status == 499
            else "server_error" if status >= 500 or not status
            else "client_error" if status >= 400
            else "ok"
        )  # fmt: skip
        self._metrics.requests.labels(route, outcome).inc()
        self._metrics.request_duration.labels(route).observe(seconds)
        fields = {
            "method": scope.get("method", "WEBSOCKET"),
            "path": scope["path"][:_MAX_PATH],
            "status": status,
            "ms": round(seconds * 1000, 1),
            "outcome": outcome,
        }
        fields |= {name: told for name in ("generation", "error") if (told := scope["state"].get(name)) is not None}
        quiet = route in QUIET_PATHS and "error" not in fields
        log.log(logging.DEBUG if quiet else logging.INFO, "request", extra=fields)
