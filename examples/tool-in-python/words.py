"""The `tools` world of wit/tools.wit: one tool that counts words."""

import json

from wit_world import exports

DEFINITION = {
    "name": "count",
    "description": "Counts the words of a text.",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    "annotations": {"readOnlyHint": True},
}


class Tools(exports.Tools):
    def configure(self, settings: str) -> None:
        pass

    def definitions(self) -> str:
        return json.dumps([DEFINITION])

    def keeps_state(self) -> bool:
        return False
