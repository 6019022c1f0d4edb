"""Speech to text: Silero finds the speech, Moonshine writes it down."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from omni.contract.names import LISTEN_RATE
from omni.stages.demo.models import packaged, session
from omni.stages.media.audio import Samples
from omni.stages.media.limits import Check

_FRAME: Final = 512
"""Samples that the voice detector judges at once: 32 ms."""
_CONTEXT: Final = 64
"""Samples before a frame that it looks at too."""
_SPEECH: Final = 0.5
"""Probability over which a frame is speech."""
_MARGIN: Final = 8
"""Frames that are kept around speech, so that no soft beginning or end is lost."""
_PAUSE: Final = 16
"""Frames without speech at which a long recording may be cut."""
_LEAST: Final = 4
"""Frames of speech under which a sound is noise."""
_LONGEST: Final = 15 * LISTEN_RATE // _FRAME
"""Frames of one piece for the recogniser, which was made for short ones."""
_TOKENS_PER_SECOND: Final = 6.5
"""More than anyone says; a recogniser that goes on is repeating itself (the model's own bound)."""
_BEGIN, _END = 1, 2


class Hearing:
    """Both models. One call at a time."""

    def __init__(self) -> None:
        place = "assets/tiny-en"
        self._detector = session(packaged("silero_vad", "data/silero_vad_16k_sequence.onnx"))
        self._encoder = session(packaged("moonshine_voice", f"{place}/encoder_model.ort"))
        self._decoder = session(packaged("moonshine_voice", f"{place}/decoder_model_merged.ort"))
        self._words = _vocabulary(packaged("moonshine_voice", f"{place}/tokenizer.bin").read_bytes())
        self._outputs = [output.name for output in self._decoder.get_outputs()]
        self._past = {
            one.name: np.zeros((1, one.shape[1], 0, one.shape[3]), np.float32)
            for one in self._decoder.get_inputs()
            if one.name.startswith("past")
        }

    def write_down(self, samples: Samples, check: Check) -> str:
        """What is said in float32 [samples] at 16 kHz; empty when nobody speaks."""
        texts = []
        for start, end in pieces(self._probabilities(samples) > _SPEECH):
            check()
            texts.append(self.recognise(samples[start * _FRAME : end * _FRAME], check))
        return " ".join(filter(None, texts))

    def _probabilities(self, samples: Samples) -> npt.NDArray[np.float32]:
        count = -(-len(samples) // _FRAME)
        padded = np.zeros(_CONTEXT + count * _FRAME, np.float32)
        padded[_CONTEXT : _CONTEXT + len(samples)] = samples
        frames = np.lib.stride_tricks.sliding_window_view(padded, _CONTEXT + _FRAME)[::_FRAME]
        state = np.zeros((1, 1, 128), np.float32)
        speech: npt.NDArray[np.float32] = self._detector.run(
            ["speech_probs"], {"input": np.ascontiguousarray(frames), "h": state, "c": state}
        )[0]
        return speech

    def recognise(self, samples: Samples, check: Check) -> str:
        """What is said in a short piece that is known to be speech."""
        sound = samples[None]
        mask = np.ones(sound.shape, np.int64)
        (hidden,) = self._encoder.run(None, {"input_values": sound, "attention_mask": mask})
        feed: dict[str, Any] = {"encoder_hidden_states": hidden, "encoder_attention_mask": mask, **self._past}
        ids = [_BEGIN]
        for step in range(8 + int(len(samples) / LISTEN_RATE * _TOKENS_PER_SECOND)):
            check()
            feed["input_ids"] = np.array([ids[-1:]], np.int64)
            feed["use_cache_branch"] = np.array([step > 0])
            out = dict(zip(self._outputs, self._decoder.run(None, feed), strict=True))
            ids.append(int(out["logits"][0, -1].argmax()))
            if ids[-1] == _END:
                break
            for name in self._past:
                # The encoder's keys and values are made by the first step and then stay.
                if step == 0 or ".decoder." in name:
                    feed[name] = out[name.replace("past_key_values", "present")]
        words = b"".join(self._words[id] for id in ids if id > _END)
        return words.replace("\u2581".encode(), b" ").decode("utf-8", "replace").strip()


def pieces(speech: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Frames `(start, end)` of the pieces of a recording to write down, from bool [frames].

    Speech with what is around it, cut at pauses where it would grow too long, and somewhere when there is none.
    """
    out: list[tuple[int, int]] = []
    heard = np.flatnonzero(speech)
    if len(heard) < _LEAST:
        return out
    # Runs of speech: a new one begins where the gap to the frame before is a pause.
    starts = [heard[0], *heard[1:][np.diff(heard) > _PAUSE]]
    ends = [*heard[:-1][np.diff(heard) > _PAUSE], heard[-1]]
    for start, end in zip(starts, ends, strict=True):
        first, last = max(0, int(start) - _MARGIN), min(len(speech), int(end) + 1 + _MARGIN)
        if out and last - out[-1][0] <= _LONGEST:
            out[-1] = (out[-1][0], last)
            continue
        out.extend((at, min(at + _LONGEST, last)) for at in range(first, last, _LONGEST))
    return out


def _vocabulary(data: bytes) -> list[bytes]:
    """The recogniser's pieces of words: each a length of one byte, or of two when the first is over 127, and its bytes.

    In the second case the length is 128 times the second byte and the first byte less 128 (Moonshine's tokenizer.bin).
    """
    words: list[bytes] = []
    at = 0
    while at < len(data):
        length = data[at]
        at += 1
        if length > 127:
            length += data[at] * 128 - 128
            at += 1
        words.append(data[at : at + length])
        at += length
    return words
