"""Beginnings of conversations whose keys and values are still held."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np
import numpy.typing as npt
from torch import Tensor

from omni.engine.kv import KVSequence
from omni.stages.qwen3_omni.prompt import Prompt, Span


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """Tokens whose keys and values are in `kv`."""

    ids: npt.NDArray[np.int32]
    """[tokens]"""
    positions: npt.NDArray[np.float32]
    """[3, tokens]"""
    spans: tuple[Span, ...]
    hidden: Tensor
    """Hidden states for the talker at the placeholders among the tokens [placeholders, hidden]."""
    kv: KVSequence

    def shared(self, prompt: Prompt) -> int:
        """Tokens of the longest common beginning: the same ids at the same positions, the same media."""
        first = min(len(self.ids), len(prompt.ids))
        first = _first(self.ids[:first] != prompt.ids[:first])
        first = _first((self.positions[:, :first] != prompt.positions[:, :first]).any(0))
        for ours, theirs in zip_longest(self.spans, prompt.spans):
            if ours != theirs:
                starts = [span.start for span in (ours, theirs) if span is not None]
                return min(first, *starts)
        return first


class Prefixes:
    """What finished generations left, the one used longest ago first to go."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: OrderedDict[Held, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

    def longest(self, prompt: Prompt, others: Iterable[Held] = ()) -> tuple[Held | None, int]:
        """Who shares the longest beginning with `prompt`, of what is kept and of `others`, and its tokens."""
        best, most = None, 0
        for held in (*self._held, *others):
            if (shared := held.shared(prompt)) > most:
                best, most = held, shared
        if best is not None and best in self._held:
            self._held.move_to_end(best)
        return best, most

    def keep(self, held: Held) -> None:
        """Keeps it in the place of those that are its beginning."""
        if not len(held.ids):
            held.kv.free()
            return
        for other in tuple(self._held):
            if len(other.ids) <= len(held.ids) and _begins(held, other):
                self._drop(other)
        self._held[held] = None
        while len(self._held) > self._most:
            self.evict()

    def evict(self, spare: Held | None = None) -> bool:
        """Lets go of the one used longest ago, but not of `spare`; False when there is none."""
        oldest = next((held for held in self._held if held is not spare), None)
        if oldest is not None:
            self._drop(oldest)
        return oldest is not None

    def clear(self) -> None:
        while self.evict():
            pass

    def _drop(self, held: Held) -> None:
        del self._held[held]
        held.kv.free()


def _first(differs: npt.NDArray[np.bool_]) -> int:
    """Where the first difference is, or the length."""
    return int(differs.argmax()) if differs.any() else len(differs)


def _begins(whole: Held, beginning: Held) -> bool:
    """Whether `whole` holds all that `beginning` does."""
    count = len(beginning.ids)
    return (
        bool((whole.ids[:count] == beginning.ids).all())
        and bool((whole.positions[:, :count] == beginning.positions).all())
        and whole.spans[: len(beginning.spans)] == beginning.spans
    )
