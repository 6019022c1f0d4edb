from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from omni.engine.kv import KVFull, KVPool, KVSequence

pytestmark = pytest.mark.pure
HEADS, DIM, LAYERS = 2, 3, 2


def pool(tokens: int = 64, block: int = 4, reserve: bool = False) -> KVPool:
    return KVPool(LAYERS, HEADS, DIM, tokens, block=block, reserve=reserve)


def append(kv: KVPool, rows: list[tuple[KVSequence, torch.Tensor]]) -> list[torch.Tensor]:
    """Appends [count, heads, dim] to each sequence; what layer 1 then shows of each, as far as the mask lets see."""
    count = rows[0][1].shape[0]
    batch = kv.batch([sequence for sequence, _ in rows], count)
    new = torch.stack([values for _, values in rows]).transpose(1, 2)
    batch.update(-new, -new, 0)
    keys, values = batch.update(new, 2 * new, 1)
    assert torch.equal(2 * keys, values)
    mask = batch.mask()
    for sequence, _ in rows:
        sequence.length += count
    seen = []
    for row, (sequence, _) in enumerate(rows):
        assert mask[row, 0].sum(-1).tolist() == list(range(sequence.length - count + 1, sequence.length + 1))
        seen.append(keys[row].transpose(0, 1)[mask[row, 0, -1]])
    return seen


def some(count: int, seed: int) -> torch.Tensor:
    return torch.randn(count, HEADS, DIM, generator=torch.Generator().manual_seed(seed))


@settings(max_examples=40)
@given(st.data())
def test_sequences_hold_what_was_appended_however_they_come_go_and_fork(data: st.DataObject) -> None:
    kv = pool(tokens=80)
    held: list[tuple[KVSequence, torch.Tensor]] = []
    for step in range(25):
        act = data.draw(st.sampled_from(["new", "append", "append", "fork", "free"]))
        if act == "new" or not held:
            held.append((kv.sequence(), torch.empty(0, HEADS, DIM)))
            continue
        which = data.draw(st.integers(0, len(held) - 1))
        try:
            if act == "append":
                count = data.draw(st.integers(1, 6))
                rows = sorted({which, data.draw(st.integers(0, len(held) - 1))})
                new = [some(count, 100 * step + row) for row in rows]
                seen = append(kv, [(held[row][0], values) for row, values in zip(rows, new, strict=True)])
                for row, values, shown in zip(rows, new, seen, strict=True):
                    held[row] = held[row][0], torch.cat([held[row][1], values])
                    assert torch.equal(shown, held[row][1])
            elif act == "fork":
                sequence, values = held[which]
                length = data.draw(st.integers(0, sequence.length))
                held.append((sequence.fork(length), values[:length]))
            else:
                held.pop(which)[0].free()
        except KVFull:
            assert kv.free < 12
        blocks = {block for sequence, _ in held for block in sequence.blocks}
        assert kv.used == len(blocks)
    for sequence, _ in held:
        sequence.free()
    assert kv.used == 0


def test_memory_follows_the_tokens_held_up_to_the_bound() -> None:
    kv = pool(tokens=64)
    assert kv.bytes == 0
    sequence = kv.sequence()
    append(kv, [(sequence, some(4, 0))])
    small = kv.bytes
    append(kv, [(sequence, some(60, 1))])
    assert kv.bytes == 16 * small == pool(tokens=64, reserve=True).bytes
    with pytest.raises(KVFull):
        append(kv, [(sequence, some(1, 2))])
    assert sequence.length == 64
    sequence.free()
    assert kv.free == kv.capacity == 16


def test_a_fork_shares_whole_blocks() -> None:
    kv = pool()
    first = kv.sequence()
    append(kv, [(first, some(10, 0))])
    second = first.fork(9)
    assert second.blocks[:2] == first.blocks[:2]
    assert kv.used == 4
    first.free()
    assert kv.used == 3
    second.free()
    assert kv.used == 0
