"""The rules for webhook configurations: their address, and `matchConditions`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

import attrs

from kueuelib.api.meta import Obj
from kueuelib.embedded.builtins.fields import invalid, listed, required
from kueuelib.embedded.builtins.metadata import label_1035, subdomain
from kueuelib.embedded.builtins.rule_table import BrokenRules, Check, ValuePlace, check
from kueuelib.embedded.cel.authorizing import AUTHORIZER, AuthorizerValue
from kueuelib.embedded.cel.errors import (
    CelError,
    CompileError,
    CostBudget,
)
from kueuelib.embedded.cel.program import Program, compile_expression
from kueuelib.embedded.cel.types import BOOL, DYN, STRING, Type, list_of, map_of
from kueuelib.errors import FieldError

# ---- the rules for a `clientConfig`, the address of a webhook ------------------------------------

_LAST_PORT = 65535
_FORM = "; desired format: https://host[/path]"


def validate_client(client: Mapping[str, Any], path: str) -> list[FieldError]:
    """Check that there is exactly one of a URL and a service, and that it is valid.

    Args:
        client: the configuration, with defaults.
        path: of it.
    """
    url, service = client.get("url"), client.get("service")
    if (url is None) is (service is None):
        return [required(path, "exactly one of url or service is required")]
    if service is not None:
        return _validate_service(service, f"{path}.service")
    try:
        return _validate_url(urlsplit(url or ""), f"{path}.url")
    except ValueError as error:
        text = f'url must be a valid URL: parse "{url}": {error}{_FORM}'
        return [required(f"{path}.url", text)]


def validate_reviews(reviews: Sequence[str], path: str) -> list[FieldError]:
    """Check the versions of reviews that a webhook accepts."""
    errors = [
        invalid(f"{path}[{i}]", text, why)
        for i, text in enumerate(reviews)
        for why in (["duplicate version"] if text in reviews[:i] else label_1035(text))
    ]
    if not {"v1", "v1beta1"} & set(reviews):
        text = "must include at least one of v1, v1beta1"
        errors.append(invalid(path, list(reviews), text))
    return errors


def _validate_url(url: SplitResult, path: str) -> list[FieldError]:
    user, at, host = url.netloc.rpartition("@")
    broken = (
        (url.scheme != "https", url.scheme, f"'https' is the only allowed URL scheme{_FORM}"),
        (not host, host, f"host must be specified{_FORM}"),
        (at, user, "user information is not permitted in the URL"),
        (url.fragment, url.fragment, "fragments are not permitted in the URL"),
        (url.query, url.query, "query parameters are not permitted in the URL"),
    )
    return [invalid(path, value, text) for wrong, value, text in broken if wrong]


def _validate_service(service: Mapping[str, Any], path: str) -> list[FieldError]:
    # Kubernetes calls the one by the name of the other.
    errors = [
        required(f"{path}.{shown}")
        for key, shown in (("namespace", "name"), ("name", "namespace"))
        if not service.get(key)
    ]
    port = service.get("port")
    if not isinstance(port, int) or not 1 <= port <= _LAST_PORT:
        text = f"port is not valid: must be between 1 and {_LAST_PORT}, inclusive"
        errors.append(invalid(f"{path}.port", port, text))
    return [*errors, *_validate_path(service.get("path") or "/", f"{path}.path")]


def _validate_path(text: str, path: str) -> list[FieldError]:
    if text == "/":
        return []
    if text == "//":
        return [invalid(path, text, "segment[0] may not be empty")]
    errors: list[FieldError] = []
    if not text.startswith("/"):
        errors.append(invalid(path, text, "must start with a '/'"))
    for i, step in enumerate(text[1:].removesuffix("/").split("/")):
        if not step:
            errors.append(invalid(path, text, f"segment[{i}] may not be empty"))
            continue
        errors += [invalid(path, text, f"segment[{i}]: {why}") for why in subdomain(step)]
    return errors


# ---- `matchConditions` of webhooks: expressions that decide whether a hook is called -------------

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
class CompiledCondition:
    """One compiled condition."""

    name: str
    program: Program


def compile_conditions(given: Sequence[Mapping[str, Any]]) -> tuple[CompiledCondition, ...]:
    """The conditions of a validated hook."""
    return tuple(
        CompiledCondition(each["name"], compile_expression(each["expression"], VARIABLES))
        for each in given
    )


def fulfilled(
    conditions: Sequence[CompiledCondition],
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
    budget = CostBudget()
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


# --------------------------------------------------------------------------------------------------


def check_hooks(obj: Obj) -> list[FieldError]:
    """The broken rules of a webhook configuration of either kind."""
    return check("Webhook", listed(obj, "webhooks"), "webhooks", **_OWN)


def _segments(at: ValuePlace, _: str) -> BrokenRules:
    text = "should be a domain with at least three segments separated by dots"
    return [invalid(at.path, at.value, text)] if at.value.count(".") < 2 else []


def _conditions(at: ValuePlace, _: str) -> BrokenRules:
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
