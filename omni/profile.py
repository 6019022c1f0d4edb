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
    if unknown := data.keys() - {"model", "voices", "context_length", "speech", "prefix_reuse"}:
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
        stages={stage: _options(stages.get(stage) or {}) for stage in STAGES},
    )


def _options(section: Mapping[str, Any]) -> dict[str, Any]:
    """A stage's section; a relative `checkpoint` is a folder of the checkout, wherever Triton was started."""
    options = dict(section)
    if "checkpoint" in options:
        options["checkpoint"] = str(_CHECKOUT / str(options["checkpoint"]))
    return options
