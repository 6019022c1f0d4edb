"""What preprocess remembers of the media it was sent: the encoded bytes, and what was made of them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar, cast

from omni.contract.errors import MediaMissing
from omni.contract.job import Job, MediaPart

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

DEFAULT_BYTES: Final = 256 << 20
"""Bytes that each of the two halves of a store may hold."""


class Recent(Generic[K, T]):
    """The values used last, up to a sum of sizes; usable from many threads."""

    def __init__(self, max_bytes: int, size: Callable[[T], int]) -> None:
        self._max_bytes = max_bytes
        self._size = size
        self._values: OrderedDict[K, T] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    @property
    def bytes(self) -> int:
        """Sum of the sizes of all values."""
        return self._bytes

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: K) -> T | None:
        with self._lock:
            if (value := self._values.get(key)) is not None:
                self._values.move_to_end(key)
            return value

    def put(self, key: K, value: T) -> None:
        """Keeps `value`, unless it alone is too large, and lets go of what was used longest ago."""
        size = self._size(value)
        with self._lock:
            if (old := self._values.pop(key, None)) is not None:
                self._bytes -= self._size(old)
            if size > self._max_bytes:
                return
            self._values[key] = value
            self._bytes += size
            while self._bytes > self._max_bytes:
                self._bytes -= self._size(self._values.popitem(last=False)[1])


class MediaStore:
    """Media by digest; usable from many threads.

    `max_bytes` bounds the encoded bytes, by which a part that is named by digest alone is found again; `max_decoded`
    bounds what was made of them, with sizes as `size` tells them.
    """

    def __init__(
        self, size: Callable[[object], int], max_bytes: int = DEFAULT_BYTES, max_decoded: int = DEFAULT_BYTES
    ) -> None:
        self.encoded: Recent[str, bytes] = Recent(max_bytes, len)
        self.decoded: Recent[Hashable, object] = Recent(max_decoded, size)

    def keep(self, job: Job) -> None:
        """Remembers the bytes of all parts of `job` that carry them."""
        for part in job.media:
            if part.data is not None:
                self.encoded.put(part.digest, part.data)

    def data(self, part: MediaPart) -> bytes:
        """The encoded bytes of `part`. Raises `MediaMissing`, with the digest as `param`, when they aren't held."""
        data = part.data if part.data is not None else self.encoded.get(part.digest)
        if data is None:
            raise MediaMissing(f"The {part.kind} is no longer held; send it again with its bytes.", param=part.digest)
        return data

    def made(self, part: MediaPart, options: Hashable, make: Callable[[bytes], T]) -> T:
        """What `make` makes of the part's bytes, or made of them before with the same `options`.

        Raises `MediaMissing` and whatever `make` raises; failures aren't remembered.
        """
        key = (part.kind, part.digest, options)
        if (known := self.decoded.get(key)) is not None:
            return cast(T, known)
        value = make(self.data(part))
        self.decoded.put(key, value)
        return value
