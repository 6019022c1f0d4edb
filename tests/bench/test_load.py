from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.front import front, serving

from bench.load import figures, page
from bench.load.__main__ import measure, mix
from bench.load.run import Plan
from bench.load.turns import Ask, Turn
from frontend.engine.fake import FakeEngine
from omni.contract.chunk import Chunk
from omni.contract.errors import StageFailed

pytestmark = [pytest.mark.process, pytest.mark.anyio]
ROOT = Path(__file__).parents[2]


def spoken(*pieces: tuple[float, float]) -> Turn:
    return Turn("chat", 10.0, [10.1, 10.2], list(pieces), ended=12.0)


def test_a_player_that_never_waits() -> None:
    assert spoken((10.5, 1.0), (11.2, 1.0), (12.4, 1.0)).starved() == 0
    assert spoken((10.5, 1.0), (11.75, 1.0), (12.0, 1.0)).starved() == pytest.approx(0.25)
    assert spoken((10.5, 0.1), (11.0, 0.1), (11.5, 0.1)).starved() == pytest.approx(0.8)
    assert spoken().starved() == 0


def test_figures() -> None:
    turns = [spoken((10.5, 1.0)), spoken((10.7, 0.1), (11.0, 1.0)), Turn("chat", 1.0, ended=2.0, error="http 503")]
    out = figures.of(turns, 10.0)
    assert (out["turns"], out["completed"], out["errors"]) == (3, 2, {"http 503": 1})
    assert out["first_text_ms"]["p50"] == pytest.approx(100)
    assert out["first_audio_ms"]["max"] == pytest.approx(700)
    assert out["starved_share"] == 0.5
    assert out["starved_ms"]["max"] == pytest.approx(200)
    assert out["real_time_factor"]["max"] == pytest.approx(1.0 / 1.1, abs=1e-3)


def test_percentiles() -> None:
    assert figures.percentiles([]) is None
    assert figures.percentiles(range(1, 101)) == {"p50": 51, "p95": 96, "p99": 100, "max": 100, "mean": 50.5}


def test_a_mix() -> None:
    assert mix("chat=2,video=3") == {"chat": 2, "video": 3}
    assert mix("7") == {"chat": 7}


async def test_all_protocols_against_a_server() -> None:
    async with serving(front(FakeEngine())) as running:
        plan = Plan(running.url, {"chat": 2, "video": 1, "realtime": 1}, duration=1.0, think=0.05, seed=3)
        report, turns, watch = await measure(plan, Ask(tokens=4, interval_ms=0), [os.getpid()])
    assert report["all"]["errors"] == {}
    assert report["protocols"].keys() == {"chat", "video", "realtime"}
    for protocol in report["protocols"].values():
        assert protocol["completed"] == protocol["spoken_turns"] > 0
        assert protocol["first_text_ms"]["p50"] > 0
        assert protocol["first_audio_ms"]["p99"] > 0
    assert report["processes"][0]["memory_mib"] > 1
    text = page.page(report, turns, list(watch.usage.values()))
    assert text.count("<svg") >= 4
    assert not re.findall(r"(?:src|href)=|@import|url\(|https?://(?!127\.0\.0\.1)", text)


async def test_failures_are_counted_by_kind() -> None:
    async with serving(front(FakeEngine([Chunk(text="a"), StageFailed("x")]))) as running:
        plan = Plan(running.url, {"chat": 1, "video": 1}, duration=0.3, think=0.05)
        report, _, _ = await measure(plan, Ask(tokens=4), [])
    assert report["all"]["completed"] == 0
    assert sum(report["all"]["errors"].values()) == report["all"]["turns"] > 1
    plan = Plan("http://127.0.0.1:9", {"chat": 1, "realtime": 1}, duration=0.3)
    report, _, _ = await measure(plan, Ask(tokens=4), [])
    assert set(report["all"]["errors"]) <= {"ConnectionRefusedError", "OSError"}


async def test_the_same_seed_asks_the_same() -> None:
    asked = []
    for _ in range(2):
        engine = FakeEngine()
        async with serving(front(engine)) as running:
            plan = Plan(running.url, {"chat": 1}, duration=0.5, think=0, seed=5)
            await measure(plan, Ask(tokens=3, speech=False), [])
        asked.append([run.job.messages[-1].text for run in engine.runs][:3])
    assert asked[0] == asked[1]
    assert len(set(asked[0])) == 3


def test_perf_analyzer_input_and_report(tmp_path: Path) -> None:
    made = tmp_path / "input.json"
    script = [sys.executable, "-m", "bench.perf_analyzer.make_input", "--out", str(made), "--speech", "--count", "2"]
    subprocess.run(script, cwd=ROOT, check=True)
    data = json.loads(made.read_text())["data"]
    assert len(data) == 2
    assert json.loads(data[0]["JOB"]["content"][0])["messages"]
    requests = [
        {
            "timestamp": 1_000_000_000,
            "response_timestamps": [1_010_000_000, 1_050_000_000, 1_090_000_000],
            "response_outputs": [{"TEXT": "{}"}, {"AUDIO": "x", "TEXT": ""}, {"AUDIO": "x"}],
        }
    ]
    export = tmp_path / "profile.json"
    export.write_text(json.dumps({"experiments": [{"experiment": {"mode": "c", "value": 1}, "requests": requests}]}))
    script = [sys.executable, "-m", "bench.perf_analyzer.read_profile", str(export)]
    done = subprocess.run(script, cwd=ROOT, check=True, capture_output=True, text=True)
    (row,) = json.loads(done.stdout)
    assert row["first_text_ms"]["p50"] == 10
    assert row["first_audio_ms"]["p50"] == 50
    assert row["requests"] == 1
