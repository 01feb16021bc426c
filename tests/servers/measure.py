#!/usr/bin/env python3
"""Measures what cell each widely used server needs: `portcullis learn` on every server of servers.toml, unattended.

    tests/servers/measure.py [--binary FILE] [--work FOLDER] [NAME ...]

Needs npx, uvx and git on the search path, and the registries of npm and Python. Servers that reach a service reach
nothing without the internet: then their calls fail, and only the hosts that they ask for are learned. Each
result is kept as JSON in FOLDER (target/servers) and not measured again while it is there; `table.md` is written from all
of them. What is learned becomes an entry of host/learn/src/known.toml by hand.
"""

import argparse
import datetime
import json
import os
import pathlib
import shutil
import subprocess
import time
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
# A server is installed and started, driven in up to six runs, and then called again.
TIMEOUT_S = 600
PDF = b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Kids[]/Count 0>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF\n"


def make_folder(folder):
    """Makes what servers work on: documents, a git repository, an empty folder for their data, a vault of notes."""
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("docs", "memory", "vault/.obsidian", "repo"):
        (folder / name).mkdir(parents=True)
    (folder / "docs/a.md").write_text("# A\nhello\n")
    (folder / "docs/b.csv").write_text("a,b\n1,2\n")
    (folder / "docs/index.js").write_text("var a = 1;\n")
    (folder / "docs/a.pdf").write_bytes(PDF)
    (folder / "vault/n.md").write_text("# N\n")
    (folder / "repo/f").write_text("x")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.com", "-C", str(folder / "repo")]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "a"]):
        subprocess.run(git + words, check=True)


def command_of(server, fill):
    ecosystem, name = server["package"].split(":", 1)
    version = server["version"]
    if ecosystem == "npm":
        start = ["npx", "-y", f"{name}@{version}"]
    else:
        extra = ["--with", server["with"]] if "with" in server else []
        program = ["--from", f"{name}=={version}", server["script"]] if "script" in server else [f"{name}@{version}"]
        start = ["uvx", *extra, *program]
    return start + [fill(word) for word in server.get("arguments", [])]


def configuration_of(server, fill):
    lines = ["[sources.s]", f"command = {json.dumps(command_of(server, fill))}"]
    if "cwd" in server:
        lines.append(f"cwd = {json.dumps(fill(server['cwd']))}")
    if "variables" in server:
        pairs = (f"{name} = {json.dumps(fill(value))}" for name, value in server["variables"].items())
        lines.append(f"env = {{ {', '.join(pairs)} }}")
    return "\n".join(lines) + "\n"


def measure(server, name, binary, work):
    folder = work / name
    make_folder(folder)
    fill = lambda text: text.replace("{dir}", str(folder))
    file = folder / "portcullis.toml"
    file.write_text(configuration_of(server, fill))
    home = work / "home"
    home.mkdir(mode=0o700, exist_ok=True)
    environment = dict(os.environ, HOME=str(home), XDG_STATE_HOME=str(home / "state"))

    def run(*arguments):
        began = time.monotonic()
        command = [str(binary), "--config", str(file), "--json", *arguments]
        try:
            ran = subprocess.run(
                command, env=environment, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S
            )
            out, err = ran.stdout, ran.stderr
        except subprocess.TimeoutExpired:
            out, err = "", f"no end within {TIMEOUT_S} s"
        return out, err, round(time.monotonic() - began, 1)

    _, _, installed = run("check")
    out, err, learned = run("learn", "s", "--yes")
    by_hand = [[key, fill(value)] for key in ("read", "write", "network") for value in server.get(key, [])]
    result = {"package": server["package"], "version": server["version"], "seconds": learned, "install_seconds": installed}
    try:
        report = json.loads(out)
        proposed = [[line["key"], line["value"]] for line in report["lines"]]
        result |= {
            "works": report["works"],
            "failure": report["failure"],
            "calls": len(report["calls"]),
            "answered": sum(call["recorded"] for call in report["calls"]),
            "proposed": [[key, value.replace(str(folder), "{dir}")] for key, value in proposed],
            "missing": [[key, value.replace(str(folder), "{dir}")] for key, value in by_hand if [key, value] not in proposed],
            "extra": [[key, value.replace(str(folder), "{dir}")] for key, value in proposed if [key, value] not in by_hand],
        }
    except (json.JSONDecodeError, KeyError):
        result |= {"works": False, "failure": (out + err)[-300:]}
    shutil.rmtree(folder, ignore_errors=True)
    return result


def words(lines):
    # No registry is named in this repository.
    shown = lambda value: "(the index of packages)" if "pypi" in value else value
    return ", ".join(f"{key} {shown(value)}" for key, value in lines) or "–"


def table(servers, results):
    rows = [(server, results[server["package"]]) for server in servers if server["package"] in results]
    judged = [(server, result) for server, result in rows if result["works"]]
    near = sum(len(result["missing"]) + len(result["extra"]) <= 1 for _, result in judged)
    text = [
        "# What widely used servers need",
        "",
        f"Made by `tests/servers/measure.py` on {datetime.date.today()}. Of {len(rows)} servers {len(judged)} could be judged; with the",
        f"proposed cell every call that had worked worked again, and {near} cells are within one line of the one written by hand.",
        "`{dir}` is the folder that the server was given to work on. A server that answered no call had no account, or no way to",
        "its service: the hosts that it asked for are learned all the same. Seconds are those of `learn`, after the installation.",
        "",
        "| server | version | calls: made, answered | proposed cell | by hand, and not proposed | proposed, and not by hand | s |",
        "|---|---|---|---|---|---|---|",
    ]
    for _, result in judged:
        calls = f"{result['calls']}, {result['answered']}"
        cells = " | ".join(words(result[key]) for key in ("proposed", "missing", "extra"))
        text.append(f"| {result['package']} | {result['version']} | {calls} | {cells} | {result['seconds']:.0f} |")
    text += ["", "Not judged:", "", "| server | version | why |", "|---|---|---|"]
    for server, result in rows:
        if not result["works"]:
            text.append(f"| {result['package']} | {result['version']} | {server.get('fails', 'it did not start')} |")
    (HERE / "table.md").write_text("\n".join(text) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=pathlib.Path, default=ROOT / "target/release/portcullis")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "target/servers")
    parser.add_argument("names", nargs="*", help="measure only servers whose package contains one of these, again")
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    servers = tomllib.loads((HERE / "servers.toml").read_text())["server"]
    results = {}
    for server in servers:
        name = server["package"].split(":", 1)[1].replace("@", "").replace("/", "_").replace(".", "-")
        file = arguments.work / f"{name}.json"
        wanted = any(part in server["package"] for part in arguments.names) if arguments.names else not file.exists()
        if wanted:
            result = measure(server, name, arguments.binary.resolve(), arguments.work.resolve())
            file.write_text(json.dumps(result, indent=1))
            print(server["package"], "works" if result["works"] else f"fails: {result['failure']}", flush=True)
        if file.exists():
            results[server["package"]] = json.loads(file.read_text())
    table(servers, results)


if __name__ == "__main__":
    main()
