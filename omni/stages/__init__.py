"""The stages: one package per implementation, one module per stage, each with `create(config) -> Stage`.

Plain Python that knows nothing of Triton. What implementations share is beside them: `media` decodes, `stop` holds back
stop strings, `slots` bounds what runs at once, `drive` runs a stage by plain calls.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from omni.contract.names import STAGES
from omni.contract.stage import Stage, StageConfig


class StageNotFound(ValueError):
    """The profile names a stage or an implementation that doesn't exist; the message tells an operator which."""


def implementations(stage: str) -> list[str]:
    """Names of the implementations that have `stage`."""
    return sorted(module.parent.name for module in Path(__file__).parent.glob(f"*/{stage}.py"))


def load(stage: str, config: StageConfig) -> Stage:
    """Makes `stage` of the implementation that `config.options` names.

    Raises `StageNotFound` when there is no such stage or implementation, and `ImportError` when the implementation
    needs a package that isn't installed.
    """
    if stage not in STAGES:
        raise StageNotFound(f"there is no stage {stage!r}; there are: {', '.join(STAGES)}")
    name = config.options.get("implementation")
    if name not in (have := implementations(stage)):
        raise StageNotFound(f"{stage} has no implementation {name!r}; there are: {', '.join(have)}")
    made: Stage = import_module(f"omni.stages.{name}.{stage}").create(config)
    return made
