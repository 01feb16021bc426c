// An MCP server with one tool, which fetches a URL as any program does: without configuring a proxy.
import { createInterface } from "node:readline";

const say = (id, answer) => console.log(JSON.stringify({ jsonrpc: "2.0", id, ...answer }));
const failed = (error) => `failed: ${error.cause?.code ?? error.cause?.errors?.[0]?.code ?? error.message}`;

for await (const line of createInterface({ input: process.stdin })) {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) continue;
  if (method === "initialize") {
    const serverInfo = { name: "fetch", version: "1" };
    say(id, { result: { protocolVersion: params.protocolVersion, capabilities: { tools: {} }, serverInfo } });
  } else if (method === "tools/list") {
    say(id, { result: { tools: [{ name: "fetch", inputSchema: { type: "object" } }] } });
  } else if (method === "tools/call") {
    const text = await fetch(params.arguments.url).then((response) => response.text()).catch(failed);
    say(id, { result: { content: [{ type: "text", text }] } });
  } else {
    say(id, { error: { code: -32601, message: "method not found" } });
  }
}
