"""Dockerfiles, read and carried out as far as that goes without Docker."""

from __future__ import annotations

import fnmatch
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_SKIPPED = ("useradd", "install -d -o")
"""Commands that need root and the image's user database."""


@dataclass(frozen=True)
class Instruction:
    name: str
    value: str
    line: int


def read(path: Path) -> list[Instruction]:
    """The instructions of a Dockerfile, continued lines joined, comments left out."""
    out, held, at = [], "", 0
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.lstrip().startswith("#") or not (line.strip() or held):
            continue
        at = at or number
        held += line.strip().removesuffix("\\") + " "
        if not line.rstrip().endswith("\\"):
            name, _, value = held.strip().partition(" ")
            out.append(Instruction(name.upper(), value.strip(), at))
            held, at = "", 0
    return out


def values(instructions: list[Instruction], name: str) -> list[str]:
    return [one.value for one in instructions if one.name == name]


def substitute(text: str, variables: Mapping[str, str]) -> str:
    """`$NAME`, `${NAME}`, `${NAME:-word}` and `${NAME:+word}`, as Docker does. Raises KeyError for an unknown name."""

    def one(match: re.Match[str]) -> str:
        name, operator, word = match["plain"] or match["name"], match["operator"], match["word"] or ""
        value = variables.get(name, "") if operator else variables[name]
        if operator == ":-":
            return value or substitute(word, variables)
        if operator == ":+":
            return substitute(word, variables) if value else ""
        return value

    # A word may hold one more substitution.
    inner = r"(?:[^{}]|\$\{\w+\})*"
    return re.sub(rf"\$(?:(?P<plain>\w+)|\{{(?P<name>\w+)(?:(?P<operator>:[-+])(?P<word>{inner}))?\}})", one, text)


def context(root: Path) -> Iterator[Path]:
    """The files under `root` that .dockerignore lets into the build context, relative to it."""
    rules = [line.strip() for line in (root / ".dockerignore").read_text().splitlines()]
    rules = [rule for rule in rules if rule and not rule.startswith("#")]
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=root, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    for name in listed.splitlines():
        kept = True
        for rule in rules:
            wanted, pattern = rule.startswith("!"), rule.removeprefix("!")
            if _covers(pattern, name):
                kept = wanted
        if kept and (root / name).is_file():
            yield Path(name)


def _covers(pattern: str, name: str) -> bool:
    parts = name.split("/")
    prefixes = ["/".join(parts[: n + 1]) for n in range(len(parts))]
    if pattern.startswith("**/"):
        return any(fnmatch.fnmatchcase(part, pattern[3:]) for part in parts)
    return any(fnmatch.fnmatchcase(prefix, pattern) and prefix.count("/") == pattern.count("/") for prefix in prefixes)


class Build:
    """An image's file system below `root`, built by the instructions that need neither Docker nor root.

    Absolute paths of the image are moved below `root`; COPY takes from what .dockerignore leaves. `python3` stands for
    the base image's Python.
    """

    def __init__(
        self, checkout: Path, dockerfile: Path, root: Path, *, python: str, arguments: Mapping[str, str]
    ) -> None:
        self.root = root
        self.env: dict[str, str] = {}
        self._variables = dict(arguments)
        self._context = root / "context"
        self._bin = root / "bin"
        for name in context(checkout):
            (self._context / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(checkout / name, self._context / name)
        self._bin.mkdir(parents=True)
        (self._bin / "python3").symlink_to(python)
        self._at = root
        for one in read(dockerfile):
            self._do(one)

    def inside(self, path: str) -> Path:
        """Where an absolute path of the image is."""
        return self.root / path.lstrip("/")

    def environment(self) -> dict[str, str]:
        """The environment of a container: nothing of ours but what finding packages needs."""
        kept = {name: os.environ[name] for name in os.environ if name.startswith(("PIP_", "SSL_", "HOME", "LANG"))}
        return kept | {"PATH": self._path(f"{self._bin}:/usr/bin:/bin")} | self.env

    def _path(self, outer: str) -> str:
        return self.env.get("PATH", "$PATH").replace("$PATH", outer)

    def _move(self, text: str) -> str:
        return re.sub(r"(?<![\w.])/(opt|var/lib)/omni", lambda found: str(self.root / found[0].lstrip("/")), text)

    def _do(self, one: Instruction) -> None:
        if one.name == "ARG":
            name, _, default = one.value.partition("=")
            self._variables.setdefault(name, default)
        elif one.name == "ENV":
            for pair in shlex.split(one.value):
                name, _, value = pair.partition("=")
                outer = self._path(f"{self._bin}:/usr/bin:/bin")
                self.env[name] = self._move(value.replace("$PATH", outer))
        elif one.name == "WORKDIR":
            self._at = self.inside(one.value)
            self._at.mkdir(parents=True, exist_ok=True)
        elif one.name == "COPY":
            self._copy([word for word in one.value.split() if not word.startswith("--")])
        elif one.name == "RUN":
            self._run(one)

    def _copy(self, words: list[str]) -> None:
        *sources, target = words
        place = self.inside(target) if target.startswith("/") else self._at / target
        for source in sources:
            found = self._context / source
            if not found.exists():
                raise FileNotFoundError(f"COPY {source}: not in the build context")
            if found.is_dir():
                shutil.copytree(found, place, dirs_exist_ok=True)
            else:
                into = place / found.name if target.endswith("/") else place
                into.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(found, into)

    def _run(self, one: Instruction) -> None:
        if one.value.startswith(_SKIPPED):
            return
        known = {**self._variables, **self.environment()}
        command = self._move(substitute(one.value, known))
        # pip reads "0" as: use its cache, and compile nothing. Both only make the build quicker.
        quick = {"PIP_NO_CACHE_DIR": "0", "PIP_NO_COMPILE": "0"}
        done = subprocess.run(
            ["/bin/sh", "-ec", command], cwd=self._at, env=self.environment() | quick,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"line {one.line}: {command}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
