#!/usr/bin/env python3
"""Writes the calls of the suites' user tasks, with the results of their tools, as lines of JSON.

    calls.py FILE

`cargo bench --bench flow` measures what information flow adds to these calls if `AGENTDOJO_CALLS` names the file.
"""

import argparse
import json

import suites
from sources import World


def effects(tool):
    """Returns the effects that a call of the tool has, as its hints are trusted."""
    hints = suites.hints(tool)
    if not hints.get("readOnlyHint"):
        return ["network", "write"]
    return [] if hints.get("openWorldHint") is False else ["network"]


def labels(source):
    """Returns the labels of the results of a source."""
    account = [] if source in suites.WITHOUT_ACCOUNT else ["private"]
    return suites.LABELS.get(source, ["untrusted", *account])


def calls(name):
    """Returns the calls of all user tasks of a suite, in order."""
    suite = suites.get_suite(suites.VERSION, name)
    world = World(suite)
    for task in suite.user_tasks.values():
        environment = task.init_environment(suite.load_and_inject_default_environment({}))
        world.begin(environment)
        for call in task.ground_truth(environment):
            source = suites.source_of(name, call.function)
            yield {
                "task": f"{name} {task.ID}",
                "effects": effects(call.function),
                "labels": labels(source),
                "arguments": call.args,
                "result": world.called(call.function, dict(call.args)),
            }


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("file", type=argparse.FileType("w"))
    file = arguments.parse_args().file
    file.writelines(json.dumps(call, default=str) + "\n" for name in suites.NAMES for call in calls(name))


if __name__ == "__main__":
    main()
