"""The tables of the book, made from what was measured."""

import collections
import difflib
import json
import sys

# The name of each setting in the tables, and the settings of `builtin:flow`.
SETTINGS = {
    "any": 'instructions = "off"',
    "traced": 'instructions = "off", untrusted = "traced"',
    "instructions": 'untrusted = "off", private = "off"',
}
BEGIN = "<!-- measured: begin -->\n"
END = "<!-- measured: end -->\n"


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(map(str, line)) + " |\n" for line in lines)


def summed(measured, setting):
    """Returns the counts by suite, and those of all suites last."""
    counts = [(name, by_setting[setting][0]) for name, by_setting in measured.items()]
    return [*counts, ("all", sum((count for _, count in counts), collections.Counter()))]


def by_suite(measured):
    """Returns for each suite, and for all of them last, the counts under each setting."""
    columns = [summed(measured, setting) for setting in SETTINGS]
    return [(row[0][0], [count for _, count in row]) for row in zip(*columns, strict=True)]


def tasks(measured):
    """The user's tasks: how many finish, and how often a person is asked."""
    rows = []
    for name, counts in by_suite(measured):
        row = [name, counts[0]["tasks"]]
        for count in counts:
            asked = f"{count['questions']} ({count['questions'] / count['tasks']:.2f}) in {count['tasks asked']} tasks"
            row += [count["finished"], asked]
        rows.append(row)
    head = ["suite", "tasks"]
    for setting in SETTINGS:
        head += [f"`{setting}`: finished", "questions (a task)"]
    return table(head, rows)


def attacks(measured):
    """The attacker's calls: how many are asked about, and how many run."""
    rows = []
    for name, counts in by_suite(measured):
        row = [name, *(counts[0][what] for what in ("pairs", "goals alone", "effects"))]
        rows.append(row + [count[what] for count in counts for what in ("effects ran", "goals")])
    head = ["suite", "attacks", "succeed without the broker", "calls with an effect"]
    for setting in SETTINGS:
        head += [f"`{setting}`: ran unasked", "succeed"]
    return table(head, rows)


def misses(measured):
    """Every call of an attacker with an effect that ran unasked."""
    times = collections.Counter()
    for name, by_setting in measured.items():
        for setting, (_, details) in by_setting.items():
            for line in details:
                if line["what"] == "ran":
                    arguments = json.dumps(line["arguments"], ensure_ascii=False)
                    times[setting, name, line["attack"], f"`{line['tool']}` `{arguments}`"] += 1
    rows = [[f"`{setting}`", name, attack, call, count] for (setting, name, attack, call), count in sorted(times.items())]
    return table(["setting", "suite", "attack", "call", "times"], rows)


def causes(measured):
    """Why the user's calls are asked about with "any", by suite."""
    rows = []
    total = collections.Counter()
    for name, by_setting in measured.items():
        count = collections.Counter()
        for line in by_setting["any"][1]:
            if line["what"] == "question":
                count[cause(line["reasons"])] += 1
                count["all"] += 1
        total += count
        rows.append([name, *(count[key] for key in ("all", "text", "seen", "disclosed"))])
    rows.append(["all", *(total[key] for key in ("all", "text", "seen", "disclosed"))])
    head = ["suite", "questions", "a change with text of what was read", "a change without any", "a disclosure"]
    return table(head, rows)


def cause(reasons):
    """Tells the kinds of questions apart by the words of their reasons."""
    reasons = " ".join(reason if isinstance(reason, str) else reason["text"] for reason in reasons)
    if "may change something" not in reasons:
        return "disclosed"
    return "text" if "text in" in reasons.split("may change something")[0] else "seen"


def tools(measured):
    """The tools of the user's calls that are asked about, by setting."""
    times = collections.defaultdict(collections.Counter)
    for name, by_setting in measured.items():
        for setting, (_, details) in by_setting.items():
            for line in details:
                if line["what"] == "question":
                    times[name, line["tool"]][setting] += 1
    rows = [[name, f"`{tool}`", *(count[setting] for setting in SETTINGS)] for (name, tool), count in sorted(times.items())]
    return table(["suite", "tool", *(f"`{setting}`" for setting in SETTINGS)], rows)


def marks(measured):
    """The results that hold an attack, and those that hold none: how many have a note."""
    rows = []
    for name, count in summed(measured, "any"):
        rows.append([name, *(count[f"{kind} results{what}"] for kind in ("attacked", "plain") for what in ("", " marked"))])
    return table(["suite", "results with an attack", "marked", "results without", "marked"], rows)


def made(measured):
    return "\n".join(make(measured) for make in (tasks, causes, tools, attacks, misses, marks))


def compare(page, made, write):
    """Compares the tables with those of a page, or writes them there. Returns the exit code."""
    text = page.read_text()
    before, rest = text.split(BEGIN)
    recorded, after = rest.split(END)
    made = f"\n{made}\n"
    if write:
        page.write_text(before + BEGIN + made + END + after)
    elif recorded != made:
        lines = difflib.unified_diff(recorded.splitlines(True), made.splitlines(True), str(page), "measured")
        sys.stderr.writelines(lines)
        return 1
    return 0
