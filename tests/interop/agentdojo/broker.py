"""A real `portcullis serve`, an agent that is replayed, and the person who answers its questions."""

import http.client
import json
import pathlib
import select
import signal
import subprocess
import tempfile
import urllib.parse

from suites import LABELS, SOURCES, WITHOUT_ACCOUNT

USER = "the-user"


def configuration(suite, port, settings):
    """Returns the configuration with the sources of this suite. Only `builtin:flow` asks."""
    lines = [
        '[serve]\nlisten = "127.0.0.1:0"',
        f'[serve.people.user]\ntoken = "{USER}"',
        '[profiles.default]\napprove = "never"\ninstructions = "mark"',
        f'[[policies]]\nplugin = "builtin:flow"\nsettings = {{ {settings} }}',
    ]
    for source in SOURCES[suite]:
        lines.append(f'[sources.{source}]\nurl = "http://127.0.0.1:{port}/{source}"\nnames = "plain"')
        lines.append("dangerous-allow-private = true\ntrust-annotations = true\nera = \"legacy\"")
        if source not in WITHOUT_ACCOUNT:
            lines.append('headers = { Authorization = "Bearer the-account-of-the-user" }')
        if source in LABELS:
            lines.append(f"labels = {json.dumps(LABELS[source])}")
    return "\n".join(lines) + "\n"


class Broker:
    """A running broker with the sources of one suite."""

    def __init__(self, program, suite, port, settings):
        self.folder = tempfile.TemporaryDirectory(prefix="portcullis-agentdojo-")
        folder = pathlib.Path(self.folder.name)
        file = folder / "portcullis.toml"
        file.write_text(configuration(suite, port, settings))
        file.chmod(0o644)
        command = [program, "--config", file, "serve"]
        environment = {"HOME": str(folder), "PATH": "/usr/bin:/bin"}
        self.process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        for line in self.process.stderr:
            if line.startswith("serving "):
                self.address = urllib.parse.urlsplit(line.removeprefix("serving ").strip())
                break
        else:
            raise SystemExit(f"the broker ended with {self.process.wait()}")
        self.token = (folder / ".portcullis" / "token").read_text().strip()
        self.person = http.client.HTTPConnection(self.address.netloc)

    def questions(self):
        """Returns the open questions."""
        self.person.request("GET", "/approvals", headers={"authorization": f"Bearer {USER}"})
        return json.loads(self.person.getresponse().read())

    def answer(self, question, yes):
        body = json.dumps({"approve": yes, "scope": "once"} if yes else {"approve": False})
        headers = {"authorization": f"Bearer {USER}", "content-type": "application/json"}
        self.person.request("POST", f"/approvals/{question}", body=body, headers=headers)
        response = self.person.getresponse()
        text = response.read()
        if response.status != 200:
            raise RuntimeError(f"the answer was not taken: {text}")

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=300)
        self.folder.cleanup()


class Session:
    """One MCP session: the agent of one task."""

    def __init__(self, broker):
        self.broker = broker
        self.connection = http.client.HTTPConnection(broker.address.netloc)
        self.headers = {
            "authorization": f"Bearer {broker.token}",
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
        }
        self.last = 0
        # The text of each result, as the model would get it.
        self.results = []
        client = {"name": "agentdojo", "version": "1"}
        self.request(
            "initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}, begins=True
        )
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        self.connection.getresponse().read()
        self.request("tools/list", {})

    def send(self, message):
        self.connection.request("POST", self.broker.address.path, body=json.dumps(message), headers=self.headers)

    def request(self, method, params, begins=False):
        self.last += 1
        self.send({"jsonrpc": "2.0", "id": self.last, "method": method, "params": params})
        return self.received(begins)

    def received(self, begins=False):
        response = self.connection.getresponse()
        body = response.read().decode()
        if begins:
            self.headers["mcp-session-id"] = response.headers["mcp-session-id"]
        lines = body.splitlines() if not body.startswith("{") else [f"data:{body}"]
        for line in lines:
            if line.startswith("data:") and line.removeprefix("data:").strip():
                message = json.loads(line.removeprefix("data:"))
                if message.get("id") == self.last:
                    return message
        raise RuntimeError(f"no answer: {response.status} {body}")

    def call(self, tool, arguments, yes):
        """Calls a tool, and answers the questions about it. Returns the reasons of the last, or None."""
        self.last += 1
        params = {"name": tool, "arguments": arguments}
        self.send({"jsonrpc": "2.0", "id": self.last, "method": "tools/call", "params": params})
        reasons = None
        while not select.select([self.connection.sock], [], [], 0.005)[0]:
            for question in self.broker.questions():
                reasons = question["reasons"]
                self.broker.answer(question["id"], yes)
        content = self.received().get("result", {}).get("content", [])
        self.results.append("\n".join(block.get("text", "") for block in content))
        return reasons

    def end(self):
        self.connection.request("DELETE", self.broker.address.path, headers=self.headers)
        self.connection.getresponse().read()
        self.connection.close()
