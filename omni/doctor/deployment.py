"""The deployment: profile, checkpoints, devices, settings."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from omni.contract.names import ENSEMBLES, OMNI, OMNI_TEXT
from omni.doctor.finding import Finding
from omni.doctor.machine import GIB, Gpu
from omni.profile import Profile, ProfileError, load_profile

DRIVER = 580
"""Least major version of the GPU driver for images of 2026, which carry CUDA 13."""
SPARE = 0.15
"""Share of the weights' size that a GPU needs on top, for caches and activations, as a rule of thumb."""


def look_at_profile(name: str) -> tuple[Profile | None, list[Finding]]:
    try:
        profile = load_profile(name)
    except ProfileError as problem:
        return None, [Finding("profile", "fail", str(problem), "choose one with --profile or OMNI_PROFILE")]
    used = sorted({str(options.get("implementation", "dummy")) for options in profile.stages.values()})
    return profile, [Finding("profile", "ok", f"{profile.name}: model {profile.model}, stages {', '.join(used)}")]


def packages(profile: Profile | None) -> list[str]:
    """Distributions that the profile's stages and the front door import."""
    out = ["numpy", "fastapi", "uvicorn", "tritonclient"]
    used = {options.get("implementation") for options in profile.stages.values()} if profile else set()
    return out + (["torch", "transformers", "safetensors"] if "qwen3_omni" in used else [])


def look_at_models(repository: Path, profile: Profile | None) -> Iterator[Finding]:
    speech = profile is None or profile.speech
    names = {OMNI_TEXT, *ENSEMBLES[OMNI_TEXT]} | ({OMNI, *ENSEMBLES[OMNI]} if speech else set())
    missing = sorted(name for name in names if not (repository / name / "config.pbtxt").is_file())
    if missing:
        said = f"{repository} lacks {', '.join(missing)}"
        yield Finding("model repository", "fail", said, "correct --model-repository, or check the files out again")
    else:
        yield Finding("model repository", "ok", f"{len(names)} models in {repository}")


def look_at_checkpoints(profile: Profile) -> Iterator[Finding]:
    for path in sorted(_checkpoints(profile)):
        where = Path(path)
        todo = "mount or fetch the checkpoint there, or correct `checkpoint` in the profile"
        if not (where / "config.json").is_file():
            yield Finding("checkpoint", "fail", f"{path} isn't there or has no config.json", todo)
            continue
        missing = [name for name in _shards(where) if not (where / name).is_file()]
        if missing:
            said = f"{path} lacks {len(missing)} of its files of weights, such as {missing[0]}"
            yield Finding("checkpoint", "fail", said, "fetch it again; an interrupted download is continued")
        else:
            yield Finding("checkpoint", "ok", f"{path}, {_size(where) / GIB:.1f} GiB")


def _checkpoints(profile: Profile) -> set[str]:
    return {str(options["checkpoint"]) for options in profile.stages.values() if options.get("checkpoint")}


def _shards(checkpoint: Path) -> Iterable[str]:
    """The files that the checkpoint's index names; without an index, any one file of weights will do."""
    try:
        index = json.loads((checkpoint / "model.safetensors.index.json").read_text())
        return sorted(set(index["weight_map"].values()))
    except FileNotFoundError:
        return [] if list(checkpoint.glob("*.safetensors")) else ["model.safetensors"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return ["a readable model.safetensors.index.json"]


def _size(checkpoint: Path) -> int:
    return sum(path.stat().st_size for path in checkpoint.glob("*.safetensors"))


def look_at_gpu(profile: Profile | None, gpus: list[Gpu] | None) -> Iterator[Finding]:
    devices = {str(options.get("device", "cpu")) for options in profile.stages.values()} if profile else set()
    wanted = {device for device in devices if device.startswith("cuda")}
    if not gpus:
        if wanted:
            said = "the profile wants one and nvidia-smi finds none"
            todo = "install the driver; in a container, the NVIDIA runtime and a device reservation"
            yield Finding("GPU", "fail", said, todo)
        else:
            yield Finding("GPU", "ok", "none, and the profile needs none")
        return
    for number, gpu in enumerate(gpus):
        said = f"{number}: {gpu.name}, {gpu.free / GIB:.0f} GiB free of {gpu.total / GIB:.0f}, driver {gpu.driver}"
        major = gpu.driver.split(".")[0]
        if major.isdecimal() and int(major) < DRIVER:
            yield Finding("GPU", "warn", said, f"images of 2026 want driver {DRIVER} or later")
        else:
            yield Finding("GPU", "ok", said)
    last = max((int(device.partition(":")[2] or 0) for device in wanted), default=-1)
    if last >= len(gpus):
        said = f"the profile names cuda:{last} and there are {len(gpus)}"
        yield Finding("GPU", "fail", said, "choose a profile for this machine")
    elif wanted and profile is not None:
        need = sum(_size(Path(path)) for path in _checkpoints(profile)) * (1 + SPARE)
        free = sum(gpu.free for gpu in gpus)
        if need > free:
            said = f"the weights want about {need / GIB:.0f} GiB and {free / GIB:.0f} are free"
            yield Finding("GPU memory", "fail", said, "end what else uses the GPUs, or choose a smaller profile")


def look_at_settings(load: Callable[[], object]) -> Iterator[Finding]:
    """`load` reads the front door's settings; its errors are meant for the operator."""
    try:
        load()
    except ValueError as problem:
        for line in str(problem).splitlines():
            yield Finding("settings", "fail", line, "see `python -m frontend --help`")
    except SystemExit:
        yield Finding("settings", "fail", "an option of the front door is wrong", "see `python -m frontend --help`")
    else:
        yield Finding("settings", "ok", "the front door takes them")
