"""Validates objects against the compiled rules of their schema."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from kueuelib.api.meta import Obj
from kueuelib.embedded.builtins.fields import shown
from kueuelib.embedded.cel.errors import (
    CALL_LIMIT,
    OBJECT_LIMIT,
    BudgetExceeded,
    CostBudget,
    EvalError,
)
from kueuelib.embedded.cel.program import Program
from kueuelib.embedded.cel.rules import Builder, Checks, CompiledRule
from kueuelib.embedded.cel.values import NONE, Optional
from kueuelib.embedded.schema.node import MISSING, SchemaNode, canonical, same_json
from kueuelib.embedded.schema.validate import item_key, items_by_key
from kueuelib.errors import FieldError

LONGEST_MESSAGE = 5 * 1024
EXHAUSTED = (
    "validation failed due to running out of cost budget, no further validation rules will be run"
)
_BLOCKING = frozenset(
    {
        "FieldValueNotSupported",
        "FieldValueRequired",
        "FieldValueTooLong",
        "FieldValueTooMany",
        "FieldValueTypeInvalid",
    }
)
_SKIPPED = FieldError(
    "<nil>",
    "FieldValueInvalid",
    "Invalid value: null: some validation rules were not checked because the object was "
    "invalid; correct the existing errors to complete validation",
)


class RuleBook:
    """The rules of one version of a kind.

    Args:
        node: the root of the schema.
        path: of the schema in the definition.

    Attributes:
        problems: why rules cannot be compiled; they are left out.
    """

    def __init__(self, node: SchemaNode, path: str = "") -> None:
        builder = Builder()
        self._checks = builder.build(node, path)
        self.problems = builder.problems

    def broken(self, obj: Obj, old: Obj | None, known: list[FieldError]) -> list[FieldError]:
        """The broken rules of an object.

        Args:
            obj: the object.
            old: its state before the change, None at its creation.
            known: errors that were found already; some make rules meaningless.
        """
        if self._checks is None:
            return []
        if any(error.reason in _BLOCKING for error in known):
            return [_SKIPPED]
        return _Pass().run(self._checks, obj, MISSING if old is None else old)

    def broken_by_defaults(self, path: str) -> list[FieldError]:
        """The rules that defaults of the schema break, as they are written.

        Args:
            path: of the schema in the definition.
        """
        return [] if self._checks is None else list(_broken_by_defaults(self._checks, path))


class _Exhausted(Exception):
    """No further rule may run."""


def _broken_by_defaults(checks: Checks, path: str) -> Iterator[FieldError]:
    """The broken rules of a node and of what is below it.

    Values of maps are spared, because Kubernetes does not look there.
    """
    default = checks.node.default
    if default is not MISSING:
        yield from _Pass(ratcheting=False).run(checks, default, default, f"{path}.default")
    if checks.items is not None:
        yield from _broken_by_defaults(checks.items, f"{path}.items")
    for name, sub in sorted(checks.properties.items()):
        yield from _broken_by_defaults(sub, f"{path}.properties[{name}]")


class _Pass:
    """One evaluation of the rules for a value.

    Args:
        ratcheting: whether rules that do not look at the old value spare what has not changed.
    """

    def __init__(self, *, ratcheting: bool = True) -> None:
        self._ratcheting = ratcheting
        self._left = OBJECT_LIMIT
        self._errors: list[FieldError] = []

    def run(self, checks: Checks, obj: Any, old: Any, path: str = "") -> list[FieldError]:
        with contextlib.suppress(_Exhausted):  # the error that says so is among the others
            self._visit(checks, obj, old, path, ratchet=False)
        return self._errors

    def _visit(self, checks: Checks, value: Any, old: Any, path: str, *, ratchet: bool) -> None:
        if value is None:
            return
        if checks.rules:
            self._evaluate(checks, value, old, path, ratchet=ratchet)
        if isinstance(value, list) and checks.items is not None:
            before = items_by_key(checks.node, old)
            unchanged = ratchet or _unchanged(value, old)
            for i, item in enumerate(value):
                key = item_key(checks.node, item) if before else None
                earlier = MISSING if key is None else before.get(canonical(key), MISSING)
                self._visit(checks.items, item, earlier, f"{path}[{i}]", ratchet=unchanged)
        elif isinstance(value, dict):
            known = old if isinstance(old, dict) and not checks.node.atomic_map else {}
            unchanged = ratchet or _unchanged(value, old)
            for name, each in value.items():
                sub = checks.properties.get(name)
                inner = f"{path}.{name}" if path else name
                if sub is None and checks.additional is not None:
                    sub, inner = checks.additional, f"{path}[{name}]"
                if sub is not None:
                    earlier = known.get(name, MISSING)
                    self._visit(sub, each, earlier, inner, ratchet=unchanged)

    # ---- one value

    def _evaluate(self, checks: Checks, value: Any, old: Any, path: str, *, ratchet: bool) -> None:
        has_old = old is not MISSING and old is not None
        unchanged = self._ratcheting and (ratchet or _unchanged(value, old))
        wanted = [
            rule
            for rule in checks.rules
            if (has_old or rule.optional if rule.transition else not unchanged)
        ]
        if not wanted:
            return
        try:
            now = checks.adapt(value)
            before = checks.adapt(old) if has_old else None
        except EvalError as error:
            for rule in wanted:
                self._fail(checks, path, f"{error} evaluating rule: {rule.label}")
            return
        for rule in wanted:
            given: Any = before
            if rule.optional:
                given = Optional(before) if has_old else NONE
            self._apply(checks, rule, (now, given), path, value)

    def _apply(
        self, checks: Checks, rule: CompiledRule, values: tuple[Any, ...], path: str, value: Any
    ) -> None:
        budget = CostBudget(min(CALL_LIMIT, self._left))
        start = budget.left
        try:
            holds = rule.program.run(values, budget)
        except BudgetExceeded as error:
            self._left -= start
            if start < CALL_LIMIT:
                self._fail(checks, path, EXHAUSTED)
            else:
                text = "no further validation rules will be run due to call cost exceeds limit"
                self._fail(checks, path, f"'{error}': {text} for rule: {rule.label}")
            raise _Exhausted from error
        except EvalError as error:
            self._left -= start - budget.left
            if str(error).startswith("no such overload"):
                text = "call arguments did not match a supported operator, function or macro"
                self._fail(checks, path, f"'{error}': {text} signature for rule: {rule.label}")
            else:
                self._fail(checks, path, f"{error} evaluating rule: {rule.label}")
            return
        self._left -= start - budget.left
        if holds is True:
            return
        message = rule.message
        if rule.expression is not None:
            message = self._message(rule.expression, values) or message
        if rule.path:
            path = f"{path}.{rule.path}" if path else rule.path
        value = "" if isinstance(value, dict | list) else f": {shown(value)}"
        texts = {
            "FieldValueForbidden": f"Forbidden: {message}",
            "FieldValueRequired": f"Required value: {message}",
            "FieldValueDuplicate": f"Duplicate value{value}",
        }
        text = texts.get(rule.reason, f"Invalid value{value}: {message}")
        self._errors.append(FieldError(path or "<nil>", rule.reason, text))

    def _message(self, program: Program, values: tuple[Any, ...]) -> str:
        """The computed message; if it is empty, the fixed one is used."""
        budget = CostBudget(min(CALL_LIMIT, self._left))
        start = budget.left
        try:
            message = program.run(values, budget)
        except (EvalError, BudgetExceeded):
            return ""
        finally:
            self._left -= start - max(0, budget.left)
        if not isinstance(message, str):
            return ""
        message = message.strip()
        return "" if "\n" in message or len(message.encode()) > LONGEST_MESSAGE else message

    def _fail(self, checks: Checks, path: str, message: str) -> None:
        """A rule that could not be evaluated."""
        text = f'Invalid value: "{checks.node.type}": {message}'
        self._errors.append(FieldError(path or "<nil>", "FieldValueInvalid", text))


def _unchanged(value: Any, old: Any) -> bool:
    return old is not MISSING and same_json(value, old)
