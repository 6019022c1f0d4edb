"""Text into clauses to speak: each is spoken as a whole, and the first as soon as there is one."""

from __future__ import annotations

import re
from typing import Final

_END: Final = re.compile(r"[.!?:;…]+[\"”’)\]]*\s+|\n+")
"""Where a sentence may end: the blank behind says that no digit follows."""
_COMMA: Final = re.compile(r"[,—–]\s+")
_ABBREVIATION: Final = re.compile(r"(?:\b(?:Mr|Mrs|Ms|Dr|St|Prof|vs|etc|approx|No)|\b[A-Z]|\b(?:e\.g|i\.e))\.\s+$")
_FIRST_WORDS: Final = 3
"""Words from which a comma ends the first clause, so that it is spoken early."""
_LONGEST: Final = 160
"""Characters of a clause; a longer one is cut at a comma or between two words."""


class Clauses:
    """Cuts a text that grows. The clauses, joined, are the text without the blanks between them."""

    def __init__(self) -> None:
        self._text = ""
        self._begun = False

    def feed(self, text: str) -> list[str]:
        """The clauses that are complete now."""
        self._text += text
        out = []
        while (cut := self._cut()) is not None:
            clause, self._text = self._text[:cut].strip(), self._text[cut:]
            if clause:
                out.append(clause)
                self._begun = True
        return out

    def flush(self) -> list[str]:
        """The rest, when no more text comes: also what could only be an abbreviation."""
        clauses, rest = self.feed("\n"), self._text.strip()
        self._text = ""
        return [*clauses, rest] if rest else clauses

    def _cut(self) -> int | None:
        """Where the next clause ends; None when that isn't known yet."""
        for end in _END.finditer(self._text):
            if end.end() <= _LONGEST and not _ABBREVIATION.search(self._text[: end.end()]):
                return self._comma(end.end()) or end.end()
        if len(self._text) > _LONGEST:
            return self._far() or _LONGEST
        return self._comma(len(self._text))

    def _comma(self, before: int) -> int | None:
        """Where the first clause may end early."""
        if self._begun:
            return None
        for comma in _COMMA.finditer(self._text, 0, before):
            if len(self._text[: comma.end()].split()) >= _FIRST_WORDS:
                return comma.end()
        return None

    def _far(self) -> int | None:
        """The last good place within the longest clause: behind a comma, else between two words."""
        commas = [comma.end() for comma in _COMMA.finditer(self._text, 0, _LONGEST)]
        return commas[-1] if commas else self._text.rfind(" ", 1, _LONGEST) + 1 or None
