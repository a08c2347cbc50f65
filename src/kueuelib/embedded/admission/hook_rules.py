"""The server's strategy for webhook configurations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kueuelib.api.meta import Obj
from kueuelib.embedded.admission.client_config import validate_client, validate_reviews
from kueuelib.embedded.builtins.fields import invalid, required
from kueuelib.embedded.builtins.raw import listed
from kueuelib.embedded.builtins.rule_table import BrokenRules, Check, ValuePlace, check
from kueuelib.errors import FieldError


def check_hooks(obj: Obj) -> list[FieldError]:
    """The broken rules of a webhook configuration of either kind."""
    return check("Webhook", listed(obj, "webhooks"), "webhooks", **_OWN)


def _segments(at: ValuePlace, _: str) -> BrokenRules:
    text = "should be a domain with at least three segments separated by dots"
    return [invalid(at.path, at.value, text)] if at.value.count(".") < 2 else []


def _conditions(at: ValuePlace, _: str) -> BrokenRules:
    from kueuelib.embedded.cel.conditions import problems_of

    return list(problems_of(at.value, at.path))


def _alone(at: ValuePlace, what: str) -> BrokenRules:
    text = f"if '*' is present, must not specify other {what}"
    return [invalid(at.path, at.value, text)] if len(at.value) > 1 and "*" in at.value else []


def _resources(at: ValuePlace, _: str) -> BrokenRules:
    """Check that no pattern includes another one."""
    resources, path = at.value, at.path
    errors: list[FieldError] = []
    whole: set[str] = set()
    parts: set[str] = set()
    for i, name in enumerate(resources):
        resource, slash, sub = name.partition("/")
        if not name:
            errors.append(required(f"{path}[{i}]"))
        if not slash:
            continue
        if resource in whole:
            text = f"if '{resource}/*' is present, must not specify {name}"
            errors.append(invalid(f"{path}[{i}]", name, text))
        if sub in parts:
            text = f"if '*/{sub}' is present, must not specify {name}"
            errors.append(invalid(f"{path}[{i}]", name, text))
        if sub == "*":
            whole.add(resource)
        if resource == "*":
            parts.add(sub)
    if len(resources) > 1 and "*/*" in resources:
        text = "if '*/*' is present, must not specify other resources"
        errors.append(invalid(path, resources, text))
    plain = [name for name in resources if name and "/" not in name]
    if "*" in plain and plain[-1] != "*":
        text = "if '*' is present, must not specify other resources without subresources"
        errors.append(invalid(path, resources, text))
    return errors


_OWN: Final[Mapping[str, Check]] = {
    "segments": _segments,
    "client": lambda at, _: validate_client(at.value or {}, at.path),
    "conditions": _conditions,
    "versions": lambda at, _: validate_reviews(at.value, at.path),
    "alone": _alone,
    "patterns": _resources,
}
