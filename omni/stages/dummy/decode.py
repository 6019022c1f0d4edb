"""`python -m omni.stages.dummy.decode FILE`: prints the text that a file of dummy speech says."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from omni.contract.errors import OmniError
from omni.contract.names import SAMPLE_RATE
from omni.stages.dummy.frames import Unreadable
from omni.stages.dummy.lossy import recover
from omni.stages.dummy.tones import decode
from omni.stages.media.audio import decode_audio


def text_of(file: bytes, *, partial: bool = False, lossy: bool = False) -> str:
    """The text that a sound file says. Raises `Unreadable`, or `OmniError` when it isn't a sound file.

    `partial` allows that the end is missing, `lossy` that samples aren't what they were.
    """
    samples = decode_audio(file, rate=SAMPLE_RATE)
    if lossy:
        return recover(samples)
    return decode(np.clip(np.rint(samples * 32768), -32768, 32767).astype(np.int16), partial=partial)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m omni.stages.dummy.decode", description=__doc__)
    parser.add_argument("file", type=Path, help="WAV or FLAC, mono, 16 bits, 24 kHz; any other sound file with --lossy")
    parser.add_argument("--partial", action="store_true", help="the end may be missing")
    parser.add_argument("--lossy", action="store_true", help="the file is compressed, such as MP3, AAC or Opus")
    options = parser.parse_args(argv)
    try:
        sys.stdout.write(text_of(options.file.read_bytes(), partial=options.partial, lossy=options.lossy) + "\n")
    except (Unreadable, OmniError, OSError) as problem:
        sys.stderr.write(f"{options.file}: {problem}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
