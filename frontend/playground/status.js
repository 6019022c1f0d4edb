// The strip at the top: what runs here, how it is doing, and how fast the last answers began.

import { health } from "./api.js";
import { duration } from "./dom.js";
import { recent } from "./timing.js";

const EVERY_MS = 5_000;
const BARS = 24;
const WORDS = { ready: "ready", starting: "starting", draining: "shutting down" };
const find = (id) => document.getElementById(id);

export function watchStatus() {
  recent.addEventListener("change", () => ["token", "sound"].forEach(plot));
  document.addEventListener("visibilitychange", () => document.hidden || poll());
  poll();
  setInterval(() => document.hidden || poll(), EVERY_MS);
}

export async function poll() {
  try {
    const state = await health();
    show(WORDS[state.status] ?? "not answering", state.status === "ready" ? "ready" : "unready");
    find("model").textContent = state.model;
    find("profile").textContent = state.profile;
    find("sessions").textContent = state.sessions;
    find("in-flight").textContent = state.in_flight;
  } catch {
    show("unreachable", "gone");
  }
}

function show(words, state) {
  find("health").textContent = words;
  find("health").dataset.state = state;
}

/** One bar per turn, the tallest is the slowest. */
function plot(kind) {
  const values = recent[kind];
  if (values.length === 0) return;
  const svg = find(`${kind}-plot`);
  const most = Math.max(...values);
  svg.setAttribute("viewBox", `0 0 ${BARS * 4} 20`);
  svg.setAttribute("aria-label", `The last ${values.length} turns: ${values.map(duration).join(", ")}`);
  svg.replaceChildren(
    ...values.map((value, n) => {
      const bar = document.createElementNS("http://www.w3.org/2000/svg", "rect");
      const height = Math.max(1.5, (value / most) * 20);
      const place = { x: (BARS - values.length + n) * 4, y: 20 - height, width: 3, height, rx: 0.8 };
      for (const [name, number] of Object.entries(place)) bar.setAttribute(name, number);
      return bar;
    }),
  );
  find(`${kind}-last`).textContent = duration(values.at(-1));
}
