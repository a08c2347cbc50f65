"""Webhook configurations: their strategy on the server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kueuelib.api.meta import Obj
from kueuelib.embedded.admission.client_config import validate_client
from kueuelib.embedded.admission.plugin import KindRules
from kueuelib.embedded.builtins import naming
from kueuelib.embedded.builtins.fields import (
    invalid,
    listed,
    not_supported,
    required,
    section,
)
from kueuelib.embedded.builtins.workloads import label_selector
from kueuelib.errors import FieldError

OPERATIONS = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")


class HookRules(KindRules):
    """The strategy of both kinds of configuration."""

    def validate_create(self, obj: Obj) -> Sequence[FieldError]:
        """Every hook."""
        errors: list[FieldError] = []
        names = set()
        for i, hook in enumerate(listed(obj, "webhooks")):
            path = f"webhooks[{i}]"
            name = hook.get("name") or ""
            if name in names:
                text = f"Duplicate value: {name!r}".replace("'", '"')
                errors.append(FieldError(f"{path}.name", "FieldValueDuplicate", text))
            names.add(name)
            errors += _validate_hook(hook, path)
            versions = listed(hook, "admissionReviewVersions")
            errors += _validate_versions(versions, f"{path}.admissionReviewVersions")
        return errors


def _validate_hook(hook: Mapping[str, Any], path: str) -> list[FieldError]:
    name = hook.get("name") or ""
    errors: list[FieldError] = []
    if not name:
        errors.append(required(f"{path}.name"))
    else:
        errors += [invalid(f"{path}.name", name, text) for text in naming.subdomain(name)]
        if name.count(".") < 2:
            text = "should be a domain with at least three segments separated by dots"
            errors.append(invalid(f"{path}.name", name, text))
    for i, rule in enumerate(listed(hook, "rules")):
        errors += _validate_rule(rule, f"{path}.rules[{i}]")
    for key, allowed in (
        ("failurePolicy", ("Fail", "Ignore")),
        ("matchPolicy", ("Equivalent", "Exact")),
        ("sideEffects", ("None", "NoneOnDryRun")),
        ("timeoutSeconds", range(1, 31)),
        ("reinvocationPolicy", ("IfNeeded", "Never")),
    ):
        value = hook.get(key)
        if value is None and key == "sideEffects":
            errors.append(required(f"{path}.{key}", "must specify one of None, NoneOnDryRun"))
        elif value is not None and value not in allowed:
            if isinstance(allowed, range):
                text = "the timeout value must be between 1 and 30 seconds"
                errors.append(invalid(f"{path}.{key}", value, text))
            else:
                errors.append(not_supported(f"{path}.{key}", value, allowed))
    for key in ("namespaceSelector", "objectSelector"):
        errors += label_selector(hook.get(key), f"{path}.{key}")
    errors += validate_client(section(hook, "clientConfig"), f"{path}.clientConfig")
    if listed(hook, "matchConditions"):
        from kueuelib.embedded.cel.conditions import problems_of

        errors += problems_of(listed(hook, "matchConditions"), f"{path}.matchConditions")
    return errors


def _validate_versions(reviews: Sequence[str], path: str) -> list[FieldError]:
    if not reviews:
        return [required(path, "must specify one of v1, v1beta1")]
    errors = [
        invalid(f"{path}[{i}]", text, why)
        for i, text in enumerate(reviews)
        for why in (["duplicate version"] if text in reviews[:i] else naming.label_1035(text))
    ]
    if not {"v1", "v1beta1"} & set(reviews):
        text = "must include at least one of v1, v1beta1"
        errors.append(invalid(path, list(reviews), text))
    return errors


def _validate_rule(rule: Mapping[str, Any], path: str) -> list[FieldError]:
    errors = [
        required(f"{path}.{key}")
        for key in ("operations", "apiGroups", "apiVersions", "resources")
        if not listed(rule, key)
    ]
    for i, operation in enumerate(listed(rule, "operations")):
        if operation not in OPERATIONS:
            errors.append(not_supported(f"{path}.operations[{i}]", operation, OPERATIONS))
    for key, words in (("apiGroups", "API groups"), ("apiVersions", "API versions")):
        given = list(listed(rule, key))
        if len(given) > 1 and "*" in given:
            text = f"if '*' is present, must not specify other {words}"
            errors.append(invalid(f"{path}.{key}", given, text))
        if key == "apiVersions":
            where = f"{path}.{key}"
            errors += [required(f"{where}[{i}]") for i, text in enumerate(given) if not text]
    operations = list(listed(rule, "operations"))
    if len(operations) > 1 and "*" in operations:
        text = "if '*' is present, must not specify other operations"
        errors.append(invalid(f"{path}.operations", operations, text))
    errors += _validate_resources(list(listed(rule, "resources")), f"{path}.resources")
    if rule.get("scope") not in ("*", "Cluster", "Namespaced"):
        scopes = ("*", "Cluster", "Namespaced")
        errors.append(not_supported(f"{path}.scope", rule.get("scope"), scopes))
    return errors


def _validate_resources(resources: list[str], path: str) -> list[FieldError]:
    """A pattern says nothing that another one says already."""
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
