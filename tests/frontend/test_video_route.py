from __future__ import annotations

import pytest
from support.front import front

from frontend.routes.video import AUDIO_DELTA, STREAMED, Switches, _subprotocol

pytestmark = pytest.mark.process


@pytest.mark.parametrize(
    ("value", "streamed"),
    [(None, True), ("", True), ("on", True), (" ON ", True), ("off", False), ("Off\n", False), ("never", True)],
)
def test_whether_answers_are_streamed(value: str | None, streamed: bool) -> None:
    assert Switches({} if value is None else {STREAMED: value}).streamed() is streamed


def test_the_environment_is_read_each_time() -> None:
    environment = {STREAMED: "on"}
    switches = Switches(environment)
    assert switches.streamed()
    environment[STREAMED] = "off"
    assert not switches.streamed()


def test_a_wrong_value_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    switches = Switches({STREAMED: "maybe", AUDIO_DELTA: "faster"})
    for _ in range(3):
        assert switches.streamed()
    assert len(caplog.records) == 2
    assert "maybe" not in caplog.text


@pytest.mark.parametrize("value", ["fast", "slow", "", " SLOW "])
def test_both_ways_of_sending_sound_are_the_same(value: str, caplog: pytest.LogCaptureFixture) -> None:
    assert Switches({AUDIO_DELTA: value}).streamed()
    assert not caplog.records


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        ([], None),
        (["video"], "video"),
        (["openai-insecure-api-key.k", "video"], "video"),
        (["openai-insecure-api-key.k"], "openai-insecure-api-key.k"),
    ],
)
def test_subprotocol(offered: list[str], chosen: str | None) -> None:
    assert _subprotocol(offered) == chosen


def test_sessions_are_made_as_the_settings_say() -> None:
    app = front(video_idle_timeout=5, video_audio_overflow="drop_oldest", video_keep_newest=False)
    made = app.state.video
    assert (made.limits.idle_timeout, made.limits.audio_overflow, made.limits.keep_newest) == (5, "drop_oldest", False)
    assert made.prefill
    assert not front(video_prefill=False).state.video.prefill
    assert made.voices == app.state.profile.voices
