// Sound as it travels: signed 16-bit samples, little-endian, in base64. Every browser's platform is little-endian.

export const RATE = 24_000;

const SLICE = 0x8000; // more arguments than this overflow the stack of some browsers

export function toBase64(buffer) {
  const bytes = new Uint8Array(buffer);
  let text = "";
  for (let at = 0; at < bytes.length; at += SLICE) text += String.fromCharCode(...bytes.subarray(at, at + SLICE));
  return btoa(text);
}

/** Samples as an Int16Array. */
export function fromBase64(text) {
  const bytes = Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
  return new Int16Array(bytes.buffer, 0, bytes.length >> 1);
}

/** A WAV file of pieces of samples. */
export function wav(pieces) {
  const size = pieces.reduce((sum, piece) => sum + piece.byteLength, 0);
  const head = new DataView(new ArrayBuffer(44));
  const ascii = (at, text) => [...text].forEach((one, n) => head.setUint8(at + n, one.charCodeAt(0)));
  ascii(0, "RIFF");
  head.setUint32(4, 36 + size, true);
  ascii(8, "WAVEfmt ");
  head.setUint32(16, 16, true);
  head.setUint16(20, 1, true);
  head.setUint16(22, 1, true);
  head.setUint32(24, RATE, true);
  head.setUint32(28, 2 * RATE, true);
  head.setUint16(32, 2, true);
  head.setUint16(34, 16, true);
  ascii(36, "data");
  head.setUint32(40, size, true);
  return new Blob([head, ...pieces], { type: "audio/wav" });
}
