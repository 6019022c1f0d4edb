from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontend.protocol.video_config import SessionConfig, parse
from omni.contract.errors import InvalidRequest

pytestmark = pytest.mark.pure


def read(**fields: Any) -> SessionConfig:
    return parse({"type": "session.config", **fields}, voices=("Ethan", "Aiden"), speech=True, max_text=100)


def test_defaults() -> None:
    assert read() == SessionConfig()
    assert (SessionConfig().num_frames, SessionConfig().max_frames) == (4, 50)
    assert SessionConfig().enable_frame_filter
    assert SessionConfig().frame_filter_threshold == 0.95


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("model", ["x", None]),
        ("modalities", [["text"], ["audio"], ["text", "audio"], ["audio", "text"], []]),
        ("num_frames", [1, 128, "7", 4.0, True, " 5 "]),
        ("max_frames", [1, 256, "256"]),
        ("system_prompt", ["", "be kind", None, "x" * 100]),
        ("use_audio_in_video", [True, False, "yes", "off", 0, 1, "TRUE"]),
        ("sampling_params_list", [None, [], [{}], [{"temperature": 0.2}, {}, {}], [{"bogus": 1}]]),
        ("enable_frame_filter", [True, False, "no"]),
        ("frame_filter_threshold", [0, 1, 0.5, "0.5", True]),
        ("frame_sampling", ["stride", "uniform"]),
        ("voice", ["Ethan", None]),
        ("audio_format", ["wav", "pcm16"]),
        ("speaker", ["whoever", 5]),
    ],
)
def test_taken(field: str, values: list[Any]) -> None:
    for value in values:
        read(**{field: value})


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("model", [5, []]),
        ("modalities", ["text", None, ["smell"], [5], {}]),
        ("num_frames", [0, 129, 4.5, "many", None, [], "1" * 40, float("inf")]),
        ("max_frames", [0, 257, None]),
        ("system_prompt", [5, "x" * 101]),
        ("use_audio_in_video", ["maybe", 2, None, []]),
        ("sampling_params_list", [{}, [5], "x", [[]]]),
        ("enable_frame_filter", [None, "x"]),
        ("frame_filter_threshold", [-0.1, 1.1, "high", float("nan"), None]),
        ("frame_sampling", ["random", None, []]),
        ("voice", ["Nobody", 5]),
        ("audio_format", ["mp3", None]),
    ],
)
def test_refused_by_name_without_its_value(field: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(InvalidRequest, match=f"^{field}") as refused:
            read(**{field: value})
        if isinstance(value, str) and value not in "text":
            assert value not in refused.value.message


def test_values() -> None:
    config = read(num_frames="7", max_frames=9.0, modalities=["audio"], enable_frame_filter="no")
    assert (config.num_frames, config.max_frames, config.text, config.speech) == (7, 9, False, True)
    assert not config.enable_frame_filter


@pytest.mark.parametrize("modalities", [None, [], ["text", "audio"]])
def test_no_modality_is_all(modalities: Any) -> None:
    config = read() if modalities is None else read(modalities=modalities)
    assert config.text
    assert config.speech


def test_former_names() -> None:
    config = read(num_sample_frames=9, evs_enabled=False, evs_threshold=0.5)
    assert (config.num_frames, config.enable_frame_filter, config.frame_filter_threshold) == (9, False, 0.5)


def test_the_present_name_counts() -> None:
    assert read(num_frames=3, num_sample_frames=9).num_frames == 3
    assert read(num_sample_frames=9, num_frames=3).num_frames == 3


def test_a_former_name_has_the_same_bounds() -> None:
    with pytest.raises(InvalidRequest, match="num_frames"):
        read(num_sample_frames=0)


def test_without_a_talker() -> None:
    def mute(**fields: Any) -> SessionConfig:
        return parse(fields, voices=(), speech=False, max_text=100)

    assert not mute().speech
    assert not mute(modalities=["text"]).speech
    with pytest.raises(InvalidRequest, match="speak"):
        mute(modalities=["text", "audio"])
    with pytest.raises(InvalidRequest, match="voice"):
        mute(voice="Ethan")


def test_bad_sampling_waits_for_a_query() -> None:
    assert read(sampling_params_list=[{"bogus": 1}]).sampling_problem is not None
    assert read(sampling_params_list=[{}, {}, {}, {}]).sampling_problem is not None
    assert read(sampling_params_list=[{"temperature": 0.5}]).sampling_problem is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda x: st.lists(x) | st.dictionaries(st.text(), x),
)


@given(
    st.dictionaries(st.sampled_from([*SessionConfig.__dataclass_fields__, "sampling_params_list", "evs_enabled"]), JSON)
)
def test_anything_is_read_or_refused(fields: dict[str, Any]) -> None:
    with suppress(InvalidRequest):
        read(**fields)
