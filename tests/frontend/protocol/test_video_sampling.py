from __future__ import annotations

from typing import Any

import pytest

from frontend.protocol.video_sampling import sampling
from omni.contract.errors import InvalidRequest
from omni.contract.params import TALKER_DEFAULTS, THINKER_DEFAULTS

pytestmark = pytest.mark.pure


@pytest.mark.parametrize("entries", [[], ()])
def test_nothing_keeps_the_deployments_settings(entries: list[Any]) -> None:
    assert sampling(entries) == {}


def test_an_entry_replaces_all_settings_of_its_stage() -> None:
    params = sampling([{"temperature": 0.2}])["thinker"]
    assert params.temperature == 0.2
    assert (params.max_tokens, params.top_p, params.top_k, params.repetition_penalty) == (16, 1.0, -1, 1.0)
    assert params.over(THINKER_DEFAULTS) == params


def test_later_stages_keep_theirs() -> None:
    assert list(sampling([{"max_tokens": 64}])) == ["thinker"]


def test_in_pipeline_order() -> None:
    params = sampling([{}, {"max_tokens": 99}, {"max_tokens": 65536}])
    assert list(params) == ["thinker", "talker"]
    assert params["thinker"].max_tokens == 16
    assert params["talker"].over(TALKER_DEFAULTS).temperature == 1.0
    assert params["talker"].max_tokens == 99


def test_null_is_the_constructors_default() -> None:
    assert sampling([{"seed": None, "stop": None, "max_tokens": 5}])["thinker"].max_tokens == 5


def test_fields_that_change_nothing_are_taken() -> None:
    assert sampling([{"n": 1, "detokenize": True, "skip_special_tokens": True, "logprobs": None}])


@pytest.mark.parametrize(
    "entries",
    [
        [{"bogus": 1}],
        [{"n": 2}],
        [{"temperature": -1}],
        [{"max_tokens": 0}],
        [{"top_p": 0}],
        [{}, {"temperature": "hot"}],
        [{}, {}, {"temperature": 9}],
        [{}, {}, {}, {}],
    ],
)
def test_refused(entries: list[Any]) -> None:
    with pytest.raises(InvalidRequest, match="sampling_params_list"):
        sampling(entries)
