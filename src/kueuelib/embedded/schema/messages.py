"""The fields and types of the built-in kinds, as data.

`wire.txt` beside this module has one message per paragraph; each line is number, JSON name and type
of a field, and what else is known of it. Types are

    s text, after a slash the name of its type in Go
    i integer   l integer of 64 bits   b boolean   B bytes   q quantity   t time
    u time with microseconds   o integer or text   r raw JSON   F a set of fields   n number
    S a schema, several of them, or a boolean
    or the name of a message

after `*` for what may be absent (then zero is a value), `+` for lists, `%` for maps by text, `&`
for a message that only wraps a list and `^` for a message whose fields belong to the one around it.
A name with `!` is that of a field that Go always writes, whatever its value.
Messages whose fields have no number cannot be read from protobuf.

After the type may stand

    required    OpenAPI demands the field
    =VALUE      the default
    merge:KEYS  items of the list merge by keys; strategic merge patches know the first one only
    apply:KEYS  the same in server-side apply; other patches replace the list
    patch:KEY   the same in strategic merge patches; server-side apply replaces the list
    set         the values of the list differ; with `merge`, strategic merge patches join them, too
    atomic      server-side apply replaces the map as a whole; also behind the name of a message
    granular    it does not, although the message of the field is atomic
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
        named: the type of a text in Go, empty for `string`.
        always: whether it is written even if it is zero.
        facts: what else is known of it: the words behind the type, with what follows a colon.
        default: what Kubernetes writes when the field is absent, as text; None: nothing.
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
    """What is known of each message, and its lines."""
    text = files("kueuelib.embedded.schema").joinpath("wire.txt").read_text("ascii")
    paragraphs: dict[str, tuple[list[str], list[str]]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith(" "):
            lines.append(line)
        else:
            name, *facts = line.split()
            lines = []
            paragraphs[name] = facts, lines
    return paragraphs


@cache
def go_texts() -> frozenset[str]:
    """The types of texts in Go that have names of their own."""
    return frozenset(each.named for name in _paragraphs() for each in own_fields(name))


def exists(message: str) -> bool:
    """Whether there is such a message."""
    return message in _paragraphs()


def is_atomic(message: str) -> bool:
    """Whether server-side apply replaces values of a message as a whole."""
    return exists(message) and "atomic" in _paragraphs()[message][0]


@cache
def own_fields(message: str) -> tuple[Field, ...]:
    """The fields of a message as they are on the wire.

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
    """The fields of a message as they are in JSON."""
    for field in own_fields(message):
        if field.form == "^":
            yield from json_fields(field.type)
        else:
            yield field


def has_wire_form(message: str) -> bool:
    """Whether a message can be read from protobuf."""
    return exists(message) and all(field.number for field in own_fields(message))


def message_name(group: str, kind: str) -> str:
    """The message of a kind, whether or not there is one: `core.Pod`, `batch.Job`."""
    return f"{group.partition('.')[0] or 'core'}.{kind}"
