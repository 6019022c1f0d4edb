"""Reading a client's JSON field by field, with an error that names the field and never its value."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from omni.contract.errors import OmniError

MAX_SHOWN: Final = 64
"""Characters of a field's name, as the client wrote it, that an error may repeat."""


class BadEvent(Exception):
    """A client event that can't be obeyed; nothing was changed. `code` is one of OpenAI's."""

    def __init__(self, message: str, code: str = "invalid_value", param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.param = param

    @classmethod
    def of(cls, error: OmniError, param: str | None = None) -> BadEvent:
        return cls(error.message, error.code, param or error.param)


class Fields:
    """The fields of one JSON object; `path` is where it stood. Every method raises `BadEvent`.

    A field that is missing or null is None; `has` tells whether it was there at all.
    """

    def __init__(self, data: Any, path: str = "") -> None:
        if not isinstance(data, Mapping):
            raise BadEvent(f"{path or 'The event'} must be an object.", "invalid_type", path or None)
        self._data = data
        self._path = path
        self._read: set[str] = set()

    def at(self, name: str) -> str:
        return f"{self._path}.{name}" if self._path else name

    def has(self, name: str) -> bool:
        return name in self._data

    def raw(self, name: str) -> Any:
        self._read.add(name)
        return self._data.get(name)

    def string(self, name: str, *, most: int = 1 << 20, least: int = 0) -> str | None:
        """`least` and `most` are characters."""
        value = self._typed(name, str, "a string")
        if value is not None and not least <= len(value) <= most:
            raise BadEvent(f"{self.at(name)} must have {least} to {most} characters.", "invalid_value", self.at(name))
        return value  # type: ignore[no-any-return]

    def flag(self, name: str) -> bool | None:
        return self._typed(name, bool, "true or false")  # type: ignore[no-any-return]

    def whole(self, name: str, low: int, high: int) -> int | None:
        value = self._typed(name, int, "an integer")
        return None if value is None else int(self._within(name, value, low, high))

    def number(self, name: str, low: float, high: float) -> float | None:
        value = self._typed(name, (int, float), "a number")
        return None if value is None else float(self._within(name, value, low, high))

    def choice(self, name: str, options: Sequence[str]) -> str | None:
        value = self._typed(name, str, "a string")
        if value is not None and value not in options:
            raise BadEvent(f"{self.at(name)} must be one of {', '.join(options)}.", "invalid_value", self.at(name))
        return value  # type: ignore[no-any-return]

    def object(self, name: str) -> Fields | None:
        value = self.raw(name)
        return None if value is None else Fields(value, self.at(name))

    def items(self, name: str, *, most: int) -> list[Any] | None:
        value = self._typed(name, list, "a list")
        if value is not None and len(value) > most:
            raise BadEvent(f"{self.at(name)} may have {most} entries.", "invalid_value", self.at(name))
        return value  # type: ignore[no-any-return]

    def tokens(self, name: str) -> int | None:
        """A count of tokens; `inf` is None, like a field that isn't there."""
        return None if self.raw(name) == "inf" else self.whole(name, 1, 1 << 20)

    def needed(self, name: str, value: Any) -> Any:
        """`value`, which another method gave for `name`; it must be there."""
        if value is None:
            raise BadEvent(f"{self.at(name)} is required.", "missing_required_parameter", self.at(name))
        return value

    def skip(self, *names: str) -> None:
        """Fields that mean nothing here and may have any value."""
        self._read.update(names)

    def end(self) -> None:
        """All fields that there may be have been read."""
        for name in self._data:
            if name not in self._read:
                shown = self.at(name[:MAX_SHOWN])
                raise BadEvent(f"{shown} is not a known parameter.", "unknown_parameter", shown)

    def _typed(self, name: str, kind: type | tuple[type, ...], words: str) -> Any:
        value = self.raw(name)
        if value is None:
            return None
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise BadEvent(f"{self.at(name)} must be {words}.", "invalid_type", self.at(name))
        return value

    def _within(self, name: str, value: float, low: float, high: float) -> float:
        if not math.isfinite(value) or not low <= value <= high:
            raise BadEvent(f"{self.at(name)} must be between {low:g} and {high:g}.", "invalid_value", self.at(name))
        return value
