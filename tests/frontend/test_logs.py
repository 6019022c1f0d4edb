from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from frontend import logs, request_id

pytestmark = pytest.mark.pure

SECRET = "what the user said"


def record(message: str = "done", error: BaseException | None = None, **extra: Any) -> logging.LogRecord:
    out = logging.makeLogRecord({"name": "frontend.x", "levelname": "INFO", "msg": message, **extra})
    if error is not None:
        try:
            raise error
        except BaseException:
            out.exc_info = sys.exc_info()
    return out


def test_a_record_is_one_json_object_with_its_fields() -> None:
    line = logs.JsonFormatter().format(record(status=200, path="/a\nb"))
    assert "\n" not in line
    body = json.loads(line)
    assert body.pop("time").endswith("+00:00")
    assert body == {"level": "info", "logger": "frontend.x", "message": "done", "status": 200, "path": "/a\nb"}


def test_the_id_of_the_request_is_in_the_record() -> None:
    token = request_id._current.set("req_1")
    try:
        assert json.loads(logs.JsonFormatter().format(record()))["request_id"] == "req_1"
    finally:
        request_id._current.reset(token)


@pytest.mark.parametrize("formatter", [logs.JsonFormatter(), logs.TextFormatter()])
def test_the_text_of_an_exception_is_never_logged(formatter: logging.Formatter) -> None:
    group = ExceptionGroup(SECRET, [ValueError(SECRET), KeyError(SECRET)])
    group.__cause__ = RuntimeError(SECRET)
    line = formatter.format(record(error=group))
    assert SECRET not in line
    assert "ExceptionGroup(ValueError, KeyError) from RuntimeError" in line
    assert "test_logs.py" in line
    assert "\n" not in line


def test_plain_text_is_one_line_and_quotes_what_is_ambiguous() -> None:
    line = logs.TextFormatter().format(record(path="/a\n1 forged", ms=1.5))
    assert line.endswith(' INFO    frontend.x: done path="/a\\n1 forged" ms=1.5')


@pytest.fixture
def logging_as_before() -> Iterator[None]:
    names = ("", *logs.OURS)
    before = [(name, logging.getLogger(name).level) for name in names], logging.getLogger().handlers[:]
    logging.getLogger().handlers[:] = []
    yield
    logging.getLogger().handlers[:] = before[1]
    for name, level in before[0]:
        logging.getLogger(name).setLevel(level)


@pytest.mark.usefixtures("logging_as_before")
def test_all_logs_go_to_standard_error_and_libraries_may_only_warn(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info", "json")
    logging.getLogger("uvicorn.error").warning("theirs")
    logging.getLogger("uvicorn.error").info("GET /?key=secret")
    logging.getLogger("frontend.y").info("ours")
    logging.getLogger("frontend.y").debug("too fine")
    out, err = capsys.readouterr()
    assert out == ""
    assert [json.loads(line)["message"] for line in err.splitlines()] == ["theirs", "ours"]


@pytest.mark.usefixtures("logging_as_before")
def test_at_level_error_nobody_warns(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("error", "text")
    for name in ("uvicorn", "frontend.y"):
        logging.getLogger(name).warning("hush")
    assert capsys.readouterr().err == ""
