"""Profiles: which implementation, checkpoint, device and sizes each stage has, and what the deployment offers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from omni.contract.names import STAGES

_CHECKOUT = Path(__file__).resolve().parent.parent
PROFILES = _CHECKOUT / "build" / "profiles"
"""Where a profile is looked for by its name."""


_KEYS = {"model", "voices", "context_length", "speech", "prefix_reuse", "sound_block_s", "gpu_memory_gib"}


class ProfileError(ValueError):
    """The profile doesn't exist or says something that no profile may say; the message tells an operator which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One deployment. `stages` maps a stage to its options, of which `implementation` is the package of stages."""

    name: str
    model: str
    """Model name that clients use, such as `qwen3-omni`."""
    voices: tuple[str, ...] = ()
    """Names of the voices that can speak, the default first."""
    context_length: int = 32_768
    """Most tokens of prompt and answer together."""
    speech: bool = True
    """Whether the deployment runs the talker and code2wav."""
    prefix_reuse: bool = False
    """Whether the thinker keeps the state of prompts, so that it pays to prefill what a session will ask about."""
    sound_block_s: float | None = None
    """Seconds of sound after which a beginning is encoded as it will be with what follows, so that it pays to prefill
    speech block by block; None when it never is."""
    gpu_memory_gib: float | None = None
    """Memory of each GPU that the profile is made for, as the driver tells it; None when it is for none."""
    stages: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def load_profile(name: str) -> Profile:
    """The profile called `name`, or the one in the file of that path. Raises `ProfileError`."""
    path = Path(name) if name.endswith((".yaml", ".yml")) else PROFILES / f"{name}.yaml"
    try:
        data = yaml.safe_load(path.read_text())
    except OSError:
        have = ", ".join(sorted(p.stem for p in PROFILES.glob("*.yaml")))
        raise ProfileError(
            f"there is no profile {name!r}; there are: {have}, or give the path of a .yaml file"
        ) from None
    except yaml.YAMLError as problem:
        raise ProfileError(f"the profile {name!r} isn't valid YAML: {problem}") from None
    if not isinstance(data, dict):
        raise ProfileError(f"the profile {name!r} must be a mapping")
    stages = data.pop("stages", {})
    if unknown := data.keys() - _KEYS:
        raise ProfileError(f"the profile {name!r} has unknown keys: {', '.join(sorted(unknown))}")
    if not isinstance(stages, dict) or (unknown := stages.keys() - set(STAGES)):
        raise ProfileError(f"the profile {name!r} must have a mapping of stages: {', '.join(STAGES)}")
    if "model" not in data:
        raise ProfileError(f"the profile {name!r} must name its model")
    return Profile(
        name=path.stem,
        model=str(data["model"]),
        voices=tuple(data.get("voices", ())),
        context_length=int(data.get("context_length", 32_768)),
        speech=bool(data.get("speech", True)),
        prefix_reuse=bool(data.get("prefix_reuse", False)),
        sound_block_s=None if (seconds := data.get("sound_block_s")) is None else float(seconds),
        gpu_memory_gib=None if (gib := data.get("gpu_memory_gib")) is None else float(gib),
        stages={stage: _options(stages.get(stage) or {}) for stage in STAGES},
    )


def _options(section: Mapping[str, Any]) -> dict[str, Any]:
    """A stage's section; a relative `checkpoint` or `engine` is in the checkout, wherever Triton was started."""
    options = dict(section)
    for key in options.keys() & {"checkpoint", "engine"}:
        options[key] = str(_CHECKOUT / str(options[key]))
    return options
