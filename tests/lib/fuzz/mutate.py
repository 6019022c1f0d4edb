"""New inputs from old ones. An input is a run of pieces; JSON among them is changed as JSON, the rest as bytes."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable
from typing import Any

SEPARATOR = b"\x1e\x1f\x1e"
"""Between pieces. A piece that happens to hold it is two."""
STRANGE: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 7, 2**31, 2**63, 2**64, -(2**63) - 1, 10**400, 1e308, -0.5, float("nan"), float("inf"),
    "", " ", "a", "\0", "\ud800", "é" * 300, "text", "[]", "data:,", "../x", "1e9", [], {}, [[]], [None], {"": {}},
)  # fmt: skip
MOST_CHANGED = 2**53
"""Numbers beyond this are replaced, not changed by a little."""
BASE64_LEAST = 16
"""Characters from which on a string may be taken for base64."""

Change = Callable[[bytes, int], bytes]
"""Changes bytes at random: the old ones and the most that there may be."""


def split(data: bytes) -> list[bytes]:
    return data.split(SEPARATOR)


def join(pieces: list[bytes]) -> bytes:
    return SEPARATOR.join(pieces)


class Mutator:
    """Changes one thing, or a few."""

    def __init__(self, seed: int, most: int = 1 << 16, change: Change | None = None) -> None:
        """`change` None sets a few bytes, drops some or repeats some."""
        self._random = random.Random(seed)
        self._most = most
        self._change = change or self._anyhow

    def pieces(self, pieces: list[bytes]) -> list[bytes]:
        out = list(pieces)
        for _ in range(self._random.choice((1, 1, 1, 2, 4))):
            at = self._random.randrange(len(out))
            match self._random.randrange(12):
                case 0:
                    out.insert(at, self._random.choice(out))
                case 1 if len(out) > 1:
                    del out[at]
                case 2:
                    other = self._random.randrange(len(out))
                    out[at], out[other] = out[other], out[at]
                case 3:
                    out[at] = b""
                case _:
                    out[at] = self._piece(out[at])
        return out

    def _anyhow(self, data: bytes, most: int) -> bytes:
        out = bytearray(data)
        for _ in range(self._random.choice((1, 1, 2, 8))):
            at, length = self._random.randrange(len(out) + 1), self._random.choice((1, 4, 64))
            match self._random.randrange(6):
                case 0:
                    del out[at : at + length]
                case 1:
                    out[at:at] = out[at : at + length]
                case 2:
                    out[at : at + 4] = self._random.choice((b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff"))
                case _:
                    out[at : at + 1] = self._random.randbytes(1)
        return bytes(out[:most])

    def _piece(self, piece: bytes) -> bytes:
        luck = self._random.random()
        if luck < 0.01:
            return self._random.choice((b"[", b'{"type":')) * 3000
        if luck < 0.75:
            try:
                return json.dumps(self._value(json.loads(piece))).encode("utf-8", "surrogatepass")
            except (ValueError, RecursionError):
                pass
        return self._change(piece, self._most)

    def _value(self, value: Any) -> Any:
        """A JSON value with one change in it."""
        if self._random.random() < 0.08:
            return self._strange()
        if isinstance(value, dict) and value:
            out = dict(value)
            key = self._random.choice(list(out))
            match self._random.randrange(8):
                case 0:
                    del out[key]
                case 1:
                    out[str(self._strange())] = self._strange()
                case 2:
                    out[self._random.choice(list(out))] = out[key]
                case _:
                    out[key] = self._value(out[key])
            return out
        if isinstance(value, list) and value:
            items = list(value)
            at = self._random.randrange(len(items))
            match self._random.randrange(8):
                case 0:
                    del items[at]
                case 1:
                    items.insert(at, items[at])
                case 2:
                    items *= self._random.choice((2, 70))
                case _:
                    items[at] = self._value(items[at])
            return items
        if isinstance(value, str) and len(value) > BASE64_LEAST and self._random.random() < 0.9:
            return self._text(value)
        if type(value) in (int, float) and abs(value) < MOST_CHANGED and self._random.random() < 0.5:
            return value + self._random.choice((-1, 1, 0.5, 1000))
        return self._strange()

    def _text(self, text: str) -> str:
        """A string with a change in it; what is base64, alone or in a data URL, stays so."""
        head, comma, body = text.rpartition(",")
        try:
            data = base64.b64decode(body, validate=True)
        except ValueError:
            return self._change(text.encode("utf-8", "replace"), self._most).decode("utf-8", "replace")
        return head + comma + base64.b64encode(self._change(data, self._most)).decode()

    def _strange(self) -> Any:
        if self._random.random() < 0.02:
            return _nested(200)
        return self._random.choice(STRANGE)


def _nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value
