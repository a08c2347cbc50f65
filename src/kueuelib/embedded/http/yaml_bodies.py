"""YAML as Kubernetes reads it, into JSON data, event by event."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Iterator
from typing import Any, Final

import yaml

from kueuelib.api.meta import copied
from kueuelib.errors import BadRequest
from kueuelib.runtime.queries import PatchType

# ---- errors for malformed JSON and YAML, in the words of Go's decoders ---------------------------

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


class UnreadableBody(BadRequest):
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


def not_json(body: bytes) -> UnreadableBody:
    """The failure of a body that was read as JSON."""
    text = body.decode(errors="replace")
    try:
        json.loads(text, parse_int=str, parse_constant=_no_number)  # long ints are errors
    except json.JSONDecodeError as error:
        return UnreadableBody(_words(text, error))
    except RecursionError:
        return UnreadableBody("exceeded max depth")
    except UnreadableBody as error:
        return error
    return UnreadableBody("json: cannot unmarshal number into Go value of type float64")


def _no_number(name: str) -> None:
    """`NaN`, `Infinity` and `-Infinity`, which Python reads."""
    after = "in numeric literal" if name.startswith("-") else "looking for beginning of value"
    raise UnreadableBody(f"invalid character '{name.lstrip('-')[0]}' {after}")


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


def not_yaml(error: Exception) -> UnreadableBody:
    """The failure of a body that was read as YAML; both libraries have the same ancestor."""
    if not isinstance(error, yaml.MarkedYAMLError):
        return UnreadableBody(f"yaml: {' '.join(str(error).split())}", is_yaml=True)
    scanned: Any = isinstance(error, yaml.scanner.ScannerError)
    marks = (error.context_mark, error.problem_mark)
    line = next((mark.line for mark in marks if mark is not None and mark.line), 0)
    if error.problem and error.problem.startswith("could not find expected"):
        line += 1
    where = f"line {line + scanned}: " if line else ""
    return UnreadableBody(f"yaml: {where}{error.problem}", is_yaml=True)


# --------------------------------------------------------------------------------------------------

ALIASED: Final = 200_000
"""The maximum number of values that the aliases of a document repeat."""
DEPTH: Final = 1000
_PREFIX: Final = "tag:yaml.org,2002:"
_LONGEST: Final = 400
"""No number is longer; what is remains a text, as in Go where a number is too large."""
_NUMBERS: Final = (f"{_PREFIX}int", f"{_PREFIX}float")
_RESOLVED: Final = (*_NUMBERS, f"{_PREFIX}bool", f"{_PREFIX}null")
_TEXT, _MERGE, _BINARY = f"{_PREFIX}str", f"{_PREFIX}merge", f"{_PREFIX}binary"
_INFINITE: Final = {"i": "Inf", "n": "NaN"}


class _BodyLoader(yaml.CSafeLoader):
    """Times stay texts, and `y` is true."""


_BodyLoader.yaml_implicit_resolvers = {
    letter: [(tag, pattern) for tag, pattern in resolvers if tag != f"{_PREFIX}timestamp"]
    for letter, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


_BodyLoader.add_implicit_resolver(f"{_PREFIX}bool", re.compile(r"^[ynYN]$"), list("ynYN"))
_FLOAT: Final = re.compile(r"^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$")
_BodyLoader.add_implicit_resolver(f"{_PREFIX}float", _FLOAT, list("-+.0123456789"))
_BodyLoader.bool_values = {**yaml.CSafeLoader.bool_values, "y": True, "n": False}
_TOO_DEEP: Final = "error parsing YAML: exceeded max depth"
_BECAUSE: Final = (yaml.YAMLError, ValueError, KeyError)
"""The exceptions for malformed YAML; the last two are for values that do not match their tag."""


class _Merge:
    """The key `<<`."""


def parse_yaml(body: bytes) -> Any:
    """The first YAML document as JSON data; None for none.

    Raises:
        BadRequest: it is malformed, or goes beyond a limit.
    """
    try:
        return next(_Builder(body).documents(), None)
    except RecursionError as error:
        raise BadRequest(_TOO_DEEP) from error
    except _BECAUSE as error:
        raise not_yaml(error) from error


def parse_yaml_stream(body: bytes) -> list[Any]:
    """Several YAML documents as JSON data.

    Raises:
        BadRequest: one is malformed, or goes beyond a limit, also by its aliases.
    """
    try:
        return list(_Builder(body).documents())
    except RecursionError as error:
        raise BadRequest(_TOO_DEEP) from error
    except _BECAUSE as error:
        raise BadRequest(f"error parsing YAML: {' '.join(str(error).split())}") from error


class _Builder:
    """Builds JSON data from the events of one body."""

    def __init__(self, body: bytes) -> None:
        self._loader = _BodyLoader(body)
        self._nodes = 0
        self._aliased = 0
        self._depth = 0
        self._anchors: dict[str, tuple[Any, int] | None] = {}
        self._plain: dict[str, Any] = {}

    def documents(self) -> Iterator[Any]:
        """The documents in order."""
        while not isinstance(event := self._loader.get_event(), yaml.StreamEndEvent):
            if isinstance(event, yaml.DocumentStartEvent):
                self._anchors.clear()
                self._aliased = 0
                document = self._value(self._loader.get_event())
                yield "<<" if document is _Merge else document

    def _value(self, event: Any) -> Any:
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event.anchor)
        self._nodes += 1
        if event.anchor:
            self._anchors[event.anchor] = None
        before = self._nodes
        value = self._scalar(event) if isinstance(event, yaml.ScalarEvent) else self._inside(event)
        if event.anchor:
            self._anchors[event.anchor] = (value, self._nodes - before + 1)
        return value

    def _alias(self, anchor: str | None) -> Any:
        if anchor is None or anchor not in self._anchors:
            raise BadRequest(f"error parsing YAML: unknown anchor '{anchor}' referenced")
        known = self._anchors[anchor]
        if known is None:
            raise BadRequest(f"error parsing YAML: anchor '{anchor}' value contains itself")
        self._nodes += known[1]
        self._aliased += known[1]
        if self._aliased > ALIASED:
            raise BadRequest("yaml: document contains excessive aliasing")
        return copied(known[0])

    def _scalar(self, event: Any) -> Any:
        text: str = event.value
        is_plain = event.tag is None and event.implicit[0]
        if is_plain and text in self._plain:
            return self._plain[text]
        tag, resolved = event.tag, _TEXT
        if len(text) <= _LONGEST:
            implicit = (True, False) if tag in _RESOLVED else event.implicit
            resolved = self._loader.resolve(yaml.ScalarNode, text, implicit)  # type: ignore[no-untyped-call]
        if tag in (None, "!"):
            tag = resolved
        elif tag in _RESOLVED and resolved != tag and (tag, resolved) != _NUMBERS[::-1]:
            names = [name.replace(_PREFIX, "!!") for name in (resolved, tag)]
            raise UnreadableBody(
                f"yaml: cannot decode {names[0]} `{text}` as a {names[1]}", is_yaml=True
            )
        value: Any = text
        if tag == _MERGE:
            value = _Merge
        elif tag == _BINARY:
            value = self._binary(text)
        elif tag in _RESOLVED and not (":" in text and tag in _NUMBERS):
            # 1:30 is ninety in YAML 1.1, but not in Go
            node = yaml.ScalarNode(tag, text, event.start_mark, event.end_mark)
            value = self._loader.construct_object(node)
            if isinstance(value, float) and not math.isfinite(value):
                value = text
                shown = _INFINITE.get(text.lstrip("+-.").lower()[:1])
                if shown is not None:
                    sign = "-" if text[0] == "-" else "+" if shown == "Inf" else ""
                    raise UnreadableBody(f"json: unsupported value: {sign}{shown}", is_yaml=True)
            elif isinstance(value, float) and value.is_integer() and abs(value) < 2**63:
                value = int(value)
            elif isinstance(value, int) and not -(2**63) <= value < 2**64:
                value = float(value) if abs(value) < 2**1023 else text
        if is_plain:
            self._plain[text] = value
        return value

    @staticmethod
    def _binary(text: str) -> str:
        try:
            return base64.b64decode("".join(text.split()), validate=True).decode(errors="replace")
        except ValueError as error:
            why = "yaml: !!binary value contains invalid base64 data"
            raise UnreadableBody(why, is_yaml=True) from error

    def _inside(self, event: Any) -> Any:
        self._depth += 1
        if self._depth > DEPTH:
            raise BadRequest(_TOO_DEEP)
        collection = self._list() if isinstance(event, yaml.SequenceStartEvent) else self._map()
        self._depth -= 1
        return collection

    def _list(self) -> list[Any]:
        items = []
        while not isinstance(event := self._loader.get_event(), yaml.SequenceEndEvent):
            value = self._value(event)
            items.append("<<" if value is _Merge else value)
        return items

    def _map(self) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        while not isinstance(event := self._loader.get_event(), yaml.MappingEndEvent):
            key, value = self._value(event), self._value(self._loader.get_event())
            value = "<<" if value is _Merge else value
            if key is _Merge:
                for each in value[::-1] if isinstance(value, list) else [value]:
                    if not isinstance(each, dict):
                        raise BadRequest("error parsing YAML: map merge requires map or sequence")
                    merged.update(each)
            elif isinstance(key, dict | list):
                raise BadRequest("error parsing YAML: a key is not a JSON value")
            elif key is None:
                shown = f"key: <nil>, value: {json.dumps(value)}"
                why = f"unsupported map key of type: %!s(<nil>), {shown}"
                raise UnreadableBody(why, is_yaml=True)
            else:
                fields[key if isinstance(key, str) else json.dumps(key)] = value
        return {**merged, **fields} if merged else fields
