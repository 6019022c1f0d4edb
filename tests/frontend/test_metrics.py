from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from frontend.metrics import Metrics
from omni.contract.chunk import Chunk, Usage
from omni.contract.errors import Cancelled, ContextExceeded, InvalidMedia, Overloaded, StageFailed
from omni.contract.names import SAMPLE_RATE

pytestmark = pytest.mark.pure

SECOND = b"\0\0" * SAMPLE_RATE


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def metrics(clock: Clock) -> Metrics:
    return Metrics(model="m", profile="p", speech=True, clock=clock)


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def test_a_turn_of_text_and_speech_from_start_to_end(metrics: Metrics, clock: Clock) -> None:
    turn = metrics.turn("chat")
    assert value(metrics, "omni_turns_in_progress") == 1
    turn.chunk(Chunk(event={"type": "prompt"}))
    clock.now += 0.5
    turn.chunk(Chunk(text="a", tokens=1))
    clock.now += 0.25
    turn.chunk(Chunk(audio=SECOND))
    clock.now += 0.25
    turn.chunk(Chunk(text="b", tokens=2, finish="stop", usage=Usage(prompt_tokens=7, completion_tokens=3)))
    clock.now += 1.0
    turn.chunk(Chunk(audio=SECOND))
    turn.end("completed")
    chat = {"endpoint": "chat"}
    assert value(metrics, "omni_time_to_first_token_seconds_sum", **chat) == 0.5
    assert value(metrics, "omni_time_to_first_audio_seconds_sum", **chat) == 0.75
    assert value(metrics, "omni_inter_token_seconds_count", **chat) == 2
    assert value(metrics, "omni_inter_token_seconds_sum", **chat) == 0.5
    assert value(metrics, "omni_inter_token_seconds_bucket", le="0.2", **chat) == 0
    assert value(metrics, "omni_inter_token_seconds_bucket", le="0.3", **chat) == 2
    assert value(metrics, "omni_audio_real_time_factor_sum", **chat) == 1.0
    assert value(metrics, "omni_audio_seconds_total", **chat) == 2.0
    assert value(metrics, "omni_audio_underruns_total", **chat) == 1
    assert value(metrics, "omni_turn_duration_seconds_sum", **chat) == 2.0
    assert value(metrics, "omni_turns_total", outcome="completed", **chat) == 1
    assert value(metrics, "omni_prompt_tokens_total") == 7
    assert value(metrics, "omni_generation_tokens_total") == 3
    assert value(metrics, "omni_turns_in_progress") == 0
    assert metrics.proofs == 1


def test_speech_in_time_is_no_underrun(metrics: Metrics, clock: Clock) -> None:
    turn = metrics.turn("chat")
    for _ in range(5):
        turn.chunk(Chunk(audio=SECOND))
        clock.now += 1.0
    turn.end("completed")
    assert value(metrics, "omni_audio_underruns_total", endpoint="chat") == 0


def test_after_an_underrun_the_player_starts_again(metrics: Metrics, clock: Clock) -> None:
    turn = metrics.turn("chat")
    for pause in (0.0, 3.0, 1.0, 1.0):
        clock.now += pause
        turn.chunk(Chunk(audio=SECOND))
    turn.end("completed")
    assert value(metrics, "omni_audio_underruns_total", endpoint="chat") == 1


def test_a_turn_ends_once(metrics: Metrics) -> None:
    turn = metrics.turn("chat")
    turn.end("cancelled")
    turn.end("completed")
    turn.end("failed", "stage_failed")
    assert value(metrics, "omni_turns_total", endpoint="chat", outcome="cancelled") == 1
    assert value(metrics, "omni_turns_total", endpoint="chat", outcome="completed") is None
    assert value(metrics, "omni_cancellations_total", endpoint="chat") == 1
    assert value(metrics, "omni_turns_in_progress") == 0
    assert metrics.proofs == 0


def test_a_failure_is_counted_by_its_code(metrics: Metrics) -> None:
    metrics.turn("chat").end("failed", "stage_failed")
    metrics.turn("chat").end("failed")
    assert value(metrics, "omni_turn_errors_total", code="stage_failed") == 1
    assert value(metrics, "omni_turn_errors_total", code="internal_error") == 1


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (InvalidMedia("x"), "refused"),
        (ContextExceeded("x"), "refused"),
        (Cancelled("x"), "cancelled"),
        (Overloaded("x"), "failed"),
        (StageFailed("x"), "failed"),
        (ValueError("x"), "failed"),
    ],
)
def test_what_a_client_asked_wrongly_is_no_failure(metrics: Metrics, error: Exception, outcome: str) -> None:
    turn = metrics.turn("chat")
    turn.fail(error)
    assert value(metrics, "omni_turns_total", endpoint="chat", outcome=outcome) == 1
    errors = metrics.registry.collect()
    codes = [
        sample.labels["code"] for one in errors for sample in one.samples if sample.name == "omni_turn_errors_total"
    ]
    assert codes == ([getattr(error, "code", "internal_error")] if outcome == "failed" else [])
    assert value(metrics, "omni_turns_in_progress") == 0
    turn.fail(error)
    refused = 1 if isinstance(error, InvalidMedia) else None
    assert value(metrics, "omni_media_rejected_total", reason="invalid_media") == refused


def test_no_series_that_nobody_asks_for(metrics: Metrics) -> None:
    metrics.turn("chat").end("completed")
    for accept in ("text/plain", "application/openmetrics-text"):
        assert b"_created" not in metrics.expose(accept)[0]


def test_tokens_count_also_when_the_end_with_its_usage_never_came(metrics: Metrics) -> None:
    turn = metrics.turn("chat")
    turn.chunk(Chunk(text="a", tokens=4))
    turn.end("cancelled")
    assert value(metrics, "omni_generation_tokens_total") == 4


@pytest.mark.parametrize(("speech", "audio", "proofs"), [(True, b"", 0), (True, SECOND, 1), (False, b"", 1)])
def test_a_turn_proves_the_deployment_when_it_used_all_of_it(
    clock: Clock, speech: bool, audio: bytes, proofs: int
) -> None:
    metrics = Metrics(model="m", profile="p", speech=speech, clock=clock)
    turn = metrics.turn("chat")
    turn.chunk(Chunk(text="a", tokens=1, audio=audio))
    turn.end("completed")
    assert metrics.proofs == proofs


def test_two_front_doors_in_one_process_count_apart(metrics: Metrics) -> None:
    other = Metrics(model="m", profile="p", speech=True)
    other.turn("chat").end("completed")
    assert value(metrics, "omni_turns_total", endpoint="chat", outcome="completed") is None


def test_the_text_has_every_metric_that_dashboards_need(metrics: Metrics) -> None:
    metrics.turn("chat").end("completed")
    body, content_type = metrics.expose("")
    names = {family.name for family in text_string_to_metric_families(body.decode())}
    assert content_type.startswith("text/plain")
    assert names >= {
        "omni_requests",
        "omni_requests_in_progress",
        "omni_sessions_active",
        "omni_admission_rejections",
        "omni_time_to_first_token_seconds",
        "omni_time_to_first_audio_seconds",
        "omni_inter_token_seconds",
        "omni_audio_real_time_factor",
        "omni_audio_underruns",
        "omni_turn_duration_seconds",
        "omni_turns",
        "omni_cancellations",
        "omni_prompt_tokens",
        "omni_generation_tokens",
        "omni_triton_up",
        "omni_build_info",
        "process_cpu_seconds",
    }
    assert b'omni_build_info{model="m",profile="p",version=' in body


def test_a_scraper_may_ask_for_openmetrics(metrics: Metrics) -> None:
    metrics.turn("chat").end("completed")
    body, content_type = metrics.expose("application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    assert body.endswith(b"# EOF\n")
