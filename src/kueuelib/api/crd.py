"""Makes the CustomResourceDefinitions of the queueing kinds from their classes.

Both versions are served, `v1beta2` is stored. Kinds that look the same in both versions need no
conversion; the others name a conversion webhook, whose client configuration `install` replaces.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import attrs

from kueuelib.api.cel_rules import rules_of
from kueuelib.api.core import TAINT_EFFECTS
from kueuelib.api.definitions import (
    CONVERSION_PATH,
    Column,
    assembled,
    node,
    version_entry,
    webhook_conversion,
)
from kueuelib.api.kinds import KUEUE, V1BETA1, V1BETA2, VERSIONS
from kueuelib.api.kueue import (
    LIST_LIMIT,
    MAY_STOP_SEARCH,
    TRY_NEXT_FLAVOR,
    AdmissionCheck,
    ClusterQueue,
    Cohort,
    LocalQueue,
    ProvisioningRequestConfig,
    ResourceFlavor,
    Topology,
    Workload,
    WorkloadPriorityClass,
)
from kueuelib.api.meta import KubeObject, Obj, copied
from kueuelib.api.names import POD_PRIORITY_CLASS_SOURCE, WORKLOAD_PRIORITY_CLASS_SOURCE
from kueuelib.api.patterns import LABEL_VALUE, OPTIONAL_QUALIFIED, OPTIONAL_SUBDOMAIN, QUALIFIED
from kueuelib.api.schema import object_schema, struct_schema
from kueuelib.api.struct import frozen
from kueuelib.api.workload import WRITTEN_LIMIT, TopologyDomain

# ---- schema keywords of the CRDs where two kinds share a class but not its limits ----------------

_EFFECTS: Final = list(TAINT_EFFECTS)


def _toleration_keywords(at: str) -> Mapping[str, Mapping[str, Any]]:
    return {
        f"{at}.key": OPTIONAL_QUALIFIED,
        f"{at}.operator": {"enum": ["Equal", "Exists", ""]},
        f"{at}.value": LABEL_VALUE,
        f"{at}.effect": {"enum": [*_EFFECTS, ""]},
    }


_UPDATES: Final = "status.admissionChecks[].podSetUpdates[]"
_EXPRESSION: Final = "spec.namespaceSelector.matchExpressions[]"

KEYWORDS: Final[Mapping[str, Mapping[str, Mapping[str, Any]]]] = {
    "ClusterQueue": {
        "spec.namespaceSelector.matchLabels{}": LABEL_VALUE,
        f"{_EXPRESSION}.key": QUALIFIED,
        f"{_EXPRESSION}.operator": {"enum": ["In", "NotIn", "Exists", "DoesNotExist"]},
        f"{_EXPRESSION}.values[]": LABEL_VALUE,
    },
    "ResourceFlavor": {
        "spec.nodeTaints[].key": QUALIFIED,
        "spec.nodeTaints[].value": LABEL_VALUE,
        "spec.nodeTaints[].effect": {"enum": _EFFECTS},
        **_toleration_keywords("spec.tolerations[]"),
    },
    "Workload": {
        f"{_UPDATES}.labels{{}}": LABEL_VALUE,
        f"{_UPDATES}.nodeSelector{{}}": LABEL_VALUE,
        **_toleration_keywords(f"{_UPDATES}.tolerations[]"),
    },
}
"""Keywords that a shared class has only at these places."""


# --------------------------------------------------------------------------------------------------


@frozen
class _Definition:
    """The parts of a CRD besides its schema.

    Attributes:
        cls: the class of the objects.
        short_names: further names for `kubectl`.
        columns: what `kubectl get` prints.
        to_v1beta1: turns the schema into that of `v1beta1`, in place; None: they are the same.
        selectable: JSON paths for field selectors, in `v1beta2`.
    """

    cls: type[KubeObject]
    short_names: tuple[str, ...]
    columns: tuple[Column, ...] = ()
    to_v1beta1: Callable[[Obj], None] | None = None
    selectable: tuple[str, ...] = ()


def crd(kind: str) -> Obj:
    """The CustomResourceDefinition of one queueing kind.

    Raises:
        KeyError: there is no such kind.
    """
    made: Obj = copied(_crd(kind))
    return made


@cache
def _crd(kind: str) -> Obj:
    definition = _DEFINITIONS[kind]
    return assembled(
        definition.cls.resource,
        {"shortNames": definition.short_names},
        _conversion(definition),
        [_version(definition, version) for version in VERSIONS],
    )


def all_crds() -> list[Obj]:
    """Every CustomResourceDefinition of the queueing group, by kind."""
    return [crd(kind) for kind in sorted(_DEFINITIONS)]


def converted_crds() -> tuple[str, ...]:
    """The names of the CRDs whose versions differ: those that need a conversion webhook."""
    definitions = (_DEFINITIONS[kind] for kind in KINDS)
    return tuple(
        f"{each.cls.resource.plural}.{KUEUE}" for each in definitions if each.to_v1beta1 is not None
    )


def write_crds(folder: Path | str) -> list[Path]:
    """Writes one YAML file per kind, named `<group>_<plural>.yaml`, and returns their paths."""
    from kueuelib.api.yaml_text import to_yaml

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for kind, definition in sorted(_DEFINITIONS.items()):
        path = folder / f"{KUEUE}_{definition.cls.resource.plural}.yaml"
        path.write_text(to_yaml(crd(kind)), encoding="utf-8")
        written.append(path)
    return written


def _conversion(definition: _Definition) -> Obj:
    if definition.to_v1beta1 is None:
        return {"strategy": "None"}
    service = {
        "name": "kueue-webhook-service",
        "namespace": "kueue-system",
        "path": CONVERSION_PATH,
    }
    return webhook_conversion({"service": service})


def _version(definition: _Definition, version: str) -> Obj:
    schema = object_schema(definition.cls)
    if version == V1BETA1 and definition.to_v1beta1 is not None:
        definition.to_v1beta1(schema["properties"])
    kind = definition.cls.resource.kind
    for path, keywords in KEYWORDS.get(kind, {}).items():
        node(schema, path).update(keywords)
    stored = version == V1BETA2
    return version_entry(
        version,
        schema,
        stored=stored,
        columns=[_column(column, version) for column in definition.columns],
        rules=rules_of(kind, version),
        selectable=definition.selectable if stored else (),
    )


_PATHS_OF_V1BETA1: Final = {".spec.cohortName": ".spec.cohort"}


def _column(column: Column, version: str) -> Column:
    if version == V1BETA1 and column.path in _PATHS_OF_V1BETA1:
        return attrs.evolve(column, path=_PATHS_OF_V1BETA1[column.path])
    return column


# ---- what differs in v1beta1


def _renamed(properties: Mapping[str, Any], names: Mapping[str, str]) -> Obj:
    return {names.get(name, name): schema for name, schema in properties.items()}


def _cluster_queue_v1beta1(properties: Obj) -> None:
    spec = properties["spec"]
    spec["properties"] = fields = _renamed(spec["properties"], {"cohortName": "cohort"})
    fields["admissionChecks"] = {
        "type": "array",
        "maxItems": LIST_LIMIT,
        "items": {"type": "string", "minLength": 1, "maxLength": 316},
        "description": "Checks that hold for all flavors; use this or admissionChecksStrategy.",
    }
    rules = fields["flavorFungibility"]["properties"]
    rules["whenCanBorrow"] |= {
        "enum": ["Borrow", MAY_STOP_SEARCH, TRY_NEXT_FLAVOR],
        "default": "Borrow",
        "description": "Borrow (or MayStopSearch) or TryNextFlavor.",
    }
    rules["whenCanPreempt"] |= {
        "enum": ["Preempt", MAY_STOP_SEARCH, TRY_NEXT_FLAVOR],
        "description": "Preempt (or MayStopSearch) or TryNextFlavor.",
    }


def _local_queue_v1beta1(properties: Obj) -> None:
    status = properties["status"]
    status["properties"] = _renamed(status["properties"], {"flavorsUsage": "flavorUsage"})


def _workload_v1beta1(properties: Obj) -> None:
    fields = properties["spec"]["properties"]
    del fields["priorityClassRef"]
    fields["priorityClassName"] = {
        "type": "string",
        **OPTIONAL_SUBDOMAIN,
        "description": "The class that the priority came from.",
    }
    fields["priorityClassSource"] = {
        "type": "string",
        "enum": [WORKLOAD_PRIORITY_CLASS_SOURCE, POD_PRIORITY_CLASS_SOURCE, ""],
        "default": "",
        "description": "Which kind of class the priority came from.",
    }
    status = properties["status"]
    placed = node(status, "admission.podSetAssignments[].topologyAssignment")
    placed["required"] = ["levels", "domains"]
    del placed["properties"]["slices"]
    placed["properties"]["domains"] = {
        "type": "array",
        "maxItems": WRITTEN_LIMIT,
        "items": struct_schema(TopologyDomain),
        "description": "The domains.",
    }
    past = {
        "accumulatedPastExecutionTimeSeconds": "accumulatedPastExexcutionTimeSeconds",  # upstream's
    }
    status["properties"] = _renamed(status["properties"], past)


# ---- the kinds

_PENDING: Final = Column("Pending Workloads", ".status.pendingWorkloads", "integer")
_ADMITTED: Final = Column("Admitted Workloads", ".status.admittedWorkloads", "integer")

_DEFINITIONS: Final[Mapping[str, _Definition]] = {
    "ClusterQueue": _Definition(
        ClusterQueue,
        ("cq",),
        (
            Column("Cohort", ".spec.cohortName"),
            Column("Strategy", ".spec.queueingStrategy", priority=1),
            _PENDING,
            attrs.evolve(_ADMITTED, priority=1),
        ),
        _cluster_queue_v1beta1,
    ),
    "Cohort": _Definition(Cohort, ("co",)),
    "LocalQueue": _Definition(
        LocalQueue,
        ("queue", "queues", "lq"),
        (Column("ClusterQueue", ".spec.clusterQueue"), _PENDING, _ADMITTED),
        _local_queue_v1beta1,
    ),
    "ResourceFlavor": _Definition(ResourceFlavor, ("flavor", "flavors", "rf")),
    "Topology": _Definition(Topology, ("topo",)),
    "Workload": _Definition(
        Workload,
        ("wl", "kwl", "kueueworkload", "kueueworkloads"),
        (
            Column("Queue", ".spec.queueName"),
            Column("Reserved in", ".status.admission.clusterQueue"),
            Column("Admitted", ".status.conditions[?(@.type=='Admitted')].status"),
            Column("Finished", ".status.conditions[?(@.type=='Finished')].status"),
            Column("Age", ".metadata.creationTimestamp", "date"),
        ),
        _workload_v1beta1,
        (".status.admission.clusterQueue",),
    ),
    "AdmissionCheck": _Definition(AdmissionCheck, ("ac",)),
    "WorkloadPriorityClass": _Definition(
        WorkloadPriorityClass, ("wpc",), (Column("Value", ".value", "integer"),)
    ),
    "ProvisioningRequestConfig": _Definition(ProvisioningRequestConfig, ("prc",)),
}

KINDS: Final = tuple(sorted(_DEFINITIONS))
"""The queueing kinds that have a CustomResourceDefinition."""
