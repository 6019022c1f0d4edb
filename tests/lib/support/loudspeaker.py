"""What a page plays, as the sound card gets it, and where in it the page's player began and stopped.

The recorder is an AudioWorklet between the player and the loudspeaker: it runs where the sound is made and sends each
sample on, so that nothing is lost however busy the page is. It comes from the page's own address, and the page's
security policy stays as it is.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from support.browser import Page

QUANTUM = 128
"""Samples that browsers render at a time. A clip that is interrupted fades out in one."""

RECORDER = """
const PIECE = 20 * 128; // samples
let heard = 0; // samples
let marks = [];

const post = MessagePort.prototype.postMessage;
MessagePort.prototype.postMessage = function (message, ...rest) {
  for (const what of ["started", "ended", "cleared"]) {
    if (message[what] != null) marks.push({ what, clip: message[what], at: heard, samples: message.samples });
  }
  return post.call(this, message, ...rest);
};

registerProcessor("recorder", class extends AudioWorkletProcessor {
  piece = new Int16Array(PIECE);

  process([[input]], [[output]]) {
    if (input) output.set(input);
    for (const sample of output) this.piece[heard++ % PIECE] = Math.round(sample * 32768);
    if (heard % PIECE === 0) {
      post.call(this.port, { pcm: this.piece, marks });
      marks = [];
    }
    return true;
  }
});
"""
"""Knows the player's messages: the end of a clip that was cleared is where its fade begins."""

TAP = """
window.heard = [];
window.marks = [];
{
  const { addModule } = AudioWorklet.prototype;
  AudioWorklet.prototype.addModule = async function (...args) {
    await addModule.call(this, "/recorder.js");
    return addModule.apply(this, args);
  };
  const { connect } = AudioNode.prototype;
  AudioNode.prototype.connect = function (to, ...rest) {
    if (!(to instanceof AudioDestinationNode)) return connect.call(this, to, ...rest);
    const tap = new AudioWorkletNode(this.context, "recorder", { outputChannelCount: [1] });
    tap.port.onmessage = ({ data: { pcm, marks } }) => {
      window.silent = pcm.every((one) => one === 0);
      window.heard.push(btoa(String.fromCharCode(...new Uint8Array(pcm.buffer))));
      window.marks.push(...marks);
    };
    connect.call(this, tap);
    return connect.call(tap, to, ...rest);
  };
}
"""


@dataclass(frozen=True, slots=True)
class Clip:
    """int16 [samples] at 24 kHz, without the silence of waiting for sound that came late."""

    pcm: npt.NDArray[np.int16]
    cut: bool
    """It was silenced, and this is what was heard until then. Otherwise it was heard to its end."""


def record(page: Page) -> None:
    """From the next page on. The page must have one player."""
    page.serve("/recorder.js", RECORDER, "text/javascript")
    page.before(TAP)


def clips(page: Page) -> list[Clip]:
    """Those that were played, when it is silent again. Fails where anything sounds outside of them."""
    before = page.evaluate("window.heard.length")
    page.until(f"window.heard.length > {before} + 1 && window.silent")
    pcm = np.frombuffer(b"".join(map(base64.b64decode, page.evaluate("window.heard"))), np.int16)
    marks: list[dict[str, Any]] = page.evaluate("window.marks")
    found, over = [], 0
    starts = {mark["clip"]: mark["at"] for mark in marks if mark["what"] == "started"}
    for mark in marks:
        if mark["what"] == "started" or mark["clip"] not in starts:
            continue
        start, end = starts[mark["clip"]], mark["at"]
        assert not pcm[over:start].any(), f"something sounds before {mark['clip']}"
        over = end + QUANTUM
        cut = mark["what"] == "cleared"
        played = _without_waiting(pcm[start : end if cut else over])
        assert not cut or len(played) == mark["samples"]
        found.append(Clip(played, cut))
    assert not pcm[over:].any(), "something sounds after the last clip"
    return found


def _without_waiting(pcm: npt.NDArray[np.int16]) -> npt.NDArray[np.int16]:
    quanta = pcm.reshape(-1, QUANTUM)
    return quanta[quanta.any(axis=1)].reshape(-1)
