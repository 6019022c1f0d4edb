"""Requests of every shape, made by schemathesis from our own OpenAPI document."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest
from support.door import front_door

pytestmark = pytest.mark.client

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


def test_no_server_error_and_nothing_undocumented(tmp_path: Path) -> None:
    with front_door() as url:
        run = [sys.executable, "-m", "schemathesis.cli", "run", f"{url}/openapi.json", "--checks", CHECKS]
        run += ["--max-examples", "20", "--seed", "1", "--request-timeout", "20", "--no-color"]
        done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    tested = re.search(r"Tested: (\d+)", done.stdout)
    assert tested is not None
    assert int(tested[1]) >= 12


def test_no_operation_documents_the_status_of_the_framework() -> None:
    """It answers bad values with 422; we answer with 400."""
    with front_door() as url:
        paths = httpx2.get(f"{url}/openapi.json", timeout=20).json()["paths"]
    answers = {path: {*operation["responses"]} for path, methods in paths.items() for operation in methods.values()}
    assert not [path for path, statuses in answers.items() if "422" in statuses]
    assert {"400", "401", "413", "500", "503"} <= answers["/v1/audio/transcriptions"]
