// Watch: a camera or a video file to /v1/video/chat/stream, and questions about what is seen.

import { connect, explain } from "./api.js";
import { capture, player } from "./audio.js";
import { choices } from "./choices.js";
import { Notice, onDrop } from "./dom.js";
import { Film } from "./film.js";
import { Log } from "./log.js";
import { fromBase64, toBase64 } from "./pcm.js";
import { Timing } from "./timing.js";
import { Track } from "./track.js";

const WIDEST = 640; // pixels of a frame that is sent
const UNANSWERED = 6; // frames that may be on their way before one is skipped
const BEHIND_BYTES = 1 << 20;
const PING_MS = 20_000; // well below the server's idle timeout

export class Watch {
  constructor(panel) {
    this.notice = new Notice(panel);
    this.log = new Log(panel);
    this.film = new Film(panel);
    this.view = panel.querySelector(".view");
    this.video = panel.querySelector("video");
    this.state = panel.querySelector(".state");
    this.fps = panel.querySelector('[name="fps"]');
    this.form = panel.querySelector("form");
    this.canvas = document.createElement("canvas");
    this.buttons = Object.fromEntries([...panel.querySelectorAll("[data-do]")].map((one) => [one.dataset.do, one]));
    this.reset();
    const picker = panel.querySelector('input[type="file"]');
    this.buttons.camera.addEventListener("click", () => this.begin(() => this.camera()));
    this.buttons.file.addEventListener("click", () => picker.click());
    this.buttons.stop.addEventListener("click", () => this.stop());
    this.buttons.hush.addEventListener("click", () => this.hush());
    panel.addEventListener("keydown", (event) => event.key === "Escape" && this.hush());
    for (const idea of panel.querySelectorAll("[data-idea]")) idea.addEventListener("click", () => this.ask(idea.textContent));
    picker.addEventListener("change", () => {
      this.open(picker.files);
      picker.value = "";
    });
    onDrop(panel, (files) => this.open(files));
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.ask(this.form.text.value.trim());
    });
    this.video.addEventListener("ended", () => this.show("the video is over; ask about it"));
    player.addEventListener("ended", ({ detail }) => this.turns.has(detail.id) && this.heard(detail.id));
    this.show();
  }

  reset() {
    this.attempt = null; // what begins, or has begun
    this.socket = null;
    this.timers = [];
    this.sent = 0;
    this.answered = 0;
    this.asked = null; // the question that has no answer yet: {bubble, timing}
    this.turns = new Map(); // by request: {bubble, timing}
    this.speaking = null; // the request that is heard
    this.silenced = new Set();
    this.track = new Track(); // what is heard; a camera is only seen
  }

  // -- what is seen

  open(files) {
    const file = [...files].find((one) => one.type.startsWith("video/"));
    if (file) this.begin(() => this.file(file));
    else this.notice.show("That isn't a video file.");
  }

  async begin(source) {
    this.stop();
    const attempt = (this.attempt = {});
    this.film.clear();
    this.show("connecting");
    try {
      await player.open();
      await source();
      if (this.attempt === attempt) await this.session(attempt);
    } catch (problem) {
      if (this.attempt === attempt) this.fail(problem.message);
    }
  }

  async camera() {
    const video = { width: { ideal: 1280 }, height: { ideal: 720 }, facingMode: { ideal: "environment" } };
    const { attempt } = this;
    const stream = await capture("camera", { video });
    if (this.attempt !== attempt) {
      for (const track of stream.getTracks()) track.stop();
      return;
    }
    stream.getVideoTracks()[0].addEventListener("ended", () => this.fail("The camera was taken away."));
    this.video.srcObject = stream;
    await this.video.play();
  }

  async file(file) {
    this.url = URL.createObjectURL(file);
    this.video.src = this.url;
    const { attempt } = this;
    const track = await Track.of(file);
    if (this.attempt !== attempt) return;
    this.track = track;
    try {
      await this.video.play();
    } catch {
      throw new Error(`This browser can't play ${file.name}.`);
    }
  }

  async session(attempt) {
    const socket = await connect("v1/video/chat/stream");
    if (this.attempt !== attempt) {
      socket.close(1000);
      return;
    }
    this.notice.clear();
    this.socket = socket;
    socket.addEventListener("message", ({ data }) => this.socket === socket && this.receive(JSON.parse(data)));
    socket.addEventListener("close", ({ code }) => this.socket === socket && this.lost(code));
    this.send({
      type: "session.config",
      modalities: choices.speech ? ["text", "audio"] : ["text"],
      audio_format: "pcm16",
      num_frames: 8,
      max_frames: 64,
      ...(choices.voice && { voice: choices.voice }),
    });
    this.timers = [setInterval(() => this.send({ type: "ping" }), PING_MS)];
    this.film.clear();
    this.next();
    this.show("watching");
  }

  /** Sends what is seen now, again and again. */
  next() {
    const { socket } = this;
    this.frame(socket);
    this.timers[1] = setTimeout(() => this.socket === socket && this.next(), 1000 / Number(this.fps.value));
  }

  async frame(socket) {
    const { videoWidth: width, videoHeight: height, currentTime } = this.video;
    const behind = this.sent - this.answered >= UNANSWERED || socket.bufferedAmount > BEHIND_BYTES;
    if (!width || this.video.ended || this.video.paused || behind) return;
    const scale = Math.min(1, WIDEST / Math.max(width, height));
    Object.assign(this.canvas, { width: Math.round(width * scale), height: Math.round(height * scale) });
    this.canvas.getContext("2d").drawImage(this.video, 0, 0, this.canvas.width, this.canvas.height);
    const jpeg = await new Promise((resolve) => this.canvas.toBlob(resolve, "image/jpeg", 0.8));
    const data = await base64(jpeg);
    if (this.socket !== socket) return;
    const id = `frame-${++this.sent}`;
    this.film.add(id, jpeg, currentTime);
    this.send({ type: "video.frame", data, frame_id: id, pts_ms: Math.round(currentTime * 1000) });
  }

  stop() {
    const { socket, timers } = this;
    if (this.socket) player.clear();
    for (const { bubble } of [...this.turns.values(), ...(this.asked ? [this.asked] : [])]) {
      if (bubble.element.dataset.state !== "done") bubble.end("interrupted");
    }
    this.reset();
    clearInterval(timers[0]);
    clearTimeout(timers[1]);
    socket?.close(1000);
    for (const track of this.video.srcObject?.getTracks() ?? []) track.stop();
    this.video.srcObject = null;
    this.video.removeAttribute("src");
    this.video.load();
    if (this.url) URL.revokeObjectURL(this.url);
    this.url = null;
    this.show();
  }

  fail(message) {
    this.stop();
    this.notice.show(message);
  }

  lost(code) {
    const said = !this.notice.element.hidden;
    this.stop();
    if (said) return;
    this.notice.show(code === 1013 ? explain("overloaded", "") : "The connection was lost. Start again to go on.");
  }

  // -- questions and answers

  ask(text) {
    if (!text) return;
    if (!this.socket) {
      this.notice.show("Start the camera or open a video first.", "hint");
      return;
    }
    this.notice.clear();
    this.hush();
    this.form.reset();
    this.log.add("user", text);
    this.asked = { bubble: this.log.add("answer"), timing: new Timing() };
    for (const pcm of this.track.take(this.video.currentTime)) this.send({ type: "audio.chunk", data: toBase64(pcm.buffer) });
    this.send({ type: "video.query", text });
  }

  hush() {
    if (!this.speaking) return;
    this.silenced.add(this.speaking);
    this.heard(this.speaking, "interrupted");
    player.clear();
  }

  /** The sound of an answer is over. */
  heard(id, state = "done") {
    this.turns.get(id)?.bubble.end(state);
    if (this.speaking === id) this.speaking = null;
    this.show(this.socket ? "watching" : "");
  }

  receive(event) {
    HANDLERS[event.type]?.(this, event, this.turns.get(event.request_id));
  }

  starts(event) {
    if (!this.asked) return;
    this.turns.set(event.request_id, this.asked);
    this.asked = null;
  }

  sounds(event, turn) {
    if (!turn || this.silenced.has(event.request_id)) return;
    this.mark(turn, "sound");
    this.speaking = event.request_id;
    player.push(event.request_id, fromBase64(event.data));
    this.show("answering");
  }

  mark(turn, kind) {
    turn.timing.mark(kind);
    turn.bubble.note(turn.timing.words);
  }

  done(event, turn) {
    if (!turn) return;
    if (event.status === "failed") turn.bubble.end("failed");
    else if (event.status === "cancelled") turn.bubble.end("interrupted");
    else if (!turn.timing.ms.sound) turn.bubble.end("done");
  }

  error(event) {
    this.notice.show(explain(event.code, event.detail ?? event.message));
    if (!this.asked) return;
    this.asked.bubble.end("failed");
    this.asked = null;
  }

  // -- both

  send(event) {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(event));
  }

  show(state = "") {
    const live = this.socket !== null;
    this.view.dataset.empty = !this.video.srcObject && !this.url;
    this.view.classList.toggle("live", live);
    const { camera, stop } = this.buttons;
    const held = [camera, stop].includes(document.activeElement);
    camera.hidden = live;
    stop.hidden = !live;
    if (held) (live ? stop : camera).focus();
    this.buttons.hush.disabled = this.speaking === null;
    this.state.textContent = state;
  }
}

const HANDLERS = {
  "video.frame.ack": (watch, event) => {
    watch.answered++;
    watch.film.mark(event.frame_id, event.accepted ? "kept" : "dropped");
  },
  "response.start": (watch, event) => watch.starts(event),
  "video.frames.consumed": (watch, event) => watch.film.use(event.frame_ids),
  "response.text.delta": (watch, event, turn) => {
    if (!turn) return;
    watch.mark(turn, "token");
    turn.bubble.write(event.delta);
  },
  "response.output_audio.delta": (watch, event, turn) => watch.sounds(event, turn),
  "response.output_audio.done": (watch, event) => player.finish(event.request_id),
  "response.done": (watch, event, turn) => watch.done(event, turn),
  error: (watch, event) => watch.error(event),
};

async function base64(blob) {
  const url = await new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(blob);
  });
  return url.slice(url.indexOf(",") + 1);
}
