#!/usr/bin/env python3
"""Measures `builtin:flow` with AgentDojo's suites. No model takes part: the calls are the suites' own ground truths.

    measure.py --portcullis FILE [--page FILE [--write]] [--details FILE] [--suite NAME ...]

Each user task is replayed in a session of its own, and the user answers yes to each question. Then each user task is
replayed with each injection task: the text of the attack stands wherever the task reads one, the user's calls come
first and the attacker's after them, and the user answers no to each question about the attacker's.

The tables go to standard output. With `--page` they are compared with those in a page of the book, and the exit code is
1 if they differ; `--write` writes them there. `--details` writes each question of a user task, and each call of an
attacker that ran unasked, as lines of JSON.
"""

import argparse
import collections
import concurrent.futures
import json
import pathlib
import sys

import suites
import tables
from broker import Broker, Session
from sources import World, serve


# How a note before an instruction begins (`instructions = "mark"`).
NOTE = "[portcullis: "


class Bench:
    """One suite behind one broker, whose `builtin:flow` has one setting."""

    def __init__(self, program, name, setting):
        self.suite = suites.get_suite(suites.VERSION, name)
        self.setting = setting
        self.world = World(self.suite)
        self.broker = Broker(program, name, serve(self.world), tables.SETTINGS[setting])
        self.counts = collections.Counter()
        self.details = []

    def replay(self, environment, parts):
        """Replays calls in a session of their own. `parts` are pairs of calls and the answer to questions about them.

        Returns for each call its part, the reasons for which it was asked about, and whether it reached its source.
        """
        self.world.begin(environment)
        session = Session(self.broker)
        seen = []
        for number, (calls, yes) in enumerate(parts):
            for call in calls:
                before = len(self.world.reached)
                reasons = session.call(call.function, dict(call.args), yes)
                seen.append((number, call, reasons, len(self.world.reached) > before))
        session.end()
        for text in session.results:
            attack = "attacked" if suites.ATTACK in text else "plain"
            self.counts[f"{attack} results"] += 1
            self.counts[f"{attack} results marked"] += NOTE in text
        return seen

    def task(self, task, environment):
        """Replays a user task as it is."""
        before = environment.model_copy(deep=True)
        seen = self.replay(environment, [(task.ground_truth(environment), True)])
        ran = [call for _, call, _, ran in seen if ran]
        asked = [(call, reasons) for _, call, reasons, _ in seen if reasons]
        self.counts["tasks"] += 1
        self.counts["finished"] += done(self.suite, task, before, environment, ran)
        self.counts["questions"] += len(asked)
        self.counts["tasks asked"] += bool(asked)
        for call, reasons in asked:
            self.note("question", task.ID, call, reasons=reasons)

    def attack(self, task, attack, environment):
        """Replays a user task with the attack in what it reads, and then the attacker's calls."""
        before = environment.model_copy(deep=True)
        parts = [(task.ground_truth(environment), True), (attack.ground_truth(environment), False)]
        seen = self.replay(environment, parts)
        ran = [call for _, call, _, ran in seen if ran]
        self.counts["pairs"] += 1
        self.counts["goals"] += done(self.suite, attack, before, environment, ran)
        for part, call, reasons, ran in seen:
            if part == 1 and suites.has_effect(call.function):
                self.counts["effects"] += 1
                self.counts["effects asked"] += bool(reasons)
                if ran:
                    self.counts["effects ran"] += 1
                    self.note("ran", task.ID, call, attack=attack.ID)
            elif part == 1:
                self.counts["reads"] += ran

    def note(self, what, task, call, **more):
        line = {"what": what, "suite": self.suite.name, "setting": self.setting, "task": task}
        self.details.append(line | {"tool": call.function, "arguments": call.args} | more)


def done(suite, task, before, after, calls):
    """Asks AgentDojo's own check whether a task was done, or an attacker's goal reached."""
    return bool(suite._check_task_result(task, suites.output_of(task), before, after, calls))


def reached_alone(suite, task, attack, environment):
    """Reports whether the attacker reaches the goal where no broker is."""
    before = environment.model_copy(deep=True)
    calls = [*task.ground_truth(environment), *attack.ground_truth(environment)]
    runtime = suites.FunctionsRuntime(suite.tools)
    for call in calls:
        runtime.run_function(environment, call.function, call.args)
    return done(suite, attack, before, environment, calls)


def measure(program, name):
    """Measures a suite under each setting. Returns the counts and the details by setting."""
    benches = [Bench(program, name, setting) for setting in tables.SETTINGS]
    suite = benches[0].suite
    texts = suites.Attack(suite)
    for task in suite.user_tasks.values():
        fresh = task.init_environment(suite.load_and_inject_default_environment({}))
        for bench in benches:
            bench.task(task, fresh.model_copy(deep=True))
        for attack in suite.injection_tasks.values():
            injected = suite.load_and_inject_default_environment(texts.injections(task, attack))
            injected = task.init_environment(injected)
            if not attack.ground_truth(injected.model_copy(deep=True)):
                # The suite does not say by which calls the attacker would reach the goal.
                for bench in benches:
                    bench.counts["without calls"] += 1
                continue
            alone = reached_alone(suite, task, attack, injected.model_copy(deep=True))
            for bench in benches:
                bench.counts["goals alone"] += alone
                bench.attack(task, attack, injected.model_copy(deep=True))
    for bench in benches:
        bench.broker.end()
    return {bench.setting: (bench.counts, bench.details) for bench in benches}


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--portcullis", required=True, type=pathlib.Path)
    arguments.add_argument("--page", type=pathlib.Path)
    arguments.add_argument("--write", action="store_true")
    arguments.add_argument("--details", type=argparse.FileType("w"))
    arguments.add_argument("--suite", action="append", choices=suites.NAMES)
    options = arguments.parse_args()
    names = options.suite or suites.NAMES
    # The largest suite takes half of the time, so two processes are enough.
    with concurrent.futures.ProcessPoolExecutor(max_workers=2) as pool:
        program = options.portcullis.resolve()
        measured = dict(zip(names, pool.map(measure, [program] * len(names), names), strict=True))
    if options.details:
        lines = [line for by_setting in measured.values() for _, details in by_setting.values() for line in details]
        options.details.writelines(json.dumps(line) + "\n" for line in lines)
    made = tables.made(measured)
    print(made)
    if options.page:
        sys.exit(tables.compare(options.page, made, options.write))


if __name__ == "__main__":
    main()
