from __future__ import annotations

import pytest

from omni.contract.names import STAGES
from omni.contract.stage import StageConfig
from omni.stages import StageNotFound, implementations, load

pytestmark = pytest.mark.pure


@pytest.mark.parametrize("stage", STAGES)
def test_every_stage_has_a_dummy(stage: str) -> None:
    made = load(stage, StageConfig({"implementation": "dummy"}))
    assert type(made).__module__ == f"omni.stages.dummy.{stage}"
    assert made.wait() is None
    made.close()


@pytest.mark.parametrize("name", ["nobody", "media", "..dummy", "", None, 3])
def test_an_unknown_implementation_is_named(name: object) -> None:
    with pytest.raises(StageNotFound, match=r"thinker has no implementation .*; there are: .*dummy"):
        load("thinker", StageConfig({"implementation": name}))


def test_an_unknown_stage_is_named() -> None:
    with pytest.raises(StageNotFound, match="no stage 'encoder'"):
        load("encoder", StageConfig({"implementation": "dummy"}))


def test_media_is_no_implementation() -> None:
    assert "media" not in implementations("preprocess")
