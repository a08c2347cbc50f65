"""The built-in kinds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from kueuelib.api.meta import Obj
from kueuelib.embedded.admission.plugin import KindRules
from kueuelib.embedded.registry.columns import COLUMNS
from kueuelib.embedded.registry.events import event_twin
from kueuelib.embedded.registry.kind import ALL_VERBS, Kind, Version
from kueuelib.embedded.schema.typed import TypedSchema
from kueuelib.machinery.fields import field_of

Rules = Mapping[tuple[str, str], KindRules]

_KINDS: Final = """
core
    ConfigMap               configmaps              cm      whole
    Event                   events                  ev      upserts alone loose uncompared
    LimitRange              limitranges             limits  upserts uncompared whole
    Namespace               namespaces              ns      cluster status whole
    Node                    nodes                   no      cluster status whole
    Pod                     pods                    po      all status generation returned whole
    PodTemplate             podtemplates            -       generation returned
    ResourceQuota           resourcequotas          quota   status returned
    Secret                  secrets                 -       whole
    Service                 services                svc     all status returned upserts
    ServiceAccount          serviceaccounts         sa      returned whole
    Endpoints               endpoints               ep      upserts whole
    PersistentVolumeClaim   persistentvolumeclaims  pvc     status returned whole
    PersistentVolume        persistentvolumes       pv      cluster status returned whole
    ReplicationController   replicationcontrollers  rc      all status generation scale orphans
apps
    Deployment   deployments   deploy  all status generation scale
    DaemonSet    daemonsets    ds      all status generation
    ReplicaSet   replicasets   rs      all status generation scale
    StatefulSet  statefulsets  sts     all status generation scale
batch
    Job      jobs      -   all status generation orphans whole
    CronJob  cronjobs  cj  all status generation
apiextensions.k8s.io extension cluster conditional
    CustomResourceDefinition  customresourcedefinitions  crd,crds  status generation loose
apiregistration.k8s.io extension cluster conditional
    APIService  apiservices  -  status
admissionregistration.k8s.io extension cluster conditional uncompared whole
    MutatingWebhookConfiguration    mutatingwebhookconfigurations    -  generation
    ValidatingWebhookConfiguration  validatingwebhookconfigurations  -  generation
coordination.k8s.io
    Lease  leases  -  conditional upserts
node.k8s.io
    RuntimeClass  runtimeclasses  -  cluster conditional upserts loose whole
scheduling.k8s.io
    PriorityClass  priorityclasses  pc  cluster generation
rbac.authorization.k8s.io upserts whole
    ClusterRole         clusterroles         -  cluster
    ClusterRoleBinding  clusterrolebindings  -  cluster
    Role                roles                -  -
    RoleBinding         rolebindings         -  -
networking.k8s.io
    Ingress  ingresses  ing  status generation whole
discovery.k8s.io
    EndpointSlice  endpointslices  -  generation uncompared whole
"""
"""Groups with the traits of all their kinds; below each: kind, plural, short names, traits.

Where an attribute of `Kind` has the name of a trait, it says what the trait means. Also:

    cluster      objects have no namespace
    status       there is the subresource, and a new object has no status
    scale        there is the subresource
    conditional  a replacement has to name the resource version
    orphans      a deletion that says nothing leaves dependents; `alone`: there are none
    all          the category of kubectl; `extension`: `api-extensions`

What fields a kind has is in `wire.txt`, what its tables show in `columns.txt`, and what its objects
must be like in `rules.txt` (or, where that has no words for it, in `stored_rules.py`).
"""

_SELECTABLE: Final[Mapping[str, str]] = {
    "ReplicationController": "status.replicas",
    "Pod": (
        "spec.nodeName spec.restartPolicy spec.schedulerName spec.serviceAccountName "
        "spec.hostNetwork status.phase status.podIP status.nominatedNodeName"
    ),
    "Event": (
        "involvedObject.kind involvedObject.namespace involvedObject.name involvedObject.uid "
        "involvedObject.apiVersion involvedObject.resourceVersion involvedObject.fieldPath "
        "reason reportingComponent source type"
    ),
    "Node": "spec.unschedulable",
    "Namespace": "status.phase",
    "Secret": "type",
    "Job": "status.successful",
    "Service": "spec.clusterIP spec.type",
}
_ALWAYS_SAID: Final = {"spec.hostNetwork": "false", "spec.unschedulable": "false"}
_SUBRESOURCES: Final = {"Namespace": ("finalize",), "Pod": ("ephemeralcontainers", "resize")}
_DEPRECATIONS: Final = {
    "Endpoints": "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"
}
_REPLICAS: Final = {
    "specReplicasPath": ".spec.replicas",
    "statusReplicasPath": ".status.replicas",
    "labelSelectorPath": ".spec.selector",
}
_NOT_SERVED: Final = (("Namespace", "deletecollection"),)
_KEPT: Final = {"Deployment": ("labels",), "Pod": ("ownerReferences",)}
"""Metadata that a write of the status does not change."""
_PROPAGATION: Final = (("orphans", "Orphan"), ("alone", ""))
_CATEGORIES: Final = {"all": "all", "extension": "api-extensions"}


def builtin_kinds(rules: Rules) -> list[Kind]:
    """Every built-in kind, with the given rules by group and kind."""
    kinds: list[Kind] = []
    group, shared = "", list[str]()
    for row in _KINDS.strip().splitlines():
        if row.startswith(" "):
            kinds.append(_kind(group, [*row.split(), *shared], rules))
        else:
            group, *shared = row.removeprefix("core").split(" ")
    event = next(kind for kind in kinds if kind.kind == "Event")
    return [*kinds, event_twin(event)]


def _kind(group: str, row: list[str], rules: Rules) -> Kind:
    name, plural, short, *traits = row
    version = Version(
        "v1",
        schema=TypedSchema.of(group, name),
        columns=COLUMNS.get(name),
        status="status" in traits,
        scale=_REPLICAS if "scale" in traits else None,
        deprecation=_DEPRECATIONS.get(name, ""),
    )
    paths = tuple(_SELECTABLE.get(name, "").split())
    return Kind(
        group=group,
        kind=name,
        plural=plural,
        singular=name.lower(),
        namespaced="cluster" not in traits,
        versions={"v1": version},
        storage="v1",
        list_kind=f"{name}List",
        short_names=() if short == "-" else tuple(short.split(",")),
        categories=tuple(_CATEGORIES[each] for each in traits if each in _CATEGORIES),
        rules=rules.get((group, name)) or KindRules(),
        fields=_describe(name, paths) if paths else lambda _: {},
        field_names=frozenset(paths),
        generation="generation" in traits,
        propagation=next((way for trait, way in _PROPAGATION if trait in traits), None),
        subresources=frozenset(_SUBRESOURCES.get(name, ())),
        kept=(("spec",), *(("metadata", each) for each in _KEPT.get(name, ()))),
        unconditional="conditional" not in traits,
        upserts="upserts" in traits,
        returned="returned" in traits,
        loose="loose" in traits,
        uncompared="uncompared" in traits,
        whole="whole" in traits,
        verbs=tuple(each for each in ALL_VERBS if (name, each) not in _NOT_SERVED),
    )


def _describe(kind: str, paths: tuple[str, ...]) -> Callable[[Obj], Mapping[str, str]]:
    def describe(obj: Obj) -> Mapping[str, str]:
        fields = {path: field_of(obj, path) or _ALWAYS_SAID.get(path, "") for path in paths}
        if kind == "Event":
            source = field_of(obj, "source.component") or field_of(obj, "reportingComponent")
            fields["source"] = source
        elif kind == "Job":
            fields["status.successful"] = field_of(obj, "status.succeeded") or "0"
        return {path: value for path, value in fields.items() if value}

    return describe
