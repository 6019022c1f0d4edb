"""Where speech goes: a WAV file, or the loudspeaker through a player that the machine has."""

from __future__ import annotations

import shutil
import subprocess
import wave
from pathlib import Path
from types import TracebackType
from typing import Self

PLAYERS = (
    ("ffplay", "-nodisp", "-autoexit", "-loglevel", "quiet", "-f", "s16le", "-ar", "{rate}", "-ch_layout", "mono", "-"),
    ("aplay", "-q", "-t", "raw", "-f", "S16_LE", "-r", "{rate}", "-c", "1", "-"),
    ("play", "-q", "-t", "raw", "-e", "signed", "-b", "16", "-r", "{rate}", "-c", "1", "-"),
)
"""Programs that play bare samples from their input, with the arguments for it."""


class Speaker:
    """A context manager that takes PCM16, mono. Without a file and without a player, sound is only counted."""

    def __init__(self, save: Path | None, play: bool, rate: int = 24_000) -> None:
        self.samples = 0
        self._rate = rate
        self._save = save
        self._play = play
        self._file: wave.Wave_write | None = None
        self._player: subprocess.Popen[bytes] | None = None

    @property
    def seconds(self) -> float:
        return self.samples / self._rate

    def __enter__(self) -> Self:
        if self._save is not None:
            self._file = wave.open(str(self._save), "wb")
            self._file.setnchannels(1)
            self._file.setsampwidth(2)
            self._file.setframerate(self._rate)
        found = next((player for player in PLAYERS if shutil.which(player[0])), None) if self._play else None
        if found is not None:
            command = [part.format(rate=self._rate) for part in found]
            self._player = subprocess.Popen(command, stdin=subprocess.PIPE)
        return self

    def write(self, pcm: bytes) -> None:
        self.samples += len(pcm) // 2
        if self._file is not None:
            self._file.writeframes(pcm)
        if self._player is not None and self._player.stdin is not None:
            try:
                self._player.stdin.write(pcm)
                self._player.stdin.flush()
            except BrokenPipeError:
                self._player = None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._file is not None:
            self._file.close()
        if self._player is not None and self._player.stdin is not None:
            self._player.stdin.close()
            self._player.wait()
