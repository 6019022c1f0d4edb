// The page: its panels, the key, the voice. Each panel is a module of its own.

import { capabilities, key, Problem } from "./api.js";
import { Chat } from "./chat.js";
import { h } from "./dom.js";
import { choices } from "./choices.js";
import { watchStatus } from "./status.js";
import { Talk } from "./talk.js";
import { Watch } from "./watch.js";

const find = (id) => document.getElementById(id);

function panels() {
  const tabs = [...document.querySelectorAll('[role="tab"]')];
  const shown = (tab) => find(tab.getAttribute("aria-controls"));
  const select = (tab, focus = false) => {
    for (const one of tabs) {
      one.setAttribute("aria-selected", one === tab);
      one.tabIndex = one === tab ? 0 : -1;
      shown(one).hidden = one !== tab;
    }
    history.replaceState(null, "", `#${shown(tab).id}`);
    if (focus) tab.focus();
  };
  for (const [n, tab] of tabs.entries()) {
    tab.addEventListener("click", () => select(tab));
    tab.addEventListener("keydown", (event) => {
      const to = { ArrowRight: n + 1, ArrowLeft: n - 1, Home: 0, End: -1 }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      select(tabs.at(to % tabs.length), true);
    });
  }
  select(tabs.find((tab) => `#${shown(tab).id}` === location.hash) ?? tabs[0]);
}

function keyDialog() {
  const dialog = find("key-dialog");
  const field = dialog.querySelector("input");
  const mark = () => find("key-button").toggleAttribute("data-set", key.get() !== "");
  find("key-button").addEventListener("click", () => {
    field.value = key.get();
    dialog.returnValue = "cancel";
    dialog.showModal();
    field.select();
  });
  dialog.addEventListener("close", () => {
    if (dialog.returnValue === "save") key.set(field.value.trim());
    if (dialog.returnValue === "forget") key.set("");
    field.value = "";
  });
  document.addEventListener("omni-key", () => {
    mark();
    learn();
  });
  mark();
}

/** What the deployment offers. Without a key that it takes, nothing is known, and the panels say so when used. */
async function learn() {
  try {
    const { output } = await capabilities();
    choices.speech = output.modalities.some((one) => one.includes("audio"));
    const picker = find("voice");
    const before = picker.value;
    picker.replaceChildren(h("option", { value: "", textContent: "default" }), ...output.voices.map((voice) => h("option", { value: voice, textContent: voice })));
    picker.value = output.voices.includes(before) ? before : "";
    picker.disabled = !choices.speech;
    find("key-button").removeAttribute("data-wanted");
  } catch (problem) {
    if (problem instanceof Problem && problem.code === "invalid_api_key") find("key-button").setAttribute("data-wanted", "");
  }
}

panels();
keyDialog();
watchStatus();
learn();
find("voice").addEventListener("change", (event) => (choices.voice = event.target.value));
const live = [new Talk(find("talk")), new Watch(find("watch"))];
new Chat(find("chat"));
addEventListener("pagehide", () => live.forEach((panel) => panel.stop()));
document.documentElement.dataset.ready = "true";
