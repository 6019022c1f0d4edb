"""`python -m bench.aiperf`: aiperf against the HTTP API of an own server, for text and for speech.

Prints one row per run; `--json` writes them to a file. The exit status is 1 when a run failed.
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
from bench.aiperf.read_export import row

RUNS = ("text", "speech")


def parser() -> argparse.ArgumentParser:
    out = argparse.ArgumentParser(prog="python -m bench.aiperf", description=__doc__)
    out.add_argument("--program", default="aiperf", help="aiperf itself")
    out.add_argument("--profile", default="dummy", help="what the server serves")
    out.add_argument("--interval-ms", type=float, help="pace of the dummy thinker; leave out for a real model")
    out.add_argument("--concurrency", type=int, default=8)
    out.add_argument("--requests", type=int, default=64)
    out.add_argument("--tokens", type=int, default=60, help="most tokens of an answer")
    out.add_argument("--only", choices=RUNS, action="append", help="one of the runs")
    out.add_argument("--json", type=Path, help="write the rows to this file")
    return out


def write_tokenizer(folder: Path) -> None:
    """A tokenizer whose tokens are bytes: aiperf makes its questions with one, and would fetch it otherwise."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    # The letters that stand for bytes in byte-level BPE: a printable byte is itself, the others follow from 256 on.
    others = [byte for byte in range(256) if byte not in plain]
    letters = [*map(chr, plain), *(chr(256 + n) for n in range(len(others)))]
    vocabulary = {letter: number for number, letter in enumerate([*letters, "<end>"])}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    body = {
        "version": "1.0",
        "added_tokens": [{"id": len(letters), "content": "<end>", "special": True}
                         | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)],
        "pre_tokenizer": level,
        "decoder": level,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
    }  # fmt: skip
    folder.mkdir()
    (folder / "tokenizer.json").write_text(json.dumps(body))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<end>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "config.json").write_text('{"model_type": "gpt2"}')


def measure(program: str, name: str, port: int, place: Path, options: argparse.Namespace) -> dict[str, Any]:
    """One run of aiperf; raises SystemExit with what it said when it fails."""
    body: dict[str, Any] = {}
    if name == "speech":
        body |= {"modalities": ["text", "audio"], "audio": {"voice": "Ethan", "format": "wav"}}
    if options.interval_ms is not None:
        body |= {"ignore_eos": True, "stage_params": {"thinker": {"token_interval_ms": options.interval_ms}}}
    command = [
        *(program, "profile", "--model", "qwen3-omni", "--url", f"http://127.0.0.1:{port}"),
        *("--endpoint-type", "chat", "--streaming", "--use-server-token-count", "--tokenizer", "./tokenizer"),
        *("--concurrency", str(options.concurrency), "--request-count", str(options.requests)),
        *("--synthetic-input-tokens-mean", "100", "--output-tokens-mean", str(options.tokens), "--random-seed", "1"),
        *("--artifact-dir", name, "--export-level", "raw", "--ui", "none"),
        *(("--extra-inputs", json.dumps(body)) if body else ()),
    ]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=900, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return {"run": name, "concurrency": options.concurrency, **row(place / name)}


def main() -> int:
    options = parser().parse_args()
    if (program := shutil.which(options.program)) is None:
        sys.stderr.write(f"there is no {options.program}; see bench/perf_analyzer/README.md\n")
        return 1
    with tempfile.TemporaryDirectory() as folder, processes.omni(options.profile) as (port, _, _):
        write_tokenizer(Path(folder) / "tokenizer")
        rows = [measure(program, name, port, Path(folder), options) for name in options.only or RUNS]
    for one in rows:
        print(json.dumps(one))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
