"""Has `/v1/audio/transcriptions` write down what a file or the microphone says."""

from __future__ import annotations

import argparse
import io
import json
import uuid
import wave
from pathlib import Path

from omni.client.common import Refused, add_server, bar, events, fail, note, post, watched, write
from omni.client.microphone import RATE, live

ABOUT = "write down what is said"
PIECE_MS = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("file", nargs="?", type=Path, help="the sound, in any format")
    source.add_argument("--seconds", type=float, help="listen to the microphone for so long instead")
    parser.add_argument("--language", help="ISO 639 code, such as en")
    parser.add_argument("--prompt", help="a text that the transcript follows in style")
    add_server(parser)


def run(options: argparse.Namespace) -> int:
    """The exit status: 0 when there is a transcript."""
    try:
        if options.file is None:
            name, data = "microphone.wav", _wav(recorded(options))
        else:
            name, data = options.file.name, options.file.read_bytes()
        fields = {"language": options.language, "prompt": options.prompt, "stream": "true"}
        body, kind = form({key: value for key, value in fields.items() if value is not None}, name, data)
        with post(options, "/v1/audio/transcriptions", body, kind) as answer:
            done = {}
            for event in events(answer):
                if event["type"] == "transcript.text.done":
                    done = {"text": event["text"], "usage": event["usage"]}
                elif not options.json:
                    write(event["delta"])
    except (Refused, OSError) as problem:
        return fail(problem)
    write(json.dumps(done) + "\n" if options.json else "\n")
    return 0


def recorded(options: argparse.Namespace) -> bytes:
    """What the microphone hears for so long. Raises `Refused`."""
    pcm = b""
    for piece in live(options.seconds, PIECE_MS):
        pcm += piece
        if watched(options):
            note(f"\r{bar(len(pcm) / 2 / RATE, options.seconds)} ")
    return pcm


def form(fields: dict[str, str], name: str, data: bytes) -> tuple[bytes, str]:
    """A multipart form with one file: `(body, content type)`."""
    edge = uuid.uuid4().hex
    safe = name.replace('"', "").replace("\r", "").replace("\n", "")
    head = "".join(
        f'--{edge}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n' for key, value in fields.items()
    )
    head += f'--{edge}\r\nContent-Disposition: form-data; name="file"; filename="{safe}"\r\n\r\n'
    return head.encode() + data + f"\r\n--{edge}--\r\n".encode(), f"multipart/form-data; boundary={edge}"


def _wav(pcm: bytes) -> bytes:
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setparams((1, 2, RATE, 0, "NONE", ""))
        file.writeframes(pcm)
    return out.getvalue()
