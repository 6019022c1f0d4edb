from __future__ import annotations

from pathlib import Path

import pytest

from omni.launch.errors import LaunchError
from omni.launch.options import DEMO, default_profile, own_variables, read

pytestmark = pytest.mark.pure


def test_defaults() -> None:
    command, options, extra = read(["serve"], {})
    assert (command, extra) == ("serve", [])
    assert (options.host, options.port, options.profile) == ("127.0.0.1", 8000, default_profile())
    assert [address.port for address in options.addresses] == [8001, 8002, 8003]
    assert {address.host for address in options.addresses} == {"127.0.0.1"}


def test_the_demo_is_the_default_where_it_is_installed(tmp_path: Path) -> None:
    assert default_profile(tmp_path / "missing") == "dummy"
    assert default_profile(tmp_path) == "demo"


def test_the_demo_is_looked_for_where_its_stages_find_it() -> None:
    models = pytest.importorskip("omni.stages.demo.models", reason="the demo isn't installed", exc_type=ImportError)
    assert models.TALKER.parent == DEMO


def test_the_command_line_wins_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "omni.yaml"
    file.write_text("port: 1\nhost: 0.0.0.0\nprofile: from-file\nmax_in_flight: 3\n")
    environment = {"OMNI_PORT": "2", "OMNI_PROFILE": "from-environment", "OMNI_CONFIG": str(file)}
    _, options, _ = read(["serve", "--port", "3"], environment)
    assert (options.port, options.profile, options.host) == (3, "from-environment", "0.0.0.0")


def test_what_follows_two_dashes_is_the_front_doors() -> None:
    _, options, extra = read(["serve", "--port", "3", "--", "--port", "4", "--log-level", "debug"], {})
    assert (options.port, extra) == (3, ["--port", "4", "--log-level", "debug"])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("port", "65536"),
        ("port", "-1"),
        ("port", "http"),
        ("triton_grpc_port", "8001.5"),
        ("start_timeout", "nan"),
        ("start_timeout", "0"),
        ("shutdown_timeout", "-1"),
        ("exit_timeout", "1.5"),
        ("liveness_deadline", "0"),
        ("liveness_failures", "0"),
        ("restart_limit", "-1"),
        ("host", ""),
    ],
)
def test_a_wrong_value_names_its_setting(name: str, value: str) -> None:
    flag, variable = "--" + name.replace("_", "-"), f"OMNI_{name.upper()}"
    for arguments, environment in (([f"{flag}={value}"], {}), ([], {variable: value})):
        with pytest.raises(LaunchError, match=f"{flag} or {variable}") as caught:
            read(["serve", *arguments], environment)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", ["[1, 2]", "a: b: c", None])
def test_a_file_that_is_none(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "omni.yaml"
    if content is not None:
        file.write_text(content)
    with pytest.raises(LaunchError, match="--config or OMNI_CONFIG"):
        read(["serve", "--config", str(file)], {})


@pytest.mark.parametrize("arguments", [[], ["dance"], ["serve", "--por", "1"], ["serve", "--nope"]])
def test_an_unknown_command_or_option_ends_the_program(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        read(arguments, {})
    assert caught.value.code == 2


def test_every_option_has_its_variable() -> None:
    assert {"OMNI_PORT", "OMNI_TRITON_HTTP_PORT", "OMNI_LIVENESS_INTERVAL"} <= own_variables()
