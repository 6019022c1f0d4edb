from __future__ import annotations

import pytest
import torch
from support.recorded_graphs import HostSync, recorded_graphs
from torch import Tensor

from omni.engine.graphs import WARM_UPS, Graphs, bucket, padded

pytestmark = pytest.mark.pure


@pytest.fixture
def graphs() -> Graphs:
    """They capture, as on a GPU."""
    with recorded_graphs():
        return Graphs("cpu")


def test_buckets_are_powers_of_two() -> None:
    assert [bucket(size) for size in (1, 2, 3, 4, 5, 8, 9, 33)] == [1, 2, 4, 4, 8, 8, 16, 64]


def test_padding_repeats_the_last_row() -> None:
    rows = torch.arange(6).view(3, 2)
    assert padded(rows, 4).tolist() == [[0, 1], [2, 3], [4, 5], [4, 5]]
    assert padded(rows, 4, 1).tolist() == [[0, 1, 1, 1], [2, 3, 3, 3], [4, 5, 5, 5]]
    assert padded(rows, 3) is rows


def test_off_cuda_a_function_is_simply_called() -> None:
    graphs = Graphs("cpu")
    assert graphs("sum", lambda a, b: (a + b,), torch.ones(2), torch.ones(2))[0].tolist() == [2, 2]
    assert len(graphs) == 0


def test_a_function_is_captured_once_per_key_and_then_replayed(graphs: Graphs) -> None:
    calls = []
    state = torch.zeros(3)

    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        calls.append(len(x))
        state[:1] = x[:1]
        return (x * 2 + state[1]).relu().view(-1), x.sum()[None]

    kept = [graphs(2, function, torch.tensor([1.0, float(n)])) for n in range(3)]
    state[1] = 10.0
    double, total = graphs(2, function, torch.tensor([5.0, -7.0]))
    assert double.tolist() == [20.0, 0.0]
    assert total.tolist() == [-2.0]
    assert state[0] == 5
    assert kept[0][0] is double, "results are overwritten"
    assert graphs(1, function, torch.tensor([1.0]))[0].tolist() == [12.0]
    assert len(graphs) == 2
    assert calls == [2] * (WARM_UPS + 1) + [1] * (WARM_UPS + 1)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x * x.sum().item(),),
        lambda x: (x[x > 0],),
        lambda x: (x + torch.tensor([1.0, 2.0]),),
        lambda x: (x + torch.empty(2).exponential_(),),
    ],
    ids=["item", "mask", "constant", "noise"],
)
def test_what_a_gpu_would_refuse_is_refused(graphs: Graphs, function: object) -> None:
    with pytest.raises(HostSync):
        graphs("wrong", function, torch.ones(2))  # type: ignore[arg-type]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_on_cuda_it_is_captured_once_per_key() -> None:
    graphs = Graphs("cuda")
    for value in (1.0, 2.0, 3.0):
        ones = torch.full((4,), value, device="cuda")
        assert graphs("square", lambda x: (x * x,), ones)[0].tolist() == [value * value] * 4
    assert len(graphs) == 1
