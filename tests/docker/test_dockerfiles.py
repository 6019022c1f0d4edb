"""What a reviewer of Dockerfiles looks for, and whether their steps make an image that runs."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from support.dockerfile import Build, context, read, substitute, values
from support.http import status_of

from omni.launch.ports import free_port

pytestmark = pytest.mark.process
ROOT = Path(__file__).parents[2]
DOCKERFILES = sorted((ROOT / "docker").glob("*.Dockerfile"))
NAMES = [path.name for path in DOCKERFILES]
both = pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=NAMES)


def arguments(dockerfile: Path) -> dict[str, str]:
    return dict(one.partition("=")[::2] for one in values(read(dockerfile), "ARG"))


@both
def test_the_linter_has_nothing_to_say(dockerfile: Path) -> None:
    linter = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([linter, "--no-color", dockerfile], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@both
def test_the_base_is_pinned_and_takes_a_digest(dockerfile: Path) -> None:
    (base,) = values(read(dockerfile), "FROM")
    given = arguments(dockerfile)
    plain = substitute(base, given)
    tag = plain.rpartition(":")[2]
    assert re.fullmatch(r"\d[\w.-]+", tag), plain
    digest = next(name for name in given if name.endswith("_DIGEST"))
    assert substitute(base, {**given, digest: "sha256:" + "0" * 64}) == f"{plain}@sha256:{'0' * 64}"


def test_triton_is_recent_enough() -> None:
    year, month = arguments(ROOT / "docker/triton.Dockerfile")["TRITON_TAG"].split("-")[0].split(".")
    assert (int(year), int(month)) >= (26, 7)


@both
def test_it_runs_as_a_user_without_rights_and_is_watched(dockerfile: Path) -> None:
    found = read(dockerfile)
    assert [one.isdecimal() and int(one) > 0 for one in values(found, "USER")] == [True]
    assert len(values(found, "HEALTHCHECK")) == 1
    assert all(one.startswith("[") and json.loads(one) for one in values(found, "ENTRYPOINT"))
    order = [one.name for one in found]
    assert order.index("USER") > max(n for n, name in enumerate(order) if name in ("RUN", "COPY"))


@both
def test_it_holds_no_secret(dockerfile: Path) -> None:
    for one in read(dockerfile):
        assert one.name != "ADD"
        if one.name in ("ENV", "ARG"):
            assert not re.search(r"(?i)(password|secret|token|api_?key)\w*=", one.value)


@both
def test_sources_exist_in_the_build_context(dockerfile: Path) -> None:
    files = set(context(ROOT))
    for one in values(read(dockerfile), "COPY"):
        for source in [word for word in one.split() if not word.startswith("--")][:-1]:
            assert any(file == Path(source) or Path(source) in file.parents for file in files), source


def test_the_build_context_is_what_images_need_and_no_more() -> None:
    tops = {file.parts[0] for file in context(ROOT)}
    assert tops == {"pyproject.toml", "README.md", "omni", "frontend", "model_repository", "build", "docker"}
    assert not [file for file in context(ROOT) if file.suffix in (".safetensors", ".pyc", ".env", ".pem")]


def entry(build: Build, dockerfile: Path, **environment: str) -> subprocess.Popen[bytes]:
    """The image's process, with the image's environment and no other, in another folder than ours."""
    (command,) = values(read(dockerfile), "ENTRYPOINT")
    env = build.environment() | environment
    program = [str(build.inside("/opt/omni/venv/bin/python")), *json.loads(command)[1:]]
    return subprocess.Popen(program, env=env, cwd=build.inside("/opt/omni"))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Build | None]]:
    """By Dockerfile what its steps make of an empty root and a bare environment, so that a step that is missing is
    missing here, too. None where the base image's Python isn't to be had.

    All are made at once, each for itself: what takes the time is pip, on one core.
    """
    ours = Path(sysconfig.get_config_var("BINDIR")) / "python3.11"
    plans: dict[str, tuple[str | None, dict[str, str]]] = {
        "frontend.Dockerfile": (str(ours), {}),
        "embedded.Dockerfile": (str(ours), {}),
        # Without torch, which is large, and without Triton.
        "triton.Dockerfile": (next(iter(_pythons("3.12")), None), {"EXTRAS": "frontend"}),
    }
    assert sorted(plans) == NAMES
    pool = ThreadPoolExecutor(len(plans))
    making: dict[str, Future[Build]] = {}
    for name, (python, arguments) in plans.items():
        root = tmp_path_factory.mktemp(name)
        if python is not None:
            making[name] = pool.submit(Build, ROOT, ROOT / "docker" / name, root, python=python, arguments=arguments)
    yield lambda name: making[name].result() if name in making else None
    pool.shutdown()


@pytest.mark.parametrize("dockerfile", [p for p in DOCKERFILES if "triton" not in p.name], ids=lambda path: path.name)
def test_its_steps_make_a_server_that_answers(
    dockerfile: Path, built: Callable[[str], Build | None], tmp_path: Path
) -> None:
    build = built(dockerfile.name)
    assert build is not None
    port = free_port()
    settings = {"OMNI_PORT": str(port), "OMNI_HOST": "127.0.0.1"}
    if "frontend" in dockerfile.name:
        settings["OMNI_ENGINE"] = "fake"
    else:
        ports = ("OMNI_TRITON_GRPC_PORT", "OMNI_TRITON_HTTP_PORT", "OMNI_TRITON_METRICS_PORT")
        settings |= {name: str(free_port()) for name in ports}
        settings["OMNI_HOME"] = str(tmp_path / "home")
    process = entry(build, dockerfile, **settings)
    try:
        deadline = time.monotonic() + 120
        while status_of(f"http://127.0.0.1:{port}/health") != 200:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.2)
        watch = values(read(dockerfile), "HEALTHCHECK")[0].partition("CMD ")[2].replace(":8000", f":{port}")
        command = [str(build.inside("/opt/omni/venv/bin/python")), *json.loads(watch)[1:]]
        assert subprocess.run(command, env=build.environment(), check=False).returncode == 0
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()


def test_the_steps_for_triton_install_what_a_stage_imports(built: Callable[[str], Build | None]) -> None:
    build = built("triton.Dockerfile")
    if build is None:
        pytest.skip("no Python 3.12 here")
    names = "numpy, sys, omni.launch.probe, omni.stages.dummy.thinker"
    code = f"import {names}; print(*sys.version_info[:2], numpy.__version__)"
    command = [str(build.inside("/opt/omni/venv/bin/python")), "-c", code]
    said = subprocess.run(command, env=build.environment(), cwd="/", capture_output=True, text=True, check=True).stdout
    assert said.startswith("3 12 2.")


def _pythons(version: str) -> list[str]:
    places = [*os.environ["PATH"].split(os.pathsep), *map(str, Path.home().glob(f".pyenv/versions/{version}.*/bin"))]
    found = []
    for place in places:
        candidate = Path(place) / f"python{version}"
        if (
            candidate.exists()
            and subprocess.run([candidate, "-c", ""], capture_output=True, check=False).returncode == 0
        ):
            found.append(str(candidate))
    return found


@pytest.mark.parametrize("mps", ["", "1"])
def test_triton_starts_under_mps_when_asked(mps: str, tmp_path: Path) -> None:
    for name in ("python", "nvidia-cuda-mps-control"):
        program = tmp_path / name
        program.write_text(f'#!/bin/sh\necho {name} "$@"\n')
        program.chmod(0o755)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "CUDA_MPS": mps}
    env |= {"CUDA_MPS_PIPE_DIRECTORY": f"{tmp_path}/pipe", "CUDA_MPS_LOG_DIRECTORY": f"{tmp_path}/log"}
    done = subprocess.run(
        [ROOT / "docker/triton.sh", "--profile", "x"], env=env, capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()
    assert lines[-1] == "python -m omni.launch triton --profile x"
    assert (lines[0] == "nvidia-cuda-mps-control -d") == bool(mps)
