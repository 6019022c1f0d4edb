"""Realtime clients for Node, over TLS: the `openai` package and `@openai/agents-realtime`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from support.launched import Launched

pytestmark = [
    pytest.mark.client,
    pytest.mark.skipif(shutil.which("npm") is None, reason="there is no Node here"),
]
HERE = Path(__file__).parent / "node"
KEY = "sk-node"


@pytest.fixture(scope="module")
def modules() -> Path:
    """The packages, installed once."""
    if not (HERE / "node_modules").is_dir():
        install = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
        subprocess.run(install, cwd=HERE, check=True, timeout=300, capture_output=True)
    return HERE


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Launched, Path]]:
    """The whole server with a certificate of an authority that only the test trusts."""
    home = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    issued = authority.issue_cert("localhost", "127.0.0.1")
    issued.private_key_pem.write_to_path(home / "key.pem")
    for n, blob in enumerate(issued.cert_chain_pems):
        blob.write_to_path(home / "cert.pem", append=n > 0)
    authority.cert_pem.write_to_path(home / "ca.pem")
    env = {
        "OMNI_SSL_CERTFILE": str(home / "cert.pem"),
        "OMNI_SSL_KEYFILE": str(home / "key.pem"),
        "OMNI_API_KEYS": KEY,
    }
    with Launched("serve", home / "server", "--profile", "dummy", env=env) as server:
        yield server.ready(), home / "ca.pem"


def run(script: str, modules: Path, tls: tuple[Launched, Path]) -> Any:
    server, authority = tls
    env = os.environ | {
        "KEY": KEY,
        "BASE": f"https://localhost:{server.port}/v1",
        "URL": f"wss://localhost:{server.port}/v1/realtime?model=qwen3-omni",
        "NODE_EXTRA_CA_CERTS": str(authority),
    }
    done = subprocess.run(["node", script], cwd=modules, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_openai(modules: Path, tls: tuple[Launched, Path]) -> None:
    said = run("openai.mjs", modules, tls)
    assert said["text"] == "Received text: Hello from Node"
    assert said["transcript"].startswith("Received turn 2: audio 1.00s")
    assert said["bytes"] > 0
    assert said["bytes"] % 3840 == 0


def test_agents(modules: Path, tls: tuple[Launched, Path]) -> None:
    said = run("agents.mjs", modules, tls)
    assert said["status"] == "completed"
    assert said["bytes"] > 0
    assert [item["role"] for item in said["history"]] == ["user", "assistant", "user", "assistant"]
    assert said["history"][1]["text"] == "Received system: Be brief.\ntext: Hello, agent"
