#!/usr/bin/env python3
"""Fetches a checkpoint from the Hugging Face hub, and goes on where an earlier run was stopped.

    python build/fetch.py Qwen/Qwen3-Omni-30B-A3B-Instruct /models/Qwen3-Omni-30B-A3B-Instruct
    python build/fetch.py ... --stage code2wav         what one stage needs, to export it
    python build/fetch.py ... --include '*.json'       files of these names alone

Every file is checked against the hub's checksum before it gets its name; until then it is FILE.part. A file that is
there already is checked too, and fetched again when it is another. HF_TOKEN opens private and gated repositories,
HF_ENDPOINT names another hub. Needs the package huggingface_hub, which comes with transformers.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import sys
import threading
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import httpx2
from huggingface_hub import HfApi, constants, hf_hub_url
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.file_download import http_get
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils import build_hf_headers
from tqdm import tqdm

SERVED = ("*.json", "*.jinja", "*.txt", "*.safetensors")
"""What stages read. The repository's pictures, and weights in other formats, stay where they are."""
INDEX = "model.safetensors.index.json"
PREFIXES = {
    "preprocess": (),
    "thinker": ("thinker.",),
    "talker": ("talker.", "thinker.model.embed_tokens."),
    "code2wav": ("code2wav.",),
}
"""By stage, how the tensors that it reads begin."""
WORKERS = 4
ATTEMPTS = 2
"""Times that a file is fetched whose checksum is wrong."""


class FetchError(Exception):
    """What went wrong and what to do, in one line."""


class _Stopped(Exception):
    """Somebody wants this process to end."""


@dataclass(frozen=True, slots=True)
class Remote:
    """A file of the repository."""

    path: str
    size: int
    digest: str
    """Its sha256 when it is large, else the SHA-1 of its Git object."""

    def digest_of(self, file: Path) -> str:
        if len(self.digest) == 64:
            with file.open("rb") as data:
                return hashlib.file_digest(data, "sha256").hexdigest()
        content = file.read_bytes()
        return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()

    def is_in(self, file: Path) -> bool:
        return file.is_file() and file.stat().st_size == self.size and self.digest_of(file) == self.digest


class Hub:
    """One repository at one commit."""

    def __init__(self, repository: str, revision: str, endpoint: str | None = None) -> None:
        """`endpoint` is that of HF_ENDPOINT when None. Raises `FetchError`."""
        self.repository = repository
        self.endpoint = endpoint or constants.ENDPOINT
        self._headers = build_hf_headers()
        with self._told(revision):
            api = HfApi(endpoint=self.endpoint)
            self.commit = str(api.model_info(repository, revision=revision, timeout=30).sha)
            listed = list(api.list_repo_tree(repository, recursive=True, revision=self.commit))
        self.files = [
            Remote(one.path, one.size, one.lfs.sha256 if one.lfs else one.blob_id)
            for one in listed
            if isinstance(one, RepoFile)
        ]

    def fetch(self, remote: Remote, into: Path, bar: _Shared) -> None:
        """Appends what is missing to the file `into`. Raises `FetchError`; what came until then is kept."""
        with self._told(self.commit), into.open("ab") as file:
            url = hf_hub_url(self.repository, remote.path, revision=self.commit, endpoint=self.endpoint)
            # Compressed content can't be continued.
            headers = {**self._headers, "accept-encoding": "identity"}
            http_get(
                url, file, resume_size=file.tell(), headers=headers, expected_size=remote.size, tqdm_class=None,
                _tqdm_bar=bar,
            )  # fmt: skip

    @contextmanager
    def _told(self, revision: str) -> Iterator[None]:
        """Errors of the library in words for an operator."""
        again = "what has come so far is kept, and the next run goes on from there"
        try:
            yield
        except GatedRepoError:
            raise FetchError(
                f"{self.repository} is gated: ask for access on its page at {self.endpoint}, then put your token into "
                "HF_TOKEN"
            ) from None
        except RepositoryNotFoundError:
            hint = "HF_TOKEN may not read it" if self._headers.get("authorization") else "a private one wants HF_TOKEN"
            raise FetchError(f"{self.endpoint} has no repository {self.repository}, or {hint}") from None
        except RevisionNotFoundError:
            raise FetchError(f"{self.repository} has no revision {revision}") from None
        except OfflineModeIsEnabled:
            raise FetchError("HF_HUB_OFFLINE is set, so nothing can be fetched: unset it") from None
        except HfHubHTTPError as error:
            raise FetchError(f"{self.endpoint} answered {error.response.status_code}; {again}") from None
        except (httpx2.TransportError, httpx2.InvalidURL):
            raise FetchError(
                f"{self.endpoint} can't be reached: check the network and HTTPS_PROXY, or copy the folder from a "
                f"machine that has it; {again}"
            ) from None
        except HFValidationError:
            raise FetchError(f"{self.repository!r} isn't the name of a repository, such as OWNER/NAME") from None
        except OSError as problem:
            raise FetchError(f"{problem.strerror or 'the download broke off'}; {again}") from None


class _Shared:
    """One bar for the downloads of several threads, which end once it is stopped."""

    def __init__(self, bar: tqdm) -> None:
        self.stop = threading.Event()
        self._bar = bar

    def update(self, count: float | None = 1) -> None:
        self._bar.update(count)
        if self.stop.is_set():
            raise _Stopped


def of_stages(files: Sequence[Remote], index: Path, stages: Collection[str]) -> list[Remote]:
    """Those of `files` that `stages` read: all but the weights, and of these the ones that hold their tensors."""
    places: dict[str, str] = json.loads(index.read_text("utf-8"))["weight_map"] if index.is_file() else {}
    prefixes = tuple(prefix for stage in stages for prefix in PREFIXES[stage])
    wanted = {file for name, file in places.items() if prefixes and name.startswith(prefixes)}
    return [one for one in files if one.path in wanted or not one.path.endswith(".safetensors") or not places]


class Fetch:
    """Brings files of `hub` to `folder`."""

    def __init__(self, hub: Hub, folder: Path, quiet: bool | None = None) -> None:
        """`quiet` without a progress bar; None is quiet where nobody looks."""
        self._hub = hub
        self._folder = folder
        self._quiet = quiet

    def __call__(self, files: Sequence[Remote]) -> None:
        """Raises `FetchError`, and KeyboardInterrupt after the downloads have ended tidily."""
        missing = [one for one in files if not self._there(one).is_file()]
        self._check_room(sum(one.size - _size(self._part(one)) for one in missing))
        with self._bar("fetched", missing) as fetched, self._bar("checked", files) as checked:
            fetched.update(sum(_size(self._part(one)) for one in missing))
            bar = _Shared(fetched)
            pool = ThreadPoolExecutor(WORKERS)
            try:
                for one in pool.map(lambda one: self._bring(one, bar), files):
                    checked.update(one.size)
            finally:
                bar.stop.set()
                pool.shutdown(wait=True, cancel_futures=True)

    def _bring(self, remote: Remote, bar: _Shared) -> Remote:
        place, part = self._there(remote), self._part(remote)
        if not remote.is_in(place):
            place.parent.mkdir(parents=True, exist_ok=True)
            for _ in range(ATTEMPTS):
                if _size(part) > remote.size:
                    part.unlink()
                self._hub.fetch(remote, part, bar)
                if remote.is_in(part):
                    break
                part.unlink()
            else:
                raise FetchError(f"{remote.path} isn't what the hub says it is, also when fetched again")
            os.replace(part, place)
        return remote

    def _there(self, remote: Remote) -> Path:
        return self._folder / remote.path

    def _part(self, remote: Remote) -> Path:
        return self._folder / f"{remote.path}.part"

    def _bar(self, about: str, files: Sequence[Remote]) -> Any:
        total = sum(one.size for one in files)
        return tqdm(desc=about, total=total, unit="B", unit_scale=True, unit_divisor=1024, disable=self._quiet)

    def _check_room(self, needed: int) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(self._folder).free
        if needed > free:
            raise FetchError(
                f"the disk under {self._folder} has {free / 1e9:.1f} GB free and {needed / 1e9:.1f} GB are to come"
            )


def _size(file: Path) -> int:
    return file.stat().st_size if file.is_file() else 0


def fetch(
    repository: str,
    folder: Path,
    *,
    revision: str = "main",
    stages: Collection[str] = (),
    include: Sequence[str] = SERVED,
    endpoint: str | None = None,
    quiet: bool | None = None,
) -> str:
    """The commit that `folder` holds then. Raises `FetchError`."""
    hub = Hub(repository, revision, endpoint)
    bring = Fetch(hub, folder, quiet)
    files = [one for one in hub.files if any(fnmatch(one.path, pattern) for pattern in include)]
    if not files:
        raise FetchError(f"{repository} has no files like {', '.join(include)}")
    if stages:
        bring([one for one in files if one.path == INDEX])
        files = of_stages(files, folder / INDEX, stages)
    bring(files)
    return hub.commit


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("repository", help="OWNER/NAME on the hub")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--revision", default="main", help="branch, tag or commit (main)")
    parser.add_argument("--stage", action="append", choices=list(PREFIXES), default=[], help="only what it needs")
    parser.add_argument("--include", action="append", metavar="PATTERN", help=f"instead of {' '.join(SERVED)}")
    asked = parser.parse_args(arguments)
    try:
        commit = fetch(
            asked.repository, asked.folder, revision=asked.revision, stages=asked.stage,
            include=asked.include or SERVED,
        )  # fmt: skip
    except FetchError as problem:
        sys.stderr.write(f"{problem}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("Stopped; the next run goes on from here\n")
        return 130
    sys.stdout.write(f"{asked.folder}: {asked.repository} at {commit}, every file checked\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
