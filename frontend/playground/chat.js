// Chat: messages with files to /v1/chat/completions, answered as they come in text and sound.

import { Problem, explain, request } from "./api.js";
import { kindOf, part, preview, read } from "./attachments.js";
import { player } from "./audio.js";
import { choices } from "./choices.js";
import { h, Notice, onDrop } from "./dom.js";
import * as examples from "./examples.js";
import { Log } from "./log.js";
import { fromBase64, wav } from "./pcm.js";
import { events } from "./sse.js";
import { Timing } from "./timing.js";

export class Chat {
  constructor(panel) {
    this.notice = new Notice(panel);
    this.log = new Log(panel);
    this.form = panel.querySelector("form");
    this.text = this.form.text;
    this.speech = panel.querySelector('[name="speech"]');
    this.shelf = panel.querySelector(".attachments");
    this.code = panel.querySelector(".code");
    this.copied = this.code.querySelector(".state");
    this.language = "curl";
    this.messages = []; // as in the API, but files as they were read
    this.files = [];
    this.running = null; // {abort, id}
    this.count = 0;
    this.buttons = Object.fromEntries([...panel.querySelectorAll("[data-do]")].map((one) => [one.dataset.do, one]));
    const picker = panel.querySelector('input[type="file"]');
    this.buttons.attach.addEventListener("click", () => picker.click());
    picker.addEventListener("change", () => {
      this.attach([...picker.files]);
      picker.value = "";
    });
    onDrop(panel, (files) => this.attach(files));
    panel.addEventListener("paste", ({ clipboardData }) => clipboardData.files.length && this.attach([...clipboardData.files]));
    panel.addEventListener("keydown", (event) => event.key === "Escape" && this.stop());
    for (const idea of panel.querySelectorAll("[data-idea]")) idea.addEventListener("click", () => this.suggest(idea.textContent));
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.running) this.stop();
      else this.ask();
    });
    this.text.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      if (!this.running) this.ask();
    });
    this.text.addEventListener("input", () => this.draft());
    this.speech.addEventListener("change", () => this.draft());
    document.getElementById("voice").addEventListener("change", () => this.draft());
    document.addEventListener("omni-key", () => this.draft());
    this.buttons.clear.addEventListener("click", () => this.clear());
    this.buttons.copy.addEventListener("click", () => this.copy());
    for (const button of this.code.querySelectorAll("[data-code]")) button.addEventListener("click", () => this.choose(button));
    this.draft();
  }

  // -- the message

  async attach(files) {
    const known = files.filter(kindOf);
    if (known.length < files.length) this.notice.show("Only images, sound and video can be sent along.");
    else this.notice.clear();
    this.files.push(...(await Promise.all(known.map(read))));
    this.showFiles();
  }

  showFiles() {
    this.shelf.replaceChildren(
      ...this.files.map((file) => {
        const remove = h("button", { type: "button", textContent: "×", "aria-label": `Remove ${file.name}` });
        remove.addEventListener("click", () => {
          URL.revokeObjectURL(file.url);
          this.files = this.files.filter((one) => one !== file);
          this.showFiles();
          this.text.focus();
        });
        const picture = file.kind === "image" ? [h("img", { src: file.url, alt: "" })] : [];
        return h("li", {}, ...picture, h("span", { textContent: file.name }), remove);
      }),
    );
    this.draft();
  }

  /** The message that is being written, in parts of which files are {file}. */
  message() {
    const parts = this.files.map((file) => ({ file }));
    const text = this.text.value.trim();
    if (text || parts.length === 0) parts.push({ type: "text", text });
    return { role: "user", content: parts.length === 1 && text ? text : parts };
  }

  body(messages) {
    const speaks = this.speech.checked && choices.speech;
    const voice = choices.voice && { voice: choices.voice };
    const audio = speaks && { modalities: ["text", "audio"], audio: { ...voice, format: "pcm16" } };
    return { model: document.getElementById("model").textContent, messages, ...audio, stream: true };
  }

  suggest(text) {
    this.text.value = text;
    if (!this.running) this.ask();
  }

  // -- the answer

  async ask() {
    const message = this.message();
    if (message.content === "" || (Array.isArray(message.content) && message.content[0].text === "")) return;
    this.notice.clear();
    await player.open();
    this.messages.push(message);
    const bubble = this.log.add("user", this.text.value.trim());
    for (const file of this.files) bubble.attach(preview(file));
    this.text.value = "";
    this.files = [];
    this.showFiles();
    await this.answer();
  }

  async answer() {
    const run = (this.running = { abort: new AbortController(), id: `chat-${++this.count}` });
    const bubble = this.log.add("answer");
    const timing = new Timing();
    const pieces = [];
    this.show();
    let state = "done";
    try {
      for await (const delta of this.deltas(run.abort.signal)) {
        if (delta.content) this.mark(bubble, timing, "token").write(delta.content);
        if (!delta.audio?.data) continue;
        this.mark(bubble, timing, "sound");
        pieces.push(fromBase64(delta.audio.data));
        player.push(run.id, pieces.at(-1).slice());
      }
      this.messages.push({ role: "assistant", content: bubble.text });
    } catch (problem) {
      state = this.ended(problem, bubble);
    }
    player.finish(run.id);
    if (pieces.length > 0) bubble.attach(h("audio", { src: URL.createObjectURL(wav(pieces)), controls: true, "aria-label": "The answer, spoken" }));
    bubble.end(state);
    this.running = null;
    this.show();
  }

  /** What was said of an answer that broke off; a question without any answer is taken back. */
  ended(problem, bubble) {
    if (bubble.text) this.messages.push({ role: "assistant", content: bubble.text });
    else this.messages.pop();
    if (problem.name === "AbortError") return "interrupted";
    this.notice.show(problem instanceof Problem ? problem.message : "The connection was lost in the middle of the answer.");
    return "failed";
  }

  async *deltas(signal) {
    const filled = this.messages.map((one) => ({ ...one, content: Array.isArray(one.content) ? one.content.map((piece) => (piece.file ? part(piece.file) : piece)) : one.content }));
    const headers = { "content-type": "application/json" };
    const response = await request("v1/chat/completions", { method: "POST", headers, signal, body: JSON.stringify(this.body(filled)) });
    for await (const event of events(response.body)) {
      if (event.error) throw new Problem(explain(event.error.code === 503 ? "overloaded" : "", event.error.message));
      if (event.choices?.length) yield event.choices[0].delta;
    }
  }

  mark(bubble, timing, kind) {
    if (!(kind in timing.ms)) {
      timing.mark(kind);
      bubble.note(timing.words);
    }
    return bubble;
  }

  stop() {
    this.running?.abort.abort();
    player.clear();
  }

  clear() {
    this.stop();
    this.messages = [];
    this.log.clear();
    this.notice.clear();
    this.draft();
    this.text.focus();
  }

  show() {
    this.buttons.send.textContent = this.running ? "Stop" : "Send";
    this.draft();
  }

  // -- the request as code

  choose(button) {
    this.language = button.dataset.code;
    for (const one of this.code.querySelectorAll("[data-code]")) one.setAttribute("aria-pressed", one === button);
    this.draft();
  }

  /** The request that the next press of Send makes; with nothing written yet, the last one. */
  draft() {
    const next = this.message();
    const written = next.content !== "" && next.content[0]?.text !== "";
    const example = { role: "user", content: "Good morning!" };
    const last = this.messages.filter((one, n) => n < this.messages.length - (this.messages.at(-1)?.role === "assistant"));
    const messages = written ? [...this.messages, next] : last.length > 0 ? last : [example];
    this.code.querySelector("code").textContent = examples[this.language](this.body(messages));
    this.copied.textContent = "";
    this.text.style.height = "auto";
    this.text.style.height = `${Math.min(this.text.scrollHeight + 2, 160)}px`;
  }

  async copy() {
    const code = this.code.querySelector("code");
    try {
      await navigator.clipboard.writeText(code.textContent);
      this.copied.textContent = "copied";
    } catch {
      getSelection().selectAllChildren(code);
      this.copied.textContent = "selected; copy it with the keyboard";
    }
  }
}
