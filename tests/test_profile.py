"""Profiles: what they may say, and that ours say nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from omni.profile import PROFILES, ProfileError, load_profile

pytestmark = pytest.mark.pure


@pytest.mark.parametrize("name", sorted(path.stem for path in PROFILES.glob("*.yaml")))
def test_our_profiles_can_be_read(name: str) -> None:
    profile = load_profile(name)
    assert profile.name == name
    assert all("implementation" in options for options in profile.stages.values())


def test_a_relative_checkpoint_is_a_folder_of_the_checkout(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(
        "model: m\nstages: {thinker: {checkpoint: .omni/tiny}, talker: {checkpoint: /models/omni, engine: a.onnx}}\n"
    )
    stages = load_profile(str(file)).stages
    assert stages["thinker"]["checkpoint"] == str(PROFILES.parents[1] / ".omni/tiny")
    assert stages["talker"]["checkpoint"] == "/models/omni"
    assert stages["talker"]["engine"] == str(PROFILES.parents[1] / "a.onnx")
    assert "checkpoint" not in stages["code2wav"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("stages: {}", "must name its model"),
        ("[1]", "must be a mapping"),
        ("model: m\nvoice: x", "unknown keys: voice"),
        ("model: m\nstages: {vocoder: {}}", "must have a mapping of stages"),
        ("model: [", "isn't valid YAML"),
    ],
)
def test_what_no_profile_may_say_is_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(text)
    with pytest.raises(ProfileError, match=message):
        load_profile(str(file))


def test_an_unknown_name_is_told_with_those_there_are() -> None:
    with pytest.raises(ProfileError, match="dummy"):
        load_profile("none-of-ours")
