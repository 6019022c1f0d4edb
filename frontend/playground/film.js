// The frames that were sent, as thumbnails: kept, dropped, used.

import { h } from "./dom.js";

const SHOWN = 48;

export class Film {
  constructor(panel) {
    this.list = panel.querySelector(".film ol");
    this.counts = Object.fromEntries([...panel.querySelectorAll("[data-count]")].map((one) => [one.dataset.count, one]));
    this.clear();
  }

  clear() {
    for (const { url } of this.frames?.values() ?? []) URL.revokeObjectURL(url);
    this.frames = new Map(); // by id: {element, url}
    this.sums = { kept: 0, dropped: 0, used: 0 };
    this.list.replaceChildren();
    this.count();
  }

  add(id, jpeg, seconds) {
    const url = URL.createObjectURL(jpeg);
    const time = h("span", { textContent: `${seconds.toFixed(1)} s` });
    const element = h("li", { "data-state": "sent" }, h("img", { src: url, alt: "" }), time);
    this.frames.set(id, { element, url, time: time.textContent });
    this.label(id);
    this.list.append(element);
    if (this.frames.size > SHOWN) this.forget(this.frames.keys().next().value);
    this.list.scrollLeft = this.list.scrollWidth;
  }

  forget(id) {
    const { element, url } = this.frames.get(id);
    URL.revokeObjectURL(url);
    element.remove();
    this.frames.delete(id);
  }

  /** The server said what became of a frame: kept or dropped. */
  mark(id, state) {
    this.sums[state]++;
    const frame = this.frames.get(id);
    if (frame) frame.element.dataset.state = state;
    this.label(id);
    this.count();
  }

  /** The frames of the last answer. */
  use(ids) {
    for (const id of this.frames.keys()) {
      this.frames.get(id).element.toggleAttribute("data-used", ids.includes(id));
      this.label(id);
    }
    this.sums.used = ids.length;
    this.count();
  }

  label(id) {
    const frame = this.frames.get(id);
    if (!frame) return;
    const { state } = frame.element.dataset;
    const used = frame.element.hasAttribute("data-used") ? ", used by the last answer" : "";
    frame.element.firstElementChild.alt = `Frame at ${frame.time}, ${state}${used}`;
  }

  count() {
    for (const [name, element] of Object.entries(this.counts)) element.textContent = this.sums[name];
  }
}
