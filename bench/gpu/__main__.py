"""`python -m bench.gpu --json gpu.json`: the fidelity tests on the GPU, then the stages at the real model's sizes.

Needs no weights and no download, and is meant for ten minutes on an H200; the tests are ended after `--limit` seconds.
`--device cpu --tiny` is a dry run for a machine without a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers

from bench.gpu.fidelity import ROOT, fidelity
from bench.gpu.speed import speed


def asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.gpu", description=__doc__)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--tiny", action="store_true", help="the tiny checkpoint's sizes in place of the real ones")
    parser.add_argument("--checkpoint", type=Path, help="folder whose configuration has the sizes")
    parser.add_argument("--part", choices=("fidelity", "speed"), action="append", help="leave the other one out")
    parser.add_argument("--tests", metavar="EXPRESSION", help="of pytest, which picks some of the fidelity tests")
    parser.add_argument("--limit", type=float, default=270, help="seconds after which the tests are ended")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32])
    parser.add_argument("--steps", type=int, default=100, help="timed steps per batch size")
    parser.add_argument("--json", type=Path, help="file to write the figures to, after each part")
    return parser.parse_args()


def folder(arguments: argparse.Namespace) -> Path:
    """The configuration to take the sizes from, made when it isn't there."""
    if arguments.checkpoint is not None:
        return Path(arguments.checkpoint)
    name, script = ("tiny", "make_tiny.py") if arguments.tiny else ("real-sizes", "make_real.py")
    path = ROOT / ".omni" / name
    if not (path / "config.json").is_file():
        subprocess.run([sys.executable, str(ROOT / "build" / script), str(path)], check=True)
    return path


def machine(device: str) -> dict[str, Any]:
    versions = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    if device == "cpu":
        return {"device": f"{os.cpu_count()} CPUs", **versions}
    return {"device": torch.cuda.get_device_name(device), "cuda": torch.version.cuda, **versions}


def main() -> None:
    arguments = asked()
    device, parts = arguments.device, arguments.part or ["fidelity", "speed"]
    figures: dict[str, Any] = {"machine": machine(device)}

    def keep(name: str, made: dict[str, Any]) -> None:
        figures[name] = made
        if arguments.json is not None:
            arguments.json.write_text(json.dumps(figures, indent=1) + "\n")

    if "fidelity" in parts:
        keep("fidelity", fidelity(device, arguments.tests, arguments.limit))
    if "speed" in parts:
        dtype = "bfloat16"
        if device == "cpu":
            dtype = "float32"
            torch.set_num_threads(1)
        keep("speed", speed(folder(arguments), device, dtype, arguments.batches, arguments.steps))
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
