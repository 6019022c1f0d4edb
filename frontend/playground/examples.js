// The request of the page as a program: files are named, not written out, and keys come from the environment.

import { address, key } from "./api.js";
import { PARTS } from "./attachments.js";

const VARIABLE = "OMNI_API_KEY";
const hole = (n) => `\u0000${n}\u0000`;

/** `request` is the body of a streamed request, where a part that is a file is {file: {name, kind, type}}. */
export function curl(request) {
  const { body, files } = withHoles(request);
  const text = shellSafe(JSON.stringify(body, null, 2)).replace(/\\\\u0000(\d+)\\\\u0000/g, (_, n) => `$(base64 -w0 ${quote(files[n].name)})`);
  const auth = key.get() ? ` -H "Authorization: Bearer $${VARIABLE}"` : "";
  return `curl -N ${address("v1/chat/completions")} -H "Content-Type: application/json"${auth} -d @- <<END\n${text}\nEND`;
}

export function python(request) {
  const { body, files } = withHoles(request);
  const speaks = request.modalities !== undefined;
  const reads = files.length > 0;
  const literal = (value, depth) => pythonLiteral(value, depth, (n) => `{file(${pythonString(files[n].name)})}`);
  const fields = Object.entries(body).map(([name, value]) => `    ${name}=${literal(value, 1)},`);
  const secret = key.get() ? `os.environ["${VARIABLE}"]` : '"none"';
  return [
    ...(reads || speaks ? ["import base64"] : []),
    ...(key.get() ? ["import os"] : []),
    "",
    "from openai import OpenAI",
    "",
    ...(reads ? ["", "def file(path: str) -> str:", '    return base64.b64encode(open(path, "rb").read()).decode()', "", ""] : []),
    `client = OpenAI(base_url=${pythonString(address("v1"))}, api_key=${secret})`,
    "stream = client.chat.completions.create(",
    ...fields,
    ")",
    ...(speaks ? ['speech = b""'] : []),
    "for chunk in stream:",
    "    delta = chunk.choices[0].delta",
    "    if delta.content:",
    '        print(delta.content, end="", flush=True)',
    ...(speaks
      ? ["    if delta.audio and delta.audio.data:", "        speech += base64.b64decode(delta.audio.data)"]
      : []),
  ]
    .join("\n")
    .trimStart();
}

/** The body with a mark where each file's base64 belongs. */
function withHoles(body) {
  const files = [];
  const put = (one) => {
    if (!one.file) return one;
    files.push(one.file);
    return PARTS[one.file.kind](hole(files.length - 1), one.file.type, one.file.name);
  };
  const messages = body.messages.map((one) => ({ ...one, content: Array.isArray(one.content) ? one.content.map(put) : one.content }));
  return { body: { ...body, messages }, files };
}

/** As it must stand in a here-document in which $(...) is carried out. */
function shellSafe(text) {
  return text.replace(/[\\$`]/g, "\\$&");
}

function quote(name) {
  return `'${name.replaceAll("'", "'\\''")}'`;
}

function pythonString(text) {
  return JSON.stringify(text);
}

function pythonLiteral(value, depth, file) {
  const pad = "    ".repeat(depth + 1);
  const end = "    ".repeat(depth);
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value === "number") return String(value);
  if (typeof value === "string") return stringLiteral(value, file);
  if (Array.isArray(value)) {
    if (value.every((one) => typeof one !== "object")) return `[${value.map((one) => pythonLiteral(one, depth, file)).join(", ")}]`;
    return `[\n${value.map((one) => `${pad}${pythonLiteral(one, depth + 1, file)},`).join("\n")}\n${end}]`;
  }
  const items = Object.entries(value).map(([name, one]) => `${pythonString(name)}: ${pythonLiteral(one, depth + 1, file)}`);
  const short = `{${items.join(", ")}}`;
  return short.length < 80 && !short.includes("\n") ? short : `{\n${items.map((one) => `${pad}${one},`).join("\n")}\n${end}}`;
}

function stringLiteral(text, file) {
  const found = text.match(/^(.*)\u0000(\d+)\u0000$/s);
  if (!found) return pythonString(text);
  const [, before, n] = found;
  return before ? `${pythonString(before)} + ${file(n).slice(1, -1)}` : file(n).slice(1, -1);
}
