"""The dummy tokenizer: a token is a word with the space before it."""

from __future__ import annotations

import re
import zlib
from typing import Final

LONGEST: Final = 24
"""Characters of a token without spaces; what is longer is more than one token, as scripts without spaces are."""

_WORD: Final = re.compile(rf"\s*\S{{1,{LONGEST}}}|\s+")


def words(text: str) -> list[str]:
    """The tokens of `text`; concatenated they are `text` again."""
    return _WORD.findall(text)


def token_id(word: str) -> int:
    """A number for a token, 0 to 2**31 - 1; the same for the same token."""
    return zlib.crc32(word.encode("utf-8", "surrogatepass")) & 0x7FFFFFFF
