"""Asks `/v1/realtime` something, in writing or by a sound file, and shows and plays the answer as it comes."""

from __future__ import annotations

import argparse
import base64
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI
from websockets.sync.client import ClientConnection, connect

from omni.client.clip import LISTEN_RATE, Unreadable, sound
from omni.client.common import Refused, fail, note
from omni.client.socket import receive, send
from omni.client.speaker import Speaker

ABOUT = "talk to the model: a text or a sound file in, an answer in speech out"
PIECE_MS = 100
AFTERWARDS_S = 2
"""Seconds of silence behind the sound, so that its end is noticed."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--url", default="ws://localhost:8000/v1/realtime", help="the server (default: %(default)s)")
    asked = parser.add_mutually_exclusive_group(required=True)
    asked.add_argument("--text", help="what to ask")
    asked.add_argument("--audio", help="a sound file with the question, sent as a microphone would")
    parser.add_argument("--instructions", help="what the model is told first")
    parser.add_argument("--voice", help="who speaks")
    parser.add_argument("--silent", action="store_true", help="have the answer in writing only")
    parser.add_argument("--save", type=Path, help="write the speech to this WAV file")
    parser.add_argument("--play", action="store_true", help="play the speech")
    parser.add_argument("--api-key", default=os.environ.get("OPENAI_API_KEY"), help="default: OPENAI_API_KEY")


def run(options: argparse.Namespace) -> int:
    """The exit status: 0 when the question was answered."""
    headers = {"Authorization": f"Bearer {options.api_key}"} if options.api_key else {}
    try:
        pcm = sound(options.audio) if options.audio else None
        with connect(options.url, additional_headers=headers, max_size=None) as ws:
            converse(ws, options, pcm)
    except (Refused, Unreadable) as problem:
        return fail(problem)
    except (OSError, InvalidHandshake, InvalidURI) as problem:
        return fail(f"can't reach {options.url}: {problem}")
    except ConnectionClosed as problem:
        return fail(f"the server closed the connection: {problem}")
    return 0


def converse(ws: ClientConnection, options: argparse.Namespace, pcm: bytes | None) -> None:
    """One question and its answer. Raises `Refused` or what the connection raises."""
    send(ws, type="session.update", session=session(options))
    if pcm is None:
        content = [{"type": "input_text", "text": options.text}]
        send(ws, type="conversation.item.create", item={"type": "message", "role": "user", "content": content})
        send(ws, type="response.create")
    else:
        threading.Thread(target=_speak, args=(ws, pcm), name="microphone", daemon=True).start()
    with Speaker(options.save, options.play) as speaker:
        while not show(receive(ws), speaker):
            pass
    if speaker.samples:
        where = f", in {options.save}" if options.save else ""
        note(f"{speaker.seconds:.1f} s of speech{where}\n")


def session(options: argparse.Namespace) -> dict[str, Any]:
    """What the session is set to."""
    out: dict[str, Any] = {"type": "realtime", "output_modalities": ["text" if options.silent else "audio"]}
    # A file has no second turn: what it says behind a pause must not cut the answer off.
    detection = {"type": "server_vad", "silence_duration_ms": 1_000, "interrupt_response": False}
    out["audio"] = {"input": {"format": {"type": "audio/pcm", "rate": LISTEN_RATE}, "turn_detection": detection}}
    if options.instructions:
        out["instructions"] = options.instructions
    if options.voice:
        out["audio"]["output"] = {"voice": options.voice}
    return out


def show(event: dict[str, Any], speaker: Speaker) -> bool:
    """True when the answer is over. Raises `Refused`."""
    match event["type"]:
        case "response.output_text.delta" | "response.output_audio_transcript.delta":
            sys.stdout.write(event["delta"])
            sys.stdout.flush()
        case "response.output_audio.delta":
            speaker.write(base64.b64decode(event["delta"]))
        case "input_audio_buffer.speech_started":
            note(f"a voice from {event['audio_start_ms'] / 1000:.2f} s on\n")
        case "input_audio_buffer.speech_stopped":
            note(f"until {event['audio_end_ms'] / 1000:.2f} s\n")
        case "response.done":
            sys.stdout.write("\n")
            response = event["response"]
            if response["status"] == "failed":
                raise Refused(f"the server says: {response['status_details']['error']['message']}")
            usage = response["usage"] or {}
            tokens = f"{usage.get('input_tokens', 0)} tokens read, {usage.get('output_tokens', 0)} made"
            note(f"{response['status']}: {tokens}\n")
            return True
        case "error":
            raise Refused(f"the server says: {event['error']['message']}")
    return False


def _speak(ws: ClientConnection, pcm: bytes) -> None:
    step = 2 * LISTEN_RATE * PIECE_MS // 1000
    stream = pcm + bytes(2 * LISTEN_RATE * AFTERWARDS_S)
    began = time.monotonic()
    try:
        for count, at in enumerate(range(0, len(stream), step)):
            time.sleep(max(0.0, began + count * PIECE_MS / 1000 - time.monotonic()))
            send(ws, type="input_audio_buffer.append", audio=base64.b64encode(stream[at : at + step]).decode())
    except ConnectionClosed:
        return
