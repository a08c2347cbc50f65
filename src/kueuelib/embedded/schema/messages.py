"""The fields and types of the built-in kinds, as data.

They are `wire.txt` next to this module, whose head says how to read it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files

import attrs

UNNUMBERED = "-"
SCALARS = frozenset("silbBqtuorFnS")


@attrs.frozen
class Field:
    """One field of a message.

    Attributes:
        number: on the wire, 0 when it has none.
        name: in JSON.
        form: `*`, `+`, `%`, `^` or empty.
        type: a letter, or the name of a message, after `&` when it wraps a list.
        named: the Go type of a text; empty for `string`.
        always: whether it is written even if it is zero.
        facts: the words after the type, with the text after a colon.
        default: the value that Kubernetes fills in, as text; None: none.
    """

    number: int
    name: str
    form: str
    type: str
    always: bool = False
    named: str = ""
    facts: Mapping[str, str] = attrs.field(factory=dict, eq=False)
    default: str | None = None

    @property
    def message(self) -> str:
        """The name of the message that the field holds, empty for scalars."""
        return "" if self.type in SCALARS or self.type.startswith("&") else self.type

    @property
    def bits(self) -> int:
        """The size of an integer."""
        return 64 if self.type == "l" else 32


@cache
def _paragraphs() -> Mapping[str, tuple[list[str], list[str]]]:
    text = files("kueuelib.embedded.schema").joinpath("wire.txt").read_text("ascii")
    paragraphs: dict[str, tuple[list[str], list[str]]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        if line.startswith(" "):
            lines.append(line)
        else:
            name, *facts = line.split()
            lines = []
            paragraphs[name] = facts, lines
    return paragraphs


@cache
def go_texts() -> frozenset[str]:
    """The named Go types of texts."""
    return frozenset(each.named for name in _paragraphs() for each in own_fields(name))


def exists(message: str) -> bool:
    """Whether there is such a message."""
    return message in _paragraphs()


def is_atomic(message: str) -> bool:
    """Whether server-side apply replaces values of a message as a whole."""
    return exists(message) and "atomic" in _paragraphs()[message][0]


@cache
def own_fields(message: str) -> tuple[Field, ...]:
    """The fields of a message on the wire.

    Raises:
        KeyError: there is no such message.
    """
    return tuple(_field(line) for line in _paragraphs()[message][1])


def _field(line: str) -> Field:
    number, name, type_, *marks = line.split()
    form = type_[0] if type_[0] in "*+%^" else ""
    at = 0 if number == UNNUMBERED else int(number)
    letter, _, named = type_[len(form) :].partition("/")
    if named and "." not in named:
        named = f"v1.{named}"
    facts = {word: value for word, _, value in (mark.partition(":") for mark in marks)}
    default = next((mark[1:] for mark in marks if mark.startswith("=")), None)
    plain = name.removesuffix("!")
    return Field(at, plain, form, letter, plain != name, named, facts, default)


def json_fields(message: str) -> Iterator[Field]:
    """The fields of a message in JSON."""
    for field in own_fields(message):
        if field.form == "^":
            yield from json_fields(field.type)
        else:
            yield field


def has_wire_form(message: str) -> bool:
    """Whether a message can be read from protobuf."""
    return exists(message) and all(field.number for field in own_fields(message))


def message_name(group: str, kind: str) -> str:
    """The name of the message of a kind, which need not exist: `core.Pod`, `batch.Job`."""
    return f"{group.partition('.')[0] or 'core'}.{kind}"
