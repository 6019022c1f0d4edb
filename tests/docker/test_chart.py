"""The Helm chart: rendered by Helm's own code, held against the schemas of Kubernetes and what we promise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from helm_python.chart import Chart, lint
from helm_python.errors import HelmError

from frontend.settings import Settings
from omni.launch.options import own_variables

pytestmark = pytest.mark.pure
CHART = Path(__file__).parents[2] / "docker" / "helm" / "omni"
KUBERNETES = ("1.29", "1.37")
EVERYTHING: dict[str, Any] = {
    "front": {"settings": {"max_sessions": 64, "log_level": "debug"}, "shutdownTimeout": 100},
    "triton": {"mps": True, "gpus": 2, "settings": {"liveness_failures": 5}},
    "models": {"claim": "weights", "subPath": "qwen"},
    "secrets": {"apiKeys": ["first-key-1234", "second-key-5678"], "token": "a-token-to-download"},
    "ingress": {"enabled": True, "host": "omni.test", "tlsSecret": "certificate", "annotations": {"a/b": "c"}},
    "autoscaling": {"enabled": True, "min": 2, "max": 6},
    "tracing": {"sample": 0.1, "endpoint": "http://collector:4318"},
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "podAnnotations": {"note": "x"},
    "nodeSelector": {"gpu": "h200"},
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
    "imagePullSecrets": [{"name": "registry"}],
}
DUMMY: dict[str, Any] = {"triton": {"profile": "dummy", "gpus": 0}, "networkPolicy": {"enabled": False}}
CASES = {"defaults": {}, "everything": EVERYTHING, "dummy": DUMMY}


def render(values: dict[str, Any], name: str = "voice") -> list[dict[str, Any]]:
    with Chart.load(CHART) as chart:
        files = chart.render(values=values, name=name, namespace="speech")
    documents = [one for path, text in files.items() if path.endswith(".yaml") for one in yaml.safe_load_all(text)]
    return [one for one in documents if one]


def one(documents: list[dict[str, Any]], kind: str, ending: str = "") -> dict[str, Any]:
    (found,) = [d for d in documents if d["kind"] == kind and d["metadata"]["name"].endswith(ending)]
    return found


def pod(values: dict[str, Any]) -> dict[str, Any]:
    return dict(one(render(values), "Deployment")["spec"]["template"]["spec"])


def containers(values: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {container["name"]: container for container in pod(values)["containers"]}


def environment(container: dict[str, Any]) -> dict[str, str]:
    return {pair["name"]: pair.get("value", "") for pair in container["env"]}


@pytest.mark.parametrize("values", CASES.values(), ids=CASES)
def test_the_linter_has_nothing_to_say(values: dict[str, Any]) -> None:
    report = lint(CHART, values, strict=True)
    assert [m for m in report["messages"] if m["severity"] > 1] == []
    assert report["errors"] == []


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("values", CASES.values(), ids=CASES)
def test_kubernetes_would_take_it(values: dict[str, Any], version: str) -> None:
    for document in render(values):
        if document["apiVersion"].startswith("monitoring.coreos.com"):
            continue  # a definition of the Prometheus operator, not of Kubernetes
        kubernetes_validate.validate(document, version, strict=True)


def test_what_is_rendered() -> None:
    assert sorted(d["kind"] for d in render({})) == [
        "Deployment", "NetworkPolicy", "PodDisruptionBudget", "Service", "Service"
    ]  # fmt: skip
    more = {d["kind"] for d in render(EVERYTHING)}
    assert more >= {"HorizontalPodAutoscaler", "Ingress", "Secret", "ServiceMonitor"}


@pytest.mark.parametrize(
    "values",
    [
        {"colour": "red"},
        {"replicas": -1},
        {"front": {"settings": {"max-sessions": 1}}},
        {"front": {"image": {"repository": "x", "tag": "latest"}}},
        {"triton": {"image": {"repository": "x", "digest": "sha256:12"}}},
        {"tracing": {"sample": 2}},
        {"ingress": {"timeout": "soon"}},
        {"secrets": {"apiKeys": ["short"]}},
    ],
)
def test_wrong_values_are_refused(values: dict[str, Any]) -> None:
    with Chart.load(CHART) as chart, pytest.raises(HelmError):
        chart.validate_schema(values)


def test_settings_are_settings() -> None:
    front = {f"OMNI_{name.upper()}" for name in Settings.model_fields}
    for values in CASES.values():
        found = containers(values)
        assert {n for n in environment(found["front"]) if n.startswith("OMNI_")} <= front
        assert {n for n in environment(found["triton"]) if n.startswith("OMNI_")} <= own_variables()
    found = containers(EVERYTHING)
    assert environment(found["front"])["OMNI_MAX_SESSIONS"] == "64"
    assert environment(found["triton"])["OMNI_LIVENESS_FAILURES"] == "5"


def test_no_variable_is_given_twice() -> None:
    for values in CASES.values():
        for container in containers(values).values():
            names = [pair["name"] for pair in container["env"]]
            assert len(names) == len(set(names))


def test_there_is_time_to_drain() -> None:
    found = containers(EVERYTHING)
    drain = float(environment(found["front"])["OMNI_SHUTDOWN_TIMEOUT"])
    assert drain == 100
    assert pod(EVERYTHING)["terminationGracePeriodSeconds"] >= drain + 10 + 30
    assert "sleep" in found["front"]["lifecycle"]["preStop"]["exec"]["command"][2]
    hook = found["triton"]["lifecycle"]["preStop"]["exec"]["command"]
    assert hook[:2] == ["python", "-c"]
    compile(hook[2], "preStop", "exec")
    assert "+ 115" in hook[2]


def test_probes() -> None:
    found = containers({"triton": {"startTimeout": 600}})
    for container in found.values():
        probe = container["startupProbe"]
        assert probe["periodSeconds"] * probe["failureThreshold"] >= 600
    assert found["front"]["readinessProbe"]["httpGet"]["path"] == "/health"
    assert found["front"]["livenessProbe"]["httpGet"]["path"] == "/live"
    live = found["triton"]["livenessProbe"]
    assert live["exec"]["command"][:3] == ["python", "-m", "omni.launch.probe"]
    assert live["timeoutSeconds"] > float(live["exec"]["command"][4])


def test_containers_have_few_rights() -> None:
    for values in CASES.values():
        assert pod(values)["securityContext"]["runAsNonRoot"]
        assert pod(values)["automountServiceAccountToken"] is False
        for container in containers(values).values():
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"]
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"] == {"drop": ["ALL"]}


def test_triton_is_reached_by_the_front_door_alone() -> None:
    found = containers({})
    assert environment(found["front"])["OMNI_TRITON_URL"] == "127.0.0.1:8001"
    assert "OMNI_TRITON_HOST" not in environment(found["triton"])
    assert {port["name"] for port in found["triton"]["ports"]} == {"triton-metrics"}
    (rule,) = one(render({}), "NetworkPolicy")["spec"]["ingress"]
    assert {port["port"] for port in rule["ports"]} == {"http", "triton-metrics"}


def test_keys_are_in_the_secret_and_nowhere_else() -> None:
    documents = render(EVERYTHING)
    secret = one(documents, "Secret")
    assert secret["stringData"] == {"api_keys": "first-key-1234\nsecond-key-5678", "token": "a-token-to-download"}
    rest = yaml.safe_dump_all([d for d in documents if d is not secret])
    assert "first-key" not in rest
    assert "a-token" not in rest
    assert environment(containers(EVERYTHING)["front"])["OMNI_API_KEY_FILE"] == "/run/secrets/omni/api_keys"
    theirs = {"secrets": {"existingSecret": "mine"}}
    assert not [d for d in render(theirs) if d["kind"] == "Secret"]
    assert pod(theirs)["volumes"][-1]["secret"]["secretName"] == "mine"
    assert "OMNI_API_KEY_FILE" not in environment(containers({})["front"])


def test_pods_are_scaled_on_sessions() -> None:
    spec = one(render(EVERYTHING), "HorizontalPodAutoscaler")["spec"]
    assert {m["pods"]["metric"]["name"] for m in spec["metrics"]} == {"omni_sessions_active", "omni_turns_in_progress"}
    assert "replicas" not in one(render(EVERYTHING), "Deployment")["spec"]
    assert one(render({}), "Deployment")["spec"]["replicas"] == 1


def test_the_proxy_neither_buffers_nor_hangs_up() -> None:
    annotations = one(render(EVERYTHING), "Ingress")["metadata"]["annotations"]
    nginx = "nginx.ingress.kubernetes.io/"
    assert annotations[f"{nginx}proxy-buffering"] == "off"
    assert float(annotations[f"{nginx}proxy-read-timeout"]) >= 3600
    assert annotations["a/b"] == "c"


def test_names() -> None:
    assert one(render({}), "Deployment")["metadata"]["name"] == "voice-omni"
    assert one(render({}, "omni"), "Deployment")["metadata"]["name"] == "omni"
    assert len(one(render({}, "n" * 53), "Deployment")["metadata"]["name"]) <= 63
