"""`python -m omni.client COMMAND ...`: each command is a module with `about`, `add_arguments` and `run`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from omni.client import chat, listen, realtime, speak, video

COMMANDS = {"chat": chat, "speak": speak, "listen": listen, "realtime": realtime, "video": video}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m omni.client", description="Clients for trying a server out.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, module in COMMANDS.items():
        module.add_arguments(commands.add_parser(name, help=module.ABOUT, description=module.ABOUT))
    options = parser.parse_args(arguments)
    try:
        status: int = COMMANDS[options.command].run(options)
    except KeyboardInterrupt:
        return 130
    return status


if __name__ == "__main__":
    sys.exit(main())
