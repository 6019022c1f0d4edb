"""`PYTHONPATH=tests/lib python -m fuzz --runs 100000`: random inputs, guided by the branches that they take (Atheris).

The exit status is 0 when nothing but our own errors came out. Otherwise the traceback is printed, and the input is
written where `--keep` says; `--input FILE` runs it again.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import warnings
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["omni", "frontend"], enable_loader_override=False):
    from fuzz.targets import TARGETS

from fuzz.mutate import Mutator, join, split
from fuzz.seeds import seeds

MOST_BYTES = 1 << 16
INPUT_S = 20
"""Seconds after which an input counts as hung."""


def parser() -> argparse.ArgumentParser:
    out = argparse.ArgumentParser(prog="python -m fuzz", description="Feed random inputs to everything that parses.")
    out.add_argument("--runs", type=int, default=100_000, help="inputs")
    out.add_argument("--seed", type=int, default=1, help="the same seed makes the same inputs")
    out.add_argument("--only", choices=list(TARGETS), action="append", help="fuzz this alone; may be given again")
    out.add_argument("--keep", type=Path, help="folder for the inputs that took new branches, and those that failed")
    out.add_argument("--input", type=Path, help="run this input alone")
    return out


def main() -> None:
    options = parser().parse_args()
    # What is logged is for operators; thousands of broken inputs make thousands of lines.
    logging.disable(logging.CRITICAL)
    warnings.filterwarnings("ignore", category=UserWarning, module="PIL")
    targets = list(TARGETS.values())

    def run(data: bytes) -> None:
        """The first byte says which target the rest is for."""
        if data:
            targets[data[0] % len(targets)](split(data[1:]))

    if options.input:
        run(options.input.read_bytes())
        return

    def mutate(data: bytes, most: int, seed: int) -> bytes:
        mutator = Mutator(seed, most, atheris.Mutate)
        return (data[:1] + join(mutator.pieces(split(data[1:]))))[:most]

    keep = options.keep or Path(tempfile.mkdtemp(prefix="fuzz-"))
    corpus = keep / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for number, (name, examples) in enumerate(seeds().items()):
        assert name == list(TARGETS)[number]
        if options.only and name not in options.only:
            continue
        for index, pieces in enumerate(examples):
            (corpus / f"{name}-{index}").write_bytes(bytes([number]) + join(pieces))
    flags = [f"-atheris_runs={options.runs}", f"-seed={options.seed}", f"-max_len={MOST_BYTES}", "-print_final_stats=1"]
    flags += [f"-timeout={INPUT_S}", "-rss_limit_mb=4096", "-verbosity=0", f"-artifact_prefix={keep}/"]
    atheris.Setup([sys.argv[0], *flags, str(corpus)], run, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
