// Talk: the microphone to /v1/realtime in OpenAI's dialect, both sides written down as they speak.

import { connect, explain } from "./api.js";
import { Microphone, player } from "./audio.js";
import { choices } from "./choices.js";
import { Notice } from "./dom.js";
import { Log } from "./log.js";
import { fromBase64, RATE, toBase64 } from "./pcm.js";
import { Timing } from "./timing.js";

const BEHIND_BYTES = 1 << 20; // that wait to be sent before sound is skipped: over ten seconds of it

export class Talk {
  constructor(panel) {
    this.notice = new Notice(panel);
    this.log = new Log(panel);
    this.buttons = Object.fromEntries([...panel.querySelectorAll("[data-do]")].map((one) => [one.dataset.do, one]));
    this.level = panel.querySelector(".level");
    this.state = panel.querySelector(".state");
    this.form = panel.querySelector("form");
    this.reset();
    this.buttons.start.addEventListener("click", () => (this.microphone || this.starting ? this.stop() : this.start()));
    this.buttons.mute.addEventListener("click", () => this.mute(!this.muted));
    this.buttons.hush.addEventListener("click", () => this.hush());
    panel.addEventListener("keydown", (event) => event.key === "Escape" && this.hush());
    for (const idea of panel.querySelectorAll("[data-idea]")) idea.addEventListener("click", () => this.write(idea.textContent));
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.write(this.form.text.value.trim());
    });
    player.addEventListener("ended", ({ detail }) => this.ended(detail));
    this.show();
  }

  /** Forgets the session. */
  reset() {
    this.socket = null;
    this.microphone = null;
    this.muted = false;
    this.starting = false;
    this.bubbles = new Map(); // by item
    this.timings = new Map(); // by item of an answer
    this.response = null; // the id of the one that is being made
    this.item = null; // the item of the last answer, while it is made or heard
    this.silenced = new Set(); // items that were interrupted: late sound of theirs isn't played
    this.asked = null; // when the user's turn was over
    this.began = 0; // when the first sample that was sent was taken
  }

  // -- begin and end

  async start() {
    this.starting = true;
    this.show("asking for the microphone");
    try {
      await player.open();
      const microphone = await Microphone.open((pcm, level) => this.heard(pcm, level));
      if (!this.starting) return microphone.close();
      this.microphone = microphone;
      microphone.onLost(() => this.fail("The microphone was taken away."));
      await this.session();
    } catch (problem) {
      this.fail(problem.message);
    }
    this.starting = false;
    return this.show();
  }

  /** The session, opened if there is none. */
  async session() {
    if (this.socket) return;
    this.show("connecting");
    const socket = await connect("v1/realtime");
    this.notice.clear();
    this.socket = socket;
    socket.addEventListener("message", ({ data }) => this.socket === socket && this.receive(JSON.parse(data)));
    socket.addEventListener("close", () => this.socket === socket && this.lost());
    const format = { type: "audio/pcm", rate: RATE };
    this.send({
      type: "session.update",
      session: {
        type: "realtime",
        audio: {
          input: { format, transcription: {}, turn_detection: { type: "server_vad", silence_duration_ms: 500 } },
          output: { format, ...(choices.voice && { voice: choices.voice }) },
        },
      },
    });
  }

  stop() {
    const { socket, microphone } = this;
    for (const bubble of this.bubbles.values()) if (bubble.element.dataset.state !== "done") bubble.end("interrupted");
    this.reset();
    microphone?.close();
    socket?.close(1000);
    player.clear();
    this.meter(0);
    this.show();
  }

  fail(message) {
    this.stop();
    this.notice.show(message);
  }

  lost() {
    const said = !this.notice.element.hidden;
    this.stop();
    if (!said) this.notice.show("The connection was lost. Start again to go on.");
  }

  // -- from the user

  heard(pcm, level) {
    this.meter(level);
    if (!this.socket || this.socket.bufferedAmount > BEHIND_BYTES) return;
    this.began ||= performance.now() - (1000 * pcm.length) / RATE;
    this.send({ type: "input_audio_buffer.append", audio: toBase64(pcm.buffer) });
  }

  async write(text) {
    if (!text) return;
    try {
      await player.open();
      await this.session();
    } catch (problem) {
      this.fail(problem.message);
      return;
    }
    this.form.reset();
    this.hush();
    const id = `item_${crypto.getRandomValues(new Uint32Array(2)).join("")}`;
    this.bubbles.set(id, this.log.add("user", text));
    const content = [{ type: "input_text", text }];
    this.send({ type: "conversation.item.create", item: { id, type: "message", role: "user", content } });
    this.send({ type: "response.create" });
    this.asked = performance.now();
    this.show();
  }

  mute(muted) {
    this.muted = muted;
    this.microphone?.mute(muted);
    this.show();
  }

  /** Stops the answer, wherever it is. */
  hush() {
    if (this.response) this.send({ type: "response.cancel", response_id: this.response });
    this.response = null;
    this.interrupt();
  }

  /** Silence at once; then the server is told how much of the answer was heard, so that it remembers only that. */
  async interrupt() {
    const { item } = this;
    if (!item) return;
    this.item = null;
    this.silenced.add(item);
    this.bubbles.get(item)?.end("interrupted");
    const heard = await player.clear();
    this.show();
    if (!this.timings.get(item)?.ms.sound) return;
    const ms = heard?.id === item ? heard.ms : 0;
    this.bubbles.get(item)?.note(`${this.timings.get(item).words} · interrupted after ${(ms / 1000).toFixed(1)} s`);
    this.send({ type: "conversation.item.truncate", item_id: item, content_index: 0, audio_end_ms: ms, event_id: `cut-${item}` });
  }

  // -- from the server

  receive(event) {
    HANDLERS[event.type]?.(this, event);
  }

  userSpeaks(event) {
    this.interrupt();
    const bubble = this.log.add("user");
    bubble.element.dataset.state = "waiting";
    this.bubbles.set(event.item_id, bubble);
    this.show("listening");
  }

  userStopped(event) {
    this.asked = Math.min(performance.now(), this.began + event.audio_end_ms);
    this.show("thinking");
  }

  answers(event) {
    const id = event.item.id;
    this.item = id;
    this.bubbles.set(id, this.log.add("answer"));
    this.timings.set(id, new Timing(this.asked ?? performance.now()));
    this.show("answering");
  }

  says(event) {
    this.mark(event, "token");
    this.bubbles.get(event.item_id)?.write(event.delta);
  }

  sounds(event) {
    if (this.silenced.has(event.item_id)) return;
    this.mark(event, "sound");
    player.push(event.item_id, fromBase64(event.delta));
  }

  mark(event, kind) {
    const timing = this.timings.get(event.item_id);
    if (!timing || kind in timing.ms) return;
    timing.mark(kind);
    this.bubbles.get(event.item_id)?.note(timing.words);
  }

  done({ response }) {
    if (this.response === response.id) this.response = null;
    const item = response.output[0]?.id;
    if (item && !this.timings.get(item)?.ms.sound) this.ended({ id: item });
    if (response.status === "failed") {
      const error = response.status_details?.error ?? {};
      this.bubbles.get(item)?.end("failed");
      this.notice.show(explain(error.code, error.message));
    }
    this.show();
  }

  /** An answer was heard to its end. */
  ended({ id }) {
    if (this.silenced.has(id)) return;
    this.bubbles.get(id)?.end("done");
    if (this.item === id) this.item = null;
    this.show();
  }

  transcribed(event) {
    const bubble = this.bubbles.get(event.item_id);
    if (!bubble) return;
    bubble.text = event.transcript || "(nothing was understood)";
    bubble.end("done");
  }

  error({ error }) {
    if (error.event_id?.startsWith("cut-")) return; // the answer was forgotten before it was cut
    if (error.code === "response_cancel_not_active") return; // it ended by itself meanwhile
    this.notice.show(explain(error.code, error.message));
  }

  // -- to both

  send(event) {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(event));
  }

  meter(level) {
    const percent = Math.round(Math.min(1, level) * 100);
    this.level.firstElementChild.style.clipPath = `inset(0 ${100 - percent}% 0 0)`;
    this.level.setAttribute("aria-valuenow", percent);
  }

  show(state = "") {
    const live = this.microphone !== null || this.starting;
    this.buttons.start.lastElementChild.textContent = live ? "Stop talking" : "Start talking";
    this.buttons.start.classList.toggle("live", live);
    this.buttons.mute.disabled = this.microphone === null;
    this.buttons.mute.setAttribute("aria-pressed", this.muted);
    this.buttons.hush.disabled = this.item === null && this.response === null;
    const resting = this.item ? "answering" : this.muted ? "muted" : this.microphone ? "listening" : "";
    this.state.textContent = state || resting;
  }
}

const HANDLERS = {
  "input_audio_buffer.speech_started": (talk, event) => talk.userSpeaks(event),
  "input_audio_buffer.speech_stopped": (talk, event) => talk.userStopped(event),
  "conversation.item.input_audio_transcription.delta": (talk, event) => talk.bubbles.get(event.item_id)?.write(event.delta),
  "conversation.item.input_audio_transcription.completed": (talk, event) => talk.transcribed(event),
  "conversation.item.input_audio_transcription.failed": (talk, event) => talk.transcribed({ ...event, transcript: "" }),
  "response.created": (talk, event) => {
    talk.response = event.response.id;
    talk.show("thinking");
  },
  "response.output_item.added": (talk, event) => talk.answers(event),
  "response.output_audio_transcript.delta": (talk, event) => talk.says(event),
  "response.output_text.delta": (talk, event) => talk.says(event),
  "response.output_audio.delta": (talk, event) => talk.sounds(event),
  "response.output_audio.done": (talk, event) => player.finish(event.item_id),
  "response.done": (talk, event) => talk.done(event),
  error: (talk, event) => talk.error(event),
};
