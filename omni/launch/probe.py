"""`python -m omni.launch.probe`: does a Triton answer a tiny generation in time? For container health checks."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import grpc

from omni.launch.liveness import answers


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status: 0 when the generation came to its end, 1 when it didn't."""
    parser = argparse.ArgumentParser(prog="python -m omni.launch.probe", description=__doc__)
    parser.add_argument("--url", default="127.0.0.1:8001", help="host:port of Triton's gRPC service")
    parser.add_argument("--deadline", type=float, default=10.0, help="seconds that the generation may take")
    options = parser.parse_args(arguments)
    with grpc.insecure_channel(options.url) as channel:
        alive = answers(channel, options.deadline)
    sys.stdout.write(f"Triton at {options.url} {'answers' if alive else 'does not answer'}\n")
    return 0 if alive else 1


if __name__ == "__main__":
    sys.exit(main())
