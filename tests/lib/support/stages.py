"""What the stages inside a running Triton say of themselves."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Iterable

from prometheus_client.parser import text_string_to_metric_families


def stage_metrics(url: str) -> dict[tuple[str, str], float]:
    """`{(metric, stage): value}` of the stages' own metrics."""
    with urllib.request.urlopen(url, timeout=5) as response:
        text = response.read().decode()
    return {
        (sample.name, sample.labels["stage"] + sample.labels.get("outcome", "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if "stage" in sample.labels
    }


def held(url: str) -> dict[str, float]:
    """By stage, the generations and open requests that it holds, added up; stages that hold nothing are left out."""
    out: dict[str, float] = {}
    for (metric, stage), value in stage_metrics(url).items():
        if metric in ("omni_stage_generations", "omni_stage_open_requests") and value:
            out[stage] = out.get(stage, 0) + value
    return out


def seconds_until(url: str, idle: Iterable[str] | None = None, limit: float = 10.0) -> float:
    """How long it takes until the stages hold nothing any more; raises AssertionError after `limit` seconds."""
    began = time.monotonic()
    while left := {stage for stage in held(url) if idle is None or stage in idle}:
        assert time.monotonic() - began < limit, f"still held by {left}"
        time.sleep(0.005)
    return time.monotonic() - began


def until_held(url: str, limit: float = 10.0) -> None:
    """Wait until the metrics show that something is held; they are published every 50 ms."""
    began = time.monotonic()
    while not held(url):
        assert time.monotonic() - began < limit, "the stages hold nothing"
        time.sleep(0.005)
