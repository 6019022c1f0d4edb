"""`python -m omni.launch serve|triton [options]`."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence

from omni.launch.child import adopt_orphans
from omni.launch.errors import LaunchError
from omni.launch.launcher import Launcher
from omni.launch.options import read


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status: 0 after a clean stop, 1 when it couldn't start or go on, 2 for a wrong option."""
    logging.basicConfig(level=logging.INFO, format="omni: %(message)s", stream=sys.stderr)
    try:
        command, options, extra = read(sys.argv[1:] if arguments is None else arguments, os.environ)
        launcher = Launcher(options, front=command == "serve", front_arguments=extra)
    except LaunchError as problem:
        sys.stderr.write(f"omni: {problem}\n")
        return 2
    adopt_orphans()
    return launcher.run()


if __name__ == "__main__":
    sys.exit(main())
