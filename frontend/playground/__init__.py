"""The files of the page that `/` serves. They are plain HTML, CSS and JavaScript, and need no build."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

MEDIA_TYPES: Final[Mapping[str, str]] = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class File:
    body: bytes
    media_type: str
    etag: str


def _file(name: str, body: bytes) -> File:
    return File(body, MEDIA_TYPES[name.rpartition(".")[2]], f'"{hashlib.sha256(body).hexdigest()[:32]}"')


def _read() -> dict[str, File]:
    """By path: the page is `/`, what it loads is `/playground/NAME`."""
    named = {one.name: one for one in files(__name__).iterdir() if one.name.rpartition(".")[2] in MEDIA_TYPES}
    found = {name: _file(name, one.read_bytes()) for name, one in sorted(named.items())}
    return {"/" if name == "index.html" else f"/playground/{name}": file for name, file in found.items()}


FILES: Final[Mapping[str, File]] = _read()
