"""The fused code predictor against `transformers`, one request after the other."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.device import DEVICE
from support.qwen3_omni import Reference
from torch import Tensor

from omni.stages.qwen3_omni.code_predictor import CodePredictor

pytestmark = pytest.mark.fidelity

BATCH = 6


@pytest.fixture(scope="module")
def talker(reference: Reference) -> Any:
    return reference.model.talker


@pytest.fixture(scope="module")
def predictor(talker: Any) -> CodePredictor:
    return CodePredictor(talker.code_predictor, talker.model.codec_embedding)


@pytest.fixture(scope="module")
def frames(talker: Any, predictor: CodePredictor) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(BATCH, talker.config.text_config.hidden_size, generator=generator)
    return hidden.to(DEVICE), torch.randint(0, predictor.codebook, (BATCH,), generator=generator).to(DEVICE)


@torch.no_grad()
def theirs(talker: Any, hidden: Tensor, first: Tensor, **options: Any) -> list[int]:
    x = torch.stack((hidden, talker.model.codec_embedding(first)))[None]
    out = talker.code_predictor.generate(inputs_embeds=x, max_new_tokens=talker.config.num_code_groups - 1, **options)
    return [int(first), *out[0].tolist()]


def noise_of(predictor: CodePredictor, seed: int) -> Tensor:
    generator = torch.Generator(DEVICE).manual_seed(seed)
    draws = [
        torch.empty(1, predictor.codebook, device=DEVICE).exponential_(generator=generator)
        for _ in range(predictor.groups - 1)
    ]
    return torch.cat(draws)


def no_noise(predictor: CodePredictor) -> tuple[Tensor, Tensor]:
    noise = torch.ones(BATCH, predictor.groups - 1, predictor.codebook, device=DEVICE)
    return noise, torch.zeros(BATCH, dtype=torch.bool, device=DEVICE)


@torch.no_grad()
def test_greedy_in_a_batch_is_generate_one_by_one(
    talker: Any, predictor: CodePredictor, frames: tuple[Tensor, Tensor]
) -> None:
    codes, embedding = predictor(*frames, *no_noise(predictor))
    assert codes.tolist() == [theirs(talker, *one, do_sample=False) for one in zip(*frames, strict=True)]
    tables = [talker.model.codec_embedding, *talker.code_predictor.model.codec_embedding]
    expected = torch.stack([table(column) for table, column in zip(tables, codes.T, strict=True)]).sum(0)
    torch.testing.assert_close(embedding, expected)


@torch.no_grad()
def test_sampled_beside_greedy_rows_is_generate_under_the_same_seed(
    talker: Any, predictor: CodePredictor, frames: tuple[Tensor, Tensor]
) -> None:
    noise = torch.stack([noise_of(predictor, 100 + row) for row in range(BATCH)])
    sampled = torch.tensor([row % 3 != 0 for row in range(BATCH)], device=DEVICE)
    codes, _ = predictor(*frames, noise, sampled)
    greedy, _ = predictor(*frames, *no_noise(predictor))
    for row, (hidden, first) in enumerate(zip(*frames, strict=True)):
        if not sampled[row]:
            assert codes[row].tolist() == greedy[row].tolist()
            continue
        torch.manual_seed(100 + row)
        assert codes[row].tolist() == theirs(talker, hidden, first, do_sample=True, top_k=50, top_p=0.8)
    assert not torch.equal(codes[sampled], greedy[sampled])
