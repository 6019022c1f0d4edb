"""Sends a video file to `/v1/video/chat/stream`, asks about it, and shows the answer as it comes."""

from __future__ import annotations

import argparse
import base64
import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection

from omni.client.clip import LISTEN_RATE, Unreadable, duration, pictures, sound
from omni.client.common import Refused, add_server, bar, fail, note, watched, write
from omni.client.socket import connected, receive, send
from omni.client.speaker import Speaker

ABOUT = "ask about a video file, frame by frame as a live camera would send it"
PATH = "/v1/video/chat/stream"
WAV_HEADER = 44
"""Bytes before the samples of each piece of speech."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--video", required=True, help="the file")
    parser.add_argument("--query", required=True, action="append", help="what to ask; may be given more than once")
    parser.add_argument("--fps", type=float, default=2.0, help="frames per second to send (default: %(default)s)")
    parser.add_argument("--num-frames", type=int, default=16, help="frames per question (default: %(default)s)")
    parser.add_argument("--max-frames", type=int, default=64, help="frames to hold (default: %(default)s)")
    parser.add_argument("--all-frames", action="store_true", help="don't filter near-duplicates")
    parser.add_argument("--uniform", action="store_true", help="spread the frames of a question evenly")
    parser.add_argument("--no-sound", action="store_true", help="don't send the clip's sound")
    parser.add_argument("--system", "--system-prompt", dest="system", help="what the model is told first")
    parser.add_argument("--speech", action="store_true", help="have the answer spoken too")
    parser.add_argument("--voice", help="who speaks")
    parser.add_argument("--save", type=Path, help="write the speech to this WAV file (implies --speech)")
    parser.add_argument("--play", action="store_true", help="play the speech (implies --speech)")
    add_server(parser)


def run(options: argparse.Namespace) -> int:
    """The exit status: 0 when every question was answered."""
    try:
        with connected(options, PATH) as ws:
            try:
                told = converse(ws, options)
            except ConnectionClosed:
                for _ in events(ws):  # what the server said before it closed tells more
                    pass
                raise
    except (Refused, Unreadable) as problem:
        return fail(problem)
    if options.json:
        write(json.dumps(told, ensure_ascii=False) + "\n")
    return 0


def converse(ws: ClientConnection, options: argparse.Namespace) -> dict[str, Any]:
    """The whole session, in the end as an object. Raises `Refused`, `Unreadable` or what the connection raises."""
    speech = options.speech or options.play or options.save is not None
    send(ws, **config(options, speech))
    sent = upload(ws, options)
    acks: Counter[bool] = Counter()
    answers = []
    with Speaker(options.save, options.play) as speaker:
        for query in options.query:
            write("" if options.json else f"> {query}\n")
            answers.append(ask(ws, query, speaker, acks, quiet=options.json))
    send(ws, type="video.done")
    for event in events(ws):
        if event["type"] == "session.done":
            break
    if speaker.samples and not options.json:
        note(f"{speaker.seconds:.1f} s of speech{f', in {options.save}' if options.save else ''}\n")
    return {**sent, "frames_kept": acks[True], "answers": answers, "speech_s": round(speaker.seconds, 3)}


def config(options: argparse.Namespace, speech: bool) -> dict[str, Any]:
    """The first message."""
    fields = {
        "type": "session.config",
        "modalities": ["text", "audio"] if speech else ["text"],
        "num_frames": options.num_frames,
        "max_frames": options.max_frames,
        "enable_frame_filter": not options.all_frames,
        "frame_sampling": "uniform" if options.uniform else "stride",
        "system_prompt": options.system,
        "voice": options.voice,
    }
    return {name: value for name, value in fields.items() if value is not None}


def upload(ws: ClientConnection, options: argparse.Namespace) -> dict[str, Any]:
    """All frames, then the sound in pieces of a second, with a bar that shows how far it is; what was sent."""
    count = size = 0
    length = duration(options.video)
    live = watched(options)
    for count, picture in enumerate(pictures(options.video, options.fps), 1):
        data = base64.b64encode(picture.jpeg).decode()
        send(ws, type="video.frame", data=data, frame_id=f"frame-{count}", pts_ms=picture.pts_ms)
        size += len(picture.jpeg)
        if live:
            note(f"\r{bar(picture.pts_ms / 1000, length)} {count} frames, {size / 1e6:.1f} MB ")
    pcm = b"" if options.no_sound else sound(options.video)
    for start in range(0, len(pcm), 2 * LISTEN_RATE):
        send(ws, type="audio.chunk", data=base64.b64encode(pcm[start : start + 2 * LISTEN_RATE]).decode())
    heard = len(pcm) / 2 / LISTEN_RATE
    if not options.json:
        also = f", {heard:.1f} s of sound" if pcm else ""
        shown = f"\r{bar(length, length)} " if live else ""
        note(f"{shown}sent {count} frames, {size / 1e6:.1f} MB{also}\n")
    return {"frames_sent": count, "bytes_sent": size, "sound_s": round(heard, 3)}


def ask(ws: ClientConnection, query: str, speaker: Speaker, acks: Counter[bool], *, quiet: bool) -> dict[str, Any]:
    """A question and its answer, shown as it comes unless `quiet`; `acks` counts the frames that were kept and not."""
    began, spoken = time.monotonic(), speaker.seconds
    told: dict[str, Any] = {"query": query}
    send(ws, type="video.query", text=query)
    for event in events(ws):
        since = round(time.monotonic() - began, 3)
        match event["type"]:
            case "video.frame.ack":
                acks[event["accepted"]] += 1
            case "video.frames.consumed":
                told["frames"] = len(event["frames"])
                if not quiet:
                    last = (event["latest_pts_ms"] or 0) / 1000
                    note(f"about {told['frames']} frames, the last at {last:.2f} s\n")
            case "response.text.delta":
                told.setdefault("first_token_s", since)
                write("" if quiet else event["delta"])
            case "response.output_audio.delta":
                told.setdefault("first_sound_s", since)
                data = base64.b64decode(event["data"])
                speaker.write(data[WAV_HEADER:] if event["format"] == "wav" else data)
            case "response.text.done":
                told["text"] = event["text"]
            case "response.done":
                told |= {"status": event["status"], "usage": event["usage"]}
                break
    if not quiet:
        usage = told["usage"]
        write("\n")
        note(f"{told['status']}: {usage['prompt_tokens']} tokens read, {usage['completion_tokens']} written\n")
    return {**told, "speech_s": round(speaker.seconds - spoken, 3)}


def events(ws: ClientConnection) -> Iterator[dict[str, Any]]:
    """What the server says. Raises `Refused` for an error."""
    while True:
        event = receive(ws)
        if event["type"] == "error":
            raise Refused(f"the server says: {event['message']}")
        yield event
