"""The server's strategies for roles and bindings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kueuelib.api.meta import Obj
from kueuelib.embedded.builtins.fields import invalid, required
from kueuelib.embedded.builtins.raw import listed, section
from kueuelib.embedded.builtins.rule_table import check
from kueuelib.embedded.builtins.workloads import selects
from kueuelib.errors import FieldError


def check_role(obj: Obj) -> list[FieldError]:
    """Check the rules of a Role or ClusterRole, and its aggregation."""
    namespaced = obj["kind"] == "Role"
    errors: list[FieldError] = []
    for i, rule in enumerate(listed(obj, "rules")):
        errors += _validate_rule(rule, f"rules[{i}]", namespaced=namespaced)
    aggregation = obj.get("aggregationRule")
    if aggregation is not None and not namespaced:
        errors += _validate_aggregation(aggregation, "aggregationRule.clusterRoleSelectors")
    return errors


def _validate_rule(rule: Mapping[str, Any], path: str, *, namespaced: bool) -> list[FieldError]:
    errors = check("PolicyRule", rule, path)
    urls = list(listed(rule, "nonResourceURLs"))
    if urls:
        where = f"{path}.nonResourceURLs"
        if namespaced:
            text = "namespaced rules cannot apply to non-resource URLs"
            errors.append(invalid(where, urls, text))
        if any(listed(rule, key) for key in ("apiGroups", "resources", "resourceNames")):
            text = "rules cannot apply to both regular resources and non-resource URLs"
            errors.append(invalid(where, urls, text))
    return errors


def _validate_aggregation(aggregation: Mapping[str, Any], path: str) -> list[FieldError]:
    selectors = listed(aggregation, "clusterRoleSelectors")
    if not selectors:
        text = "at least one clusterRoleSelector required if aggregationRule is non-nil"
        return [required(path, text)]
    return [
        invalid(f"{path}[{i}]", None, "invalid label selector.")
        for i, selector in enumerate(selectors)
        if selects(selector, {}) is None
    ]


def check_binding(obj: Obj) -> list[FieldError]:
    """Check the role of a binding, and its subjects."""
    scope = "" if obj["kind"] == "RoleBinding" else "Cluster"
    errors = check(f"{scope}RoleRef", section(obj, "roleRef"), "roleRef")
    return errors + check(f"{scope}Subject", listed(obj, "subjects"), "subjects")


def check_rebinding(obj: Obj, old: Obj) -> list[FieldError]:
    """Check that the role of a binding does not change."""
    ref = section(obj, "roleRef")
    if ref == section(old, "roleRef"):
        return []
    keys = (("APIGroup", "apiGroup"), ("Kind", "kind"), ("Name", "name"))
    shown = {name: ref.get(key) or "" for name, key in keys}
    return [invalid("roleRef", shown, "cannot change roleRef")]
