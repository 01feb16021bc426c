#!/usr/bin/env python3
"""Plays what people do with Portcullis in a terminal, with the real program and real servers; counts commands and seconds.

    tests/journeys/play.py [--binary FILE] [--table FILE] [--casts FOLDER] [NAME ...]

Needs npx and uvx on the search path, and the registries of npm and Python as the user has configured them. Each journey
has a home of its own, so nothing of the user's is read but the registries' addresses, and nothing is changed. A journey
fails if one of its commands ends otherwise than expected or does not say what it should. The exit code is the number
of journeys that failed. `--casts` keeps a recording of each (asciicast v2), `--table` writes the table of the book.
"""

import argparse
import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

import fcntl
import termios

ROOT = pathlib.Path(__file__).resolve().parents[2]
COLUMNS, ROWS = 100, 40
# The first start of a package installs it.
TIMEOUT_S = 300


class Failed(Exception):
    """A journey did not go as it should."""


class Journey:
    """One journey: a home, a folder to work in, and what was typed there."""

    def __init__(self, name, binary, folder):
        self.name, self.binary = name, binary
        self.home, self.work = folder / "home", folder / "work"
        self.home.mkdir(mode=0o700)
        self.work.mkdir()
        for file in (".npmrc", ".config/pip/pip.conf", ".config/uv/uv.toml"):
            source = pathlib.Path.home() / file
            if source.is_file():
                (self.home / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, self.home / file)
        (folder / "bin").mkdir()
        (folder / "bin/portcullis").symlink_to(binary)
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("XDG_", "PORTCULLIS"))}
        self.environment = dict(kept, HOME=str(self.home), PATH=f"{folder / 'bin'}:{os.environ['PATH']}",
                                TERM="xterm-256color", PS1="$ ")
        self.began = time.monotonic()
        self.commands, self.seconds, self.cast = [], 0.0, []

    def note(self, text):
        self.cast.append((time.monotonic() - self.began, text))

    def type(self, *words, answers=(), says=(), code=0):
        """Runs one command as a person types it, gives an answer to each pattern in turn, and returns what it said."""
        self.note(f"\x1b[1m$ {' '.join(words)}\x1b[0m\r\n")
        began = time.monotonic()
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(self.work)
            os.execvpe(words[0], words, self.environment)
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        said, answers, searched = "", list(answers), 0
        while True:
            if time.monotonic() - began > TIMEOUT_S:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                raise Failed(f"`{' '.join(words)}` does not end; it said: {plain(said)[-2000:]}")
            ready, _, _ = select.select([terminal], [], [], 1)
            if not ready:
                continue
            try:
                data = os.read(terminal, 65536)
            except OSError:
                data = b""
            if not data:
                break
            text = data.decode("utf-8", "replace")
            self.note(text)
            said += text
            if answers and re.search(answers[0][0], plain(said)[searched:]):
                searched = len(plain(said))
                os.write(terminal, answers.pop(0)[1].encode())
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os.close(terminal)
        self.seconds += time.monotonic() - began
        self.commands.append(" ".join(words))
        shown = plain(said)
        if status != code:
            raise Failed(f"`{' '.join(words)}` ended with {status} and not {code}: {shown[-3000:]}")
        for pattern in says:
            if not re.search(pattern, shown):
                raise Failed(f"`{' '.join(words)}` does not say {pattern!r}: {shown[-3000:]}")
        return shown

    def start(self, *words, ready):
        """Starts a command that stays, in a terminal of its own, and waits until it says that it is ready."""
        self.note(f"\x1b[1m$ {' '.join(words)} &\x1b[0m\r\n")
        began = time.monotonic()
        process = subprocess.Popen(words, cwd=self.work, env=self.environment, stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        line = ""
        while not re.search(ready, line):
            line = process.stdout.readline()
            if not line:
                raise Failed(f"`{' '.join(words)}` ended with {process.wait()}")
            self.note(line.replace("\n", "\r\n"))
        self.seconds += time.monotonic() - began
        self.commands.append(" ".join(words))
        return process


def plain(text):
    """Returns what is seen of a terminal's output, without its escape sequences."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][A-Z0-9]|\r", "", text)


def documents(journey):
    (journey.work / "docs").mkdir()
    (journey.work / "docs/a.md").write_text("# Notes\nhello\n")


def the_tour(journey):
    """A tour, with nothing configured"""
    journey.type("portcullis", "demo", says=[r"Verified"])


def one_server_in_cursor(journey):
    """A server from npm, caged, in Cursor, from nothing"""
    documents(journey)
    (journey.home / ".cursor").mkdir()
    journey.type("portcullis", "add", "files", "--read", "docs", "npm:@modelcontextprotocol/server-filesystem", "--", "docs")
    journey.type("portcullis", "check", says=[r"files"])
    journey.type("portcullis", "connect", "cursor", "--yes")
    entry = json.loads((journey.home / ".cursor/mcp.json").read_text())
    if "portcullis" not in json.dumps(entry):
        raise Failed(f"Cursor's file has no entry of ours: {entry}")
    journey.type("portcullis", "call", "files__list_directory", json.dumps({"path": str(journey.work / "docs")}),
                 says=[r"a\.md"])
    # A person's first question is not part of the way: the call above is the proof.
    journey.commands.pop()


def five_servers_of_cursor(journey):
    """Five servers of a Cursor file: filesystem, memory, git by `uvx`, one remote, one with a key"""
    documents(journey)
    subprocess.run(["git", "init", "-q", str(journey.work / "repo")], check=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    remote = subprocess.Popen(["npx", "-y", "@modelcontextprotocol/server-everything", "streamableHttp"],
                              env=dict(journey.environment, PORT=str(port)), stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        until(lambda: listens(port), "the remote server")
        servers = {
            "filesystem": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", str(journey.work / "docs")]},
            "memory": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-memory"]},
            "git": {"command": "uvx", "args": ["mcp-server-git", "--repository", str(journey.work / "repo")]},
            "everything": {"url": f"http://127.0.0.1:{port}/mcp"},
            "search": {"command": "npx", "args": ["-y", "tavily-mcp"], "env": {"TAVILY_API_KEY": "tvly-0123456789abcdef0123456789abcdef"}},
        }
        (journey.home / ".cursor").mkdir()
        (journey.home / ".cursor/mcp.json").write_text(json.dumps({"mcpServers": servers}, indent=2))
        journey.type("portcullis", "import", "cursor", answers=[(r"Type `yes`|\[y/N\]", "yes\n")])
        journey.type("portcullis", "check", answers=[(r"Type `yes`", "yes\n")], says=list(servers))
        journey.type("portcullis", "connect", "cursor", answers=[(r"Type `yes`", "yes\n")])
        tools = journey.type("portcullis", "tools")
        journey.commands.pop()
        for source in servers:
            if f"{source}__" not in tools:
                raise Failed(f"{source} has no tool: {tools}")
        text = (journey.work / "portcullis.toml").read_text() if (journey.work / "portcullis.toml").exists() else ""
        if "tvly-" in text:
            raise Failed("the key stands in the configuration")
    finally:
        os.killpg(remote.pid, signal.SIGTERM)
        remote.wait()


def an_unknown_server(journey):
    """What an unknown server tries: a report without a network"""
    journey.type("portcullis", "evaluate", "--", "npx", "-y", "@modelcontextprotocol/server-memory", says=[r"exercised|tools"])


def a_question_answered(journey):
    """A call that asks, and its answer"""
    (journey.work / "portcullis.toml").write_text(
        '[sources.calc]\ncomponent = "builtin:calculator"\n[profiles.default]\napprove = "always"\n')
    journey.type("portcullis", "trust", "--yes")
    journey.commands.pop()
    broker = journey.start("portcullis", "serve", "--listen", "127.0.0.1:0", ready="serving")
    try:
        journey.type("portcullis", "call", "calc__add", '{"a": 1, "b": 2}', answers=[(r"Answer|›|\[", "1\n")], says=[r"\b3\b"])
    finally:
        broker.send_signal(signal.SIGTERM)
        broker.wait()


def yesterday(journey):
    """What did my agent do yesterday?"""
    (journey.work / "portcullis.toml").write_text('[sources.calc]\ncomponent = "builtin:calculator"\n')
    journey.type("portcullis", "trust", "--yes")
    journey.type("portcullis", "call", "calc__add", '{"a": 1, "b": 2}')
    journey.commands.clear()
    journey.seconds = 0.0
    journey.type("portcullis", "audit", "--since", "1d", says=[r"calc__add"])
    journey.type("portcullis", "stats", says=[r"calc"])


def a_change_without_a_restart(journey):
    """One more server, without a restart"""
    (journey.work / "portcullis.toml").write_text('[sources.calc]\ncomponent = "builtin:calculator"\n')
    journey.type("portcullis", "trust", "--yes")
    journey.commands.pop()
    broker = journey.start("portcullis", "serve", "--listen", "127.0.0.1:0", ready="serving")
    try:
        journey.commands.clear()
        journey.type("portcullis", "add", "sums", "builtin:calculator")
        until(lambda: "reloaded" in broker.stdout.readline(), "the reload")
        tools = journey.type("portcullis", "tools", says=[r"sums__add"])
        journey.commands.pop()
        if "calc__add" not in tools:
            raise Failed("the source that was there is gone")
    finally:
        broker.send_signal(signal.SIGTERM)
        broker.wait()


def a_policy_of_your_own(journey):
    """From an empty folder to a policy in JavaScript that denies its first call"""
    journey.type("portcullis", "plugin", "new", "no-division", "--lang", "javascript", says=[r"plugin\.js"])
    journey.work /= "no-division"
    journey.commands.append("cd no-division")
    journey.type("npm", "install")
    journey.type("npm", "run", "build")
    journey.type("portcullis", "call", "calculator__divide", '{"a": 1, "b": 2}', says=[r"is not allowed here"], code=1)


JOURNEYS = [the_tour, one_server_in_cursor, five_servers_of_cursor, an_unknown_server, a_question_answered,
            a_change_without_a_restart, yesterday, a_policy_of_your_own]


def until(holds, what):
    deadline = time.monotonic() + TIMEOUT_S
    while not holds():
        if time.monotonic() > deadline:
            raise Failed(f"{what} does not come")
        time.sleep(0.1)


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", type=pathlib.Path, default=ROOT / "target/release/portcullis")
    parser.add_argument("--table", type=pathlib.Path)
    parser.add_argument("--casts", type=pathlib.Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(one.__name__ for one in JOURNEYS))
    given = parser.parse_args()
    if not given.binary.is_file():
        sys.exit(f"{given.binary} is not there: build it with `cargo build --release --bin portcullis`, or name another")
    unknown = set(given.names) - {one.__name__ for one in JOURNEYS}
    if unknown:
        sys.exit(f"no journey is called {', '.join(unknown)}; there is {', '.join(one.__name__ for one in JOURNEYS)}")
    failures, rows = 0, ["| journey | commands | seconds |", "|---|---|---|"]
    for play in JOURNEYS:
        if given.names and play.__name__ not in given.names:
            continue
        with tempfile.TemporaryDirectory(prefix="portcullis-journey-") as folder:
            journey = Journey(play.__name__, given.binary.resolve(), pathlib.Path(folder))
            try:
                play(journey)
                result = f"{len(journey.commands)} | {journey.seconds:.1f}"
            except Failed as failure:
                failures += 1
                result = "failed | "
                print(f"{play.__name__}: {failure}", file=sys.stderr)
            rows.append(f"| {play.__doc__} | {result} |")
            print(rows[-1], flush=True)
            if given.casts:
                given.casts.mkdir(parents=True, exist_ok=True)
                head = {"version": 2, "width": COLUMNS, "height": ROWS, "title": play.__doc__}
                lines = [json.dumps(head)] + [json.dumps([round(at, 3), "o", text]) for at, text in journey.cast]
                (given.casts / f"{play.__name__}.cast").write_text("\n".join(lines) + "\n")
    if given.table:
        given.table.write_text("\n".join(rows) + "\n")
    sys.exit(failures)


if __name__ == "__main__":
    main()
