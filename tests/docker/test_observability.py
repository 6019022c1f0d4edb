"""Dashboard, alerts and scrape configuration: every query can be read, and every metric in it is really there."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser as promql
import pytest
import yaml
from support.launched import Launched

pytestmark = pytest.mark.triton
FOLDER = Path(__file__).parents[2] / "docker" / "observability"
DASHBOARD = json.loads((FOLDER / "grafana/dashboards/omni.json").read_text())
ALERTS = [rule for group in yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"] for rule in group["rules"]]
BY_PROMETHEUS = {"up"}
"""What Prometheus itself adds."""
PROMISED = {
    "omni_requests_total": {"endpoint", "outcome"},
    "omni_requests_in_progress": set(),
    "omni_sessions_active": {"protocol"},
    "omni_admission_rejections_total": {"reason"},
    "omni_time_to_first_token_seconds_bucket": {"endpoint", "le"},
    "omni_time_to_first_audio_seconds_bucket": {"endpoint", "le"},
    "omni_inter_token_seconds_bucket": {"endpoint", "le"},
    "omni_audio_real_time_factor_bucket": {"endpoint", "le"},
    "omni_audio_underruns_total": {"endpoint"},
    "omni_turn_duration_seconds_bucket": {"endpoint", "le"},
    "omni_turns_total": {"endpoint", "outcome"},
    "omni_prompt_tokens_total": set(),
    "omni_generation_tokens_total": set(),
    "omni_media_rejected_total": {"reason"},
    "omni_media_decode_seconds": {"kind"},
    "omni_frames_total": {"outcome"},
    "omni_vad_events_total": {"kind"},
    "omni_triton_up": set(),
    "omni_build_info": {"version", "model", "profile"},
    "omni_stage_generations": {"stage"},
    "omni_stage_step_seconds": {"stage"},
    "omni_stage_ended": {"stage", "outcome"},
}  # fmt: skip
"""What dashboards of others may rely on, with the labels that a sample has once there is one."""
TARGET_LABELS = {"job", "instance", "le"}


def panels() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


QUERIES = [target["expr"] for panel in panels() for target in panel["targets"]] + [rule["expr"] for rule in ALERTS]


def plain(query: str) -> str:
    """A query as Grafana sends it."""
    return query.replace("$__rate_interval", "1m").replace("$instance", ".*")


def selectors(node: Any) -> Iterator[tuple[Any, set[str]]]:
    """Each selector of metrics, with the labels that the query wants of it."""
    if isinstance(node, promql.VectorSelector):
        yield node, {matcher.name for matcher in node.matchers.matchers}
    elif isinstance(node, promql.MatrixSelector):
        yield from selectors(node.vector_selector)
    elif isinstance(node, promql.AggregateExpr):
        kept = set(node.modifier.labels) if node.modifier else set()
        yield from ((metric, labels | kept) for metric, labels in selectors(node.expr))
    elif isinstance(node, promql.BinaryExpr):
        yield from selectors(node.lhs)
        yield from selectors(node.rhs)
    elif isinstance(node, promql.Call):
        for argument in node.args:
            yield from selectors(argument)
    elif isinstance(node, (promql.ParenExpr, promql.UnaryExpr, promql.SubqueryExpr)):
        yield from selectors(node.expr)


@pytest.fixture(scope="module")
def exposed(server: Launched) -> dict[str, set[str]]:
    """Names of the samples that a running server exposes, with their labels."""
    body = {
        "model": "qwen3-omni",
        "messages": [{"role": "user", "content": "one two three"}],
        "modalities": ["text", "audio"],
        "audio": {"voice": "Ethan", "format": "wav"},
    }
    request = urllib.request.Request(f"{server.url}/v1/chat/completions", json.dumps(body).encode())
    request.add_header("content-type", "application/json")
    urllib.request.urlopen(request, timeout=60).close()
    out: dict[str, set[str]] = {}
    for url in (f"{server.url}/metrics", server.metrics_url):
        # By hand: prometheus_client's parser renames counters that don't end in _total, as Triton's don't.
        for line in urllib.request.urlopen(url, timeout=10).read().decode().splitlines():
            if (known := re.match(r"# TYPE (\S+) (\w+)", line)) is not None:
                endings = ("_bucket", "_count", "_sum") if known[2] == "histogram" else ("",)
                for ending in endings:
                    out.setdefault(known[1] + ending, set())
            elif (sample := re.match(r"([a-zA-Z_:][\w:]*)(\{.*\})? ", line)) is not None:
                out.setdefault(sample[1], set()).update(re.findall(r'(\w+)="', sample[2] or ""))
    return out


@pytest.mark.parametrize("query", QUERIES)
def test_every_metric_exists_with_its_labels(query: str, exposed: dict[str, set[str]]) -> None:
    found = list(selectors(promql.parse(plain(query))))
    assert found
    for selector, labels in found:
        if selector.name in BY_PROMETHEUS:
            continue
        assert selector.name in exposed
        if exposed[selector.name]:
            assert labels <= exposed[selector.name] | TARGET_LABELS


def test_the_promised_names_are_there(exposed: dict[str, set[str]]) -> None:
    assert exposed.keys() >= PROMISED.keys()
    for name, labels in PROMISED.items():
        assert exposed[name] in (set(), labels), name
    assert not [name for name in exposed if name.endswith("_created")]


def test_the_check_can_fail(exposed: dict[str, set[str]]) -> None:
    ((selector, labels),) = selectors(promql.parse('sum by (colour) (rate(omni_turns_totl{a="b"}[1m]))'))
    assert selector.name not in exposed
    assert labels == {"a", "colour"}


def test_panels_have_a_place_of_their_own() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not taken & cells, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_it_answers_the_questions_of_an_operator() -> None:
    rows = [panel["title"] for panel in DASHBOARD["panels"] if panel["type"] == "row"]
    assert rows[:4] == ["Are we up?", "Who waits?", "Where is the time?", "Does audio starve?"]


def test_alerts_say_what_to_do() -> None:
    for rule in ALERTS:
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"].keys() == {"summary", "what_to_do"}
        used = set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
        kept: set[str] = set()
        for _, labels in selectors(promql.parse(rule["expr"])):
            kept |= labels
        assert used <= kept | {"instance"}


def test_every_target_is_a_service_of_the_compose_file() -> None:
    compose = (FOLDER.parent / "compose.yaml").read_text()
    services = set(yaml.safe_load(compose)["services"]) | {"front"}
    scrape = yaml.safe_load((FOLDER / "prometheus.yaml").read_text())["scrape_configs"]
    hosts = {t.split(":")[0] for job in scrape for c in job.get("static_configs", ()) for t in c["targets"]}
    hosts |= {name for job in scrape for c in job.get("dns_sd_configs", ()) for name in c["names"]}
    assert hosts <= services
    sources = yaml.safe_load((FOLDER / "grafana/provisioning/datasources/omni.yaml").read_text())["datasources"]
    assert {source["url"].split("/")[2].split(":")[0] for source in sources} <= services
    collector = yaml.safe_load((FOLDER / "collector.yaml").read_text())
    for pipeline in collector["service"]["pipelines"].values():
        for kind in ("receivers", "processors", "exporters"):
            assert set(pipeline[kind]) <= collector[kind].keys()
