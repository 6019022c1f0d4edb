"""Who may import whom."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.pure
ROOT = Path(__file__).parents[1]

MAY: dict[str, tuple[str, ...]] = {
    "omni.contract": ("omni.contract",),
    "omni.profile": ("omni.contract",),
    "omni.engine": ("omni.contract", "omni.engine"),
    "omni.stages": ("omni.contract", "omni.engine", "omni.stages"),
    "omni.runtime": ("omni.contract", "omni.profile", "omni.runtime", "omni.stages"),
    "omni.launch": ("omni.contract", "omni.profile", "omni.launch"),
    "frontend.openai": ("omni.contract", "omni.profile", "frontend.openai"),
    "frontend.protocol": ("omni.contract", "frontend.openai", "frontend.protocol"),
    "frontend.media": ("omni.contract", "frontend.media"),
    "frontend.engine": ("omni.contract", "frontend.engine"),
}
"""By package, what of ours it may import. A package that isn't named here may import anything."""

SANS_IO = ("omni.contract", "frontend.protocol")
NO_IO = {"asyncio", "fastapi", "starlette", "grpc", "tritonclient", "socket", "threading", "time"}


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def modules(package: str) -> list[Path]:
    place = ROOT.joinpath(*package.split("."))
    return sorted(place.rglob("*.py")) if place.is_dir() else [place.with_suffix(".py")]


def inside(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == one or name.startswith(one + ".") for one in packages)


@pytest.mark.parametrize("package", [p for p in MAY if modules(p)[:1] and modules(p)[0].exists()])
def test_a_room_imports_only_its_neighbours(package: str) -> None:
    for path in modules(package):
        ours = [n for n in imports(path) if n.startswith(("omni.", "frontend."))]
        wrong = [n for n in ours if not inside(n, MAY[package])]
        assert not wrong, f"{path.relative_to(ROOT)} imports {wrong}"


@pytest.mark.parametrize("package", [p for p in SANS_IO if ROOT.joinpath(*p.split(".")).exists()])
def test_pure_rooms_do_no_io(package: str) -> None:
    for path in modules(package):
        wrong = {name.split(".")[0] for name in imports(path)} & NO_IO
        assert not wrong, f"{path.relative_to(ROOT)} imports {wrong}"


def test_only_the_host_touches_the_python_backend() -> None:
    users = [p for p in ROOT.joinpath("omni").rglob("*.py") if "triton_python_backend_utils" in set(imports(p))]
    assert [p.relative_to(ROOT).as_posix() for p in users] == ["omni/runtime/host.py"]


def test_tensors_stay_at_the_edges() -> None:
    users = [
        p for p in ROOT.joinpath("frontend").rglob("*.py") if any(n.startswith("tritonclient") for n in imports(p))
    ]
    assert [p.relative_to(ROOT).as_posix() for p in users] == ["frontend/engine/messages.py"]
