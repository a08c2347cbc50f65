"""What the rules of roles have to say (RBAC)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kueuelib.api.meta import Obj
from kueuelib.embedded.admission.plugin import KindRules
from kueuelib.embedded.builtins.fields import invalid, listed, required
from kueuelib.errors import FieldError


class RoleRules(KindRules):
    """The strategy of Roles and ClusterRoles."""

    def __init__(self, *, namespaced: bool) -> None:
        self._namespaced = namespaced

    def validate_create(self, obj: Obj) -> Sequence[FieldError]:
        """Every rule grants something, on resources or on paths."""
        return [
            error
            for i, rule in enumerate(listed(obj, "rules"))
            for error in self._rule(rule, f"rules[{i}]")
        ]

    def validate_update(self, obj: Obj, old: Obj, subresource: str) -> Sequence[FieldError]:
        """As at the creation."""
        del old, subresource
        return self.validate_create(obj)

    def _rule(self, rule: Mapping[str, Any], path: str) -> list[FieldError]:
        errors = []
        paths = listed(rule, "nonResourceURLs")
        if not listed(rule, "verbs"):
            errors.append(required(f"{path}.verbs", "verbs must contain at least one value"))
        if paths:
            where = f"{path}.nonResourceURLs"
            if self._namespaced:
                text = "namespaced rules cannot apply to non-resource URLs"
                errors.append(invalid(where, list(paths), text))
            if any(listed(rule, key) for key in ("apiGroups", "resources", "resourceNames")):
                text = "rules cannot apply to both regular resources and non-resource URLs"
                errors.append(invalid(where, list(paths), text))
            return errors
        if not listed(rule, "apiGroups"):
            text = "resource rules must supply at least one api group"
            errors.append(required(f"{path}.apiGroups", text))
        if not listed(rule, "resources"):
            text = "resource rules must supply at least one resource"
            errors.append(required(f"{path}.resources", text))
        return errors
