"""`python -m bench.perf_analyzer`: perf_analyzer against both ensembles of an own Triton, and against the HTTP API.

Prints one row per run and load level; `--json` writes them to a file. The exit status is 1 when a run failed.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench import processes
from bench.perf_analyzer.make_input import chats, entries, parameter, settings
from bench.perf_analyzer.read_profile import rows

WORDS = 20
TOKENS = 60


def parser() -> argparse.ArgumentParser:
    out = argparse.ArgumentParser(prog="python -m bench.perf_analyzer", description=__doc__)
    out.add_argument("--program", default="perf_analyzer", help="perf_analyzer itself, or a script that starts it")
    out.add_argument("--profile", default="dummy", help="what the server serves")
    out.add_argument("--interval-ms", type=float, help="pace of the dummy thinker; leave out for a real model")
    out.add_argument("--concurrency", type=int, nargs="+", default=[1, 8], help="requests at a time")
    out.add_argument("--requests", type=int, default=32, help="requests of each level")
    out.add_argument("--only", choices=["omni", "omni_text", "http"], action="append", help="one of the runs")
    out.add_argument("--json", type=Path, help="write the rows to this file")
    return out


def analyse(program: str, place: Path, options: argparse.Namespace, *flags: str) -> list[dict[str, Any]]:
    """One run of perf_analyzer at each level; raises SystemExit with what it said when it fails."""
    out = []
    for level in options.concurrency:
        export = place / "export.json"
        export.unlink(missing_ok=True)
        command = [program, *flags, "--async", "--input-data", str(place / "input.json")]
        command += ["--concurrency-range", str(level), "--request-count", str(options.requests)]
        done = subprocess.run(
            [*command, "--profile-export-file", str(export)], capture_output=True, text=True, timeout=600, check=False
        )
        if done.returncode or not export.exists():
            raise SystemExit(f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        out += rows(json.loads(export.read_text()))
    return out


def ensemble(name: str, program: str, place: Path, options: argparse.Namespace, grpc: str) -> list[dict[str, Any]]:
    wanted = settings(TOKENS, speech=name == "omni", interval_ms=options.interval_ms)
    (place / "input.json").write_text(json.dumps({"data": entries(16, WORDS, 0)}))
    flags = ("-m", name, "-i", "grpc", "-u", grpc, "--streaming", "--request-parameter", parameter(wanted))
    return [{"run": name, **row} for row in analyse(program, place, options, *flags)]


def http(program: str, place: Path, options: argparse.Namespace, port: int) -> list[dict[str, Any]]:
    (place / "input.json").write_text(json.dumps({"data": chats(16, WORDS, 0, TOKENS, options.interval_ms)}))
    flags = ("-m", "qwen3-omni", "--service-kind", "openai", "--endpoint", "v1/chat/completions")
    flags += ("-i", "http", "-u", f"http://127.0.0.1:{port}")
    return [{"run": "http", **row} for row in analyse(program, place, options, *flags)]


def main() -> int:
    options = parser().parse_args()
    if (program := shutil.which(options.program)) is None:
        sys.stderr.write(f"there is no {options.program}; see bench/perf_analyzer/README.md\n")
        return 1
    wanted = options.only or ["omni", "omni_text", "http"]
    out: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        if names := [name for name in wanted if name != "http"]:
            with processes.triton(options.profile) as grpc:
                for name in names:
                    out += ensemble(name, program, place, options, grpc)
        if "http" in wanted:
            with processes.omni(options.profile) as (port, _, _):
                out += http(program, place, options, port)
    for row in out:
        print(json.dumps(row))
    if options.json:
        options.json.write_text(json.dumps(out, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
