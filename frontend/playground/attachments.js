// Files that go along with a message, and the content parts of the API that they become.

import { h } from "./dom.js";

/** Of the API's parts, by the kind of a file. */
export const PARTS = {
  image: (data, type) => ({ type: "image_url", image_url: { url: `data:${type};base64,${data}` } }),
  video: (data, type) => ({ type: "video_url", video_url: { url: `data:${type};base64,${data}` } }),
  audio: (data, type, name) => ({ type: "input_audio", input_audio: { data, format: formatOf(name) } }),
};

export function kindOf(file) {
  const kind = file.type.split("/")[0];
  return kind in PARTS ? kind : null;
}

function formatOf(name) {
  return name.includes(".") ? name.slice(name.lastIndexOf(".") + 1).toLowerCase() : "wav";
}

/** A file that was read: {name, kind, type, data (base64), url (for showing it)}. */
export async function read(file) {
  const url = await new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
  const data = url.slice(url.indexOf(",") + 1);
  return { name: file.name, kind: kindOf(file), type: file.type, data, url: URL.createObjectURL(file) };
}

export function part({ kind, data, type, name }) {
  return PARTS[kind](data, type, name);
}

/** The file, as something to see or hear. */
export function preview({ kind, url, name }) {
  if (kind === "image") return h("img", { src: url, alt: name });
  return h(kind, { src: url, controls: true, preload: "metadata", "aria-label": name });
}
