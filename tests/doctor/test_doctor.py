from __future__ import annotations

import http.server
import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from omni.doctor import deployment, machine
from omni.doctor.__main__ import main
from omni.doctor.finding import Finding
from omni.doctor.machine import Gpu
from omni.launch.ports import free_port
from omni.profile import Profile, load_profile

pytestmark = pytest.mark.process
GIB = 1 << 30
STAGE = {"implementation": "qwen3_omni", "checkpoint": "", "device": "cuda:0"}


def levels(findings: Any) -> list[str]:
    return [finding.level for finding in findings]


def ports(**given: int) -> list[str]:
    names = ("port", "triton-grpc-port", "triton-http-port", "triton-metrics-port")
    return [f"--{name}={given.get(name.replace('-', '_')) or free_port()}" for name in names]


def report(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, list[dict[str, str]]]]:
    """Exit status, and findings by what they are about."""
    status = main(["--json", "--profile", "dummy", *arguments])
    out: dict[str, list[dict[str, str]]] = {}
    for finding in json.loads(capsys.readouterr().out)["findings"]:
        out.setdefault(finding["about"], []).append(finding)
    return status, out


def test_a_healthy_machine(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main([*ports(), "--profile", "dummy", "--home", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].endswith("0 failed, 0 to think about") or "warn" in "".join(lines)
    assert all(line[:4] in ("ok  ", "warn") or line.startswith("      ->") for line in lines[:-1])


def test_a_wrong_option_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--port", "many"]) == 2
    assert "--port or OMNI_PORT must be a number" in capsys.readouterr().err
    assert main(["--help"]) == 0
    assert "--triton-grpc-port" in capsys.readouterr().out


def test_what_an_operator_got_wrong(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNI_COLOUR", "red")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        # A server that accepts and says nothing would be waited for; this one refuses HTTP at once.
        port = taken.getsockname()[1]
        taken.close()
        with socket.create_server(("127.0.0.1", port)) as server:
            threading.Thread(target=_hang_up, args=(server,), daemon=True).start()
            status, found = report(
                capsys,
                *ports(port=port),
                *("--profile", "nope", "--model-repository", str(tmp_path), "--home", f"{__file__}/nothing"),
                *("--tritonserver", str(tmp_path / "tritonserver")),
            )
    assert status == 1
    failed = {about: findings[0] for about, findings in found.items() if findings[0]["level"] == "fail"}
    assert failed.keys() == {"profile", "Triton", "home", "model repository", "settings", "ports"}
    assert "--profile" in failed["profile"]["todo"]
    assert "OMNI_COLOUR" in failed["settings"]["said"]
    assert "--port" in failed["ports"]["todo"]
    assert all(finding["todo"] for finding in failed.values())


def _hang_up(server: socket.socket) -> None:
    for _ in range(2):
        try:
            server.accept()[0].close()
        except OSError:
            return


def test_python_and_packages() -> None:
    assert levels(machine.look_at_python((3, 10, 1))) == ["fail"]
    assert levels(machine.look_at_python((3, 12, 1))) == ["ok"]
    (finding,) = machine.look_at_packages(["no-such-distribution"], embedded=False)
    assert finding.level == "fail"
    assert "frontend" in finding.todo


def test_numpy_2_and_the_embedded_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_version", lambda name: "2.5.0")
    assert levels(machine.look_at_packages(["numpy"], embedded=True)) == ["ok", "fail"]
    assert levels(machine.look_at_packages(["numpy"], embedded=False)) == ["ok"]


def test_memory_and_its_limit(tmp_path: Path) -> None:
    proc, cgroup = tmp_path / "proc", tmp_path / "cgroup"
    proc.mkdir(), cgroup.mkdir()
    (proc / "meminfo").write_text("MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\n")
    assert levels(machine.look_at_memory(proc, cgroup)) == ["ok"]
    (cgroup / "memory.max").write_text(f"{2 * GIB}\n")
    (cgroup / "memory.current").write_text(f"{GIB}\n")
    (finding,) = machine.look_at_memory(proc, cgroup)
    assert finding.level == "warn"
    assert "limited to 2.0" in finding.said


@pytest.mark.parametrize(("megabytes", "level"), [(32, "fail"), (256, "warn"), (8192, "ok")])
def test_shared_memory(megabytes: int, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stats:
        f_frsize = 1 << 20
        f_bavail = f_blocks = megabytes

    monkeypatch.setattr(machine.os, "statvfs", lambda _: Stats)
    assert levels(machine.look_at_shm()) == [level]


def test_no_shared_memory(tmp_path: Path) -> None:
    assert levels(machine.look_at_shm(tmp_path / "none")) == ["fail"]


def test_gpus_are_asked_for(tmp_path: Path) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'NVIDIA H200, 143771, 140000, 580.65.06'\n")
    program.chmod(0o755)
    assert machine.find_gpus(str(program)) == [Gpu("NVIDIA H200", 143_771 << 20, 140_000 << 20, "580.65.06")]
    program.write_text("#!/bin/sh\necho 'No devices were found'\nexit 6\n")
    assert machine.find_gpus(str(program)) is None
    assert machine.find_gpus(str(tmp_path / "none")) is None


def profile(checkpoint: Path, device: str = "cuda:0") -> Profile:
    stage = {"implementation": "qwen3_omni", "checkpoint": str(checkpoint), "device": device}
    return Profile(name="p", model="m", stages={"thinker": stage})


@pytest.mark.parametrize(
    ("device", "gpus", "expected"),
    [
        ("cpu", None, ["ok"]),
        ("cuda:0", None, ["fail"]),
        ("cuda:0", [Gpu("x", 80 * GIB, 80 * GIB, "580.1")], ["ok"]),
        ("cuda:0", [Gpu("x", 80 * GIB, 80 * GIB, "535.1")], ["warn"]),
        ("cuda:1", [Gpu("x", 80 * GIB, 80 * GIB, "580.1")], ["ok", "fail"]),
        ("cuda", [Gpu("x", 80 * GIB, 1000, "580.1")], ["ok", "fail"]),
    ],
)
def test_gpus_and_what_the_profile_wants(
    tmp_path: Path, device: str, gpus: list[Gpu] | None, expected: list[str]
) -> None:
    (tmp_path / "model.safetensors").write_bytes(bytes(4096))
    assert levels(deployment.look_at_gpu(profile(tmp_path, device), gpus)) == expected


def test_checkpoints(tmp_path: Path) -> None:
    def look() -> Finding:
        (finding,) = deployment.look_at_checkpoints(profile(tmp_path))
        return finding

    assert "config.json" in look().said
    (tmp_path / "config.json").write_text("{}")
    assert "model.safetensors" in look().said
    (tmp_path / "model.safetensors").write_bytes(b"x")
    assert look().level == "ok"
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    (tmp_path / "model-1.safetensors").write_bytes(b"x")
    assert "lacks 1" in look().said
    (tmp_path / "model-2.safetensors").write_bytes(b"x")
    assert look().level == "ok"
    (tmp_path / "model.safetensors.index.json").write_text("[]")
    assert look().level == "fail"


def test_what_stages_import() -> None:
    assert "torch" not in deployment.packages(load_profile("dummy"))
    assert "torch" in deployment.packages(profile(Path("x")))


@pytest.fixture
def serve() -> Iterator[Callable[[dict[str, tuple[int, Any]]], int]]:
    """HTTP servers that answer by path; a call gives the port."""
    running: list[http.server.HTTPServer] = []

    def start(answers: dict[str, tuple[int, Any]]) -> int:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, body = answers.get(self.path, (404, None))
                self.send_response(status)
                self.end_headers()
                self.wfile.write(b"" if body is None else json.dumps(body).encode())

            def log_message(self, *_: object) -> None:
                pass

        running.append(http.server.HTTPServer(("127.0.0.1", 0), Handler))
        threading.Thread(target=running[-1].serve_forever, daemon=True).start()
        return int(running[-1].server_port)

    yield start
    for server in running:
        server.shutdown()
        server.server_close()


def test_a_model_that_did_not_load(
    capsys: pytest.CaptureFixture[str], serve: Callable[[dict[str, tuple[int, Any]]], int]
) -> None:
    answers: dict[str, tuple[int, Any]] = {"/v2": (200, {"name": "triton", "version": "2.70.0"})}
    answers |= {f"/v2/models/{name}/ready": (200, None) for name in ("preprocess", "thinker", "omni_text")}
    front = serve({"/health": (503, {"status": "unavailable", "error": "stage_failed"})})
    status, found = report(capsys, *ports(triton_http_port=serve(answers), port=front))
    assert status == 1
    assert "2.70.0" in found["running Triton"][0]["said"]
    assert found["models"][0]["said"] == "not ready: talker, code2wav, omni"
    assert found["front door"][0]["said"] == "unavailable, error stage_failed"
    assert found["front door"][0]["level"] == "fail"
    assert "generation" not in found


def test_a_front_door_that_starts_without_triton(
    capsys: pytest.CaptureFixture[str], serve: Callable[[dict[str, tuple[int, Any]]], int]
) -> None:
    status, found = report(capsys, *ports(port=serve({"/health": (503, {"status": "starting"})})))
    assert status == 1
    assert found["running Triton"][0]["level"] == "fail"
    assert found["front door"][0]["level"] == "warn"
