"""The GPU that isn't there refuses and delays what a real one does."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from support.pretended_gpu import GPU, PretendedGpu, WrongDevice, pretended_gpu
from torch import Tensor

from omni.engine.graphs import Graphs
from omni.engine.transfer import download, upload

pytestmark = pytest.mark.pure


@pytest.fixture
def gpu() -> Iterator[PretendedGpu]:
    with pretended_gpu() as gpu, torch.no_grad():
        yield gpu


def on_gpu(*values: float) -> Tensor:
    return torch.tensor(values, device=GPU)


def test_it_computes_what_the_cpu_does(gpu: PretendedGpu) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 3)).eval()
    rows = torch.randn(5, 4)
    expected = model(rows)
    there = model.to(GPU)(rows.to(GPU))
    assert there.device == GPU
    assert torch.equal(there.cpu(), expected)
    there[1:3, 0] = 7.0
    there[torch.tensor([4], device=GPU)] += there[:1]
    expected[1:3, 0] = 7.0
    expected[4] += expected[0]
    assert there.tolist() == expected.tolist()


@pytest.mark.parametrize(
    "mixed",
    [
        lambda here, there: here + there,
        lambda here, there: torch.cat([here, there]),
        lambda here, there: there @ here,
        lambda here, there: here[there.long()],
        lambda here, there: there.__setitem__(slice(None), here),
        lambda here, there: torch.where(there > 0, there, here),
        lambda here, there: there.numpy(),
    ],
    ids=["add", "cat", "matmul", "index", "assign", "where", "numpy"],
)
def test_tensors_of_two_devices_do_not_mix(gpu: PretendedGpu, mixed: Callable[[Tensor, Tensor], Tensor]) -> None:
    with pytest.raises(WrongDevice):
        mixed(torch.ones(2), on_gpu(1, 2))


def test_a_generator_of_the_gpu_draws_there(gpu: PretendedGpu) -> None:
    drawn = [on_gpu(0.0, 0.0).exponential_(generator=torch.Generator(GPU).manual_seed(3)) for _ in range(2)]
    assert drawn[0].tolist() == drawn[1].tolist() != [0, 0]


def test_a_number_may_be_anywhere(gpu: PretendedGpu) -> None:
    assert (on_gpu(1, 2) * torch.tensor(2.0) + 1).tolist() == [3, 5]


def test_a_copy_that_nobody_waited_for_is_not_there(gpu: PretendedGpu) -> None:
    host = torch.empty(2, pin_memory=True)
    host.copy_(on_gpu(1, 2), non_blocking=True)
    event = torch.cuda.Event()
    assert host.tolist() != [1, 2]
    event.record()
    assert host.tolist() != [1, 2]
    event.synchronize()
    assert host.tolist() == [1, 2]


@pytest.mark.parametrize(
    "waits",
    [
        lambda there: there.sum().item(),
        lambda there: there.tolist(),
        lambda there: bool(there[0] > 0),
        lambda there: there[there > 1],
        lambda there: there.nonzero(),
        lambda there: there.cpu(),
        lambda there: there[torch.tensor([1])],
        lambda there: torch.ones(2).to(GPU, non_blocking=True),
        lambda there: there.copy_(torch.ones(2)),
    ],
    ids=["item", "list", "bool", "mask", "nonzero", "download", "index", "upload", "overwrite"],
)
def test_what_makes_the_host_wait_is_counted(gpu: PretendedGpu, waits: Callable[[Tensor], object]) -> None:
    there = on_gpu(1, 2)
    gpu.waits.clear()
    waits(there)
    assert len(gpu.waits) == 1


def test_our_transfers_do_not_make_the_host_wait(gpu: PretendedGpu) -> None:
    there = upload(np.arange(4), GPU, torch.float32)
    wait = download(there * 2)
    later = there + 1
    assert wait().tolist() == [0, 2, 4, 6]
    assert gpu.waits == []
    assert later.tolist() == [1, 2, 3, 4]


def test_functions_are_captured_once_per_key(gpu: PretendedGpu) -> None:
    graphs, state = Graphs(GPU), on_gpu(0, 0)
    assert graphs("add", lambda x: (x + state,), on_gpu(1, 2))[0].tolist() == [1, 2]
    state[:] = 10
    assert graphs("add", lambda x: (x * 0,), on_gpu(3, 4))[0].tolist() == [13, 14]
    assert len(graphs) == 1
