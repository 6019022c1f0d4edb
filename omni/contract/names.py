"""Names that appear on the wire between the front door and Triton."""

from __future__ import annotations

from typing import Final

PREPROCESS: Final = "preprocess"
THINKER: Final = "thinker"
TALKER: Final = "talker"
CODE2WAV: Final = "code2wav"

STAGES: Final = (PREPROCESS, THINKER, TALKER, CODE2WAV)
"""The stages in the order in which a generation passes them."""

OMNI: Final = "omni"
"""The ensemble that answers in text and speech: all four stages."""

OMNI_TEXT: Final = "omni_text"
"""The ensemble that answers in text alone: preprocess and thinker."""

ENSEMBLES: Final = {OMNI: STAGES, OMNI_TEXT: (PREPROCESS, THINKER)}

SETTINGS: Final = "settings"
"""Request parameter (string): `Settings` as JSON. Triton hands request parameters to every step."""

SAMPLE_RATE: Final = 24_000
"""Hertz of the speech that leaves code2wav, mono, signed 16-bit."""

CODEC_FRAME_SAMPLES: Final = 1_920
"""Samples of speech per codec frame: 80 ms at `SAMPLE_RATE`, 12.5 frames per second."""

LISTEN_RATE: Final = 16_000
"""Hertz of the mono sound that preprocess hands to the thinker."""
