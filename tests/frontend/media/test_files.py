from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

from frontend.media.files import read_file
from omni.contract.errors import InvalidMedia, InvalidRequest, NotSupported, TooLarge

pytestmark = pytest.mark.process

BYTES = b"a picture"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_bytes(b"secret")
    folder = tmp_path / "media"
    (folder / "deep" / "a b").mkdir(parents=True)
    (folder / "deep" / "a b" / "cars.jpg").write_bytes(BYTES)
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "within").symlink_to(folder / "deep" / "a b" / "cars.jpg")
    (folder / "out").symlink_to(tmp_path, target_is_directory=True)
    os.mkfifo(folder / "pipe")
    return folder


def test_the_ways_to_name_a_file(folder: Path) -> None:
    name = "deep/a b/cars.jpg"
    inside = f"{folder}/deep/a%20b/cars.jpg"
    for source in (name, f"./{name}", f"{folder}/{name}", f"file://{inside}", f"FILE://localhost{inside}"):
        assert read_file(source, folder, 100) == BYTES


@pytest.mark.parametrize(
    "source",
    [
        "../secret", "deep/../../secret", "deep/../deep/a b/cars.jpg", "/etc/passwd", "/", "", ".", "file:///etc/passwd",
        "file://%2e%2e/secret", "file://elsewhere/media/x", "FILE:../secret", "ftp://example.com/x", "http:/x/../..",
        "deep\0/x",
    ],
)  # fmt: skip
def test_what_is_outside_is_refused_before_anything_is_touched(
    source: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def touched(*_: object, **__: object) -> int:
        raise AssertionError

    monkeypatch.setattr(os, "open", touched)
    with pytest.raises(NotSupported) as refusal:
        read_file(source, folder, 100)
    assert len(source) < 2 or source not in refusal.value.message


def test_an_absolute_path_beside_the_folder_is_outside(folder: Path) -> None:
    for source in (f"{folder}/../secret", f"{folder}x/y", f"file://{folder}/%2e%2e/secret"):
        with pytest.raises(NotSupported):
            read_file(source, folder, 100)


def test_links_folders_pipes_and_missing_files_are_refused_in_the_same_words(folder: Path) -> None:
    said = set()
    for source in ("link", "within", "out/secret", "out/media/deep/a b/cars.jpg", "deep", "pipe", "none", "deep/none",
                   "deep/a b/cars.jpg/x", "x" * 300):  # fmt: skip
        with pytest.raises(InvalidMedia) as refusal:
            read_file(source, folder, 100)
        said.add(refusal.value.message)
    assert said == {"the file can't be read."}


def test_a_file_over_the_limit(folder: Path) -> None:
    assert read_file("deep/a b/cars.jpg", folder, len(BYTES)) == BYTES
    with pytest.raises(TooLarge):
        read_file("deep/a b/cars.jpg", folder, len(BYTES) - 1)


def test_nothing_stays_open(folder: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for source in ("deep/a b/cars.jpg", "deep", "pipe", "none", "link", "out/secret"):
        for limit in (1, 100):
            with contextlib.suppress(InvalidRequest):
                read_file(source, folder, limit)
    assert len(os.listdir("/proc/self/fd")) == before
