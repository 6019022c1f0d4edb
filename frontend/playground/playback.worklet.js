// The loudspeaker's side: a ring of samples that is filled by messages and emptied by the sound card, without gaps.
//
// in:  {id, pcm}   samples of the clip `id`       {finish: id}   it is complete       {clear}   be silent at once
// out: {started: id}   {ended: id, gaps}   {cleared: id or null, samples}   how much of the clip was heard

const FIRST_S = 60; // what the ring holds before it grows
const MOST_S = 900; // what it never outgrows; further samples are lost
const FADE = 128; // samples
const AHEAD_S = 0.1; // what a clip has before it starts, so that an uneven network isn't heard

class Playback extends AudioWorkletProcessor {
  constructor() {
    super();
    this.ring = new Int16Array(FIRST_S * sampleRate);
    this.tail = null; // what sounds on for a moment after a silence was ordered, so that it doesn't click
    this.port.onmessage = ({ data }) => {
      if (data.pcm) this.push(data.id, data.pcm);
      else if ("finish" in data) this.finish(data.finish);
      else if (data.clear) this.clear();
    };
    this.forget();
  }

  /** Positions count samples since the last silence. */
  forget() {
    this.read = this.written = 0;
    this.clips = []; // {id, from, to, complete, gaps}, the one that plays first
    this.playing = false;
  }

  push(id, pcm) {
    let clip = this.clips.at(-1);
    if (clip?.id !== id) this.clips.push((clip = { id, from: this.written, to: this.written, complete: false, gaps: 0 }));
    this.room(pcm.length);
    const size = this.ring.length;
    const count = Math.min(pcm.length, size - (this.written - this.read));
    for (let n = 0; n < count; n++) this.ring[(this.written + n) % size] = pcm[n];
    this.written += count;
    clip.to = this.written;
  }

  room(count) {
    const held = this.written - this.read;
    let size = this.ring.length;
    while (size < held + count && size < MOST_S * sampleRate) size *= 2;
    if (size === this.ring.length) return;
    const larger = new Int16Array(size);
    for (let at = this.read; at < this.written; at++) larger[at % size] = this.ring[at % this.ring.length];
    this.ring = larger;
  }

  finish(id) {
    for (const clip of this.clips) if (clip.id === id) clip.complete = true;
    this.pass();
  }

  process(_, [[out]]) {
    const clip = this.clips[0];
    if (clip && !this.playing && (clip.complete || this.written - this.read >= AHEAD_S * sampleRate)) {
      this.playing = true;
      if (this.read === clip.from) this.port.postMessage({ started: clip.id });
    }
    const count = this.playing ? Math.min(out.length, this.written - this.read) : 0;
    for (let n = 0; n < count; n++) out[n] = this.sample(this.read + n);
    this.read += count;
    if (this.playing && count < out.length) this.dry();
    this.fade(out);
    this.pass();
    return true;
  }

  /** Nothing is left to play: a gap, unless the clip is over. */
  dry() {
    this.playing = false;
    if (this.clips[0] && !this.clips[0].complete && this.read > this.clips[0].from) this.clips[0].gaps++;
  }

  sample(at) {
    return this.ring[at % this.ring.length] / 0x8000;
  }

  clear() {
    const clip = this.clips[0];
    this.port.postMessage({ cleared: clip?.id ?? null, samples: clip ? this.read - clip.from : 0 });
    const left = this.playing ? Math.min(FADE, this.written - this.read) : 0;
    this.tail = Float32Array.from({ length: left }, (_, n) => this.sample(this.read + n) * (1 - n / left));
    this.forget();
  }

  fade(out) {
    this.tail?.subarray(0, out.length).forEach((value, n) => (out[n] += value));
    this.tail = null;
  }

  /** Lets go of the clips that were heard to their end. */
  pass() {
    while (this.clips[0]?.complete && this.read >= this.clips[0].to) {
      const { id, gaps } = this.clips.shift();
      this.port.postMessage({ ended: id, gaps });
      if (this.clips.length === 0) this.playing = false;
      else if (this.playing) this.port.postMessage({ started: this.clips[0].id });
    }
  }
}

registerProcessor("playback", Playback);
