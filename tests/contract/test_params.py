from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omni.contract.errors import InvalidRequest
from omni.contract.params import THINKER_DEFAULTS, SamplingParams, Settings

pytestmark = pytest.mark.pure

OUT_OF_RANGE: list[tuple[str, Any]] = [
    ("temperature", -0.1), ("temperature", 2.1), ("temperature", float("nan")), ("temperature", "hot"),
    ("temperature", True), ("top_p", 0), ("top_p", 1.1), ("top_k", -2), ("top_k", 1.5), ("min_p", -1),
    ("repetition_penalty", 0), ("repetition_penalty", 11), ("frequency_penalty", 2.1), ("presence_penalty", -2.1),
    ("max_tokens", 0), ("max_tokens", 1.0), ("min_tokens", -1), ("seed", 1 << 64), ("seed", "x"),
    ("logprobs", 21), ("ignore_eos", "yes"), ("stop", ["a"] * 17), ("stop", ["x" * 257]), ("stop", [""]),
    ("stop", [3]), ("logit_bias", {"a": 1}), ("logit_bias", {"1": 101}), ("logit_bias", 7), ("colour", 1),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), OUT_OF_RANGE)
def test_a_value_out_of_range_names_its_field(name: str, value: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        SamplingParams.from_json({name: value})
    assert caught.value.param == name


sampling = st.builds(
    SamplingParams,
    temperature=st.none() | st.floats(0, 2),
    top_k=st.none() | st.integers(-1, 100),
    max_tokens=st.none() | st.integers(1, 1000),
    seed=st.none() | st.integers(-(2**63), 2**64 - 1),
    stop=st.none() | st.lists(st.text(min_size=1, max_size=9), max_size=4).map(tuple),
    logit_bias=st.none() | st.dictionaries(st.integers(0, 200_000), st.floats(-100, 100), max_size=5),
    ignore_eos=st.none() | st.booleans(),
)


@given(sampling)
def test_sampling_survives_the_wire(params: SamplingParams) -> None:
    assert SamplingParams.from_json(params.to_json()) == params


@given(st.booleans(), sampling, st.none() | st.text(max_size=8))
def test_settings_survive_the_wire(speech: bool, params: SamplingParams, lease: str | None) -> None:
    settings = Settings(
        speech=speech,
        sampling={"thinker": params, "talker": SamplingParams()},
        stage={"talker": {"voice": "Ethan"}, "thinker": {"token_interval_ms": 5.0}},
        lease=lease,
    )
    assert Settings.loads(settings.dumps()) == settings


def test_holes_are_filled_from_the_defaults() -> None:
    mine = SamplingParams(temperature=0.5, stop=("x",)).over(THINKER_DEFAULTS)
    assert (mine.temperature, mine.stop, mine.max_tokens) == (0.5, ("x",), 2048)


@pytest.mark.parametrize(
    ("stage", "param"),
    [
        ({"thinker": {"speed": 1}}, "thinker.speed"),
        ({"painter": {"voice": "x"}}, "painter.voice"),
        ({"thinker": {"token_interval_ms": -1}}, "thinker.token_interval_ms"),
        ({"talker": {"voice": 3}}, "talker.voice"),
        ({"code2wav": {"max_chunk_frames": True}}, "code2wav.max_chunk_frames"),
    ],
)
def test_a_bad_knob_names_itself(stage: dict[str, dict[str, Any]], param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        Settings(stage=stage)
    assert caught.value.param == param


def test_a_stage_that_does_not_sample_takes_no_sampling() -> None:
    with pytest.raises(InvalidRequest):
        Settings(sampling={"code2wav": SamplingParams()})


UNREADABLE = (
    *("[]", "nonsense", "7", "[" * 100_000, '{"sampling":{"thinker":7}}', '{"stage":{"talker":3}}'),
    *('{"lease":["a"]}', '{"session":5}', '{"trace":{}}'),
)


@pytest.mark.parametrize("text", UNREADABLE)
def test_unreadable_settings_are_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        Settings.loads(text)


def test_settings_may_be_percent_encoded() -> None:
    settings = Settings(speech=True, session="a:b %7B")
    assert Settings.loads(quote(settings.dumps(), safe="")) == settings
