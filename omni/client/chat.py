"""Asks `/v1/chat/completions`, with files, and shows the answer as it comes."""

from __future__ import annotations

import argparse
import base64
import json
import mimetypes
import sys
import time
from pathlib import Path
from typing import Any

from omni.client.common import Refused, add_server, events, fail, note, post, write
from omni.client.speaker import Speaker

ABOUT = "ask a question, with images, sound or video"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("text", nargs="?", default="", help="the question; - reads it from the input")
    parser.add_argument("--file", type=Path, action="append", default=[], help="an image, sound or video to send along")
    parser.add_argument("--system", help="what the model is told first")
    parser.add_argument("--model", help="default: the server's own")
    parser.add_argument("--max-tokens", type=int, help="longest answer")
    parser.add_argument("--temperature", type=float, help="how freely words are chosen; 0 takes the likeliest")
    parser.add_argument("--speech", action="store_true", help="have the answer spoken too")
    parser.add_argument("--voice", help="who speaks")
    parser.add_argument("--save", type=Path, help="write the speech to this WAV file (implies --speech)")
    parser.add_argument("--play", action="store_true", help="play the speech (implies --speech)")
    add_server(parser)


def run(options: argparse.Namespace) -> int:
    """The exit status: 0 when there was an answer."""
    try:
        body = json.dumps(request(options)).encode()
        with post(options, "/v1/chat/completions", body) as answer, Speaker(options.save, options.play) as speaker:
            shown = show(events(answer), speaker, quiet=options.json, save=options.save)
    except (Refused, OSError) as problem:
        return fail(problem)
    if options.json:
        write(json.dumps(shown) + "\n")
    return 0


def request(options: argparse.Namespace) -> dict[str, Any]:
    """The body. Raises `Refused` for a file that can't be sent, `OSError` for one that can't be read."""
    content = [part(file) for file in options.file]
    text = sys.stdin.read() if options.text == "-" else options.text
    if text:
        content.append({"type": "text", "text": text})
    if not content:
        raise Refused("there is nothing to ask: give a text or a --file")
    messages: list[dict[str, Any]] = [{"role": "system", "content": options.system}] if options.system else []
    body: dict[str, Any] = {"messages": [*messages, {"role": "user", "content": content}], "stream": True}
    body["stream_options"] = {"include_usage": True}
    for name in ("model", "max_tokens", "temperature"):
        if (value := getattr(options, name)) is not None:
            body[name] = value
    if options.speech or options.play or options.save is not None:
        voice = {"voice": options.voice} if options.voice else {}
        body |= {"modalities": ["text", "audio"], "audio": {"format": "pcm16", **voice}}
    return body


def part(file: Path) -> dict[str, Any]:
    """A file as a content part. Raises `Refused` or `OSError`."""
    kind = (mimetypes.guess_type(file.name)[0] or "").partition("/")[0]
    if kind not in ("image", "audio", "video"):
        raise Refused(f"{file}: only images, sound and video can be sent along")
    data = base64.b64encode(file.read_bytes()).decode()
    if kind == "audio":
        return {"type": "input_audio", "input_audio": {"data": data, "format": file.suffix[1:].lower()}}
    return {"type": f"{kind}_url", f"{kind}_url": {"url": f"data:{mimetypes.guess_type(file.name)[0]};base64,{data}"}}


def show(chunks: Any, speaker: Speaker, *, quiet: bool, save: Path | None) -> dict[str, Any]:
    """Write the answer as it comes, unless it is to be `quiet`; the whole of it as an object."""
    began = time.monotonic()
    first: dict[str, float] = {}
    text, finish, usage = "", None, None
    for chunk in chunks:
        usage = chunk.get("usage") or usage
        for choice in chunk["choices"]:
            finish = choice["finish_reason"] or finish
            if delta := choice["delta"].get("content"):
                first.setdefault("first_token_s", round(time.monotonic() - began, 3))
                text += delta
                write("" if quiet else delta)
            if data := (choice["delta"].get("audio") or {}).get("data"):
                first.setdefault("first_sound_s", round(time.monotonic() - began, 3))
                speaker.write(base64.b64decode(data))
    if not quiet:
        write("\n")
        where = f", in {save}" if save else ""
        spoken = f", {speaker.seconds:.1f} s of speech{where}" if speaker.samples else ""
        note(f"{finish}: {(usage or {}).get('completion_tokens', 0)} tokens{spoken}\n")
    return {"text": text, "finish": finish, "usage": usage, "speech_s": round(speaker.seconds, 3), **first}
