// The `tools` world of wit/tools.wit: one tool that counts words.

const definition = {
  name: "count",
  description: "Counts the words of a text.",
  inputSchema: { type: "object", properties: { text: { type: "string" } }, required: ["text"] },
  annotations: { readOnlyHint: true },
};

class Session {
  static open() {
    return new Session();
  }

  call(tool, json) {
    if (tool !== "count") throw { tag: "unknown-tool" };
    const { text } = JSON.parse(json);
    if (typeof text !== "string") throw { tag: "invalid-arguments", val: "`text` must be a string" };
    const words = text.split(/\s+/).filter(Boolean).length;
    return JSON.stringify({ content: [{ type: "text", text: String(words) }] });
  }
}

export const tools = {
  configure() {},
  definitions: () => JSON.stringify([definition]),
  keepsState: () => false,
  Session,
};
