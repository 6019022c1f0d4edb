"""The dummy prefix cache: which beginnings of conversations were seen lately."""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

MAX_PREFIXES: Final = 4096
"""Beginnings that are remembered; each is a digest."""


class Prefixes:
    """Remembers prompts by every beginning that ends with a whole part, as a KV cache would hold their states."""

    def __init__(self, most: int = MAX_PREFIXES) -> None:
        self._most = most
        self._seen: OrderedDict[bytes, None] = OrderedDict()

    def cached(self, messages: Iterable[Mapping[str, Any]]) -> int:
        """Tokens of the longest beginning of `messages` that was seen."""
        tokens = 0
        for key, count in _beginnings(messages):
            if key not in self._seen:
                break
            self._seen.move_to_end(key)
            tokens += count
        return tokens

    def keep(self, messages: Iterable[Mapping[str, Any]]) -> None:
        for key, _ in _beginnings(messages):
            self._seen[key] = None
            self._seen.move_to_end(key)
        while len(self._seen) > self._most:
            self._seen.popitem(last=False)


def _beginnings(messages: Iterable[Mapping[str, Any]]) -> Iterator[tuple[bytes, int]]:
    """A digest for each beginning, and the tokens by which it is longer than the one before."""
    chain = hashlib.sha256()
    for message in messages:
        items: list[tuple[Any, int]] = [(message["role"], 1), *((part, part["tokens"]) for part in message["parts"])]
        for item, tokens in items:
            chain.update(json.dumps(item, sort_keys=True).encode() + b"\0")
            yield chain.digest(), tokens
