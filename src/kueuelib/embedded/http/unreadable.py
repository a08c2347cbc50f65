"""Errors for malformed JSON and YAML, in the words of Go's decoders."""

from __future__ import annotations

import json
import re
from typing import Any, Final

import yaml

from kueuelib.embedded.verbs import PatchType
from kueuelib.errors import BadRequest

_ESCAPES: Final = re.compile(
    r"\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]..|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)"
)
"""Escape sequences; a group for a lone half of a surrogate pair."""
_SHOWN: Final = 30
_NO_VERSION: Final = "couldn't get version/kind; json parse error: "
_EXPECTED: Final = (
    ("property name", "looking for beginning of object key string"),
    ("':' delimiter", "after object key"),
    ("Illegal trailing", "looking for beginning of object key string"),
    ("Invalid control", "in string literal"),
    ("Invalid \\escape", "in string escape code"),
    ("Extra data", "after top-level value"),
)
_LITERALS: Final = ("true", "false", "null", "-")


class Unreadable(BadRequest):
    """A body that cannot be read.

    Args:
        why: in the words of Go's decoder.
        is_yaml: whether it was read as YAML.
    """

    def __init__(self, why: str, *, is_yaml: bool = False) -> None:
        prefix = "" if is_yaml else _NO_VERSION
        super().__init__(f"{prefix}{why}")
        self.why = why

    def of_object(self, body: bytes, kind: str) -> BadRequest:
        """The error for an object of that kind."""
        return BadRequest(unrecognized(body, kind, self.message))

    def of_patch(self, type_: PatchType, *, checked: bool = True) -> BadRequest:
        """The error for a patch of that type; `checked`: whether its fields are validated."""
        if type_ is PatchType.APPLY:
            return BadRequest(f"error decoding YAML: error converting YAML to JSON: {self.why}")
        if type_ is PatchType.MERGE and not checked:
            return BadRequest("Invalid JSON Patch")
        if type_ is PatchType.STRATEGIC or not checked:
            return BadRequest(self.why)
        return BadRequest(f"error decoding patch: {self.why}")


def unrecognized(body: bytes, kind: str, why: str) -> str:
    """The message about a body without version and kind.

    Args:
        body: its beginning is shown, in hexadecimal unless it looks like JSON.
        kind: the expected kind.
        why: the reason.
    """
    start = body[:_SHOWN]
    shown = start.decode(errors="replace") if body[:1] == b"{" else start.hex()
    if len(body) > _SHOWN:
        shown += " ..."
    return (
        f"the object provided is unrecognized (must be of type {kind}): {why} "
        f"({shown or '<empty>'})"
    )


def mended(body: bytes) -> bytes:
    """A body as Go reads it: half of a surrogate pair, and bytes that are not text, become
    U+FFFD.
    """
    text = body.decode(errors="replace")
    return _ESCAPES.sub(lambda match: "\\ufffd" if match[1] else match[0], text).encode()


def not_json(body: bytes) -> Unreadable:
    """The failure of a body that was read as JSON."""
    text = body.decode(errors="replace")
    try:
        json.loads(text, parse_int=str, parse_constant=_no_number)  # long ints are errors
    except json.JSONDecodeError as error:
        return Unreadable(_words(text, error))
    except RecursionError:
        return Unreadable("exceeded max depth")
    except Unreadable as error:
        return error
    return Unreadable("json: cannot unmarshal number into Go value of type float64")


def _no_number(name: str) -> None:
    """`NaN`, `Infinity` and `-Infinity`, which Python reads."""
    after = "in numeric literal" if name.startswith("-") else "looking for beginning of value"
    raise Unreadable(f"invalid character '{name.lstrip('-')[0]}' {after}")


def _words(text: str, error: json.JSONDecodeError) -> str:
    rest = text[error.pos :].strip()
    cut = not rest or any(each.startswith(rest) for each in _LITERALS)
    if cut or error.msg.startswith(("Unterminated", "Invalid \\uXXXX")):
        return "unexpected end of JSON input"
    inside = text[: error.pos].rstrip()[-1:]
    after = "looking for beginning of value"
    if error.msg.startswith("Expecting ',' delimiter"):
        after = "after array element" if inside == "]" else "after object key:value pair"
    for start, words in _EXPECTED:
        if start in error.msg:
            after = words
    shown = {'"': "'\"'", "'": r"'\''"}.get(rest[0], f"'{rest[0]}'")
    return f"invalid character {shown} {after}"


def not_yaml(error: Exception) -> Unreadable:
    """The failure of a body that was read as YAML; both libraries have the same ancestor."""
    if not isinstance(error, yaml.MarkedYAMLError):
        return Unreadable(f"yaml: {' '.join(str(error).split())}", is_yaml=True)
    scanned: Any = isinstance(error, yaml.scanner.ScannerError)
    marks = (error.context_mark, error.problem_mark)
    line = next((mark.line for mark in marks if mark is not None and mark.line), 0)
    if error.problem and error.problem.startswith("could not find expected"):
        line += 1
    where = f"line {line + scanned}: " if line else ""
    return Unreadable(f"yaml: {where}{error.problem}", is_yaml=True)
