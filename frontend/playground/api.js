// How the page reaches its server: like any other client, below the folder that it was loaded from.

const STORED = "omni-api-key";
const SUBPROTOCOL = "openai-insecure-api-key.";
const BASE = new URL(".", document.baseURI);

/** Something went wrong that the user can be told. `code` is the server's, or `key` or `unreachable`. */
export class Problem extends Error {
  constructor(message, code = "") {
    super(message);
    this.code = code;
  }
}

export const key = {
  get() {
    return sessionStorage.getItem(STORED) ?? "";
  },
  set(value) {
    if (value) sessionStorage.setItem(STORED, value);
    else sessionStorage.removeItem(STORED);
    document.dispatchEvent(new Event("omni-key"));
  },
};

export function address(path) {
  return new URL(path, BASE).href;
}

/** A response that is fine. Throws `Problem`, or `AbortError`. */
export async function request(path, options = {}) {
  const headers = { ...options.headers };
  if (key.get()) headers.authorization = `Bearer ${key.get()}`;
  let response;
  try {
    response = await fetch(address(path), { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw unreachable();
  }
  if (!response.ok) throw await refused(response);
  return response;
}

/** A WebSocket that is open. Throws `Problem`. */
export function connect(path) {
  const url = address(path).replace(/^http/, "ws");
  const offers = ["realtime", ...(key.get() ? [SUBPROTOCOL + key.get()] : [])];
  return new Promise((resolve, reject) => {
    let socket;
    try {
      socket = new WebSocket(url, offers);
    } catch {
      reject(new Problem("This key has characters that a browser can't send to a live session.", "key"));
      return;
    }
    socket.addEventListener("open", () => resolve(socket), { once: true });
    socket.addEventListener("close", async () => reject(await whyRefused()), { once: true });
  });
}

export async function health() {
  let response;
  try {
    response = await fetch(address("health"), { cache: "no-store" });
    return await response.json();
  } catch {
    throw unreachable();
  }
}

/** What the deployment can do. Throws `Problem`. */
export async function capabilities() {
  return (await request("v1/realtime/capabilities")).json();
}

export function explain(code, message) {
  if (code === "overloaded") return message || "The server is busy. Try again in a moment.";
  if (code === "invalid_api_key") return "The server asks for an API key, and this one is missing or wrong. Press Key to enter it.";
  if (code === "unavailable") return "The model isn't ready. Wait until the status says ready, then try again.";
  return message || "The server failed to answer.";
}

function unreachable() {
  return new Problem("The server can't be reached. Is it running?", "unreachable");
}

async function refused(response) {
  let error = {};
  try {
    error = (await response.json()).error ?? {};
  } catch {
    // Whatever stands in front of the server has no words that are for us.
  }
  const code = response.status === 401 ? "invalid_api_key" : error.code ?? "";
  return new Problem(explain(code, error.message ?? `The server answered with status ${response.status}.`), code);
}

/** Browsers don't tell why a WebSocket was refused, so ask by HTTP. */
async function whyRefused() {
  try {
    await request("v1/models");
    const state = await health();
    const code = state.status === "ready" ? "overloaded" : "unavailable";
    return new Problem(explain(code, code === "overloaded" ? "The server is busy: it has no room for another session. Try again in a moment." : ""), code);
  } catch (problem) {
    return problem;
  }
}
