// A conversation as it is written: bubbles of both sides, in order.

import { h } from "./dom.js";

const KEPT = 200;

export class Log {
  constructor(panel) {
    this.element = panel.querySelector(".log");
    this.empty = this.element.querySelector(".empty");
    this.pinned = true; // until somebody reads further up
    this.element.addEventListener("scroll", () => {
      const { scrollHeight, scrollTop, clientHeight } = this.element;
      this.pinned = scrollHeight - scrollTop - clientHeight < 60;
    });
    this.grown = new ResizeObserver(() => this.follow());
  }

  add(side, text = "") {
    this.empty.hidden = true;
    const bubble = new Bubble(side, text);
    this.element.append(bubble.element);
    const old = this.element.querySelectorAll(".bubble");
    if (old.length > KEPT) old[0].remove();
    this.grown.observe(bubble.element);
    this.pinned = true;
    this.follow();
    return bubble;
  }

  clear() {
    for (const bubble of this.element.querySelectorAll(".bubble")) bubble.remove();
    this.empty.hidden = false;
  }

  /** Scrolls to the newest words. */
  follow() {
    if (this.pinned) this.element.scrollTop = this.element.scrollHeight;
  }
}

class Bubble {
  constructor(side, text) {
    this.words = h("p", { className: "words", textContent: text });
    this.element = h("article", { className: `bubble ${side}`, "aria-label": side === "user" ? "You" : "Answer" }, this.words);
    this.element.dataset.state = side === "answer" ? "waiting" : "done";
  }

  get text() {
    return this.words.textContent;
  }

  set text(text) {
    this.words.textContent = text;
  }

  /** Words that come after an interruption are still words, and the answer stays interrupted. */
  write(delta) {
    if (this.element.dataset.state === "waiting") this.element.dataset.state = "writing";
    this.words.append(delta);
  }

  /** `state` is done, interrupted or failed. */
  end(state) {
    this.element.dataset.state = state;
  }

  attach(node) {
    this.element.append(node);
  }

  /** A line of small print; the next one replaces it. */
  note(text) {
    this.small ??= this.element.appendChild(h("small"));
    this.small.textContent = text;
  }
}
