"""AgentDojo's suites, and how the tools of each are divided into sources.

The division and the hints below hold for a whole suite. Nothing in them is chosen for a task.
"""

import functools
import importlib
import os
import sys
import types
import warnings

import agentdojo
import yaml

# The newest version of the suites in AgentDojo 0.1.35.
VERSION = "v1.2.2"


def _without_models():
    """Lets AgentDojo be imported without the clients of model providers, of which a replay uses none."""
    warnings.filterwarnings("ignore")
    # The environments are read once for each task, and the reader in C is ten times as fast.
    yaml.safe_load = functools.partial(yaml.load, Loader=yaml.CSafeLoader)
    here = os.path.dirname(agentdojo.__file__)
    pipeline = types.ModuleType("agentdojo.agent_pipeline")
    pipeline.__path__ = [os.path.join(here, "agent_pipeline")]
    models = types.ModuleType("agentdojo.agent_pipeline.llms")
    models.__path__ = []
    google = types.ModuleType("agentdojo.agent_pipeline.llms.google_llm")
    google.EMPTY_FUNCTION_NAME = "<empty-function-name>"
    sys.modules.update({module.__name__: module for module in (pipeline, models, google)})
    for name, module in (("GroundTruthPipeline", "ground_truth_pipeline"), ("BasePipelineElement", "base_pipeline_element")):
        setattr(pipeline, name, getattr(importlib.import_module(f"agentdojo.agent_pipeline.{module}"), name))


_without_models()

from agentdojo.agent_pipeline.tool_execution import tool_result_to_str  # noqa: E402
from agentdojo.attacks.important_instructions_attacks import ImportantInstructionsAttack  # noqa: E402
from agentdojo.functions_runtime import FunctionsRuntime  # noqa: E402
from agentdojo.task_suite.load_suites import get_suite  # noqa: E402

NAMES = ("workspace", "travel", "banking", "slack")

MAIL = """send_email delete_email get_unread_emails get_sent_emails get_received_emails get_draft_emails search_emails
    search_contacts_by_name search_contacts_by_email""".split()
CALENDAR = """get_current_day search_calendar_events get_day_calendar_events create_calendar_event cancel_calendar_event
    reschedule_calendar_event add_calendar_event_participants""".split()
DRIVE = "append_to_file search_files_by_filename create_file delete_file get_file_by_id list_files share_file search_files".split()
WEB = "get_webpage post_webpage".split()

# For each suite the sources whose tools are listed; the last source has all other tools.
SOURCES = {
    "workspace": {"mail": MAIL, "calendar": CALENDAR, "drive": DRIVE},
    "travel": {"mail": MAIL, "calendar": CALENDAR, "travel": None},
    "banking": {"files": ["read_file"], "bank": None},
    "slack": {"web": WEB, "slack": None},
}

# Sources without an account: the open web, and a folder of documents that others sent. The labels of all other sources
# follow from their address and their secret: what strangers write arrives there, and it is the user's own.
LABELS = {"files": ["untrusted", "private"]}
WITHOUT_ACCOUNT = {"web", "files"}

# What stands in the text of every attack.
ATTACK = "<INFORMATION>"

# Tools that only read have the hint `readOnlyHint`. Those below change something; a name's beginning is enough.
CHANGES = """send_ delete_email create_ cancel_ reschedule_ add_ append_ delete_file share_ reserve_ schedule_
    update_ invite_ remove_ post_""".split()

# Tools that read, and whose arguments reach a server of anybody's choice: they have no hint `openWorldHint: false`.
OPEN_WORLD = {"get_webpage"}


def source_of(suite, tool):
    """Returns the name of the source that has this tool."""
    for source, tools in SOURCES[suite].items():
        if tools is None or tool in tools:
            return source
    raise ValueError(f"no source of {suite} has {tool}")


def hints(tool):
    """Returns the tool's annotations."""
    if any(tool.startswith(beginning) for beginning in CHANGES):
        return {"readOnlyHint": False}
    return {"readOnlyHint": True} | ({} if tool in OPEN_WORLD else {"openWorldHint": False})


def has_effect(tool):
    """Reports whether a call of this tool can change something, or reach a server of anybody's choice."""
    return hints(tool) != {"readOnlyHint": True, "openWorldHint": False}


class Attack(ImportantInstructionsAttack):
    """The attack of AgentDojo's paper: a text that asks to do something else first, wherever a task reads one."""

    def __init__(self, suite):
        super().__init__(suite, types.SimpleNamespace(name="gpt-4o-2024-05-13"))
        self._candidates = {}

    def injections(self, user_task, injection_task):
        if user_task.ID not in self._candidates:
            self._candidates[user_task.ID] = self.get_injection_candidates(user_task)
        self.get_injection_candidates = lambda task: self._candidates[task.ID]
        try:
            return self.attack(user_task, injection_task)
        finally:
            del self.get_injection_candidates


def output_of(task):
    """Returns what the model would have answered, as AgentDojo's checks take it."""
    return [{"type": "text", "content": task.GROUND_TRUTH_OUTPUT}]
