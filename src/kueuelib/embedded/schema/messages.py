"""The fields and types of the built-in kinds as data, and how they merge.

They are `wire.txt` next to this module, whose head says how to read it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Final

import attrs

from kueuelib.embedded.schema.node import ANYTHING, ListType, PatchStrategy, SchemaNode

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


# The merge rules of the built-in kinds: list types and keys for server-side apply and strategic
# merge.
#
# The nodes are made from the fields in `wire.txt`. Lists are atomic and maps granular, unless it
# says otherwise. The two patch types differ in places: a container port is identified by its number
# in a strategic merge patch, but by number and protocol in server-side apply. Conditions of a Job
# are merged by type in the former, and replaced as a whole in the latter.

_ZEROS: Final = {"string": "", "boolean": False}
_OPEN: Final = ("r", "S", "F", "o", "apiextensions.JSONSchemaProps")
_TYPES: Final = {"i": "integer", "l": "integer", "b": "boolean", "n": "number"}


@cache
def message_node(message: str) -> SchemaNode:
    """The merge rules of a type; an unknown type has none."""
    fields = json_fields(message) if exists(message) else ()
    return SchemaNode(
        type="object",
        properties={field.name: _field_node(field) for field in fields},
        preserve_unknown=True,
        atomic_map=is_atomic(message),
    )


def _field_node(field: Field) -> SchemaNode:
    inner = _inner(field)
    if field.form == "%":
        return SchemaNode(type="object", additional=inner, atomic_map="atomic" in field.facts)
    if field.form == "+" or field.type.startswith("&"):
        return _list(field.facts, inner)
    return attrs.evolve(inner, atomic_map=False) if "granular" in field.facts else inner


def _inner(field: Field) -> SchemaNode:
    if field.type in _OPEN:
        return ANYTHING
    if field.message:
        return message_node(field.message)
    type_ = _TYPES.get(field.type, "string")
    if field.default and type_ == "string":  # of the defaults of OpenAPI, those of keys matter
        return SchemaNode(type=type_, default=field.default)
    if field.always and not field.form:
        return SchemaNode(type=type_, default=_ZEROS.get(type_, 0))
    return SchemaNode(type=type_)


def _list(facts: Mapping[str, str], item: SchemaNode) -> SchemaNode:
    keys = facts.get("merge") or facts.get("apply")
    patched = facts.get("merge") or facts.get("patch") or ""
    merges = "merge" in facts or "patch" in facts
    how = ListType.MAP if keys else ListType.SET if "set" in facts else ListType.ATOMIC
    return SchemaNode(
        type="array",
        items=item,
        list_type=how,
        list_map_keys=tuple(keys.split(",")) if keys else (),
        patch_strategy=PatchStrategy.MERGE if merges else PatchStrategy.REPLACE,
        patch_merge_key=patched.partition(",")[0],
    )


def builtin_node(group: str, kind: str) -> SchemaNode:
    """The merge rules of a built-in kind; an unknown kind has only those of the metadata."""
    return _whole(message_name(group, kind))


@cache
def _whole(message: str) -> SchemaNode:
    return custom_node(message_node(message))


_METADATA: Final = message_node("meta.ObjectMeta")
_TEXT: Final = SchemaNode(type="string")


def custom_node(node: SchemaNode) -> SchemaNode:
    """The node of a custom resource with the metadata that every object has."""
    head = {"apiVersion": _TEXT, "kind": _TEXT, "metadata": _METADATA}
    return SchemaNode(
        type=node.type,
        properties={**node.properties, **head},
        additional=node.additional,
        preserve_unknown=node.preserve_unknown,
    )
