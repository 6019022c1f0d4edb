"""The thinker's keys and values: those of running generations, and those that finished ones left."""

from __future__ import annotations

from collections.abc import Collection

from torch import Tensor

from omni.engine.kv import KVPool
from omni.stages.qwen3_omni.checkpoint import Figures
from omni.stages.qwen3_omni.generation import Generation
from omni.stages.qwen3_omni.prefixes import Held, Prefixes


class Memory:
    """Gives generations their keys and values, as far as possible those that are there already.

    A generation begins only when the longest that it and all running ones may get fits. What is left over holds the
    beginnings of later prompts until it is needed; so a running generation never waits for memory.
    """

    def __init__(self, kv: KVPool, most_prefixes: int, figures: Figures, nothing: Tensor) -> None:
        """`nothing` are hidden states of no tokens [0, hidden]."""
        self.kv = kv
        self._figures = figures
        self._nothing = nothing
        self._prefixes = Prefixes(most_prefixes)

    def fits(self, run: Generation, running: Collection[Generation]) -> bool:
        return sum(one.reserved for one in running) + run.reserved <= self.kv.capacity

    def begin(self, run: Generation, running: Collection[Generation]) -> None:
        """Gives `run` the longest beginning that is held, also by those that run, or an empty sequence."""
        prompt = run.prompt
        assert prompt is not None
        others = [held for one in running if (held := one.held(prompt_only=True)) is not None]
        source, shared = self._prefixes.longest(prompt, others)
        if not run.settings.prefill:
            # The answer begins from the last token's hidden state, which isn't kept.
            shared = min(shared, len(prompt.ids) - 1)
        self.make_room(1, source)
        if not self.kv.free:
            # Whole blocks can be shared without memory.
            shared -= shared % self.kv.block
        if run.cached is None:
            run.cached = shared
        if source is None or not shared:
            run.kv, run.hidden = self.kv.sequence(), [self._nothing]
            return
        run.kv = source.kv.fork(shared)
        run.hidden = [source.hidden[: int(prompt.media_mask(self._figures)[:shared].sum())]]

    def make_room(self, blocks: int, spare: Held | None = None) -> None:
        """Forgets remembered prompts, but not `spare`, until so many blocks are free."""
        while self.kv.free < blocks and self._prefixes.evict(spare):
            pass

    def keep(self, run: Generation) -> None:
        """Takes from `run` what it has computed and remembers it for later prompts."""
        held = run.held()
        if held is not None:
            self._prefixes.keep(held)
        elif run.kv is not None:
            run.kv.free()
        run.kv, run.hidden, run.features = None, [], {}

    def clear(self) -> None:
        self._prefixes.clear()
