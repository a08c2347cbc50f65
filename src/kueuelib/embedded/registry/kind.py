"""The server's description of one kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from kueuelib.api.meta import Obj, Resource
from kueuelib.embedded.admission.plugin import KindRules

NO_FIELDS: Mapping[str, str] = {}

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
ENDING_VERBS = ("delete", "deletecollection", "get", "list", "watch")
"""What is left of them while a definition is being deleted."""


@attrs.frozen
class Column:
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
class Version:
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
    columns: tuple[Column, ...] | None = None
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
        origin: UID of the CRD, empty for built-in kinds.
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
    versions: Mapping[str, Version]
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
    origin: str = ""
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
