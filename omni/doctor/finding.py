"""What a look at something found."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Level = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report."""

    about: str
    """What was looked at: one or two words."""
    level: Level
    """`fail` means that it can't serve like this, `warn` that it can but will disappoint."""
    said: str
    """What was found."""
    todo: str = ""
    """What to do about it; empty when all is well."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        line = f"{self.level:<4}  {self.about}: {self.said}"
        return f"{line}\n      -> {self.todo}" if self.todo else line
