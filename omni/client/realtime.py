"""Talks to `/v1/realtime`, in writing, by a sound file or by the microphone, and shows and plays what is answered."""

from __future__ import annotations

import argparse
import base64
import json
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection

from omni.client.clip import LISTEN_RATE, Unreadable, sound
from omni.client.common import Refused, add_server, bar, fail, note, watched, write
from omni.client.microphone import RATE, live
from omni.client.socket import connected, receive, send
from omni.client.speaker import Speaker

ABOUT = "talk to the model: a text, a sound file or the microphone in, speech out"
PATH = "/v1/realtime"
PIECE_MS = 100
AFTERWARDS_S = 2.0
"""Silence behind the sound, so that its end is noticed."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    asked = parser.add_mutually_exclusive_group(required=True)
    asked.add_argument("text", nargs="?", help="what to ask; - reads it from the input")
    asked.add_argument("--audio", type=Path, help="a sound file with the question, sent as a microphone would")
    asked.add_argument("--seconds", type=float, help="talk into the microphone for so long")
    parser.add_argument("--system", help="what the model is told first")
    parser.add_argument("--silent", action="store_true", help="have the answer in writing only")
    parser.add_argument("--voice", help="who speaks")
    parser.add_argument("--save", type=Path, help="write the speech to this WAV file")
    parser.add_argument("--play", action="store_true", help="play the speech")
    add_server(parser)


def run(options: argparse.Namespace) -> int:
    """The exit status: 0 when everything was answered."""
    try:
        voice = listening(options)
        with connected(options, PATH) as ws:
            told = converse(ws, options, voice)
    except (Refused, Unreadable) as problem:
        return fail(problem)
    if options.json:
        write(json.dumps(told, ensure_ascii=False) + "\n")
    return 0


def listening(options: argparse.Namespace) -> Voice | None:
    """What will be said aloud. Raises `Refused` or `Unreadable`."""
    if options.seconds is not None:
        return Voice(live(options.seconds, PIECE_MS), RATE, options.seconds, watched(options))
    if options.audio is not None:
        pcm = sound(str(options.audio))
        return Voice(paced(pcm, LISTEN_RATE), LISTEN_RATE, len(pcm) / 2 / LISTEN_RATE, watched(options))
    return None


def converse(ws: ClientConnection, options: argparse.Namespace, voice: Voice | None) -> dict[str, Any]:
    """The whole session, in the end as an object. Raises `Refused` or what the connection raises."""
    send(ws, type="session.update", session=session(options))
    with Speaker(options.save, options.play) as speaker:
        talk = Talk(speaker, quiet=options.json, spoken=voice is not None)
        if voice is None:
            text = sys.stdin.read() if options.text == "-" else options.text
            content = [{"type": "input_text", "text": text}]
            send(ws, type="conversation.item.create", item={"type": "message", "role": "user", "content": content})
            send(ws, type="response.create")
        else:
            threading.Thread(target=voice.speak, args=(ws,), name="voice", daemon=True).start()
        while not talk.over:
            talk.take(receive(ws))
    if not talk.answers:
        raise Refused("no voice was heard")
    if speaker.samples and not options.json:
        note(f"{speaker.seconds:.1f} s of speech{f', in {options.save}' if options.save else ''}\n")
    return {"answers": talk.answers, "heard": talk.heard, "speech_s": round(speaker.seconds, 3)}


def session(options: argparse.Namespace) -> dict[str, Any]:
    """What the session is set to."""
    out: dict[str, Any] = {"type": "realtime", "output_modalities": ["text" if options.silent else "audio"]}
    rate = RATE if options.seconds is not None else LISTEN_RATE
    # A file can't listen: what it says behind a pause must not cut the answer off.
    detection = {"type": "server_vad", "silence_duration_ms": 1_000, "interrupt_response": options.seconds is not None}
    out["audio"] = {"input": {"format": {"type": "audio/pcm", "rate": rate}, "turn_detection": detection}}
    if options.system:
        out["instructions"] = options.system
    if options.voice:
        out["audio"]["output"] = {"voice": options.voice}
    return out


class Talk:
    """What is heard of the server."""

    def __init__(self, speaker: Speaker, *, quiet: bool, spoken: bool) -> None:
        self._owed = not spoken
        """Whether there is a question whose answer has yet to begin."""
        self._answering = False
        self._updates = 2 if spoken else 1
        """Of the session that are to come: `Voice` asks for the last one when it has ended."""
        self.answers: list[dict[str, Any]] = []
        self.heard: list[list[int]] = []
        """Where each voice began and ended, milliseconds."""
        self._speaker = speaker
        self._quiet = quiet
        self._asked = time.monotonic()
        self._told: dict[str, Any] = {}

    @property
    def over(self) -> bool:
        return not (self._updates or self._owed or self._answering)

    def take(self, event: dict[str, Any]) -> None:
        """Raises `Refused`."""
        match event["type"]:
            case "session.updated":
                self._updates -= 1
            case "response.created":
                self._owed, self._answering, self._told = False, True, {"text": ""}
            case "response.output_text.delta" | "response.output_audio_transcript.delta":
                self._first("first_token_s")
                self._told["text"] += event["delta"]
                write("" if self._quiet else event["delta"])
            case "response.output_audio.delta":
                self._first("first_sound_s")
                self._speaker.write(base64.b64decode(event["delta"]))
            case "input_audio_buffer.speech_started":
                self._owed = True
                self.heard.append([event["audio_start_ms"]])
                self._note(f"\ra voice from {event['audio_start_ms'] / 1000:.2f} s on\n")
            case "input_audio_buffer.speech_stopped":
                self._asked = time.monotonic()
                self.heard[-1].append(event["audio_end_ms"])
                self._note(f"\runtil {event['audio_end_ms'] / 1000:.2f} s\n")
            case "response.done":
                self._done(event["response"])
            case "error":
                raise Refused(f"the server says: {event['error']['message']}")

    def _done(self, response: dict[str, Any]) -> None:
        self._answering = False
        if response["status"] == "failed":
            raise Refused(f"the server says: {response['status_details']['error']['message']}")
        usage = response["usage"] or {}
        self.answers.append({**self._told, "status": response["status"], "usage": usage})
        if not self._quiet:
            write("\n")
            tokens = f"{usage.get('input_tokens', 0)} tokens read, {usage.get('output_tokens', 0)} made"
            note(f"{response['status']}: {tokens}\n")

    def _first(self, name: str) -> None:
        self._told.setdefault(name, round(time.monotonic() - self._asked, 3))

    def _note(self, text: str) -> None:
        if not self._quiet:
            note(text)


class Voice:
    """Sound that is sent as it is spoken, and silence behind it."""

    def __init__(self, pieces: Iterable[bytes], rate: int, seconds: float, watched: bool) -> None:
        """`pieces` come at their own pace."""
        self._pieces = pieces
        self._rate = rate
        self._seconds = seconds
        self._watched = watched

    def speak(self, ws: ClientConnection) -> None:
        """Ends with an update of the session that changes nothing: its answer tells that all has been heard."""
        try:
            for count, piece in enumerate(self._pieces, 1):
                self._say(ws, piece)
                if self._watched:
                    note(f"\r{bar(count * PIECE_MS / 1000, self._seconds)} ")
            for piece in paced(bytes(int(AFTERWARDS_S * self._rate) * 2), self._rate):
                self._say(ws, piece)
            send(ws, type="session.update", session={"type": "realtime"})
        except Refused as problem:
            fail(problem)
            ws.close()
        except ConnectionClosed:
            return

    def _say(self, ws: ClientConnection, piece: bytes) -> None:
        send(ws, type="input_audio_buffer.append", audio=base64.b64encode(piece).decode())


def paced(pcm: bytes, rate: int) -> Iterator[bytes]:
    """`pcm` in pieces of `PIECE_MS`, each when a microphone would have it."""
    step = 2 * rate * PIECE_MS // 1000
    began = time.monotonic()
    for count, at in enumerate(range(0, len(pcm), step), 1):
        time.sleep(max(0.0, began + count * PIECE_MS / 1000 - time.monotonic()))
        yield pcm[at : at + step]
