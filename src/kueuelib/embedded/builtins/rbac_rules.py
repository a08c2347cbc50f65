"""Roles and their bindings: their strategies on the server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kueuelib.api.meta import Obj
from kueuelib.embedded.admission.plugin import KindRules
from kueuelib.embedded.builtins import naming
from kueuelib.embedded.builtins.defaults import RBAC as GROUP
from kueuelib.embedded.builtins.fields import (
    invalid,
    listed,
    not_supported,
    required,
    section,
)
from kueuelib.errors import FieldError, InvalidSelector
from kueuelib.machinery.selectors import from_label_selector

SUBJECTS = ("ServiceAccount", "User", "Group")


def check_role(obj: Obj) -> list[FieldError]:
    """The rules of a Role or ClusterRole, and what is aggregated."""
    namespaced = obj["kind"] == "Role"
    errors: list[FieldError] = []
    for i, rule in enumerate(listed(obj, "rules")):
        errors += _validate_rule(rule, f"rules[{i}]", namespaced=namespaced)
    aggregation = obj.get("aggregationRule")
    if aggregation is not None and not namespaced:
        errors += _validate_aggregation(aggregation, "aggregationRule.clusterRoleSelectors")
    return errors


def _validate_rule(rule: Mapping[str, Any], path: str, *, namespaced: bool) -> list[FieldError]:
    errors: list[FieldError] = []
    if not listed(rule, "verbs"):
        errors.append(required(f"{path}.verbs", "verbs must contain at least one value"))
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
    for key, word in (("apiGroups", "api group"), ("resources", "resource")):
        if not listed(rule, key):
            text = f"resource rules must supply at least one {word}"
            errors.append(required(f"{path}.{key}", text))
    return errors


def _validate_aggregation(aggregation: Mapping[str, Any], path: str) -> list[FieldError]:
    selectors = listed(aggregation, "clusterRoleSelectors")
    if not selectors:
        text = "at least one clusterRoleSelector required if aggregationRule is non-nil"
        return [required(path, text)]
    errors: list[FieldError] = []
    for i, selector in enumerate(selectors):
        try:
            from_label_selector(selector)
        except InvalidSelector:
            errors.append(invalid(f"{path}[{i}]", None, "invalid label selector."))
    return errors


class BindingRules(KindRules):
    """The strategy of RoleBindings and ClusterRoleBindings."""

    def validate_create(self, obj: Obj) -> Sequence[FieldError]:
        """The role and the subjects."""
        ref = section(obj, "roleRef")
        namespaced = obj["kind"] == "RoleBinding"
        kinds = ("Role", "ClusterRole") if namespaced else ("ClusterRole",)
        kind, name, errors = ref.get("kind") or "", ref.get("name") or "", []
        if ref.get("apiGroup") != GROUP:
            errors.append(not_supported("roleRef.apiGroup", ref.get("apiGroup"), (GROUP,)))
        if kind not in kinds:
            errors.append(not_supported("roleRef.kind", kind, kinds, ordered=True))
        if not name:
            errors.append(required("roleRef.name"))
        errors += [invalid("roleRef.name", name, text) for text in naming.path_segment(name)]
        for i, subject in enumerate(listed(obj, "subjects")):
            errors += _validate_subject(subject, f"subjects[{i}]", namespaced=namespaced)
        return errors

    def validate_update(self, obj: Obj, old: Obj, subresource: str) -> Sequence[FieldError]:
        """The role stays."""
        del subresource
        errors = list(self.validate_create(obj))
        ref = section(obj, "roleRef")
        if ref != section(old, "roleRef"):
            keys = (("APIGroup", "apiGroup"), ("Kind", "kind"), ("Name", "name"))
            shown = {name: ref.get(key) or "" for name, key in keys}
            errors.append(invalid("roleRef", shown, "cannot change roleRef"))
        return errors


def _validate_subject(
    subject: Mapping[str, Any], path: str, *, namespaced: bool
) -> list[FieldError]:
    kind, name = subject.get("kind") or "", subject.get("name") or ""
    group = subject.get("apiGroup") or ""
    errors = [] if name else [required(f"{path}.name")]
    if kind == "ServiceAccount":
        if name:
            errors += [invalid(f"{path}.name", name, text) for text in naming.subdomain(name)]
        if group:
            errors.append(not_supported(f"{path}.apiGroup", group, ("",)))
        if not namespaced and not subject.get("namespace"):
            errors.append(required(f"{path}.namespace"))
    elif kind in SUBJECTS:
        if group != GROUP:
            errors.append(not_supported(f"{path}.apiGroup", group, (GROUP,)))
    else:
        errors.append(not_supported(f"{path}.kind", kind, SUBJECTS, ordered=True))
    return errors
