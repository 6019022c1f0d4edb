"""The hand-written configurations say what the tensor tables say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from omni.contract import names, tensors

pytestmark = pytest.mark.pure
REPOSITORY = Path(__file__).parents[2] / "model_repository"


def config(model: str) -> Any:
    return text_format.Parse((REPOSITORY / model / "config.pbtxt").read_text(), model_config_pb2.ModelConfig())


def declared(io: Any) -> list[tuple[str, str, tuple[int, ...], bool]]:
    name = model_config_pb2.DataType.Name
    return [(t.name, name(t.data_type), tuple(t.dims), getattr(t, "optional", False)) for t in io]


def table(rows: tuple[tensors.Tensor, ...], optional: bool) -> list[tuple[str, str, tuple[int, ...], bool]]:
    return [(t.name, f"TYPE_{t.datatype}", t.dims, optional) for t in rows]


@pytest.mark.parametrize("stage", names.STAGES)
def test_a_stage_declares_its_tensors(stage: str) -> None:
    model = config(stage)
    assert declared(model.input) == table(tensors.INPUTS[stage], optional=True)
    assert declared(model.output) == table(tensors.OUTPUTS[stage], optional=False)


@pytest.mark.parametrize("stage", names.STAGES)
def test_a_stage_is_one_decoupled_instance_without_dynamic_batching(stage: str) -> None:
    model = config(stage)
    assert (model.name, model.backend, model.max_batch_size) == (stage, "python", 0)
    assert model.model_transaction_policy.decoupled
    assert [group.count for group in model.instance_group] == [1]
    assert not model.HasField("dynamic_batching")


@pytest.mark.parametrize("ensemble", names.ENSEMBLES)
def test_an_ensemble_connects_every_tensor_of_every_edge(ensemble: str) -> None:
    model = config(ensemble)
    steps = model.ensemble_scheduling.step
    assert [step.model_name for step in steps] == list(names.ENSEMBLES[ensemble])
    assert declared(model.output) == table(tensors.ENSEMBLE_OUTPUTS[ensemble], optional=False)
    assert declared(model.input) == table(tensors.ENSEMBLE_INPUTS, optional=True)
    before = {t.name: t.name for t in tensors.ENSEMBLE_INPUTS}
    for step, last in zip(steps, [False] * (len(steps) - 1) + [True], strict=True):
        assert dict(step.input_map) == before
        sent = tensors.ENSEMBLE_OUTPUTS[ensemble] if last else tensors.OUTPUTS[step.model_name]
        assert set(step.output_map) == {t.name for t in sent}
        before = dict(step.output_map)
    assert before == {name: name for name in before}
