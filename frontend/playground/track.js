// The sound of a video file, as the server listens to it: as far as the picture has come.

export const RATE = 16_000;

const LARGEST = 256 << 20; // bytes of a file; its sound is decoded at once
const LONGEST_S = 30; // that go along with a question
const PIECE_S = 4; // of one message

export class Track {
  /** Of a file that is a video; without samples where it has no sound, or none that this browser can decode. */
  static async of(file) {
    if (file.size > LARGEST) return new Track();
    try {
      const context = new OfflineAudioContext(1, 1, RATE);
      return new Track(mono(await context.decodeAudioData(await file.arrayBuffer())));
    } catch {
      return new Track();
    }
  }

  constructor(samples = new Float32Array()) {
    this.samples = samples;
    this.at = 0; // of the first sample that nobody was asked about
  }

  /** Int16Arrays of what was heard up to `seconds` since the last call, or of the end of it. */
  take(seconds) {
    const end = Math.min(this.samples.length, Math.round(seconds * RATE));
    const from = Math.max(this.at <= end ? this.at : 0, end - LONGEST_S * RATE);
    this.at = end;
    const pieces = [];
    for (let at = from; at < end; at += PIECE_S * RATE) {
      const piece = this.samples.subarray(at, Math.min(end, at + PIECE_S * RATE));
      pieces.push(Int16Array.from(piece, (one) => Math.max(-1, Math.min(1, one)) * 0x7fff));
    }
    return pieces;
  }
}

function mono(sound) {
  const channels = Array.from({ length: sound.numberOfChannels }, (_, n) => sound.getChannelData(n));
  return channels[0].map((_, at) => channels.reduce((sum, one) => sum + one[at], 0) / channels.length);
}
