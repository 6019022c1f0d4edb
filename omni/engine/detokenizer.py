"""Text from tokens, as they come."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Any


def byte_table(tokenizer: Any) -> list[bytes]:
    """By id, the bytes that each token of a byte-level BPE tokenizer of `transformers` stands for.

    Special tokens stand for nothing; other added tokens for their own text. Ids beyond the table stand for nothing too:
    a model may have more ids than its tokenizer.
    """
    letters = _bytes_of_letters()
    added = tokenizer.added_tokens_decoder
    table = [b""] * len(tokenizer)
    for token, id in tokenizer.get_vocab().items():
        if id in added:
            table[id] = b"" if added[id].special else added[id].content.encode()
        elif all(letter in letters for letter in token):
            table[id] = bytes(letters[letter] for letter in token)
        else:
            table[id] = token.encode()
    return table


def _bytes_of_letters() -> dict[str, int]:
    """GPT-2's alphabet: printable letters are themselves, the other bytes follow from U+0100 on."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}


class Detokenizer:
    """The text of one run of tokens, piece by piece. Bytes of a character that isn't whole yet are held back.

    The pieces, concatenated, are what decoding all tokens at once gives; bytes that are no UTF-8 become U+FFFD.
    """

    def __init__(self, table: Sequence[bytes]) -> None:
        self._table = table
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    def feed(self, token: int) -> str:
        return self._decode(self._table[token] if token < len(self._table) else b"")

    def flush(self) -> str:
        """The rest, when no more tokens come."""
        return self._decode(b"", True)
