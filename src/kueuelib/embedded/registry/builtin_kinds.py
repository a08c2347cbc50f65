"""The kinds that the server brings itself."""

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
    ConfigMap               configmaps              cm      -
    Event                   events                  ev      upserts alone
    LimitRange              limitranges             limits  upserts
    Namespace               namespaces              ns      cluster status
    Node                    nodes                   no      cluster status
    Pod                     pods                    po      all status generation returned
    PodTemplate             podtemplates            -       generation returned
    ResourceQuota           resourcequotas          quota   status returned
    Secret                  secrets                 -       -
    Service                 services                svc     all status returned upserts
    ServiceAccount          serviceaccounts         sa      returned
    Endpoints               endpoints               ep      upserts
    PersistentVolumeClaim   persistentvolumeclaims  pvc     status returned
    PersistentVolume        persistentvolumes       pv      cluster status returned
    ReplicationController   replicationcontrollers  rc      all status generation scale orphans
apps
    Deployment   deployments   deploy  all status generation scale
    DaemonSet    daemonsets    ds      all status generation
    ReplicaSet   replicasets   rs      all status generation scale
    StatefulSet  statefulsets  sts     all status generation scale
batch
    Job      jobs      -   all status generation orphans
    CronJob  cronjobs  cj  all status generation
apiextensions.k8s.io extension cluster conditional
    CustomResourceDefinition  customresourcedefinitions  crd,crds  status generation
apiregistration.k8s.io extension cluster conditional
    APIService  apiservices  -  status
admissionregistration.k8s.io extension cluster conditional
    MutatingWebhookConfiguration    mutatingwebhookconfigurations    -  generation
    ValidatingWebhookConfiguration  validatingwebhookconfigurations  -  generation
coordination.k8s.io
    Lease  leases  -  conditional upserts
node.k8s.io
    RuntimeClass  runtimeclasses  -  cluster conditional upserts
scheduling.k8s.io
    PriorityClass  priorityclasses  pc  cluster generation
rbac.authorization.k8s.io upserts
    ClusterRole         clusterroles         -  cluster
    ClusterRoleBinding  clusterrolebindings  -  cluster
    Role                roles                -  -
    RoleBinding         rolebindings         -  -
networking.k8s.io
    Ingress  ingresses  ing  status generation
discovery.k8s.io
    EndpointSlice  endpointslices  -  generation
"""
"""Groups with the traits of all their kinds; below: kind, plural, short names, traits."""

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
"""Metadata that a write of the status leaves as it is."""
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
