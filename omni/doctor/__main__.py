"""`python -m omni.doctor [--json] [options of the launcher]`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence

from omni.doctor import deployment, machine
from omni.doctor.finding import Finding
from omni.launch.errors import LaunchError
from omni.launch.options import Options, parser, read

_ABOUT = """Check this machine, the deployment and what runs, and say what to do. Options are the launcher's, plus:

  --json  one JSON object instead of lines

The exit status is 0 when nothing failed, 1 when something did, 2 for a wrong option."""


def examine(options: Options, front_arguments: Sequence[str] = ()) -> Iterator[Finding]:
    """Every finding, in the order in which an operator would look."""
    yield from machine.look_at_python()
    profile, findings = deployment.look_at_profile(options.profile)
    yield from findings
    yield from machine.look_at_packages(deployment.packages(profile), embedded=options.tritonserver is None)
    yield from machine.look_at_triton(options.tritonserver)
    yield from machine.look_at_memory()
    yield from machine.look_at_shm()
    yield from machine.look_at_files(options.home)
    yield from deployment.look_at_models(options.model_repository, profile)
    if profile is not None:
        yield from deployment.look_at_checkpoints(profile)
    yield from deployment.look_at_gpu(profile, machine.find_gpus())
    yield from deployment.look_at_settings(lambda: _load_settings(options, front_arguments))
    try:
        from omni.doctor import serving
    except ImportError:
        return  # of packages that were reported as missing
    yield from serving.look_at_what_runs(options, speech=profile is None or profile.speech)


def _load_settings(options: Options, arguments: Sequence[str]) -> object:
    from frontend.settings import load

    given = [] if options.config is None else ["--config", str(options.config)]
    return load([*given, *arguments])


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    if "--help" in given or "-h" in given:
        sys.stdout.write(f"{_ABOUT}\n\n{parser().format_help().partition('options:')[2]}")
        return 0
    as_json = "--json" in given
    try:
        _, options, extra = read(["serve", *(word for word in given if word != "--json")], os.environ)
    except LaunchError as problem:
        sys.stderr.write(f"omni: {problem}\n")
        return 2
    found = []
    for finding in examine(options, extra):
        found.append(finding)
        if not as_json:
            sys.stdout.write(f"{finding}\n")
            sys.stdout.flush()
    failed = sum(finding.level == "fail" for finding in found)
    warned = sum(finding.level == "warn" for finding in found)
    if as_json:
        sys.stdout.write(json.dumps({"ok": not failed, "findings": [f.to_json() for f in found]}, indent=1) + "\n")
    else:
        sys.stdout.write(f"{len(found)} looks, {failed} failed, {warned} to think about\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
