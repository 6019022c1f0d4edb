"""`/` and `/playground/*`: a page to talk to the server, which uses nothing but the public API."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Request, Response

from frontend.playground import FILES, File

CONTENT_SECURITY_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' blob: data:",
        "media-src 'self' blob:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
"""Everything comes from this server; blob: is what the user dropped, filmed or heard."""

HEADERS: Final = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "permissions-policy": "camera=(self), microphone=(self), geolocation=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",
}
"""`no-cache` keeps the files, but asks whether they are still the same, so that an upgrade is seen at once."""

router = APIRouter(include_in_schema=False)


def _served(file: File, request: Request) -> Response:
    headers = {**HEADERS, "etag": file.etag}
    known = (tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(","))
    if file.etag in known:
        return Response(status_code=304, headers=headers)
    return Response(file.body, headers=headers, media_type=file.media_type)


def _add(path: str, file: File) -> None:
    async def serve(request: Request) -> Response:
        return _served(file, request)

    router.add_api_route(path, serve, methods=["GET", "HEAD"], name=path)


for _path, _file in FILES.items():
    _add(_path, _file)
