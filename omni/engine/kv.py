"""Keys and values of many sequences in one pool of blocks.

A sequence holds as many blocks as its tokens need, so memory follows the tokens held; sequences with the same beginning
share its blocks. Blocks are laid out as flash attention's paged cache wants them: [blocks, block, heads, head size].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers.cache_utils import Cache

from omni.engine.transfer import upload

BLOCK = 16
"""Tokens per block. Flash attention's paged cache needs a multiple of 256."""


class KVFull(Exception):
    """The pool has no free block left."""


class KVSequence:
    """The keys and values of one sequence: `length` tokens in `blocks` of its pool. Made by `KVPool`."""

    __slots__ = ("blocks", "length", "pool")

    def __init__(self, pool: KVPool, blocks: list[int], length: int) -> None:
        self.pool = pool
        self.blocks = blocks
        self.length = length

    def free(self) -> None:
        """Gives the blocks back; the sequence is empty then and can be used again."""
        self.pool.release(self.blocks)
        self.blocks = []
        self.length = 0

    def fork(self, length: int) -> KVSequence:
        """A new sequence that begins with the first `length` tokens of this one; only a block that isn't full is
        copied. Raises `KVFull`."""
        return self.pool.fork(self, length)


class KVPool:
    """Blocks for at most `tokens` tokens. Memory grows with what is held, or is taken at once with `reserve`."""

    def __init__(
        self,
        layers: int,
        heads: int,
        head_dim: int,
        tokens: int,
        *,
        block: int = BLOCK,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        reserve: bool = False,
    ) -> None:
        self.block = block
        self.capacity = max(1, tokens // block)
        """Blocks at most."""
        self.device = torch.device(device)
        made = self.capacity if reserve else 0
        self._keys = [torch.zeros(made, block, heads, head_dim, dtype=dtype, device=device) for _ in range(layers)]
        self._values = [torch.zeros_like(keys) for keys in self._keys]
        self._holders = [0] * made
        """By block, the sequences that hold it."""
        self._free = list(range(made))[::-1]

    @classmethod
    def of(cls, model: Any, tokens: int, *, block: int = BLOCK, reserve: bool = False) -> KVPool:
        """A pool that fits a decoder of `transformers`, on its device and in its dtype."""
        config, weight = model.config, next(model.parameters())
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        return cls(
            config.num_hidden_layers, config.num_key_value_heads, head_dim, tokens,
            block=block, dtype=weight.dtype, device=weight.device, reserve=reserve,
        )  # fmt: skip

    @property
    def used(self) -> int:
        """Blocks that sequences hold."""
        return len(self._holders) - len(self._free)

    @property
    def free(self) -> int:
        """Blocks that can still be had."""
        return self.capacity - self.used

    @property
    def bytes(self) -> int:
        """Memory that the pool has taken."""
        return sum(t.nbytes for t in (*self._keys, *self._values))

    def blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.block)

    def sequence(self) -> KVSequence:
        """A new sequence without tokens."""
        return KVSequence(self, [], 0)

    @torch.no_grad()
    def fork(self, source: KVSequence, length: int) -> KVSequence:
        whole, rest = divmod(length, self.block)
        shared = source.blocks[:whole]
        for block in shared:
            self._holders[block] += 1
        fork = KVSequence(self, list(shared), length)
        if rest:
            try:
                self._extend(fork, length)
            except KVFull:
                fork.free()
                raise
            for layer in (*self._keys, *self._values):
                layer[fork.blocks[-1], :rest] = layer[source.blocks[whole], :rest]
        return fork

    def release(self, blocks: Sequence[int]) -> None:
        for block in blocks:
            self._holders[block] -= 1
            if not self._holders[block]:
                self._free.append(block)

    def extend(self, sequences: Sequence[KVSequence], count: int) -> None:
        """Room for `count` more tokens in each of `sequences`.

        Raises `KVFull`; the sequences are as they were then, but for blocks that they may have got.
        """
        for sequence in sequences:
            self._extend(sequence, sequence.length + count)

    def batch(self, sequences: Sequence[KVSequence], count: int, *, width: int = 0) -> KVBatch:
        """Room for `count` more tokens in each of `sequences`, and the cache of a forward pass that fills it, of at
        least `width` blocks. Raises `KVFull` as `extend` does."""
        self.extend(sequences, count)
        width = max(width, *(self.blocks_for(sequence.length + count) for sequence in sequences))
        # The blocks of shorter rows are followed by any others: the mask hides them.
        tables = np.zeros((len(sequences), width), np.int32)
        for row, sequence in zip(tables, sequences, strict=True):
            blocks = sequence.blocks[:width]
            row[: len(blocks)] = blocks
        starts = np.array([sequence.length for sequence in sequences], np.int32)
        return KVBatch(self, upload(tables, self.device), upload(starts, self.device), count)

    def layer(self, index: int) -> tuple[Tensor, Tensor]:
        """Keys and values of one layer [blocks, block, heads, head size]."""
        return self._keys[index], self._values[index]

    def _extend(self, sequence: KVSequence, length: int) -> None:
        missing = self.blocks_for(length) - len(sequence.blocks)
        if missing > self.free:
            raise KVFull
        while missing > len(self._free):
            self._grow(missing - len(self._free))
        for _ in range(missing):
            block = self._free.pop()
            self._holders[block] = 1
            sequence.blocks.append(block)

    def _grow(self, least: int) -> None:
        """At least doubles, so that copying what is there costs little per token."""
        made = len(self._holders)
        more = min(self.capacity - made, max(least, made))
        with torch.inference_mode(False):
            for layers in (self._keys, self._values):
                for index, old in enumerate(layers):
                    layers[index] = torch.cat([old, old.new_zeros(more, *old.shape[1:])])
        self._holders += [0] * more
        self._free = [*range(made + more - 1, made - 1, -1), *self._free]


class KVBatch(Cache):
    """The cache of one forward pass in which every row appends `count` tokens to its sequence.

    Rows may be of any lengths. Made of tensors alone, so that a pass over it can be captured as a graph; the sequences
    don't grow by it.
    """

    def __init__(self, pool: KVPool, tables: Tensor, starts: Tensor, count: int) -> None:
        """`tables` are the blocks of each row, int32 [rows, blocks], `starts` the tokens that it has, int32 [rows]."""
        super().__init__(layers=[])
        self.pool = pool
        self.tables = tables
        self.starts = starts
        self.count = count
        self.paged = False
        """Whether attention reads the pool itself (see `attention`), so that no keys and values are gathered."""
        self.places = starts[:, None] + torch.arange(count, device=starts.device, dtype=starts.dtype)
        """Where in its sequence each new token stands [rows, count]."""
        blocks = tables.gather(1, (self.places // pool.block).long())
        self._slots = (blocks * pool.block + self.places % pool.block).long()

    def mask(self) -> Tensor:
        """What each new token sees, itself included: bool [rows, 1, count, tokens]."""
        every = torch.arange(self.tables.shape[1] * self.pool.block, device=self.places.device)
        return (every <= self.places[..., None])[:, None]

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Stores new keys and values [rows, heads, count, head size] and returns those of the whole rows; of a paged
        pass, only the new ones."""
        keys, values = self.pool.layer(layer_idx)
        for stored, new in ((keys, key_states), (values, value_states)):
            stored.view(-1, *stored.shape[2:])[self._slots] = new.transpose(1, 2)
        if self.paged:
            return key_states, value_states
        return self._gathered(keys), self._gathered(values)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """0: positions and mask are given, so that nothing has to be counted here."""
        return 0

    def _gathered(self, stored: Tensor) -> Tensor:
        return stored[self.tables].flatten(1, 2).transpose(1, 2)
