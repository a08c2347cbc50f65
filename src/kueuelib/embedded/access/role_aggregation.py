"""Aggregated ClusterRoles, whose rules follow the roles that their selectors match."""

from __future__ import annotations

import asyncio
from typing import Any

from kueuelib.api.meta import Obj, labels_of
from kueuelib.embedded.access.rbac import CLUSTER_ROLES
from kueuelib.embedded.committing import Commits
from kueuelib.embedded.registry.kind import Kind
from kueuelib.embedded.registry.registry import Registry
from kueuelib.embedded.storage import Change, StaleWrite, Storage
from kueuelib.machinery.selectors import from_label_selector


class RoleAggregation:
    """Updates aggregated ClusterRoles soon after every change of a role."""

    def __init__(self, storage: Storage, registry: Registry, commits: Commits) -> None:
        self._storage = storage
        self._registry = registry
        self._commits = commits
        self._handle: asyncio.Handle | None = None
        commits.listen(self._notice)

    def close(self) -> None:
        """Stops."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _notice(self, kind: Kind, _: Change) -> None:
        if (kind.group, kind.kind) == CLUSTER_ROLES.group_kind and self._handle is None:
            self._handle = asyncio.get_running_loop().call_soon(self.refresh)

    def refresh(self) -> None:
        """Writes outdated rules."""
        self._handle = None
        kind = self._registry.by_plural(CLUSTER_ROLES.group, CLUSTER_ROLES.plural)
        assert kind is not None
        table = self._storage.table(kind.table)
        entries = list(table.entries())
        roles = [entry.obj() for entry in entries]
        for entry, role in zip(entries, roles, strict=True):
            if not role.get("aggregationRule") or role["metadata"].get("deletionTimestamp"):
                continue
            rules = _aggregated(role, roles)
            if rules == (role.get("rules") or []):
                continue
            try:
                self._commits.put(kind, entry.key, role | {"rules": rules}, entry)
            except StaleWrite as error:
                raise AssertionError("nothing was awaited since the entry was read") from error


def _aggregated(role: Obj, roles: list[Obj]) -> list[dict[str, Any]]:
    rules: list[dict[str, Any]] = []
    for raw in role["aggregationRule"].get("clusterRoleSelectors") or ():
        selector = from_label_selector(raw)
        for other in roles:
            if other["metadata"]["name"] == role["metadata"]["name"]:
                continue
            if selector.matches(labels_of(other)):
                rules += [rule for rule in other.get("rules") or () if rule not in rules]
    return rules
