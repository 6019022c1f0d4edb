"""Has `/v1/audio/speech` read a text aloud, into a file or the loudspeaker."""

from __future__ import annotations

import argparse
import json
import sys
from http.client import HTTPException
from pathlib import Path

from omni.client.common import Refused, add_server, fail, note, post, watched, write
from omni.client.speaker import Speaker

ABOUT = "read a text aloud"
PIECE = 4800
"""Bytes that are handed on at a time: a tenth of a second."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("text", help="what to say; - reads it from the input")
    parser.add_argument("--save", type=Path, help="write the speech to this WAV file; without it, it is played")
    parser.add_argument("--play", action="store_true", help="play it, also when it is saved")
    parser.add_argument("--voice", help="who speaks")
    parser.add_argument("--instructions", help="how to read")
    add_server(parser)


def run(options: argparse.Namespace) -> int:
    """The exit status: 0 when the text was spoken."""
    text = sys.stdin.read() if options.text == "-" else options.text
    body = {"input": text, "response_format": "pcm", "voice": options.voice, "instructions": options.instructions}
    sent = json.dumps({name: value for name, value in body.items() if value is not None}).encode()
    try:
        loud = options.play or options.save is None
        with post(options, "/v1/audio/speech", sent) as answer, Speaker(options.save, loud) as speaker:
            while piece := answer.read(PIECE):
                speaker.write(piece)
                if watched(options):
                    note(f"\r{speaker.seconds:.1f} s of speech")
    except (Refused, OSError, HTTPException) as problem:
        return fail(problem)
    if options.json:
        write(json.dumps({"speech_s": round(speaker.seconds, 3), "file": options.save and str(options.save)}) + "\n")
    else:
        note(f"\r{speaker.seconds:.1f} s of speech{f', in {options.save}' if options.save else ''}\n")
    return 0
