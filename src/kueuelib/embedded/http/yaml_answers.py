"""Writes JSON data as YAML; libraries take a hundred times as long for large objects."""

from __future__ import annotations

import re
from typing import Any, Final

import orjson

_PLAIN: Final = re.compile(r"[A-Za-z/][\w./-]*(?: [\w./-]+)*", re.ASCII).fullmatch
_WORDS: Final = frozenset(("true", "false", "yes", "no", "on", "off", "null", "y", "n"))
"""Plain texts that are not texts in YAML, in small letters."""
_ODD: Final = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


def to_yaml(value: Any) -> bytes:
    """JSON data as YAML, with sorted keys."""
    lines: list[str] = []
    _write(value, "", lines)
    return "".join(lines).encode()


def _write(value: Any, indent: str, lines: list[str]) -> None:
    if not value or not isinstance(value, dict | list):
        lines.append(f"{_scalar(value)}\n")
    elif isinstance(value, dict):
        for key in sorted(value):
            inner = value[key]
            if inner and isinstance(inner, dict | list):
                lines.append(f"{indent}{_scalar(key)}:\n")
                _write(inner, indent + "  " * isinstance(inner, dict), lines)
            else:
                lines.append(f"{indent}{_scalar(key)}: {_scalar(inner)}\n")
    else:
        for inner in value:
            if inner and isinstance(inner, dict | list):
                first = len(lines)
                _write(inner, f"{indent}  ", lines)
                lines[first] = f"{indent}- {lines[first][len(indent) + 2 :]}"
            else:
                lines.append(f"{indent}- {_scalar(inner)}\n")


def _scalar(value: Any) -> str:
    if isinstance(value, str) and _PLAIN(value) and value.lower() not in _WORDS:
        return value
    text = orjson.dumps(value).decode()
    return _ODD.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
