"""Compiles the rules of a schema (`x-kubernetes-validations`), and reports errors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import attrs

from kueuelib.embedded.builtins.fields import invalid, not_supported, required
from kueuelib.embedded.cel.errors import CompileError
from kueuelib.embedded.cel.program import Program, compile_expression
from kueuelib.embedded.cel.schema_types import Adapt, SchemaTypes
from kueuelib.embedded.cel.types import BOOL, DYN, STRING, Type, optional_of
from kueuelib.embedded.schema.node import ListType, SchemaNode
from kueuelib.errors import FieldError

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
class Rule:
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
    rules: tuple[Rule, ...]
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
    ) -> Rule | None:
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
        return Rule(
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


def problems_of(node: SchemaNode, path: str) -> list[FieldError]:
    """Why the rules of a schema cannot be served; empty if they can."""
    builder = Builder()
    builder.build(node, path)
    return builder.problems
