from __future__ import annotations

import pytest
import torch

from omni.engine.graphs import Graphs, bucket

pytestmark = pytest.mark.pure


def test_buckets_are_powers_of_two() -> None:
    assert [bucket(size) for size in (1, 2, 3, 4, 5, 8, 9, 33)] == [1, 2, 4, 4, 8, 8, 16, 64]


def test_off_cuda_a_function_is_simply_called() -> None:
    graphs = Graphs(torch.device("cpu"))
    assert graphs("sum", torch.add, torch.ones(2), torch.ones(2)).tolist() == [2, 2]
    assert len(graphs) == 0


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_on_cuda_it_is_captured_once_per_key() -> None:
    graphs = Graphs(torch.device("cuda"))
    for value in (1.0, 2.0, 3.0):
        ones = torch.full((4,), value, device="cuda")
        assert graphs("square", lambda x: x * x, ones).tolist() == [value * value] * 4
    assert len(graphs) == 1
