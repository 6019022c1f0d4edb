"""Many generations at once in the thinker: each is as if it were alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from support.device import DEVICE
from support.qwen3_omni import audio, image, job, video
from support.recorded_graphs import recorded_graphs
from support.thinking import Thinking

from omni.contract.errors import Overloaded
from omni.contract.job import Job
from omni.engine import attention
from omni.stages.drive import Drive
from omni.stages.qwen3_omni.checkpoint import Place, load_thinker

pytestmark = pytest.mark.fidelity
Make = Callable[..., Thinking]

SAMPLED: dict[str, Any] = {"temperature": 1.0, "top_p": 0.95, "repetition_penalty": 1.2}
RULES: tuple[dict[str, Any], ...] = ({}, SAMPLED, {"repetition_penalty": 1.3, "logprobs": 1}, SAMPLED)
PARTS: tuple[tuple[Any, ...], ...] = (
    ("Hello, how are you today?",),
    (image(1), "What is in the image?"),
    (audio(2, 1.0), "Describe the sound."),
    (video(3, 6), "Yes."),
    (image(4), audio(4, 2.0), video(4), "Describe the video and the sound. " * 2),
    (video(6, 8, sound=3.0), "What is this?"),
)


def request(number: int) -> Job:
    rules = dict(RULES[number % len(RULES)])
    if "temperature" in rules:
        rules["seed"] = 1000 + number
    parts = PARTS[number % len(PARTS)]
    return job(*parts, str(number), speech=True, use_audio=True, max_tokens=5 + 3 * number % 11, **rules)


def test_twelve_requests_that_come_and_go_in_five_slots_are_answered_as_one_by_one(thinking: Make) -> None:
    alone = {}
    for number in range(12):
        one = thinking(max_prefill_tokens=64)
        alone[number] = one.ids(one.run(request(number)))
    # As on a GPU: steps of few shapes, captured. The memory is taken at once, as graphs want it.
    with recorded_graphs():
        many = thinking(max_generations=5, max_prefill_tokens=16, graphs=True, kv_tokens=4096)
    ids, most = {}, 0
    for step in range(60):
        for number in range(12):
            if step == 3 * number % 20:
                ids[number] = many.start(request(number))
        many.step()
        most = max(most, many.stage.slots_in_use)
    many.finish()
    assert {number: many.ids(id) for number, id in ids.items()} == alone
    assert most == 5
    assert many.stage.slots_in_use == 0


def test_a_seed_gives_the_same_answer_beside_others(thinking: Make) -> None:
    rules = {**SAMPLED, "max_tokens": 12, "speech": True}
    one = thinking()
    alone = one.ids(one.run(job("Hello", seed=5, **rules)))
    crowd = thinking()
    others = [crowd.start(job(f"Hello {n}", seed=5 + n, **rules)) for n in range(3)]
    for _ in range(4):
        crowd.step()
    mine = crowd.start(job("Hello", seed=5, **rules))
    crowd.finish()
    assert crowd.ids(mine) == alone
    assert len({tuple(crowd.ids(id)) for id in (*others, mine)}) > 1


def test_a_long_prompt_does_not_stop_those_that_answer(thinking: Make) -> None:
    busy = thinking(max_prefill_tokens=8)
    first = busy.start(job("Hi", speech=True, max_tokens=40, ignore_eos=True))
    while not busy.ids(first):
        busy.step()
    second = busy.start(job("word " * 100, max_tokens=3, ignore_eos=True))
    said = len(busy.ids(first))
    for _ in range(10):
        busy.step()
    assert len(busy.ids(first)) == said + 10
    assert not busy.said[second]
    busy.finish()


def test_queries_run_in_order_and_the_queue_is_bounded(thinking: Make) -> None:
    narrow = thinking(max_generations=1, max_queue=2)
    ids = [narrow.start(job(f"{n}", max_tokens=2, ignore_eos=True)) for n in range(3)]
    with pytest.raises(Overloaded):
        narrow.start(job("one too many"))
    ended: list[str] = []
    for _ in range(20):
        narrow.step()
        ended += [id for id in ids if id not in ended and narrow.ended(id)]
    assert ended == ids
    narrow.run(job("now there is room", max_tokens=2))


def test_who_does_not_fit_into_memory_waits_and_nobody_overtakes(thinking: Make) -> None:
    small = thinking(kv_tokens=160, max_prefixes=0)
    first = small.start(job("Hello", max_tokens=60, ignore_eos=True, speech=True))
    large = small.start(job("Hello there, how are you?", max_tokens=60, ignore_eos=True))
    last = small.start(job("Hi", max_tokens=2, ignore_eos=True))
    while not small.ended(first):
        small.step()
        used, most = small.stage.kv_blocks
        assert used <= most == 10
        assert not small.said[large]
        assert not small.said[last]
    small.finish()
    assert small.stage.kv_blocks[0] == 0


def test_memory_in_use_follows_the_tokens_held(thinking: Make) -> None:
    one = thinking(kv_tokens=4096)
    id = one.start(job("Hello", max_tokens=40, ignore_eos=True, speech=True))
    for _ in range(50):
        one.step()
        if one.ended(id):
            break
        tokens = one.event(id)["prompt_tokens"] + len(one.ids(id)) - 1
        assert one.stage.kv_blocks[0] == -(-tokens // 16)


@pytest.mark.parametrize("phase", ["opened", "waiting", "prefilling", "answering"])
def test_an_abort_frees_everything_at_once(thinking: Make, phase: str) -> None:
    stage = thinking(max_generations=1, max_prefill_tokens=8, max_prefixes=0)
    other = stage.start(job("Hello", max_tokens=6, ignore_eos=True, speech=True)) if phase == "waiting" else None
    if phase == "opened":
        asked = job("never said")
        stage.stage.open(asked.id, asked.settings)
        stage.said[asked.id] = []
        id = asked.id
    else:
        id = stage.start(job(image(), "What is it?" * 5, max_tokens=50, ignore_eos=True, speech=True))
        stage.step()
        stage.step()
        while phase == "answering" and not stage.ids(id):
            stage.step()
    assert bool(stage.said[id]) == (phase == "answering")
    stage.abort(id)
    stage.stage.abort("nobody")
    assert stage.stage.slots_in_use == (other is not None)
    assert len(stage.stage) == (other is not None)
    stage.finish()
    assert stage.stage.kv_blocks[0] == 0
    assert stage.stage.wait() is None
    # And the slot is good for the next one.
    stage.run(job("Hello", max_tokens=2))


def test_close_frees_everything(thinking: Make) -> None:
    stage = thinking()
    stage.run(job("Hello", max_tokens=2))
    stage.start(job(image(), "Hello", max_tokens=20))
    stage.step()
    stage.stage.close()
    assert len(stage.stage) == stage.stage.kv_blocks[0] == stage.stage.slots_in_use == 0


def _kernel(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, *, cache_seqlens: torch.Tensor,
    block_table: torch.Tensor, softmax_scale: float, causal: bool,
) -> torch.Tensor:  # fmt: skip
    """What flash attention documents of `flash_attn_with_kvcache`, row by row: query [rows, count, heads, size], keys
    and values [blocks, block, heads, size]; the last query sees all `cache_seqlens` tokens of its row."""
    assert causal
    assert cache_seqlens.dtype == block_table.dtype == torch.int32
    out = torch.empty_like(query)
    for row, length in enumerate(cache_seqlens.tolist()):
        k, v = (cache[block_table[row].long()].flatten(0, 1)[:length].transpose(0, 1) for cache in (keys, values))
        every = torch.arange(length, device=query.device)
        seen = every <= every[length - query.shape[1] :, None]
        out[row] = torch.nn.functional.scaled_dot_product_attention(
            query[row].transpose(0, 1), k, v, attn_mask=seen, scale=softmax_scale, enable_gqa=True
        ).transpose(0, 1)
    return out


def test_paged_attention_changes_nothing(
    checkpoint: Path, preprocess: Drive, monkeypatch: pytest.MonkeyPatch, thinking: Make
) -> None:
    monkeypatch.setattr(attention, "flash", lambda: _kernel)
    # What stands in for the kernel looks at lengths on the host, which no graph on a GPU may.
    options = {"paged_attention": True, "kv_block": 32, "graphs": DEVICE == "cpu"}
    # A model of its own: which attention it uses stays with it.
    other = Thinking(
        preprocess, checkpoint, load_thinker(Place.of({"checkpoint": checkpoint})), max_prefill_tokens=16, **options
    )
    plain = thinking()
    answers = []
    for thinker in (other, plain):
        ids = [thinker.start(request(number)) for number in range(3)]
        for _ in range(3):
            thinker.step()
        ids += [thinker.start(request(number)) for number in range(3, 6)]
        thinker.finish()
        answers.append([thinker.ids(id) for id in ids])
    assert answers[0] == answers[1]
