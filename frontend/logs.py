"""Logs on standard error: one JSON object or one line of text per record, with the id of the request.

A record never holds what a user said or sent. So an exception is logged by its type and by where it was raised;
its text, which may quote the input, is left out.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final, Literal

from opentelemetry import trace

from frontend import request_id

_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message", "taskName"}
_MAX_FRAMES: Final = 20
OURS: Final = ("frontend", "omni")
"""Loggers of our own packages."""


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    """What was given as `extra`, the request's id, and the exception."""
    out = {name: value for name, value in vars(record).items() if name not in _STANDARD}
    if id := request_id.current():
        out["request_id"] = id
    if (span := trace.get_current_span().get_span_context()).is_valid:
        out["trace_id"] = trace.format_trace_id(span.trace_id)
    if record.exc_info and record.exc_info[1] is not None:
        out["exception"] = describe(record.exc_info[1])
        out["where"] = _where(record.exc_info[2])
    return out


def describe(error: BaseException) -> str:
    """Types of an exception, of those in its group and of its cause, without their texts."""
    name = type(error).__name__
    if isinstance(error, BaseExceptionGroup):
        name += f"({', '.join(describe(one) for one in error.exceptions)})"
    if error.__cause__ is not None:
        name += f" from {describe(error.__cause__)}"
    return name


def _where(trace: TracebackType | None) -> list[str]:
    frames = traceback.extract_tb(trace)[-_MAX_FRAMES:]
    return [f"{'/'.join(frame.filename.split('/')[-3:])}:{frame.lineno} {frame.name}" for frame in frames]


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        body = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage().strip(),
            **_fields(record),
        }
        return json.dumps(body, ensure_ascii=False, default=str)


class TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S.%f")[:-3]
        fields = "".join(f" {name}={_quoted(value)}" for name, value in _fields(record).items())
        return f"{time} {record.levelname:<7} {record.name}: {record.getMessage().strip()}{fields}"


def _quoted(value: Any) -> str:
    """`value` on one line, in quotes when it would be ambiguous without."""
    text = str(value)
    return json.dumps(text) if not text.isprintable() or " " in text else text


def configure(level: str, format: Literal["json", "text"]) -> None:
    """Send all records of this process to standard error.

    Libraries may only warn: what they report of requests, uvicorn and the HTTP client do, quotes whole URLs.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if format == "json" else TextFormatter())
    wanted = logging.getLevelNamesMapping()[level.upper()]
    logging.basicConfig(level=max(wanted, logging.WARNING), handlers=[handler], force=True)
    for name in OURS:
        logging.getLogger(name).setLevel(wanted)
