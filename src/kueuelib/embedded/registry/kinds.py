"""The server's description of a kind, and the kinds by their names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from kueuelib.api.meta import Obj, Resource
from kueuelib.embedded.admission.plugin import KindRules
from kueuelib.errors import NotFound

NO_FIELDS: Mapping[str, str] = {}

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
ENDING_VERBS = ("delete", "deletecollection", "get", "list", "watch")
"""What is left of them while a definition is being deleted."""


@attrs.frozen
class PrinterColumn:
    """One column of the table that `kubectl get` prints.

    Attributes:
        name: the heading.
        type: `string`, `integer`, `number`, `boolean` or `date`.
        read: returns the cell for a raw object and the present time in seconds.
        format: an OpenAPI format or empty.
        description: for people.
        priority: 0 is always shown, others with `-o wide`.
    """

    name: str
    type: str
    read: Callable[[Obj, float], Any]
    format: str = ""
    description: str = ""
    priority: int = 0


@attrs.frozen(eq=False)
class KindVersion:
    """One API version of a kind.

    Attributes:
        name: for example `v1beta2`.
        served: whether requests may use it.
        openapi: the schema as OpenAPI v3; None if the kind has none.
        schema: a `TypedSchema` or `StructuralSchema`, which prunes, defaults and validates.
        columns: for tables, after NAME.
        status: whether `status` is a subresource.
        scale: the paths of the scale subresource, or None.
        selectable: further JSON paths that field selectors may ask for.
        deprecation: a warning for every request that uses the version, or empty.
    """

    name: str
    served: bool = True
    openapi: Mapping[str, Any] | None = None
    schema: Any = None
    columns: tuple[PrinterColumn, ...] | None = None
    status: bool = False
    scale: Mapping[str, str] | None = None
    selectable: tuple[str, ...] = ()
    deprecation: str = ""


@attrs.frozen(eq=False)
class Twin:
    """How a kind presents objects that another kind stores.

    Attributes:
        table: of the stored objects.
        api_version: of the stored objects.
        into: converts the form of the request to the stored one.
        out: converts the stored form to that of the request.
        field: the stored name of a field that selectors ask for.
    """

    table: str
    api_version: str
    into: Callable[[Obj], Obj]
    out: Callable[[Obj], Obj]
    field: Callable[[str], str]


@attrs.frozen(eq=False)
class Kind:
    """One kind in all its versions. Replaced, never changed, when its definition changes.

    Attributes:
        group: empty for the core group.
        kind: for example `Workload`.
        plural: for example `workloads`.
        singular: for example `workload`.
        namespaced: whether objects live in namespaces.
        versions: by name, the preferred one first.
        storage: the name of the version in which new states are stored.
        list_kind: for example `WorkloadList`.
        short_names: for kubectl.
        categories: for kubectl, for example `all`.
        builtin: whether it is a built-in kind.
        verbs: the supported verbs.
        rules: its strategy.
        fields: returns the fields for field selectors.
        field_names: their names.
        generation: whether `metadata.generation` counts changes of the desired state.
        propagation: the default for dependents in a deletion; None: background; empty: there are no
            dependents.
        subresources: further subresources that store the object, for example `finalize`.
        conversion: the `spec.conversion` of a CRD with several versions, or None.
        since: the resource version since which objects are stored with the present schema.
        epoch: the resource version of the definition; a change makes converted views stale.
        terminating: whether the definition is being deleted.
        kept: the fields that a write of the status does not change.
        unconditional: whether a replacement may leave out the resource version.
        upserts: whether a replacement creates a missing object.
        returned: whether a deletion answers with the object instead of a Status.
        loose: whether its finalizers may be any names.
        uncompared: whether its own rules do not compare metadata with those before.
        whole: whether its own rules look at the metadata of a changed object as at those of a new
            one.
        twin: set if another kind stores the objects.
    """

    group: str
    kind: str
    plural: str
    singular: str
    namespaced: bool
    versions: Mapping[str, KindVersion]
    storage: str
    list_kind: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    builtin: bool = True
    verbs: Sequence[str] = ALL_VERBS
    rules: KindRules = attrs.field(factory=KindRules)
    fields: Callable[[Obj], Mapping[str, str]] = lambda _: NO_FIELDS
    field_names: frozenset[str] = frozenset()
    generation: bool = False
    propagation: str | None = None
    subresources: frozenset[str] = frozenset()
    conversion: Mapping[str, Any] | None = None
    since: int = 0
    epoch: int = 0
    terminating: bool = False
    kept: tuple[tuple[str, ...], ...] = (("spec",), ("metadata",))
    unconditional: bool = True
    upserts: bool = False
    returned: bool = False
    loose: bool = False
    uncompared: bool = False
    whole: bool = False
    twin: Twin | None = None

    @property
    def table(self) -> str:
        """The name of the table that holds the objects."""
        if self.twin is not None:
            return self.twin.table
        return f"{self.plural}.{self.group}"

    @property
    def qualified_plural(self) -> str:
        """The plural in messages: `pods`, `jobs.batch`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def api_version(self, version: str) -> str:
        """`group/version`, or `version` for the core group."""
        return f"{self.group}/{version}" if self.group else version

    def resource(self, version: str) -> Resource:
        """The kind at one version."""
        return Resource(self.group, version, self.plural, self.kind, self.namespaced)


# ---- finds kinds by their names in URLs, objects and webhook rules -------------------------------

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

    def served(self, group: str, version: str, plural: str) -> tuple[Kind, KindVersion] | None:
        """The kind and the version of a URL; None if it is not served."""
        kind = self._kinds.get((group, plural))
        if kind is None:
            return None
        served = kind.versions.get(version)
        return (kind, served) if served is not None and served.served else None

    def require(self, resource: Resource) -> tuple[Kind, KindVersion]:
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

    def kinds_of(self, group: str, version: str) -> list[tuple[Kind, KindVersion]]:
        """The kinds of a group at a version, by plural."""
        pairs = [
            (kind, kind.versions[version])
            for kind in self._kinds.values()
            if kind.group == group and version in kind.versions and kind.versions[version].served
        ]
        return sorted(pairs, key=lambda pair: pair[0].plural)
