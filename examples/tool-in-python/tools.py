"""The resource of the interface `tools`, in the module in which componentize-py looks for it."""

import json

from componentize_py_types import Err
from wit_world.exports.tools import Failure_InvalidArguments, Failure_UnknownTool


class Session:
    @classmethod
    def open(cls) -> "Session":
        return cls()

    def call(self, tool: str, arguments: str) -> str:
        if tool != "count":
            raise Err(Failure_UnknownTool())
        text = json.loads(arguments).get("text")
        if not isinstance(text, str):
            raise Err(Failure_InvalidArguments("`text` must be a string"))
        return json.dumps({"content": [{"type": "text", "text": str(len(text.split()))}]})
