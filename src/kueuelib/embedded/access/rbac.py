"""Role-based access control over the stored roles and bindings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from kueuelib.api.kinds import SERVICE_ACCOUNTS
from kueuelib.api.meta import Obj, ObjectKey, Resource
from kueuelib.embedded.access.attributes import (
    EVERYTHING,
    MASTERS,
    AccessRule,
    Attributes,
    Decision,
)
from kueuelib.embedded.admission.plugin import Caller, Reader
from kueuelib.embedded.committing import Commits
from kueuelib.embedded.registry.kind import Kind
from kueuelib.embedded.storage import Change

RBAC = "rbac.authorization.k8s.io"
CLUSTER_ROLES = Resource(RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False)
CLUSTER_ROLE_BINDINGS = Resource(
    RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
)
ROLES = Resource(RBAC, "v1", "roles", "Role", namespaced=True)
ROLE_BINDINGS = Resource(RBAC, "v1", "rolebindings", "RoleBinding", namespaced=True)
ACCOUNT_PREFIX = "system:serviceaccount:"


@attrs.frozen
class _Binding:
    """The roles of each user.

    Attributes:
        described: the binding, for people.
        subjects: kind, namespace and name of each.
        role: the role; its namespace is empty for a ClusterRole.
    """

    described: str
    subjects: frozenset[tuple[str, str]]
    role: ObjectKey


class Rbac:
    """Evaluates roles and bindings, which are cached until one of them changes."""

    def __init__(self, reader: Reader, commits: Commits) -> None:
        self._reader = reader
        self._bindings: dict[str, list[_Binding]] = {}
        self._rules: dict[ObjectKey, tuple[AccessRule, ...]] = {}
        commits.listen(self._notice)

    def _notice(self, kind: Kind, _: Change) -> None:
        if kind.group == RBAC:
            self._bindings.clear()
            self._rules.clear()

    def authorize(self, caller: Caller, wish: Attributes) -> Decision:
        """Whether a rule of a role bound to the caller allows the request."""
        if MASTERS in caller.groups:
            return Decision(allowed=True)
        for binding in self._of(caller, wish.namespace):
            for rule in self._role(binding.role):
                if grants(rule, wish):
                    who = _subject(caller, binding)
                    text = f"RBAC: allowed by {binding.described} to {who}"
                    return Decision(allowed=True, reason=text)
        return Decision(allowed=False)

    def rules(self, caller: Caller, namespace: str) -> tuple[AccessRule, ...]:
        """Everything that a caller may do in a namespace, including cluster-wide grants."""
        if MASTERS in caller.groups:
            return EVERYTHING
        rules = [
            rule for binding in self._of(caller, namespace) for rule in self._role(binding.role)
        ]
        return tuple(dict.fromkeys(rules))

    def rules_of(self, ref: Mapping[str, Any], namespace: str) -> tuple[AccessRule, ...] | None:
        """The rules of the role that a binding refers to; None if it does not exist."""
        resource = ROLES if ref.get("kind") == "Role" else CLUSTER_ROLES
        key = ObjectKey(namespace if resource.namespaced else "", ref.get("name") or "")
        return None if self._reader.get(resource, key) is None else self._role(key)

    def _of(self, caller: Caller, namespace: str) -> Iterator[_Binding]:
        names = {("User", caller.user), *(("Group", group) for group in caller.groups)}
        for binding in self._all(""):
            if not names.isdisjoint(binding.subjects):
                yield binding
        if namespace:
            for binding in self._all(namespace):
                if not names.isdisjoint(binding.subjects):
                    yield binding

    def _all(self, namespace: str) -> list[_Binding]:
        bindings = self._bindings.get(namespace)
        if bindings is None:
            resource = ROLE_BINDINGS if namespace else CLUSTER_ROLE_BINDINGS
            bindings = self._bindings[namespace] = [
                _binding(obj, namespace) for obj in self._reader.items(resource, namespace)
            ]
        return bindings

    def _role(self, key: ObjectKey) -> tuple[AccessRule, ...]:
        rules = self._rules.get(key)
        if rules is None:
            obj = self._reader.get(ROLES if key.namespace else CLUSTER_ROLES, key)
            rules = self._rules[key] = rules_in(obj or {})
        return rules


def _subject(caller: Caller, binding: _Binding) -> str:
    for kind, name in (("User", caller.user), *(("Group", each) for each in caller.groups)):
        if (kind, name) in binding.subjects:
            if kind == "User" and name.startswith(ACCOUNT_PREFIX):
                space, _, account = name.removeprefix(ACCOUNT_PREFIX).partition(":")
                return f'ServiceAccount "{account}/{space}"'
            return f'{kind} "{name}"'
    raise AssertionError("a binding was found by one of its subjects")


def _binding(obj: Obj, namespace: str) -> _Binding:
    name = obj["metadata"]["name"]
    ref = obj.get("roleRef") or {}
    subjects = set()
    for subject in obj.get("subjects") or ():
        if subject.get("kind") == SERVICE_ACCOUNTS.kind:
            space = subject.get("namespace") or namespace
            subjects.add(("User", f"{ACCOUNT_PREFIX}{space}:{subject.get('name')}"))
        else:
            subjects.add((subject.get("kind") or "", subject.get("name") or ""))
    kind = "RoleBinding" if namespace else "ClusterRoleBinding"
    shown = f'"{name}/{namespace}"' if namespace else f'"{name}"'
    return _Binding(
        f'{kind} {shown} of {ref.get("kind")} "{ref.get("name")}"',
        frozenset(subjects),
        ObjectKey(namespace if ref.get("kind") == "Role" else "", ref.get("name") or ""),
    )


def rules_in(role: Mapping[str, Any]) -> tuple[AccessRule, ...]:
    """The rules of a Role or ClusterRole."""
    return tuple(
        AccessRule(
            tuple(rule.get("verbs") or ()),
            tuple(rule.get("apiGroups") or ()),
            tuple(rule.get("resources") or ()),
            tuple(rule.get("resourceNames") or ()),
            tuple(rule.get("nonResourceURLs") or ()),
        )
        for rule in role.get("rules") or ()
    )


def grants(rule: AccessRule, wish: Attributes) -> bool:
    """Whether one rule allows a request."""
    if "*" not in rule.verbs and wish.verb not in rule.verbs:
        return False
    if not wish.resource:
        return any(_covers_path(pattern, wish.path) for pattern in rule.paths)
    return (
        ("*" in rule.groups or wish.group in rule.groups)
        and any(_covers_resource(pattern, wish) for pattern in rule.resources)
        and (not rule.names or wish.name in rule.names)
    )


def _covers_resource(pattern: str, wish: Attributes) -> bool:
    if pattern in ("*", wish.full_resource):
        return True
    return bool(wish.subresource) and pattern == f"*/{wish.subresource}"


def _covers_path(pattern: str, path: str) -> bool:
    if pattern in ("*", path):
        return True
    return pattern.endswith("*") and path.startswith(pattern.rstrip("*"))
