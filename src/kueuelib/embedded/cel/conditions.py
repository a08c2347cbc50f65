"""`matchConditions` of webhooks: expressions that decide whether a hook is called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from kueuelib.embedded.builtins.fields import invalid, required
from kueuelib.embedded.builtins.rule_table import BrokenRules, ValuePlace, check
from kueuelib.embedded.cel.authorizing import AUTHORIZER, AuthorizerValue
from kueuelib.embedded.cel.budget import OBJECT_SECONDS, Budget, deadline_in
from kueuelib.embedded.cel.errors import CelError, CompileError
from kueuelib.embedded.cel.program import Program, compile_expression
from kueuelib.embedded.cel.types import BOOL, DYN, STRING, Type, list_of, map_of
from kueuelib.errors import FieldError

_KIND: Final = {"group": STRING, "version": STRING, "kind": STRING}
_RESOURCE: Final = {"group": STRING, "version": STRING, "resource": STRING}
_USER: Final = {
    "username": STRING,
    "uid": STRING,
    "groups": list_of(STRING),
    "extra": map_of(STRING, list_of(STRING)),
}
_REQUEST: Final = {
    "kind": Type("kubernetes.GroupVersionKind", fields=_KIND),
    "resource": Type("kubernetes.GroupVersionResource", fields=_RESOURCE),
    "subResource": STRING,
    "requestKind": Type("kubernetes.GroupVersionKind", fields=_KIND),
    "requestResource": Type("kubernetes.GroupVersionResource", fields=_RESOURCE),
    "requestSubResource": STRING,
    "name": STRING,
    "namespace": STRING,
    "operation": STRING,
    "userInfo": Type("kubernetes.UserInfo", fields=_USER),
    "dryRun": BOOL,
    "options": DYN,
}
VARIABLES: Mapping[str, Type] = {
    "object": DYN,
    "oldObject": DYN,
    "request": Type("kubernetes.AdmissionRequest", fields=_REQUEST),
    "authorizer": AUTHORIZER,
}
MOST = 64


class ConditionFailed(CelError):
    """A condition has no value."""


@attrs.frozen(eq=False)
class Condition:
    """One compiled condition."""

    name: str
    program: Program


def compile_conditions(given: Sequence[Mapping[str, Any]]) -> tuple[Condition, ...]:
    """The conditions of a validated hook."""
    return tuple(
        Condition(each["name"], compile_expression(each["expression"], VARIABLES)) for each in given
    )


def fulfilled(
    conditions: Sequence[Condition],
    obj: Any,
    old: Any,
    request: Mapping[str, Any],
    authorizer: AuthorizerValue | None = None,
) -> bool:
    """Whether all conditions hold; one that is false decides, whatever the errors of others.

    Args:
        conditions: of one webhook.
        obj: the new object, None on deletion.
        old: the present one, None on creation.
        request: the rest of an AdmissionRequest.
        authorizer: the variable of that name.

    Raises:
        ConditionFailed: one has no value, and no other is false.
    """
    budget = Budget(deadline=deadline_in(OBJECT_SECONDS))
    failures: list[str] = []
    for condition in conditions:
        try:
            if condition.program.run((obj, old, request, authorizer), budget) is not True:
                return False
        except CelError as error:
            failures.append(f"expression '{condition.program.source}' resulted in error: {error}")
    if failures:
        raise ConditionFailed(", ".join(failures))
    return True


def problems_of(given: Sequence[Any], path: str) -> list[FieldError]:
    """What is wrong with the `matchConditions` at a path."""
    errors: list[FieldError] = []
    if len(given) > MOST:
        text = f"Too many: {len(given)}: must have at most {MOST} items"
        errors.append(FieldError(path, "FieldValueTooMany", text))
    return errors + check("MatchCondition", given[:MOST], path, compiled=_compiled)


def _compiled(at: ValuePlace, _: str) -> BrokenRules:
    text = at.value or ""
    if not text.strip():
        return [required(at.path)]
    try:
        program = compile_expression(text, VARIABLES)
    except CompileError as error:
        return [invalid(at.path, text, f"compilation failed: {error}")]
    why = f"must evaluate to bool but got {program.type}"
    return [] if program.type == BOOL else [invalid(at.path, text, why)]
