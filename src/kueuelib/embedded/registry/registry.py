"""Finds kinds by their names in URLs, objects and webhook rules."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from kueuelib.api.meta import Resource
from kueuelib.embedded.registry.kind import Kind, Version
from kueuelib.errors import NotFound

_STABILITY = {"": 2, "beta": 1, "alpha": 0}
_VERSION = re.compile(r"v([0-9]+)(?:(alpha|beta)([0-9]*))?").fullmatch


def version_rank(name: str) -> tuple[int, int, int, str]:
    """Sorts API versions as Kubernetes does, ascending: v1alpha1, v1beta1, v1beta2, v1, v2."""
    match = _VERSION(name)
    if match is None:
        return (-1, 0, 0, name)
    return (_STABILITY[match[2] or ""], int(match[1]), int(match[3] or 0), name)


class Registry:
    """The served kinds. `revision` grows with every change."""

    def __init__(self, kinds: Iterable[Kind] = ()) -> None:
        self.revision = 0
        self._kinds: dict[tuple[str, str], Kind] = {}
        self._by_kind: dict[tuple[str, str], Kind] = {}
        for kind in kinds:
            self.install(kind)

    def __iter__(self) -> Iterator[Kind]:
        """Every kind that stores objects."""
        return iter([kind for kind in self._kinds.values() if kind.twin is None])

    def install(self, kind: Kind) -> None:
        """Serves a kind, instead of its older state."""
        self._kinds[kind.group, kind.plural] = kind
        self._by_kind[kind.group, kind.kind] = kind
        self.revision += 1

    def remove(self, group: str, plural: str) -> None:
        """Stops serving a kind."""
        kind = self._kinds.pop((group, plural), None)
        if kind is not None:
            self._by_kind.pop((group, kind.kind), None)
            self.revision += 1

    def by_plural(self, group: str, plural: str) -> Kind | None:
        """The kind of a URL."""
        return self._kinds.get((group, plural))

    def by_kind(self, group: str, kind: str) -> Kind | None:
        """The kind of an object."""
        return self._by_kind.get((group, kind))

    def storing(self, kind: Kind) -> Kind:
        """The kind that stores the objects which a kind shows."""
        return next(each for each in self if each.table == kind.table)

    def served(self, group: str, version: str, plural: str) -> tuple[Kind, Version] | None:
        """The kind and the version of a URL; None if it is not served."""
        kind = self._kinds.get((group, plural))
        if kind is None:
            return None
        served = kind.versions.get(version)
        return (kind, served) if served is not None and served.served else None

    def require(self, resource: Resource) -> tuple[Kind, Version]:
        """The kind and the version of a resource.

        Raises:
            NotFound: it is not served.
        """
        served = self.served(resource.group, resource.version, resource.plural)
        if served is None:
            raise NotFound("the server could not find the requested resource", details={})
        return served

    def brings(self, group: str) -> bool:
        """Whether the server itself has a kind in the group."""
        return any(kind.builtin and kind.group == group for kind in self._kinds.values())

    def groups(self) -> list[str]:
        """The names of all groups but the core one, in the order of their kinds."""
        return list(dict.fromkeys(kind.group for kind in self._kinds.values() if kind.group))

    def group_versions(self, group: str) -> list[str]:
        """The served versions of a group, the preferred one first."""
        names = {
            name
            for kind in self._kinds.values()
            if kind.group == group
            for name, version in kind.versions.items()
            if version.served
        }
        return sorted(names, key=version_rank, reverse=True)

    def kinds_of(self, group: str, version: str) -> list[tuple[Kind, Version]]:
        """The kinds of a group at a version, by plural."""
        pairs = [
            (kind, kind.versions[version])
            for kind in self._kinds.values()
            if kind.group == group and version in kind.versions and kind.versions[version].served
        ]
        return sorted(pairs, key=lambda pair: pair[0].plural)
