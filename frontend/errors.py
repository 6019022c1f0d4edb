"""How an error looks to an HTTP client: the status and body that OpenAI clients expect, and the event of a stream.

What may fail is told in `omni.contract.errors`; this file only renders it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from omni.contract.errors import InvalidRequest, OmniError, StageFailed, TimedOut, Unavailable

RETRY_AFTER_S: Final = 1

STATUS: Final[Mapping[str, int]] = {
    "invalid_request": 400,
    "unsupported": 400,
    "invalid_media": 400,
    "too_large": 400,
    "context_length_exceeded": 400,
    "media_missing": 400,
    "invalid_api_key": 401,
    "model_not_found": 404,
    "cancelled": 499,
    "internal_error": 500,
    "stage_failed": 500,
    "overloaded": 503,
    "unavailable": 503,
    "timeout": 504,
}
"""HTTP status by the code of an error."""

_TYPE: Final[Mapping[str, str]] = {"invalid_api_key": "authentication_error", "overloaded": "overloaded_error"}
_HTTP_CODE: Final[Mapping[int, str]] = {404: "not_found", 405: "method_not_allowed"}
_MESSAGE: Final[Mapping[int, str]] = {
    400: "The request can't be read.",
    404: "There is nothing at this path.",
    405: "This path doesn't take this method.",
}

INTERNAL: Final = OmniError("The server failed to answer this request.")
"""What a client learns of a failure that we didn't foresee."""


def _body(message: str, type: str, param: str | None, code: str | int) -> dict[str, Any]:
    return {"error": {"message": message, "type": type, "param": param, "code": code}}


def _type(status: int) -> str:
    return "invalid_request_error" if status < 499 else "server_error"


def render(error: OmniError, retry_after_s: int = RETRY_AFTER_S) -> tuple[int, dict[str, Any], dict[str, str]]:
    """`(status, body, headers)` of the answer; `retry_after_s` goes to clients that are refused for now."""
    status = STATUS.get(error.code, 500)
    headers = {}
    if status == 503:
        headers["retry-after"] = str(retry_after_s)
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    body = _body(error.message, _TYPE.get(error.code) or _type(status), error.param, error.code)
    return status, body, headers


def stream_event(error: OmniError) -> dict[str, Any]:
    """The last object of a stream that failed after it began: its code is a number, 400, 503 or 500."""
    status = STATUS.get(error.code, 500)
    code = 400 if status < 499 else 503 if status == 503 else 500
    return _body(error.message, _type(code), error.param, code)


def response(error: OmniError, retry_after_s: int = RETRY_AFTER_S) -> JSONResponse:
    status, body, headers = render(error, retry_after_s)
    return JSONResponse(body, status, headers)


async def refuse(
    error: OmniError, scope: Scope, receive: Receive, send: Send, retry_after_s: int = RETRY_AFTER_S
) -> None:
    """Answer a request, or a WebSocket's handshake, with `error`; for middleware that lets nothing further in."""
    scope.setdefault("state", {})["error"] = error.code
    if scope["type"] == "http" or "websocket.http.response" in scope.get("extensions", {}):
        await response(error, retry_after_s)(scope, receive, send)
    else:
        await send({"type": "websocket.close", "code": 1008})


def too_large_body(limit: int) -> JSONResponse:
    """The one answer with status 413: a body that is over the limit as a whole."""
    message = f"The request body is larger than the {limit} bytes that this server takes."
    return JSONResponse(_body(message, "invalid_request_error", None, "too_large"), 413)


# Validation errors of pydantic, in plain words. `ctx` values come from the schema, never from the client.
_WORDS: Final[Mapping[str, str]] = {
    "missing": "is required",
    "extra_forbidden": "is not a known field",
    "string_type": "must be a string",
    "int_type": "must be an integer",
    "int_parsing": "must be an integer",
    "int_from_float": "must be an integer",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "dataclass_type": "must be an object",
    "literal_error": "must be {expected}",
    "enum": "must be {expected}",
    "union_tag_invalid": "must have {discriminator} one of {expected_tags}",
    "union_tag_not_found": "must have the field {discriminator}",
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
    "too_short": "must have at least {min_length} items",
    "too_long": "must have at most {max_length} items",
}
_FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_PYTHON_TYPES = frozenset({"str", "int", "float", "bool", "bytes", "list", "dict", "tuple", "function", "constrained"})


def field_path(loc: Sequence[int | str]) -> str | None:
    """Where a value stood in the request, such as `messages.0.content`; None for the request as a whole.

    Steps that aren't field names, such as the branches of a union, are left out.
    """
    steps = loc[1:] if loc and loc[0] in ("body", "query", "path", "header") else loc
    names = [s for s in steps if isinstance(s, int) or (_FIELD.fullmatch(s) and s not in _PYTHON_TYPES)]
    return ".".join(map(str, names)) or None


def from_validation(errors: Sequence[Mapping[str, Any]]) -> InvalidRequest:
    """The first of pydantic's errors as ours; nothing of the client's input is in it but names of fields."""
    first = errors[0]
    kind, context = first["type"], first.get("ctx") or {}
    if kind == "json_invalid":
        return InvalidRequest("The body isn't valid JSON.")
    param = field_path(first["loc"])
    if kind == "value_error" and isinstance(own := context.get("error"), OmniError):
        return InvalidRequest(own.message, param=own.param or param)
    words = _WORDS.get(kind, "is not valid").format_map({key: str(value) for key, value in context.items()})
    return InvalidRequest(f"{param or 'The body'} {words}.", param=param)


def _retry_after(request: Request) -> int:
    return int(request.app.state.settings.retry_after_s)


async def _on_omni_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, OmniError)
    request.state.error = error.code
    if isinstance(error, (StageFailed, Unavailable, TimedOut)):
        request.app.state.health.report(error)
    return response(error, _retry_after(request))


async def _on_validation_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    ours = from_validation(error.errors())
    request.state.error = ours.code
    return response(ours)


async def _on_http_exception(request: Request, error: Exception) -> Response:
    """An error of the framework: an unknown path, a method that a path doesn't have, a body that can't be read."""
    assert isinstance(error, HTTPException)
    status = error.status_code
    if status == 413:
        return too_large_body(request.app.state.settings.max_body_bytes)
    code = _HTTP_CODE.get(status) or ("invalid_request" if status < 500 else "internal_error")
    body = _body(_MESSAGE.get(status) or f"{HTTPStatus(status).phrase}.", _type(status), None, code)
    request.state.error = code
    return JSONResponse(body, status, error.headers)


def install(app: FastAPI) -> None:
    """Have `app` render every foreseen error in our shape; `frontend.access` answers for the others."""
    app.add_exception_handler(OmniError, _on_omni_error)
    app.add_exception_handler(RequestValidationError, _on_validation_error)
    app.add_exception_handler(HTTPException, _on_http_exception)


_SCHEMA: Final = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": "string"},
            },
        }
    },
}
RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    status: {"description": text, "content": {"application/json": {"schema": _SCHEMA}}}
    for status, text in {
        400: "The request can't be served as it is; `param` names the field.",
        401: "The API key is missing or wrong.",
        404: "There is no such model or path.",
        413: "The body is too large.",
        500: "The server failed.",
        503: "The server is full, starting or stopping; `Retry-After` says when to come back.",
        504: "The stages didn't answer in time.",
    }.items()
}
"""What /openapi.json says of the errors of a route under /v1."""
