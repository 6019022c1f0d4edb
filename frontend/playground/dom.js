// Small things that every panel needs of the document.

/** An element with properties, attributes (`data-*`, `aria-*`, `role`) and children. */
export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (name in element) element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

/** Shows or hides the notice of a panel. A problem stays until something else is said. */
export class Notice {
  constructor(panel) {
    this.element = panel.querySelector(".notice");
  }

  show(message, kind = "problem") {
    this.element.textContent = message;
    this.element.dataset.kind = kind;
    this.element.hidden = false;
  }

  clear() {
    this.element.hidden = true;
    this.element.textContent = "";
  }
}

/** Calls `take` with the files that are dropped on `place`. */
export function onDrop(place, take) {
  let depth = 0;
  const mark = (by) => {
    depth = Math.max(0, depth + by);
    place.classList.toggle("dropping", depth > 0);
  };
  const holdsFiles = (event) => event.dataTransfer?.types.includes("Files");
  place.addEventListener("dragenter", (event) => holdsFiles(event) && mark(1));
  place.addEventListener("dragleave", (event) => holdsFiles(event) && mark(-1));
  place.addEventListener("dragover", (event) => holdsFiles(event) && event.preventDefault());
  place.addEventListener("drop", (event) => {
    if (!holdsFiles(event)) return;
    event.preventDefault();
    depth = 0;
    place.classList.remove("dropping");
    take([...event.dataTransfer.files]);
  });
}

/** Milliseconds as people read them. */
export function duration(ms) {
  return ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`;
}
