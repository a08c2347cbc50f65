"""The part of JSONPath that printer columns use.

For example `.a.b[0].c`, `[*]`, `[?(@.type=="x")]`, `['a.b']`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

Step = Callable[[Any], list[Any]]

_TOKEN = re.compile(
    r"""
    \.(?P<field>(?:[\w$/-]|\\\.)+) |
    \[(?P<index>-?\d+)\] |
    \[(?P<all>\*)\] | \.(?P<each>\*) |
    \[(?P<quoted>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")\] |
    \[\?\(\s*@\.(?P<left>[\w.-]+)\s*(?P<op>==|!=)\s*
        (?P<right>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|true|false|-?\d+)\s*\)\]
    """,
    re.VERBOSE,
)


class JsonPath:
    """A compiled path.

    Raises:
        ValueError: on construction, if the path uses unsupported syntax.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        body = text.strip().removeprefix("{").removesuffix("}").removeprefix("$")
        if body == ".":
            body = ""
        if body and body[0] not in ".[":
            body = f".{body}"
        self._steps: list[Step] = []
        position = 0
        while position < len(body):
            token = _TOKEN.match(body, position)
            if token is None:
                raise ValueError(f"unsupported JSONPath {text!r}")
            self._steps.append(_step(token))
            position = token.end()

    def find(self, obj: Any) -> list[Any]:
        """Every value at the path."""
        values = [obj]
        for step in self._steps:
            values = [inner for value in values for inner in step(value)]
        return values


def _step(token: re.Match[str]) -> Step:
    if token["field"] is not None:
        return _member(token["field"].replace("\\.", "."))
    if token["quoted"] is not None:
        return _member(_unquoted(token["quoted"]))
    if token["index"] is not None:
        return _at(int(token["index"]))
    if token["left"] is not None:
        return _filter(token["left"].split("."), token["op"] == "==", _literal(token["right"]))
    return _every


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1])


def _literal(text: str) -> Any:
    if text[0] in "'\"":
        return _unquoted(text)
    return text == "true" if text in ("true", "false") else int(text)


def _member(name: str) -> Step:
    return lambda value: [value[name]] if isinstance(value, dict) and name in value else []


def _at(index: int) -> Step:
    def step(value: Any) -> list[Any]:
        if isinstance(value, list) and -len(value) <= index < len(value):
            return [value[index]]
        return []

    return step


def _every(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return list(value) if isinstance(value, list) else []


def _filter(path: list[str], equal: bool, right: Any) -> Step:
    def holds(item: Any) -> bool:
        for part in path:
            if not isinstance(item, dict) or part not in item:
                return False
            item = item[part]
        return bool(item == right) is equal

    return lambda value: [item for item in value if holds(item)] if isinstance(value, list) else []
