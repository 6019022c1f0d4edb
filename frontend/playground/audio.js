// The microphone and the loudspeaker, each behind an AudioWorklet.

import { Problem } from "./api.js";
import { RATE } from "./pcm.js";

const worklet = (name) => new URL(`./${name}.worklet.js`, import.meta.url);

/** Asks for a camera or a microphone. Throws `Problem` in words that help. */
export async function capture(what, constraints) {
  if (!navigator.mediaDevices) {
    throw new Problem(`Browsers give the ${what} to secure pages only: open this page by https, or on localhost.`, "insecure");
  }
  try {
    return await navigator.mediaDevices.getUserMedia(constraints);
  } catch (error) {
    const words = {
      NotAllowedError: `The ${what} is blocked. Allow it in the browser's site settings (the icon left of the address), then try again.`,
      NotFoundError: `No ${what} was found on this device.`,
      NotReadableError: `The ${what} is in use by another program.`,
    };
    throw new Problem(words[error.name] ?? `The ${what} can't be used: ${error.name}.`, "device");
  }
}

export class Microphone {
  /** `onPiece` gets an Int16Array at `RATE` and its peak, 0 to 1, every 40 ms. Throws `Problem`. */
  static async open(onPiece) {
    const audio = { channelCount: 1, echoCancellation: true, noiseSuppression: true, autoGainControl: true };
    const stream = await capture("microphone", { audio });
    const context = new AudioContext();
    try {
      await context.audioWorklet.addModule(worklet("capture"));
      await context.resume();
    } catch (error) {
      for (const track of stream.getTracks()) track.stop();
      throw error;
    }
    return new Microphone(stream, context, onPiece);
  }

  constructor(stream, context, onPiece) {
    this.stream = stream;
    this.context = context;
    this.node = new AudioWorkletNode(context, "capture", { numberOfOutputs: 0, processorOptions: { rate: RATE } });
    this.node.port.onmessage = ({ data }) => onPiece(data.pcm, data.level);
    context.createMediaStreamSource(stream).connect(this.node);
  }

  mute(muted) {
    this.node.port.postMessage({ muted });
  }

  /** Calls `gone` when the device is taken away. */
  onLost(gone) {
    this.stream.getAudioTracks()[0].addEventListener("ended", gone);
  }

  close() {
    this.node.port.onmessage = null;
    this.node.port.postMessage({ close: true });
    for (const track of this.stream.getTracks()) track.stop();
    this.context.close();
  }
}

/** Plays clips one after the other. A clip is known by its id. Events: started and ended, with `detail.id`. */
export class Player extends EventTarget {
  /** Must first be called while the user does something, or browsers stay silent. */
  async open() {
    this.opening ??= this.#open();
    await this.opening;
    await this.context.resume();
  }

  async #open() {
    this.context = new AudioContext({ sampleRate: RATE });
    await this.context.audioWorklet.addModule(worklet("playback"));
    this.node = new AudioWorkletNode(this.context, "playback", { numberOfInputs: 0, outputChannelCount: [1] });
    this.node.port.onmessage = ({ data }) => this.#hear(data);
    this.node.connect(this.context.destination);
  }

  push(id, pcm) {
    this.node?.port.postMessage({ id, pcm }, [pcm.buffer]);
  }

  finish(id) {
    this.node?.port.postMessage({ finish: id });
  }

  /** Silence at once. The clip that was playing and the milliseconds of it that were heard, or null. */
  clear() {
    if (!this.node || this.context.state !== "running") return Promise.resolve(null);
    return new Promise((resolve) => {
      this.addEventListener("cleared", ({ detail }) => resolve(detail), { once: true });
      this.node.port.postMessage({ clear: true });
    });
  }

  #hear(data) {
    if ("started" in data) this.#tell("started", { id: data.started });
    if ("ended" in data) this.#tell("ended", { id: data.ended, gaps: data.gaps });
    if ("cleared" in data) {
      const late = this.context.outputLatency || 0;
      const ms = Math.max(0, Math.floor((data.samples / RATE - late) * 1000));
      this.#tell("cleared", data.cleared === null ? null : { id: data.cleared, ms });
    }
  }

  #tell(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}

/** The page's only loudspeaker. */
export const player = new Player();
