// Server-sent events of JSON, out of the body of a response.

/** Yields each event's object, until [DONE]. */
export async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop();
      for (const block of blocks) {
        if (!block.startsWith("data: ")) continue; // a comment that keeps the connection alive
        if (block === "data: [DONE]") return;
        yield JSON.parse(block.slice("data: ".length));
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
