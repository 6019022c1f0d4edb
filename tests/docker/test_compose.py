"""The compose file against the specification, and against what the services promise."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from compose_spec import PyCompose

from frontend.settings import Settings
from omni.launch.options import own_variables

pytestmark = pytest.mark.pure
FILE = Path(__file__).parents[2] / "docker" / "compose.yaml"
LOCAL = re.compile(r"\$\{\w+:-([^}]*)\}")


def compose() -> dict[str, Any]:
    return dict(yaml.safe_load(LOCAL.sub(r"\1", FILE.read_text())))


def seconds(text: str) -> float:
    return float(text.removesuffix("s"))


def test_it_obeys_the_specification() -> None:
    spec = PyCompose.from_yaml(yaml.safe_dump(compose())).to_spec()
    assert set(spec.model_dump(mode="json")["services"]) == set(compose()["services"])


def test_profiles() -> None:
    by_profile: dict[str, set[str]] = {}
    for name, service in compose()["services"].items():
        for profile in service["profiles"]:
            by_profile.setdefault(profile, set()).add(name)
    assert by_profile == {
        "cpu": {"embedded"},
        "gpu": {"triton", "front"},
        "observability": {"collector", "tempo", "prometheus", "grafana"},
    }


def test_every_variable_has_a_default() -> None:
    assert not re.findall(r"\$\{[A-Z_]+(?!:-)[^A-Z_:]", FILE.read_text())


def test_images_are_pinned() -> None:
    for name, service in compose()["services"].items():
        tag = service["image"].rpartition(":")[2]
        assert re.match(r"v?\d", tag), name


def test_mounted_files_exist() -> None:
    for service in compose()["services"].values():
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            if source.startswith("./"):
                assert (FILE.parent / source).is_file(), source


def test_nothing_is_published_to_the_world_by_default() -> None:
    for service in compose()["services"].values():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
    assert compose()["services"]["triton"]["networks"] == ["inside"]
    assert compose()["networks"]["inside"] == {"internal": True}


def test_services_have_few_rights() -> None:
    for name, service in compose()["services"].items():
        assert service["read_only"], name
        assert service["cap_drop"] == ["ALL"], name
        assert "privileged" not in service


@pytest.mark.parametrize("name", ["embedded", "front"])
def test_there_is_time_for_the_longest_turn(name: str) -> None:
    service = compose()["services"][name]
    drain = float(service["environment"]["OMNI_SHUTDOWN_TIMEOUT"])
    assert seconds(service["stop_grace_period"]) >= drain + 20


def test_triton_outlives_its_exit_timeout() -> None:
    service = compose()["services"]["triton"]
    assert seconds(service["stop_grace_period"]) > float(service["environment"]["OMNI_EXIT_TIMEOUT"]) + 5
    assert service["deploy"]["resources"]["reservations"]["devices"][0]["capabilities"] == ["gpu"]
    assert service["shm_size"] == "8gb"


def test_settings_are_settings() -> None:
    known = own_variables() | {f"OMNI_{name.upper()}" for name in Settings.model_fields}
    for service in compose()["services"].values():
        ours = {name for name in service.get("environment", {}) if name.startswith("OMNI_")}
        assert ours <= known
