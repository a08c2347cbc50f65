"""The columns that `kubectl get` shows for built-in kinds; NAME and AGE are those of every kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from kueuelib.api.meta import Obj
from kueuelib.embedded.registry import cells
from kueuelib.embedded.registry.cells import NONE, UNKNOWN
from kueuelib.embedded.registry.kind import Column
from kueuelib.machinery.fields import field_of

AGE = Column("Age", "string", cells.age)


def _path(name: str, path: str, *, default: str = NONE, priority: int = 0) -> Column:
    return Column(name, "string", lambda obj, _: field_of(obj, path) or default, priority=priority)


def _number(name: str, path: str, type_: str = "integer") -> Column:
    return Column(name, type_, lambda obj, _: int(field_of(obj, path) or 0))


def _images(*path: str, top: str = "spec") -> tuple[Column, Column]:
    """The names and images of the containers of a template."""

    def read(key: str) -> Callable[[Obj, float], str]:
        return lambda obj, _: ",".join(
            str(each.get(key, "")) for each in cells.containers(obj, whole)
        )

    whole = (*([top] if top else []), *path)
    return (
        Column("Containers", "string", read("name"), priority=1),
        Column("Images", "string", read("image"), priority=1),
    )


_SELECTOR = Column("Selector", "string", cells.selector, priority=1)
_POD_IMAGES = _images("template", "spec")
_ONE_POD = (*_POD_IMAGES, _SELECTOR)
_REPLICATED = (
    _number("Desired", "spec.replicas"),
    _number("Current", "status.replicas"),
    _number("Ready", "status.readyReplicas"),
    AGE,
    *_ONE_POD,
)
_WEBHOOKS = (Column("Webhooks", "integer", cells.count("webhooks")), AGE)
_BOUND = (
    Column("Role", "string", cells.slashed("roleRef.kind", "roleRef.name")),
    AGE,
    Column("Users", "string", cells.subjects("User"), priority=1),
    Column("Groups", "string", cells.subjects("Group"), priority=1),
    Column("ServiceAccounts", "string", cells.subjects("ServiceAccount"), priority=1),
)
CREATED = (
    Column("Created At", "date", lambda obj, _: str(obj["metadata"].get("creationTimestamp"))),
)
"""The columns of a kind that has none of its own."""
_BACKEND = ("spec.service.namespace", "spec.service.name")
_CLASS = _path("VolumeAttributesClass", "spec.volumeAttributesClassName", default="<unset>")
_VOLUME_MODE = _path("VolumeMode", "spec.volumeMode", default="<unset>", priority=1)


COLUMNS: Mapping[str, tuple[Column, ...]] = {
    "ConfigMap": (Column("Data", "string", cells.data), AGE),
    "Secret": (_path("Type", "type"), Column("Data", "string", cells.data), AGE),
    "ServiceAccount": (AGE,),
    "LimitRange": CREATED,
    "Namespace": (_path("Status", "status.phase", default=""), AGE),
    "Node": (
        Column("Status", "string", cells.node_status),
        Column("Roles", "string", cells.node_roles),
        AGE,
        _path("Version", "status.nodeInfo.kubeletVersion", default=""),
        Column("Internal-IP", "string", cells.node_address("InternalIP"), priority=1),
        Column("External-IP", "string", cells.node_address("ExternalIP"), priority=1),
        _path("OS-Image", "status.nodeInfo.osImage", default=UNKNOWN, priority=1),
        _path("Kernel-Version", "status.nodeInfo.kernelVersion", default=UNKNOWN, priority=1),
        _path(
            "Container-Runtime",
            "status.nodeInfo.containerRuntimeVersion",
            default=UNKNOWN,
            priority=1,
        ),
    ),
    "Pod": (
        Column("Ready", "string", cells.pod_ready),
        Column("Status", "string", cells.pod_status),
        Column("Restarts", "string", cells.pod_restarts),
        AGE,
        _path("IP", "status.podIP", priority=1),
        _path("Node", "spec.nodeName", priority=1),
        _path("Nominated Node", "status.nominatedNodeName", priority=1),
        Column("Readiness Gates", "string", cells.gates, priority=1),
    ),
    "PodTemplate": (
        *(attrs.evolve(each, priority=0) for each in _images("template", "spec", top="")),
        Column("Pod Labels", "string", cells.template_labels),
    ),
    "Job": (
        Column("Status", "string", cells.job_status),
        Column("Completions", "string", cells.job_completions),
        Column("Duration", "string", cells.job_duration),
        AGE,
        *_ONE_POD,
    ),
    "Deployment": (
        Column("Ready", "string", cells.replicas_ready),
        _number("Up-to-date", "status.updatedReplicas", "string"),
        _number("Available", "status.availableReplicas", "string"),
        AGE,
        *_ONE_POD,
    ),
    "ReplicaSet": _REPLICATED,
    "ReplicationController": _REPLICATED,
    "StatefulSet": (Column("Ready", "string", cells.replicas_ready), AGE, *_POD_IMAGES),
    "DaemonSet": (
        _number("Desired", "status.desiredNumberScheduled"),
        _number("Current", "status.currentNumberScheduled"),
        _number("Ready", "status.numberReady"),
        _number("Up-to-date", "status.updatedNumberScheduled"),
        _number("Available", "status.numberAvailable"),
        Column("Node Selector", "string", cells.node_selector),
        AGE,
        *_ONE_POD,
    ),
    "CronJob": (
        _path("Schedule", "spec.schedule"),
        _path("Timezone", "spec.timeZone"),
        Column("Suspend", "boolean", lambda obj, _: str(bool(obj["spec"].get("suspend")))),
        Column(
            "Active", "integer", lambda obj, _: len((obj.get("status") or {}).get("active") or ())
        ),
        Column("Last Schedule", "string", cells.last_schedule),
        AGE,
        *_images("jobTemplate", "spec", "template", "spec"),
        Column("Selector", "string", lambda _, __: NONE, priority=1),
    ),
    "PersistentVolumeClaim": (
        Column("Status", "string", cells.volume_phase),
        _path("Volume", "spec.volumeName", default=""),
        _path("Capacity", "status.capacity.storage", default=""),
        Column("Access Modes", "string", cells.modes("status.accessModes")),
        _path("StorageClass", "spec.storageClassName", default=""),
        _CLASS,
        AGE,
        _VOLUME_MODE,
    ),
    "PersistentVolume": (
        _path("Capacity", "spec.capacity.storage", default=""),
        Column("Access Modes", "string", cells.modes("spec.accessModes")),
        _path("Reclaim Policy", "spec.persistentVolumeReclaimPolicy", default=""),
        Column("Status", "string", cells.volume_phase),
        Column("Claim", "string", cells.slashed("spec.claimRef.namespace", "spec.claimRef.name")),
        _path("StorageClass", "spec.storageClassName", default=""),
        _CLASS,
        _path("Reason", "status.reason", default=""),
        AGE,
        _VOLUME_MODE,
    ),
    "Ingress": (
        _path("Class", "spec.ingressClassName", default=NONE),
        Column("Hosts", "string", cells.hosts),
        Column("Address", "string", cells.balanced),
        Column("Ports", "string", lambda obj, _: "80, 443" if obj["spec"].get("tls") else "80"),
        AGE,
    ),
    "Endpoints": (Column("Endpoints", "string", cells.endpoints), AGE),
    "EndpointSlice": (
        _path("AddressType", "addressType", default=""),
        Column("Ports", "string", cells.slice_ports),
        Column("Endpoints", "string", cells.slice_addresses),
        AGE,
    ),
    "ResourceQuota": (
        Column("Request", "string", cells.quota(limits=False)),
        Column("Limit", "string", cells.quota(limits=True)),
        AGE,
    ),
    "Service": (
        _path("Type", "spec.type"),
        _path("Cluster-IP", "spec.clusterIP"),
        Column("External-IP", "string", cells.external),
        Column("Port(s)", "string", cells.ports),
        AGE,
        _SELECTOR,
    ),
    "Event": (
        Column("Last Seen", "string", cells.event_age),
        _path("Type", "type", default=""),
        _path("Reason", "reason", default=""),
        Column("Object", "string", cells.event_object),
        _path("Subobject", "involvedObject.fieldPath", default="", priority=1),
        Column("Source", "string", cells.event_source, priority=1),
        Column("Message", "string", lambda obj, _: str(obj.get("message") or "").strip()),
        Column("First Seen", "string", cells.event_first, priority=1),
        Column("Count", "string", cells.event_count, priority=1),
        Column("Name", "string", lambda obj, _: obj["metadata"]["name"], "name", priority=1),
    ),
    "CustomResourceDefinition": CREATED,
    "MutatingWebhookConfiguration": _WEBHOOKS,
    "ValidatingWebhookConfiguration": _WEBHOOKS,
    "Lease": (_path("Holder", "spec.holderIdentity", default=""), AGE),
    "APIService": (Column("Service", "string", cells.slashed(*_BACKEND, "Local")), AGE),
    "RuntimeClass": (_path("Handler", "handler", default=""), AGE),
    "PriorityClass": (
        Column("Value", "integer", lambda obj, _: obj.get("value", 0)),
        Column("Global-Default", "boolean", lambda obj, _: bool(obj.get("globalDefault"))),
        AGE,
        _path("PreemptionPolicy", "preemptionPolicy", default=""),
    ),
    "ClusterRole": CREATED,
    "Role": CREATED,
    "ClusterRoleBinding": _BOUND,
    "RoleBinding": _BOUND,
}
