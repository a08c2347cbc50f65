"""The kinds that the server brings itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kueuelib.api.meta import Obj
from kueuelib.embedded.admission.plugin import KindRules
from kueuelib.embedded.registry.columns import COLUMNS
from kueuelib.embedded.registry.events import event_twin
from kueuelib.embedded.registry.kind import ALL_VERBS, Kind, Version
from kueuelib.embedded.schema.typed import TypedSchema
from kueuelib.machinery.fields import field_of

Rules = Mapping[tuple[str, str], KindRules]

_SELECTABLE: Mapping[str, tuple[str, ...]] = {
    "Pod": (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
    "Event": (
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    ),
    "Node": ("spec.unschedulable",),
    "Namespace": ("status.phase",),
    "Secret": ("type",),
    "Job": ("status.successful",),
    "Service": ("spec.clusterIP", "spec.type"),
}

_UPSERTS = frozenset(
    (
        *("ClusterRole", "ClusterRoleBinding", "Endpoints", "Event", "Lease", "LimitRange"),
        *("Role", "RoleBinding", "RuntimeClass", "Service"),
    )
)
_ALWAYS_SAID = {"spec.hostNetwork": "false", "spec.unschedulable": "false"}


def _describe(kind: str) -> Callable[[Obj], Mapping[str, str]]:
    paths = _SELECTABLE.get(kind, ())

    def describe(obj: Obj) -> Mapping[str, str]:
        found = {path: field_of(obj, path) or _ALWAYS_SAID.get(path, "") for path in paths}
        if kind == "Event":
            source = field_of(obj, "source.component") or field_of(obj, "reportingComponent")
            found["source"] = source
        elif kind == "Job":
            found["status.successful"] = field_of(obj, "status.succeeded") or "0"
        return {path: value for path, value in found.items() if value}

    return describe


def _kind(
    group: str,
    kind: str,
    plural: str,
    rules: Rules,
    *,
    namespaced: bool = True,
    short: tuple[str, ...] = (),
    categories: tuple[str, ...] = (),
    status: bool = False,
    generation: bool = False,
    subresources: tuple[str, ...] = (),
    propagation: str | None = None,
    scale: Mapping[str, str] | None = None,
    unconditional: bool = True,
    returned: bool = False,
    verbs: tuple[str, ...] = ALL_VERBS,
    deprecation: str = "",
) -> Kind:
    version = Version(
        "v1",
        schema=TypedSchema.of(group, kind),
        columns=COLUMNS.get(kind),
        status=status,
        scale=scale,
        deprecation=deprecation,
    )
    paths = _SELECTABLE.get(kind, ())
    return Kind(
        group=group,
        kind=kind,
        plural=plural,
        singular=kind.lower(),
        namespaced=namespaced,
        versions={"v1": version},
        storage="v1",
        list_kind=f"{kind}List",
        short_names=short,
        categories=categories,
        rules=rules.get((group, kind)) or KindRules(),
        fields=_describe(kind) if paths else lambda _: {},
        field_names=frozenset(paths),
        generation=generation,
        propagation=propagation,
        subresources=frozenset(subresources),
        unconditional=unconditional,
        upserts=kind in _UPSERTS,
        returned=returned,
        verbs=verbs,
    )


_REPLICAS = {
    "specReplicasPath": ".spec.replicas",
    "statusReplicasPath": ".status.replicas",
    "labelSelectorPath": ".spec.selector",
}


_ENDPOINTS = "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"


def _stored_kinds(rules: Rules) -> list[Kind]:
    """Kinds on which nothing acts: they are for manifests, and for `kubectl apply --prune`."""
    core, apps, all_ = "", "apps", ("all",)

    def workload(
        group: str, kind: str, plural: str, short: tuple[str, ...], *, scale: bool = False
    ) -> Kind:
        return _kind(
            group,
            kind,
            plural,
            rules,
            short=short,
            categories=all_,
            status=True,
            generation=True,
            scale=_REPLICAS if scale else None,
            propagation="Orphan" if kind == "ReplicationController" else None,
        )

    def volume(kind: str, plural: str, short: str, *, namespaced: bool) -> Kind:
        return _kind(
            core,
            kind,
            plural,
            rules,
            namespaced=namespaced,
            short=(short,),
            status=True,
            returned=True,
        )

    return [
        _kind(core, "Endpoints", "endpoints", rules, short=("ep",), deprecation=_ENDPOINTS),
        volume("PersistentVolumeClaim", "persistentvolumeclaims", "pvc", namespaced=True),
        volume("PersistentVolume", "persistentvolumes", "pv", namespaced=False),
        workload(core, "ReplicationController", "replicationcontrollers", ("rc",), scale=True),
        workload(apps, "DaemonSet", "daemonsets", ("ds",)),
        workload(apps, "ReplicaSet", "replicasets", ("rs",), scale=True),
        workload(apps, "StatefulSet", "statefulsets", ("sts",), scale=True),
        workload("batch", "CronJob", "cronjobs", ("cj",)),
        _kind(
            "networking.k8s.io",
            "Ingress",
            "ingresses",
            rules,
            short=("ing",),
            status=True,
            generation=True,
        ),
        _kind("discovery.k8s.io", "EndpointSlice", "endpointslices", rules, generation=True),
    ]


def builtin_kinds(rules: Rules) -> list[Kind]:
    """Every built-in kind, with the given rules by group and kind."""
    core, batch, apps = "", "batch", "apps"
    rbac = "rbac.authorization.k8s.io"
    webhooks = "admissionregistration.k8s.io"
    all_ = ("all",)
    kinds = [
        _kind(core, "ConfigMap", "configmaps", rules, short=("cm",)),
        _kind(core, "Event", "events", rules, short=("ev",)),
        _kind(core, "LimitRange", "limitranges", rules, short=("limits",)),
        _kind(
            core,
            "Namespace",
            "namespaces",
            rules,
            namespaced=False,
            short=("ns",),
            status=True,
            subresources=("finalize",),
            verbs=tuple(verb for verb in ALL_VERBS if verb != "deletecollection"),
        ),
        _kind(core, "Node", "nodes", rules, namespaced=False, short=("no",), status=True),
        _kind(
            core,
            "Pod",
            "pods",
            rules,
            short=("po",),
            categories=all_,
            status=True,
            generation=True,
            subresources=("ephemeralcontainers", "resize"),
            returned=True,
        ),
        _kind(core, "PodTemplate", "podtemplates", rules, generation=True, returned=True),
        _kind(
            core,
            "ResourceQuota",
            "resourcequotas",
            rules,
            short=("quota",),
            status=True,
            returned=True,
        ),
        _kind(core, "Secret", "secrets", rules),
        _kind(
            core,
            "Service",
            "services",
            rules,
            short=("svc",),
            categories=all_,
            status=True,
            returned=True,
        ),
        _kind(core, "ServiceAccount", "serviceaccounts", rules, short=("sa",), returned=True),
        _kind(
            apps,
            "Deployment",
            "deployments",
            rules,
            short=("deploy",),
            categories=all_,
            status=True,
            generation=True,
            scale=_REPLICAS,
        ),
        _kind(
            batch,
            "Job",
            "jobs",
            rules,
            categories=all_,
            status=True,
            generation=True,
            propagation="Orphan",
        ),
        _kind(
            "apiextensions.k8s.io",
            "CustomResourceDefinition",
            "customresourcedefinitions",
            rules,
            namespaced=False,
            short=("crd", "crds"),
            categories=("api-extensions",),
            status=True,
            generation=True,
            unconditional=False,
        ),
        _kind(
            "apiregistration.k8s.io",
            "APIService",
            "apiservices",
            rules,
            namespaced=False,
            categories=("api-extensions",),
            status=True,
            unconditional=False,
        ),
        _kind(
            webhooks,
            "MutatingWebhookConfiguration",
            "mutatingwebhookconfigurations",
            rules,
            namespaced=False,
            categories=("api-extensions",),
            generation=True,
            unconditional=False,
        ),
        _kind(
            webhooks,
            "ValidatingWebhookConfiguration",
            "validatingwebhookconfigurations",
            rules,
            namespaced=False,
            categories=("api-extensions",),
            generation=True,
            unconditional=False,
        ),
        _kind("coordination.k8s.io", "Lease", "leases", rules, unconditional=False),
        _kind("node.k8s.io", "RuntimeClass", "runtimeclasses", rules, namespaced=False),
        _kind(
            "scheduling.k8s.io",
            "PriorityClass",
            "priorityclasses",
            rules,
            namespaced=False,
            short=("pc",),
            generation=True,
        ),
        _kind(rbac, "ClusterRole", "clusterroles", rules, namespaced=False),
        _kind(rbac, "ClusterRoleBinding", "clusterrolebindings", rules, namespaced=False),
        _kind(rbac, "Role", "roles", rules),
        _kind(rbac, "RoleBinding", "rolebindings", rules),
    ]
    kinds += _stored_kinds(rules)
    event = next(kind for kind in kinds if kind.kind == "Event")
    return [*kinds, event_twin(event)]
