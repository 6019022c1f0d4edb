"""Fetching a checkpoint from a hub of our own."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import fetch
import pytest
from fetch import FetchError

pytestmark = pytest.mark.process
COMMIT = "c" * 40
REPOSITORY = "someone/omni"
INDEX = {
    "thinker.model.embed_tokens.weight": "model-1.safetensors",
    "thinker.lm_head.weight": "model-2.safetensors",
    "talker.codec_head.weight": "model-3.safetensors",
    "code2wav.code_embedding.weight": "model-3.safetensors",
}
FILES = {
    "config.json": b'{"model_type": "qwen3_omni_moe"}',
    "README.md": b"about",
    "model.safetensors.index.json": json.dumps({"weight_map": INDEX}).encode(),
    **{f"model-{n}.safetensors": os.urandom(60_000 + n) for n in (1, 2, 3)},
}
LARGE = os.urandom(12 << 20)
"""More than the library writes at once."""


class Hub:
    """What a hub answers, and what it was asked."""

    def __init__(self) -> None:
        self.files = dict(FILES)
        self.sent: dict[str, bytes] = {}
        """By path, the content that is sent in the place of a file's."""
        self.refusal: tuple[int, str] | None = None
        """Status and error code of every answer."""
        self.hold: str | None = None
        """A file of which half is sent, and no more."""
        self.cut: str | None = None
        """A file whose connection is closed in the middle, once."""
        self.asked: list[tuple[str, str | None]] = []
        """Path and range of each request for a file."""
        self.tokens: set[str | None] = set()
        self.half_sent = threading.Event()
        self.closing = threading.Event()

    def listing(self) -> list[dict[str, Any]]:
        out = []
        for path, content in self.files.items():
            blob = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
            entry: dict[str, Any] = {"type": "file", "path": path, "size": len(content), "oid": blob}
            if path.endswith(".safetensors"):
                sha = hashlib.sha256(content).hexdigest()
                entry["lfs"] = {"oid": sha, "size": len(content), "pointerSize": 130}
            out.append(entry)
        return out


class Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        hub, path = self.hub, self.path.partition("?")[0]
        hub.tokens.add(self.headers["Authorization"])
        if hub.refusal is not None:
            status, code = hub.refusal
            self.answer(status, b"{}", X_Error_Code=code)
        elif path.startswith(f"/api/models/{REPOSITORY}/revision/"):
            self.answer(200, json.dumps({"id": REPOSITORY, "sha": COMMIT}).encode())
        elif path.startswith(f"/api/models/{REPOSITORY}/tree/"):
            self.answer(200, json.dumps(hub.listing()).encode())
        elif path.startswith(prefix := f"/{REPOSITORY}/resolve/{COMMIT}/"):
            self.file(path.removeprefix(prefix))
        else:
            self.answer(404, b"{}")

    def file(self, path: str) -> None:
        hub, asked = self.hub, self.headers["Range"]
        hub.asked.append((path, asked))
        content = hub.sent.get(path, hub.files[path])
        start = int(re.fullmatch(r"bytes=(\d+)-", asked)[1]) if asked else 0
        self.send_response(206 if asked else 200)
        self.send_header("Content-Length", str(len(content) - start))
        if asked:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.end_headers()
        if path in (hub.hold, hub.cut):
            self.wfile.write(content[start : start + len(LARGE) - 1000])
            self.wfile.flush()
            hub.half_sent.set()
            if path == hub.hold:
                hub.closing.wait(30)
            hub.cut = None
            self.close_connection = True
        else:
            self.wfile.write(content[start:])


@pytest.fixture
def hub() -> Hub:
    return Hub()


@pytest.fixture
def endpoint(hub: Hub) -> Iterator[str]:
    handler = type("OfThisHub", (Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    hub.closing.set()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(autouse=True)
def _online(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests of this process forbid the network, for good."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.delenv("HF_TOKEN", raising=False)


def bring(endpoint: str, folder: Path, **options: Any) -> str:
    return fetch.fetch(REPOSITORY, folder, endpoint=endpoint, quiet=True, **options)


def held(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_what_stages_read_comes_whole(hub: Hub, endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    assert bring(endpoint, tmp_path) == COMMIT
    assert held(tmp_path) == FILES.keys() - {"README.md"}
    assert all((tmp_path / name).read_bytes() == FILES[name] for name in held(tmp_path))
    assert hub.tokens == {"Bearer hf_secret"}
    hub.asked.clear()
    bring(endpoint, tmp_path)
    assert hub.asked == []


@pytest.mark.parametrize(
    ("stages", "shards"),
    [(["code2wav"], {3}), (["talker"], {1, 3}), (["thinker"], {1, 2}), (["preprocess"], set()), ([], {1, 2, 3})],
)
def test_a_stage_gets_the_shards_that_hold_it(
    endpoint: str, tmp_path: Path, stages: list[str], shards: set[int]
) -> None:
    bring(endpoint, tmp_path, stages=stages)
    assert held(tmp_path) == {"config.json", fetch.INDEX, *(f"model-{n}.safetensors" for n in shards)}


def test_names_can_be_asked_for(endpoint: str, tmp_path: Path) -> None:
    bring(endpoint, tmp_path, include=["*.md"])
    assert held(tmp_path) == {"README.md"}
    with pytest.raises(FetchError, match=r"no files like \*\.gguf"):
        bring(endpoint, tmp_path, include=["*.gguf"])


def test_a_process_that_is_killed_loses_nothing(hub: Hub, endpoint: str, tmp_path: Path) -> None:
    hub.hold = "model-2.safetensors"
    hub.files[hub.hold] = LARGE
    environment = {**os.environ, "HF_ENDPOINT": endpoint, "HF_HUB_OFFLINE": "0"}
    command = [sys.executable, fetch.__file__, REPOSITORY, str(tmp_path)]
    process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    part = tmp_path / "model-2.safetensors.part"
    try:
        assert hub.half_sent.wait(60)
        deadline = time.monotonic() + 20
        while not part.exists() or part.stat().st_size < 10 << 20 or len(held(tmp_path)) < len(FILES) - 1:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        process.kill()
        process.wait()
    kept = part.stat().st_size
    hub.hold = None
    hub.asked.clear()
    bring(endpoint, tmp_path)
    assert hub.asked == [("model-2.safetensors", f"bytes={kept}-")]
    assert held(tmp_path) == FILES.keys() - {"README.md"}
    assert (tmp_path / "model-2.safetensors").read_bytes() == LARGE


def test_a_connection_that_breaks_is_made_again(hub: Hub, endpoint: str, tmp_path: Path) -> None:
    hub.cut = "model-1.safetensors"
    hub.files[hub.cut] = LARGE
    bring(endpoint, tmp_path)
    again = [at for path, at in hub.asked if path == "model-1.safetensors"]
    assert again == [None, f"bytes={10 << 20}-"]
    assert (tmp_path / "model-1.safetensors").read_bytes() == LARGE


def test_what_was_damaged_on_the_disk_is_fetched_again(hub: Hub, endpoint: str, tmp_path: Path) -> None:
    bring(endpoint, tmp_path)
    hub.asked.clear()
    for name in ("config.json", "model-3.safetensors"):
        content = bytearray(FILES[name])
        content[7] ^= 1
        (tmp_path / name).write_bytes(content)
    bring(endpoint, tmp_path)
    assert sorted(path for path, _ in hub.asked) == ["config.json", "model-3.safetensors"]
    assert (tmp_path / "model-3.safetensors").read_bytes() == FILES["model-3.safetensors"]


def test_a_part_of_something_else_does_no_harm(endpoint: str, tmp_path: Path) -> None:
    (tmp_path / "config.json.part").write_bytes(b"?" * 1000)
    (tmp_path / "model-1.safetensors.part").write_bytes(b"?" * 1000)
    bring(endpoint, tmp_path)
    assert all((tmp_path / name).read_bytes() == FILES[name] for name in held(tmp_path))


def test_a_corrupt_file_never_gets_its_name(hub: Hub, endpoint: str, tmp_path: Path) -> None:
    hub.sent["model-2.safetensors"] = b"x" * len(FILES["model-2.safetensors"])
    with pytest.raises(FetchError, match=r"model-2\.safetensors isn't what the hub says"):
        bring(endpoint, tmp_path)
    assert [path for path, _ in hub.asked].count("model-2.safetensors") == fetch.ATTEMPTS
    assert not [name for name in held(tmp_path) if name.startswith("model-2")]


@pytest.mark.parametrize(
    ("refusal", "said"),
    [
        ((401, "RepoNotFound"), "no repository someone/omni, or a private one wants HF_TOKEN"),
        ((403, "GatedRepo"), "someone/omni is gated"),
        ((404, "RevisionNotFound"), "someone/omni has no revision main"),
        ((418, ""), "answered 418"),
    ],
)
def test_a_refusal_in_one_line(hub: Hub, endpoint: str, tmp_path: Path, refusal: tuple[int, str], said: str) -> None:
    hub.refusal = refusal
    with pytest.raises(FetchError, match=said) as caught:
        bring(endpoint, tmp_path)
    assert "\n" not in str(caught.value)


def test_without_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FetchError, match=r"can't be reached.*copy the folder.*is kept"):
        bring("http://127.0.0.1:1", tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.utils._http.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(FetchError, match="HF_HUB_OFFLINE is set"):
        bring("http://127.0.0.1:1", tmp_path)


def test_a_disk_that_is_too_small(endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Usage:
        free = 100_000

    monkeypatch.setattr("shutil.disk_usage", lambda _: Usage)
    with pytest.raises(FetchError, match=r"has 0\.0 GB free and 0\.0 GB are to come"):
        bring(endpoint, tmp_path)
    assert held(tmp_path) == set()


def test_a_bad_name(endpoint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fetch.main(["no name at all", str(tmp_path)]) == 1
    assert capsys.readouterr().err == "'no name at all' isn't the name of a repository, such as OWNER/NAME\n"
