// The microphone's side: what the context hears, at the session's rate, in pieces of 40 ms.

const PIECE_S = 0.04;
const LOBES = 12; // of the windowed sinc on each side; enough for speech

/** Changes the rate of a stream of samples by whole-number ratios, with a windowed sinc per phase. */
class Resampler {
  constructor(from, to) {
    const common = greatestCommonDivisor(from, to);
    this.up = to / common;
    this.down = from / common;
    const cut = Math.min(1, to / from);
    this.half = Math.ceil(LOBES / cut);
    this.taps = Array.from({ length: this.up }, (_, phase) => this.filter(phase / this.up, cut));
    this.past = new Float32Array(2 * this.half);
    this.at = 0; // of the next output, in input samples times `up`, from the beginning of `past`
  }

  filter(offset, cut) {
    const taps = Float32Array.from({ length: 2 * this.half }, (_, n) => {
      const x = n - this.half + 1 - offset;
      const window = 0.5 + 0.5 * Math.cos((Math.PI * x) / this.half);
      return Math.abs(x) >= this.half ? 0 : sinc(cut * x) * window;
    });
    const sum = taps.reduce((total, tap) => total + tap, 0);
    return taps.map((tap) => tap / sum);
  }

  /** Calls `emit` with each sample that can be made. */
  push(input, emit) {
    const span = 2 * this.half;
    const known = new Float32Array(this.past.length + input.length);
    known.set(this.past);
    known.set(input, this.past.length);
    let begin = Math.floor(this.at / this.up);
    while (begin + span <= known.length) {
      const taps = this.taps[this.at % this.up];
      let sum = 0;
      for (let n = 0; n < span; n++) sum += taps[n] * known[begin + n];
      emit(sum);
      this.at += this.down;
      begin = Math.floor(this.at / this.up);
    }
    const done = Math.min(begin, known.length);
    this.past = known.slice(done);
    this.at -= done * this.up;
  }
}

class Capture extends AudioWorkletProcessor {
  constructor({ processorOptions: { rate } }) {
    super();
    this.resampler = sampleRate === rate ? null : new Resampler(sampleRate, rate);
    this.piece = new Int16Array(Math.round(rate * PIECE_S));
    this.filled = 0;
    this.peak = 0;
    this.muted = false;
    this.over = false;
    this.port.onmessage = ({ data }) => {
      if ("muted" in data) this.muted = data.muted;
      if (data.close) this.over = true;
    };
  }

  process([[samples]]) {
    if (samples) {
      if (this.resampler) this.resampler.push(samples, (sample) => this.take(sample));
      else for (const sample of samples) this.take(sample);
    }
    return !this.over;
  }

  /** Silence is sent while muted, so that the server's clock goes on and a turn that was begun ends. */
  take(sample) {
    const value = this.muted ? 0 : Math.max(-1, Math.min(1, sample));
    this.peak = Math.max(this.peak, Math.abs(value));
    this.piece[this.filled++] = value * 0x7fff;
    if (this.filled < this.piece.length) return;
    const pcm = this.piece.slice();
    this.port.postMessage({ pcm, level: this.peak }, [pcm.buffer]);
    this.filled = 0;
    this.peak = 0;
  }
}

function sinc(x) {
  return x === 0 ? 1 : Math.sin(Math.PI * x) / (Math.PI * x);
}

function greatestCommonDivisor(a, b) {
  return b === 0 ? a : greatestCommonDivisor(b, a % b);
}

registerProcessor("capture", Capture);
