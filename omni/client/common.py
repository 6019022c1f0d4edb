"""What all clients have in common: the server's address, its key, how refusals are told."""

from __future__ import annotations

import argparse
import json
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.client import HTTPException, HTTPResponse
from typing import Any

URL = "http://localhost:8000"
BAR = 30
"""Characters of a progress bar."""
PATIENCE_S = 120.0
"""Seconds without a word from the server after which we give up."""


class Refused(Exception):
    """The server said no, or nothing; the message is for the user."""


def add_server(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--url", default=URL, help="the server (default: %(default)s)")
    parser.add_argument(
        "--key", "--api-key", dest="key", default=os.environ.get("OPENAI_API_KEY"), help="default: OPENAI_API_KEY"
    )
    parser.add_argument("--json", action="store_true", help="print the answer as one JSON object")


def post(options: argparse.Namespace, path: str, body: bytes, content_type: str = "application/json") -> HTTPResponse:
    """The response, whose body is read as it comes. Raises `Refused`."""
    headers = {"content-type": content_type}
    if options.key:
        headers["authorization"] = f"Bearer {options.key}"
    request = urllib.request.Request(options.url.rstrip("/") + path, body, headers)
    try:
        answer: HTTPResponse = urllib.request.urlopen(request, timeout=PATIENCE_S)
    except urllib.error.HTTPError as problem:
        with problem:
            raise Refused(f"the server says: {_said(problem.read())}") from None
    except (OSError, HTTPException, ValueError) as problem:
        raise Refused(f"can't reach {options.url}: {problem}") from None
    return answer


def events(answer: HTTPResponse) -> Iterator[dict[str, Any]]:
    """The objects of an event stream. Raises `Refused` for one that is an error, and for a stream that breaks off."""
    try:
        for line in answer:
            if not line.startswith(b"data: "):
                continue
            if line.strip() == b"data: [DONE]":
                return
            event: dict[str, Any] = json.loads(line.removeprefix(b"data: "))
            if "error" in event:
                raise Refused(f"the server says: {event['error']['message']}")
            yield event
    except (OSError, HTTPException) as problem:
        raise Refused(f"the connection was lost: {problem}") from None
    raise Refused("the server broke off")


def write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def note(text: str) -> None:
    """What isn't the answer goes to the other stream, so that the answer can be piped."""
    sys.stderr.write(text)
    sys.stderr.flush()


def bar(done: float, whole: float) -> str:
    """How far it is, drawn; a whole that isn't known is never reached."""
    part = min(1.0, done / whole) if whole > 0 else 0.0
    filled = round(part * BAR)
    return f"[{'#' * filled}{'.' * (BAR - filled)}] {part:4.0%}"


def watched(options: argparse.Namespace) -> bool:
    """Whether somebody looks at the terminal who wants to see how far it is."""
    return sys.stderr.isatty() and not options.json


def fail(problem: object) -> int:
    note(f"omni.client: {problem}\n")
    return 1


def _said(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return "something that isn't an answer of ours"
