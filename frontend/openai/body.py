"""A JSON request body, taken apart while it arrives.

Most bytes of a request with media are base64 inside one string. Such a string is lifted out of the JSON as it comes
and kept as bytes: nothing ever copies it into a `str`, and no single step takes time in proportion to it.
"""

from __future__ import annotations

import re
import secrets
from typing import Any

import orjson

from omni.contract.errors import InvalidRequest, TooLarge

LIFT_BYTES = 16 * 1024
"""A string longer than this, and without escapes other than of a slash, is lifted."""
JSON_BYTES = 2 << 20
"""Most bytes of a body without what is lifted, by default."""

_QUOTE_OR_ESCAPE = re.compile(rb'"|\\(?!/)')
_NOT_JSON = "The body must be valid JSON in UTF-8."


class JsonBody:
    """Feed it the pieces of a body, then `finish`. Whoever reads the body bounds it as a whole.

    `feed` raises `TooLarge` when more than `most` bytes aren't lifted: many small things take long to read. `finish`
    returns the parsed JSON. A lifted string is a bytearray there when it can be media (a data URL, or the
    value of a key `data`), and an ordinary `str` otherwise. It raises `InvalidRequest` when the body isn't JSON.
    """

    def __init__(self, most: int = JSON_BYTES) -> None:
        self._most = most
        self._held = b""
        """A backslash at the end of a piece: what it escapes is still to come."""
        self._json = bytearray()
        self._lifted: list[bytearray] = []
        self._mark = secrets.token_hex(16)
        self._in_string = False
        self._escape = False
        """The last byte was a backslash, its partner is still to come."""
        self._start = 0
        """Where in `_json` the current string began, or -1 when it must not be lifted."""
        self._long: bytearray | None = None
        """The current string, being lifted."""

    def feed(self, piece: bytes) -> None:
        piece, self._held = self._held + piece, b""
        if piece.endswith(b"\\"):
            piece, self._held = piece[:-1], piece[-1:]
        at = 0
        while at < len(piece):
            at = self._inside(piece, at) if self._in_string else self._outside(piece, at)
        if len(self._json) > self._most:
            raise TooLarge(f"The body may have {self._most} bytes besides its media and long texts.")

    def finish(self) -> Any:
        self._json += self._held
        try:
            return self._restored(orjson.loads(self._json), "") if self._lifted else orjson.loads(self._json)
        except (ValueError, RecursionError):
            raise InvalidRequest(_NOT_JSON) from None

    def _outside(self, piece: bytes, at: int) -> int:
        end = piece.find(b'"', at) + 1
        if end == 0:
            self._json += piece[at:]
            return len(piece)
        self._json += piece[at:end]
        self._in_string, self._start = True, len(self._json)
        return end

    def _inside(self, piece: bytes, at: int) -> int:
        if self._escape:
            self._json += piece[at : at + 1]
            self._escape = False
            return at + 1
        found = _QUOTE_OR_ESCAPE.search(piece, at)
        end = len(piece) if found is None else found.start()
        self._grow(piece[at:end].replace(b"\\/", b"/"))
        if found is None:
            return end
        if piece[end] == ord("\\"):
            self._keep()
            self._escape = True
        else:
            self._in_string = False
            if self._long is not None:
                self._json += f"{self._mark}{len(self._lifted)}".encode()
                self._lifted.append(self._long)
                self._long = None
        self._json += piece[end : end + 1]
        return end + 1

    def _grow(self, text: bytes) -> None:
        """More of the current string."""
        if self._long is not None:
            self._long += text
            return
        self._json += text
        if self._start >= 0 and len(self._json) - self._start > LIFT_BYTES:
            self._long = self._json[self._start :]
            del self._json[self._start :]

    def _keep(self) -> None:
        """The current string has an escape: leave it to the parser."""
        if self._long is not None:
            self._json += self._long
            self._long = None
        self._start = -1

    def _restored(self, value: Any, key: str) -> Any:
        if isinstance(value, str):
            lifted = self._lifted_as(value)
            if lifted is None:
                return value
            return lifted if key == "data" or lifted[:5].lower() == b"data:" else lifted.decode()
        if isinstance(value, dict):
            return {self._key(name): self._restored(one, name) for name, one in value.items()}
        if isinstance(value, list):
            return [self._restored(one, key) for one in value]
        return value

    def _key(self, name: str) -> str:
        lifted = self._lifted_as(name)
        return name if lifted is None else lifted.decode()

    def _lifted_as(self, text: str) -> bytearray | None:
        return self._lifted[int(text[len(self._mark) :])] if text.startswith(self._mark) else None
