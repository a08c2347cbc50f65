"""Compiles the rules of a schema (`x-kubernetes-validations`), and reports errors."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from kueuelib.embedded.builtins.fields import invalid, not_supported, required
from kueuelib.embedded.cel import types
from kueuelib.embedded.cel.errors import CompileError, EvalError
from kueuelib.embedded.cel.parser import RESERVED
from kueuelib.embedded.cel.program import Program, compile_expression
from kueuelib.embedded.cel.times import parse_duration, parse_timestamp
from kueuelib.embedded.cel.types import BOOL, DYN, STRING, Type, optional_of
from kueuelib.embedded.cel.values import KeyedList, Record, SetList
from kueuelib.embedded.schema.node import ListType, SchemaNode
from kueuelib.errors import FieldError

# ---- converts schemas to types, and JSON to values of those types --------------------------------

Adapt = Callable[[Any], Any]

_WORDS = RESERVED | {"true", "false", "null", "in"}
_ESCAPED: Final = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_SPECIAL = re.compile(r"__|[./-]")
_REACHABLE = re.compile(r"[A-Za-z_./-][A-Za-z0-9_./-]*", re.ASCII)


def escaped(name: str) -> str | None:
    """The name of a property in expressions; None if they cannot access it.

    `a.b` is `a__dot__b`, `a__b` is `a__underscores__b`, `namespace` is `__namespace__`.
    """
    if not _REACHABLE.fullmatch(name):
        return None
    if name in _WORDS:
        return f"__{name}__"
    return _SPECIAL.sub(lambda match: _ESCAPED[match[0]], name)


@attrs.frozen(eq=False)
class SchemaType:
    """The type of a schema, and the function that makes its values from JSON.

    `adapt` raises EvalError for JSON that does not fit the schema.
    """

    type: types.Type
    adapt: Adapt


_META: Final = SchemaNode(
    type="object",
    properties={"name": SchemaNode(type="string"), "generateName": SchemaNode(type="string")},
)
_HEAD: Final[Mapping[str, SchemaNode]] = {
    "apiVersion": SchemaNode(type="string"),
    "kind": SchemaNode(type="string"),
    "metadata": _META,
}


class SchemaTypes:
    """The types of the nodes of one schema, each made once."""

    def __init__(self) -> None:
        self._known: dict[int, SchemaType | None] = {}

    def of(self, node: SchemaNode, *, root: bool = False) -> SchemaType | None:
        """The type of a node; None if expressions cannot know it.

        Args:
            node: the schema.
            root: whether it is that of a whole object, with apiVersion, kind and metadata.
        """
        if id(node) not in self._known:
            schema_type = self._make(node, root=root or node.embedded)
            if schema_type is not None and node.nullable:
                schema_type = SchemaType(
                    attrs.evolve(schema_type.type, nullable=True), schema_type.adapt
                )
            self._known[id(node)] = schema_type
        return self._known[id(node)]

    def _make(self, node: SchemaNode, *, root: bool) -> SchemaType | None:
        if node.int_or_string:
            return SchemaType(types.DYN, _same)
        if node.type == "object" or root:
            return self._object(node, root=root)
        if node.type == "array":
            item = None if node.items is None else self.of(node.items)
            return (
                None
                if item is None
                else SchemaType(types.list_of(item.type), _list(node, item.adapt))
            )
        if node.type == "string":
            return _TEXTS.get(node.format, _TEXT)
        return _SCALARS.get(node.type)

    def _object(self, node: SchemaNode, *, root: bool) -> SchemaType | None:
        if node.additional is not None and not root:
            value = self.of(node.additional)
            return (
                None
                if value is None
                else SchemaType(types.map_of(types.STRING, value.type), _map(value.adapt))
            )
        fields: dict[str, types.Type] = {}
        steps: list[tuple[str, str, Adapt]] = []
        properties = {**node.properties, **_HEAD} if root else node.properties
        for name, sub in properties.items():
            shape, called = self.of(sub), escaped(name)
            if shape is not None and called is not None:
                fields[called] = shape.type
                steps.append((name, called, shape.adapt))
        return SchemaType(types.Type("object", fields=fields), _record(steps))


def _same(value: Any) -> Any:
    return value


def _wrong(wanted: str, value: Any) -> EvalError:
    return EvalError(f"invalid data, expected {wanted}, got {type(value).__name__}")


def _record(steps: list[tuple[str, str, Adapt]]) -> Adapt:
    def convert(value: Any) -> Record:
        record = Record()
        for name, called, inner in steps:
            if name in value:
                record[called] = inner(value[name])
        return record

    return _checked(dict, "an object", convert)


def _map(inner: Adapt) -> Adapt:
    return _checked(dict, "a map", lambda value: {key: inner(each) for key, each in value.items()})


def _list(node: SchemaNode, inner: Adapt) -> Adapt:
    keys = tuple(called for key in node.list_map_keys if (called := escaped(key)))

    def convert(value: list[Any]) -> list[Any]:
        items = [inner(each) for each in value]
        if node.list_type is ListType.SET:
            return SetList(items)
        if node.list_type is ListType.MAP:
            keyed_list = KeyedList(items)
            keyed_list.keys = keys
            return keyed_list
        return items

    return _checked(list, "an array", convert)


def _checked(kind: type | tuple[type, ...], wanted: str, convert: Adapt = _same) -> Adapt:
    def adapt(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
            raise _wrong(wanted, value)
        return convert(value)

    return adapt


def _whole(value: float) -> int:
    if isinstance(value, float) and not value.is_integer():
        raise _wrong("an integer", value)
    return int(value)


def _decoded(value: str) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise EvalError(f"byte format is invalid: {value[:60]!r}") from None


def _day(value: str) -> Any:
    return parse_timestamp(value if len(value) > 10 else f"{value}T00:00:00Z")


_TEXT: Final = SchemaType(types.STRING, _checked(str, "a string"))
_TEXTS: Final[Mapping[str, SchemaType]] = {
    "byte": SchemaType(types.BYTES, _checked(str, "a string", _decoded)),
    "duration": SchemaType(types.DURATION, _checked(str, "a string", parse_duration)),
    "date": SchemaType(types.TIMESTAMP, _checked(str, "a string", _day)),
    "date-time": SchemaType(types.TIMESTAMP, _checked(str, "a string", _day)),
}
_SCALARS: Final[Mapping[str, SchemaType]] = {
    "boolean": SchemaType(types.BOOL, _checked(bool, "a boolean")),
    "integer": SchemaType(types.INT, _checked((int, float), "an integer", _whole)),
    "number": SchemaType(types.DOUBLE, _checked((int, float), "a number", float)),
}


# --------------------------------------------------------------------------------------------------

REASONS = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")
KEYWORD = "x-kubernetes-validations"
_MISFITS = {
    "bool": ("compilation failed", "cel expression must evaluate to a bool"),
    "string": (
        "messageExpression compilation failed",
        "messageExpression must evaluate to a string",
    ),
}


@attrs.frozen(eq=False)
class CompiledRule:
    """One compiled rule.

    Attributes:
        program: gives true for valid values.
        message: the message for other values.
        expression: computes the message, None: it is fixed.
        reason: of the field error.
        path: appended to the path of the value.
        transition: whether it uses `oldSelf`.
        optional: whether `oldSelf` is an optional value, so that the rule also runs without an old
            object.
        label: the name of the rule in messages.
    """

    program: Program
    message: str
    expression: Program | None
    reason: str
    path: str
    transition: bool
    optional: bool
    label: str


@attrs.frozen(eq=False)
class Checks:
    """The rules of a node and of everything below it; nodes without any are left out.

    Attributes:
        node: the schema.
        adapt: makes the value for rules.
        rules: its own.
        properties: by name.
        items: of lists.
        additional: of the values of maps.
    """

    node: SchemaNode
    adapt: Adapt
    rules: tuple[CompiledRule, ...]
    properties: Mapping[str, Checks]
    items: Checks | None
    additional: Checks | None


class Builder:
    """Compiles the rules of one schema.

    Attributes:
        problems: why rules cannot be compiled, with the path in the definition.
    """

    def __init__(self) -> None:
        self.problems: list[FieldError] = []
        self._types = SchemaTypes()

    def build(
        self, node: SchemaNode, path: str = "", *, root: bool = True, loose: str = ""
    ) -> Checks | None:
        """The checks of a node; None if there are none.

        Args:
            node: the schema.
            path: of the schema in the definition.
            root: whether the node is that of the whole object.
            loose: the path of the part without an old value to compare with; empty: none.
        """
        if not node.ruled:
            return None
        shape = self._types.of(node, root=root)
        if shape is None:
            if node.rules:
                text = (
                    "rule declared on schema that does not support validation rules type: "
                    f"'{node.type}' x-kubernetes-preserve-unknown-fields: "
                    f"'{str(node.preserve_unknown).lower()}'"
                )
                self.problems.append(
                    FieldError(f"{path}.{KEYWORD}", "InternalError", f"Internal error: {text}")
                )
            return None
        rules = [
            self._rule(raw, node, shape.type, f"{path}.{KEYWORD}[{i}]", loose)
            for i, raw in enumerate(node.rules)
        ]
        here = path if node.atomic_map else loose
        properties = {}
        for name, sub in node.properties.items():
            checks = self.build(sub, f"{path}.properties[{name}]", root=False, loose=here)
            if checks is not None:
                properties[name] = checks
        items = additional = None
        if node.items is not None:
            below = loose if node.list_type is ListType.MAP else loose or f"{path}.items"
            items = self.build(node.items, f"{path}.items", root=False, loose=below)
        if node.additional is not None:
            additional = self.build(
                node.additional, f"{path}.additionalProperties", root=False, loose=here
            )
        return Checks(
            node,
            shape.adapt,
            tuple(rule for rule in rules if rule is not None),
            properties,
            items,
            additional,
        )

    def _rule(
        self, raw: Mapping[str, Any], node: SchemaNode, self_type: Type, path: str, loose: str
    ) -> CompiledRule | None:
        before = len(self.problems)
        text, message = _text(raw, "rule"), _text(raw, "message")
        problem = self.problems.append
        if not text.strip():
            problem(required(f"{path}.rule", "rule is not specified"))
            return None
        self._check_texts(raw, path)
        reason = _text(raw, "reason")
        if reason and reason not in REASONS:
            problem(not_supported(f"{path}.reason", reason, REASONS))
        field_path = ""
        if raw.get("fieldPath"):
            try:
                field_path = normalized_path(_text(raw, "fieldPath").strip(), node)
            except ValueError:
                problem(invalid(f"{path}.fieldPath", raw["fieldPath"], "must be a valid path"))
        optional = raw.get("optionalOldSelf") is True
        variables = {
            "self": self_type,
            "oldSelf": optional_of(self_type) if optional else self_type,
        }
        program = self._compiled(raw, f"{path}.rule", text, variables, BOOL)
        expression = None
        if _text(raw, "messageExpression").strip():
            where = f"{path}.messageExpression"
            expression = self._compiled(raw, where, raw["messageExpression"], variables, STRING)
        if program is not None:
            self._check_old(raw, program, path, loose)
        if program is None or len(self.problems) > before:
            return None
        used = program.used | (expression.used if expression else frozenset())
        label = message.strip() or text.strip()
        return CompiledRule(
            program=program,
            message=message.strip() or f"failed rule: {label}",
            expression=expression,
            reason=reason or "FieldValueInvalid",
            path=field_path,
            transition="oldSelf" in used,
            optional=optional,
            label=label,
        )

    def _check_texts(self, raw: Mapping[str, Any], path: str) -> None:
        message, text = _text(raw, "message"), _text(raw, "rule").strip()
        problem = self.problems.append
        if message and not message.strip():
            problem(invalid(f"{path}.message", message, "must be non-empty if specified"))
        elif "\n" in message.strip():
            problem(invalid(f"{path}.message", message, "must not contain line breaks"))
        elif "\n" in text and not message.strip():
            words = "message must be specified if rule contains line breaks"
            problem(required(f"{path}.message", words))
        expression = _text(raw, "messageExpression")
        if expression and not expression.strip():
            words = "messageExpression must be non-empty if specified"
            problem(required(f"{path}.messageExpression", words))

    def _check_old(self, raw: Mapping[str, Any], program: Program, path: str, loose: str) -> None:
        if "oldSelf" in program.used:
            if loose:
                words = (
                    "oldSelf cannot be used on the uncorrelatable portion of the schema within "
                    f"{loose}"
                )
                self.problems.append(invalid(f"{path}.rule", raw["rule"], words))
        elif raw.get("optionalOldSelf") is not None:
            words = "may not be set if oldSelf is not used in rule"
            self.problems.append(invalid(f"{path}.optionalOldSelf", raw["optionalOldSelf"], words))

    def _compiled(
        self,
        raw: Mapping[str, Any],
        path: str,
        text: str,
        variables: Mapping[str, Type],
        wanted: Type,
    ) -> Program | None:
        head, words = _MISFITS[wanted.name]
        try:
            program = compile_expression(text, variables)
        except CompileError as error:
            self.problems.append(_refused(path, raw, f"{head}: {error}"))
            return None
        if program.type not in (wanted, DYN):
            self.problems.append(_refused(path, raw, words))
            return None
        return program


def _text(raw: Mapping[str, Any], key: str) -> str:
    value = raw.get(key)
    return value if isinstance(value, str) else ""


def _refused(path: str, raw: Mapping[str, Any], words: str) -> FieldError:
    """The error for a rule; it shows the whole rule, in the order of the fields of its Go type."""
    shown = {
        "Rule": _text(raw, "rule"),
        "Message": _text(raw, "message"),
        "MessageExpression": _text(raw, "messageExpression"),
        "Reason": raw.get("reason"),
        "FieldPath": _text(raw, "fieldPath"),
        "OptionalOldSelf": raw.get("optionalOldSelf"),
    }
    value = json.dumps(shown, separators=(",", ":"), ensure_ascii=False)
    return FieldError(path, "FieldValueInvalid", f"Invalid value: {value}: {words}")


def normalized_path(text: str, node: SchemaNode) -> str:
    """A `fieldPath` in the form of messages: `.a['b'].c` becomes `a.b.c`, keys of maps become
    `a[b]`.

    Raises:
        ValueError: it does not lead to a field.
    """
    path = ""
    position = 0
    while position < len(text):
        name, position = _step(text, position)
        known = node.properties.get(name) if node.properties else node.additional
        if known is None:
            raise ValueError("does not refer to a valid field")
        path += f"[{name}]" if not node.properties else f".{name}" if path else name
        node = known
    return path


def _step(text: str, position: int) -> tuple[str, int]:
    if text[position] == ".":
        end = position + 1
        while end < len(text) and text[end] not in ".[]":
            end += 1
        if end == position + 1:
            raise ValueError("unexpected end of JSON path")
        return text[position + 1 : end], end
    if text[position] != "[":
        raise ValueError(f"expected [ or . but got: {text[position:]}")
    end = position + 2
    if text[position + 1 : end] != "'":
        raise ValueError(f"expected single quoted string but got {text[position + 1 :]}")
    name = ""
    while end < len(text) and text[end] != "'":
        if text[end] == "\\":
            end += 1
        name += text[end : end + 1]
        end += 1
    if text[end : end + 2] != "']":
        raise ValueError("unexpected end of JSON path")
    return name, end + 2
