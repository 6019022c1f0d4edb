"""Sends a video file to `/v1/video/chat/stream`, asks about it, and shows the answer as it comes."""

from __future__ import annotations

import argparse
import base64
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI
from websockets.sync.client import ClientConnection, connect

from omni.client.clip import LISTEN_RATE, Unreadable, pictures, sound
from omni.client.common import Refused, fail, note, write
from omni.client.socket import receive, send
from omni.client.speaker import Speaker

ABOUT = "ask about a video file, frame by frame as a live camera would send it"
PATH = "/v1/video/chat/stream"
WAV_HEADER = 44
"""Bytes before the samples of each piece of speech."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--url", default=f"ws://localhost:8000{PATH}", help="the server (default: %(default)s)")
    parser.add_argument("--video", required=True, help="the file")
    parser.add_argument("--query", required=True, action="append", help="what to ask; may be given more than once")
    parser.add_argument("--fps", type=float, default=2.0, help="frames per second to send (default: %(default)s)")
    parser.add_argument("--num-frames", type=int, default=16, help="frames per question (default: %(default)s)")
    parser.add_argument("--max-frames", type=int, default=64, help="frames to hold (default: %(default)s)")
    parser.add_argument("--all-frames", action="store_true", help="don't filter near-duplicates")
    parser.add_argument("--uniform", action="store_true", help="spread the frames of a question evenly")
    parser.add_argument("--no-sound", action="store_true", help="don't send the clip's sound")
    parser.add_argument("--speech", action="store_true", help="have the answer spoken too")
    parser.add_argument("--voice", help="who speaks")
    parser.add_argument("--save", type=Path, help="write the speech to this WAV file (implies --speech)")
    parser.add_argument("--play", action="store_true", help="play the speech (implies --speech)")
    parser.add_argument("--system-prompt", help="what the model is told first")
    parser.add_argument("--api-key", default=os.environ.get("OPENAI_API_KEY"), help="default: OPENAI_API_KEY")


def run(options: argparse.Namespace) -> int:
    """The exit status: 0 when every question was answered."""
    headers = {"Authorization": f"Bearer {options.api_key}"} if options.api_key else {}
    try:
        with connect(options.url, additional_headers=headers, max_size=None) as ws:
            try:
                converse(ws, options)
            except ConnectionClosed:
                for _ in events(ws):  # what the server said before it closed tells more
                    pass
    except (Refused, Unreadable) as problem:
        return fail(problem)
    except (OSError, InvalidHandshake, InvalidURI) as problem:
        return fail(f"can't reach {options.url}: {problem}")
    except ConnectionClosed as problem:
        return fail(f"the server closed the connection: {problem}")
    return 0


def converse(ws: ClientConnection, options: argparse.Namespace) -> None:
    """The whole session. Raises `Refused`, `Unreadable` or what the connection raises."""
    speech = options.speech or options.play or options.save is not None
    send(ws, **config(options, speech))
    upload(ws, options)
    with Speaker(options.save, options.play) as speaker:
        for query in options.query:
            send(ws, type="video.query", text=query)
            write(f"> {query}\n")
            for event in events(ws):
                if event["type"] == "response.done":
                    write("\n")
                    note(summary(event))
                    break
                show(event, speaker)
    send(ws, type="video.done")
    for event in events(ws):
        if event["type"] == "session.done":
            break
    if speaker.samples:
        where = f", in {options.save}" if options.save else ""
        note(f"{speaker.seconds:.1f} s of speech{where}\n")


def config(options: argparse.Namespace, speech: bool) -> dict[str, Any]:
    """The first message."""
    fields = {
        "type": "session.config",
        "modalities": ["text", "audio"] if speech else ["text"],
        "num_frames": options.num_frames,
        "max_frames": options.max_frames,
        "enable_frame_filter": not options.all_frames,
        "frame_sampling": "uniform" if options.uniform else "stride",
        "system_prompt": options.system_prompt,
        "voice": options.voice,
    }
    return {name: value for name, value in fields.items() if value is not None}


def upload(ws: ClientConnection, options: argparse.Namespace) -> None:
    """All frames, then the sound in pieces of a second, with a word on how far it is."""
    count = size = 0
    for count, picture in enumerate(pictures(options.video, options.fps), 1):
        data = base64.b64encode(picture.jpeg).decode()
        send(ws, type="video.frame", data=data, frame_id=f"frame-{count}", pts_ms=picture.pts_ms)
        size += len(picture.jpeg)
        note(f"\rsent {count} frames, {size / 1e6:.1f} MB")
    pcm = b"" if options.no_sound else sound(options.video)
    for start in range(0, len(pcm), 2 * LISTEN_RATE):
        send(ws, type="audio.chunk", data=base64.b64encode(pcm[start : start + 2 * LISTEN_RATE]).decode())
    note(f", {len(pcm) / 2 / LISTEN_RATE:.1f} s of sound\n" if pcm else "\n")


def events(ws: ClientConnection) -> Iterator[dict[str, Any]]:
    """What the server says. Raises `Refused` for an error that ends the session or the question."""
    while True:
        event = receive(ws)
        if event["type"] == "error":
            raise Refused(f"the server says: {event['message']}")
        yield event


def show(event: dict[str, Any], speaker: Speaker) -> None:
    match event["type"]:
        case "response.text.delta":
            write(event["delta"])
        case "response.output_audio.delta":
            data = base64.b64decode(event["data"])
            speaker.write(data[WAV_HEADER:] if event["format"] == "wav" else data)
        case "video.frames.consumed":
            note(f"about {len(event['frames'])} frames, the last at {event['latest_pts_ms'] or 0:.0f} ms\n")


def summary(event: dict[str, Any]) -> str:
    usage = event.get("usage") or {}
    return (
        f"{event['status']}: {usage.get('prompt_tokens', 0)} tokens read, {usage.get('completion_tokens', 0)} written\n"
    )
