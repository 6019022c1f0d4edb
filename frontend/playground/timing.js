// How long answers took to begin, as this page saw it.

import { duration } from "./dom.js";

const KEPT = 24;

/** The last turns' milliseconds, oldest first. It tells `change`. */
class Recent extends EventTarget {
  constructor() {
    super();
    this.token = [];
    this.sound = [];
  }

  add(kind, ms) {
    this[kind].push(ms);
    if (this[kind].length > KEPT) this[kind].shift();
    this.dispatchEvent(new Event("change"));
  }
}

export const recent = new Recent();

/** The clock of one turn. Only the first token and the first sound count. */
export class Timing {
  constructor(began = performance.now()) {
    this.began = began;
    this.ms = {};
  }

  mark(kind) {
    if (kind in this.ms) return;
    this.ms[kind] = performance.now() - this.began;
    recent.add(kind, this.ms[kind]);
  }

  get words() {
    const { token, sound } = this.ms;
    const parts = [token !== undefined && `first token ${duration(token)}`, sound !== undefined && `first sound ${duration(sound)}`];
    return parts.filter(Boolean).join(" · ");
  }
}
