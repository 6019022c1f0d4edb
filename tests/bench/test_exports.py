"""What other people's load tools write, read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.aiperf import read_export
from bench.perf_analyzer import read_profile

pytestmark = pytest.mark.pure


def event(**delta: Any) -> str:
    return json.dumps({"choices": [{"index": 0, "delta": delta}]})


def test_aiperf_tells_sound_from_text(tmp_path: Path) -> None:
    ms = 1_000_000
    events = [
        (10, event(role="assistant", content="")),
        (12, event(content="Hello")),
        (30, event(audio={"id": "a", "data": "AAAA"})),
        (32, event(content=" you")),
        (50, event(audio={"id": "a", "data": "AAAA"})),
        (51, json.dumps({"choices": [], "usage": {}})),
        (52, "[DONE]"),
    ]
    good = {
        "metadata": {"was_cancelled": False},
        "start_perf_ns": 5 * ms,
        "status": 200,
        "responses": [{"perf_ns": (5 + at) * ms, "packets": [{"name": "data", "value": text}]} for at, text in events],
    }
    bad = {"metadata": {"was_cancelled": False}, "start_perf_ns": 0, "status": 503, "responses": []}
    (tmp_path / read_export.EXPORT).write_text(f"{json.dumps(good)}\n{json.dumps(bad)}\n")
    row = read_export.row(tmp_path)
    assert (row["requests"], row["errors"]) == (2, 1)
    medians = {name: figures["p50"] for name, figures in row.items() if isinstance(figures, dict)}
    assert medians == {
        "first_text_ms": 12, "first_audio_ms": 30, "text_gap_ms": 20, "audio_gap_ms": 20, "answer_ms": 52,
    }  # fmt: skip


def test_perf_analyzer_tells_sound_from_text() -> None:
    ms = 1_000_000
    request = {
        "timestamp": 5 * ms,
        "response_timestamps": [15 * ms, 25 * ms, 45 * ms],
        "response_outputs": [{"EVENT": "{}"}, {"TEXT": "{}"}, {"TEXT": "{}", "AUDIO": "abc"}],
    }
    export = {"experiments": [{"experiment": {"mode": "concurrency", "value": 1}, "requests": [request]}]}
    (row,) = read_profile.rows(export)
    assert (row["first_text_ms"]["p50"], row["first_audio_ms"]["p50"], row["answer_ms"]["p50"]) == (20, 40, 40)
