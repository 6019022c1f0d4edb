"""Media from files of this machine, out of one folder that the operator opened for it."""

from __future__ import annotations

import os
import stat
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from omni.contract.errors import InvalidMedia, NotSupported, TooLarge


def read_file(source: str, folder: Path, max_bytes: int) -> bytes:
    """The file at `source`: a path relative to `folder`, or an absolute one or a `file:` URL that lies in it.

    Blocks. No step of the way may be `..` or a symbolic link, so nothing outside of `folder` is ever touched, and
    what can't be had is refused in the same words whatever the reason. Raises `NotSupported`, `InvalidMedia` or
    `TooLarge`.
    """
    steps = _steps(_path(source), PurePosixPath(os.path.abspath(folder)))
    try:
        return _read(folder, steps, max_bytes)
    except (OSError, ValueError):
        raise InvalidMedia("the file can't be read.") from None


def _path(source: str) -> PurePosixPath:
    if source[:5].lower() == "file:":
        url = urlsplit(source)
        if url.netloc not in ("", "localhost"):
            raise NotSupported("a file: URL must not name a host.")
        source = unquote(url.path)
    elif "://" in source:
        raise NotSupported("the URL must begin with http://, https://, file:// or data:.")
    return PurePosixPath(source)


def _steps(path: PurePosixPath, folder: PurePosixPath) -> tuple[str, ...]:
    if path.is_absolute():
        if not path.is_relative_to(folder):
            raise NotSupported("local files are read from the server's media folder only.")
        path = path.relative_to(folder)
    if ".." in path.parts or not path.parts or "\0" in str(path):
        raise NotSupported("local files are read from the server's media folder only.")
    return path.parts


def _read(folder: Path, steps: tuple[str, ...], max_bytes: int) -> bytes:
    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for last, name in enumerate(steps, 1 - len(steps)):
            # Without O_NONBLOCK, opening a named pipe would wait for its writer.
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | (os.O_DIRECTORY if last else os.O_NONBLOCK)
            inner = os.open(name, flags, dir_fd=place)
            os.close(place)
            place = inner
        facts = os.fstat(place)
        if not stat.S_ISREG(facts.st_mode):
            raise InvalidMedia("the file can't be read.")
        if facts.st_size > max_bytes:
            raise TooLarge(f"the file is larger than the {max_bytes} bytes that an item may have.")
        with open(place, "rb", closefd=False) as file:
            return file.read(max_bytes)
    finally:
        os.close(place)
