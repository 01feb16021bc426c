"""The sources of a suite as MCP servers over HTTP, in one process, on one environment of AgentDojo."""

import http.server
import json
import threading

from suites import FunctionsRuntime, SOURCES, hints, source_of, tool_result_to_str


class World:
    """The environment that all sources of a suite act on, and the calls that reached them."""

    def __init__(self, suite):
        self.suite = suite
        self.runtime = FunctionsRuntime(suite.tools)
        self.environment = None
        self.reached = []

    def begin(self, environment):
        self.environment = environment
        self.reached = []

    def listed(self, source):
        """Returns the tools of a source, as `tools/list` does."""
        return [
            {
                "name": tool.name,
                "description": tool.description,
                "inputSchema": tool.parameters.model_json_schema(),
                "annotations": hints(tool.name),
            }
            for tool in self.suite.tools
            if source_of(self.suite.name, tool.name) == source
        ]

    def called(self, tool, arguments):
        """Runs a tool, and returns its result as AgentDojo's agents see it."""
        self.reached.append((tool, arguments))
        result, error = self.runtime.run_function(self.environment, tool, arguments)
        text = error if error else tool_result_to_str(result)
        return {"content": [{"type": "text", "text": text}], "isError": error is not None}

    def answer(self, source, method, params):
        if method == "initialize":
            server = {"name": source, "version": "1"}
            return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": server}
        if method == "tools/list":
            return {"tools": self.listed(source)}
        if method == "tools/call":
            return self.called(params["name"], params.get("arguments") or {})
        return {} if method == "ping" else None


def serve(world):
    """Serves each source of the suite under its name. Returns the port."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self):
            message = json.loads(self.rfile.read(int(self.headers["content-length"])))
            source = self.path.strip("/")
            if source not in SOURCES[world.suite.name] or "id" not in message:
                return self.reply(404 if "id" in message else 202, b"")
            answer = {"jsonrpc": "2.0", "id": message["id"]}
            result = world.answer(source, message["method"], message.get("params") or {})
            unknown = {"code": -32601, "message": "no such method"}
            answer |= {"error": unknown} if result is None else {"result": result}
            self.reply(200, json.dumps(answer, default=str).encode())

        def do_GET(self):
            self.reply(405, b"")

        def do_DELETE(self):
            self.reply(200, b"")

        def reply(self, status, body):
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]
