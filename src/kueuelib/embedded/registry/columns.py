"""The columns that `kubectl get` shows for built-in kinds; NAME and AGE are those of every kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kueuelib.api.ages import duration
from kueuelib.api.meta import Obj, find_condition, parse_time
from kueuelib.embedded.registry.kind import Column
from kueuelib.machinery.fields import field_of

NONE = "<none>"
UNKNOWN = "<unknown>"


def since(text: str | None, now: float) -> str:
    """The time between an RFC 3339 text and now."""
    if not text:
        return UNKNOWN
    try:
        return duration(now - parse_time(text))
    except ValueError:
        return "<invalid>"


def age(obj: Obj, now: float) -> str:
    """The cell of the column AGE."""
    return since(obj["metadata"].get("creationTimestamp"), now)


AGE = Column("Age", "string", age)


def _path(name: str, path: str, *, default: str = NONE, priority: int = 0) -> Column:
    return Column(name, "string", lambda obj, _: field_of(obj, path) or default, priority=priority)


def _containers(obj: Obj, path: tuple[str, ...]) -> list[Mapping[str, Any]]:
    found: Any = obj.get("spec") or {}
    for part in path:
        found = found.get(part) or {}
    return found.get("containers") or []


def _names(path: tuple[str, ...], key: str, heading: str) -> Column:
    def read(obj: Obj, _: float) -> str:
        return ",".join(str(each.get(key, "")) for each in _containers(obj, path))

    return Column(heading, "string", read, priority=1)


def _selector(obj: Obj, _: float) -> str:
    found = (obj.get("spec") or {}).get("selector") or {}
    labels = found.get("matchLabels", found)
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items())) or NONE


def _pod_ready(obj: Obj, _: float) -> str:
    states = (obj.get("status") or {}).get("containerStatuses") or []
    total = len((obj.get("spec") or {}).get("containers") or [])
    return f"{sum(1 for state in states if state.get('ready'))}/{total}"


def _pod_status(obj: Obj, _: float) -> str:
    status = obj.get("status") or {}
    reason = str(status.get("reason") or status.get("phase") or "")
    scheduled = find_condition(status.get("conditions"), "PodScheduled")
    if scheduled.get("reason") == "SchedulingGated":
        reason = "SchedulingGated"
    for state in reversed(status.get("containerStatuses") or []):
        waiting = (state.get("state") or {}).get("waiting") or {}
        ended = (state.get("state") or {}).get("terminated") or {}
        if waiting.get("reason"):
            reason = str(waiting["reason"])
        elif ended.get("reason"):
            reason = str(ended["reason"])
        elif ended:
            reason = f"ExitCode:{ended.get('exitCode', 0)}"
    if obj["metadata"].get("deletionTimestamp") and status.get("phase") not in {
        "Failed",
        "Succeeded",
    }:
        reason = "Unknown" if status.get("reason") == "NodeLost" else "Terminating"
    return reason


def _pod_restarts(obj: Obj, _: float) -> str:
    states = (obj.get("status") or {}).get("containerStatuses") or []
    return str(sum(state.get("restartCount", 0) for state in states))


def _gates(obj: Obj, _: float) -> str:
    found = (obj.get("spec") or {}).get("readinessGates")
    return str(len(found)) if found else NONE


def _job_status(obj: Obj, _: float) -> str:
    status = obj.get("status") or {}
    conditions = status.get("conditions")
    for type_, text in (("Complete", "Complete"), ("Failed", "Failed")):
        if find_condition(conditions, type_).get("status") == "True":
            return text
    if obj["metadata"].get("deletionTimestamp"):
        return "Terminating"
    for type_ in ("Suspended", "FailureTarget", "SuccessCriteriaMet"):
        if find_condition(conditions, type_).get("status") == "True":
            return type_
    return "Running"


def _job_completions(obj: Obj, _: float) -> str:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    done = status.get("succeeded", 0)
    if spec.get("completions") is not None:
        return f"{done}/{spec['completions']}"
    parallelism = spec.get("parallelism") or 0
    return f"{done}/1 of {parallelism}" if parallelism > 1 else f"{done}/1"


def _job_duration(obj: Obj, now: float) -> str:
    status = obj.get("status") or {}
    if not status.get("startTime"):
        return ""
    end = status.get("completionTime")
    until = parse_time(end) if end else now
    return duration(until - parse_time(status["startTime"]))


def _node_status(obj: Obj, _: float) -> str:
    conditions = (obj.get("status") or {}).get("conditions")
    found = find_condition(conditions, "Ready").get("status")
    text = {"True": "Ready", "False": "NotReady"}.get(str(found), "Unknown")
    return f"{text},SchedulingDisabled" if (obj.get("spec") or {}).get("unschedulable") else text


def _node_roles(obj: Obj, _: float) -> str:
    prefix = "node-role.kubernetes.io/"
    labels = obj["metadata"].get("labels") or {}
    roles = sorted(key.removeprefix(prefix) for key in labels if key.startswith(prefix))
    return ",".join(roles) or NONE


def _node_address(type_: str) -> Any:
    def read(obj: Obj, _: float) -> str:
        for each in (obj.get("status") or {}).get("addresses") or []:
            if each.get("type") == type_:
                return str(each.get("address"))
        return NONE

    return read


def _count(key: str) -> Any:
    return lambda obj, _: len(obj.get(key) or ())


def _bool(value: Any) -> str:
    return "true" if value else "false"


def _event_age(obj: Obj, now: float) -> str:
    last = obj.get("lastTimestamp") or obj.get("eventTime")
    series = obj.get("series") or {}
    if series.get("lastObservedTime"):
        last = series["lastObservedTime"]
    return since(last or obj["metadata"].get("creationTimestamp"), now)


def _event_first(obj: Obj, now: float) -> str:
    first = obj.get("firstTimestamp") or obj.get("eventTime")
    return since(first or obj["metadata"].get("creationTimestamp"), now)


def _event_object(obj: Obj, _: float) -> str:
    ref = obj.get("involvedObject") or {}
    return f"{str(ref.get('kind', '')).lower()}/{ref.get('name', '')}"


def _event_source(obj: Obj, _: float) -> str:
    source = obj.get("source") or {}
    component = source.get("component") or obj.get("reportingComponent") or ""
    return f"{component}, {source['host']}" if source.get("host") else str(component)


def _event_count(obj: Obj, _: float) -> int:
    series = obj.get("series") or {}
    return int(series.get("count") or obj.get("count") or 1)


def _role_ref(obj: Obj, _: float) -> str:
    ref = obj.get("roleRef") or {}
    return f"{ref.get('kind')}/{ref.get('name')}"


def _ports(obj: Obj, _: float) -> str:
    ports = (obj.get("spec") or {}).get("ports") or []
    return (
        ",".join(
            f"{port.get('port')}"
            + (f":{port['nodePort']}" if port.get("nodePort") else "")
            + f"/{port.get('protocol', 'TCP')}"
            for port in ports
        )
        or NONE
    )


def _created(obj: Obj, _: float) -> str:
    return str(obj["metadata"].get("creationTimestamp"))


def _replicas_ready(obj: Obj, _: float) -> str:
    ready = (obj.get("status") or {}).get("readyReplicas", 0)
    return f"{ready}/{(obj.get('spec') or {}).get('replicas', 1)}"


def _endpoints(obj: Obj, _: float) -> str:
    nothing: Sequence[Obj] = ({},)
    found = [
        f"{address.get('ip')}:{port.get('port')}"
        for subset in obj.get("subsets") or ()
        for address in subset.get("addresses") or ()
        for port in subset.get("ports") or nothing
    ]
    return ",".join(found[:3]) + (f" + {len(found) - 3} more..." if len(found) > 3 else "") or NONE


def _quota(*, limits: bool) -> Callable[[Obj, float], str]:
    def read(obj: Obj, _: float) -> str:
        status = obj.get("status") or {}
        used = status.get("used") or {}
        parts = [
            f"{name}: {used.get(name, '0')}/{hard}"
            for name, hard in sorted((status.get("hard") or {}).items())
            if name.startswith("limits.") == limits
        ]
        return ", ".join(parts)

    return read


_REPLICATED = (
    _path("Desired", "spec.replicas", default="0"),
    _path("Current", "status.replicas", default="0"),
    _path("Ready", "status.readyReplicas", default="0"),
    AGE,
)


def _backend(obj: Obj, _: float) -> str:
    """The Service behind an APIService."""
    service = (obj.get("spec") or {}).get("service")
    return f"{service.get('namespace')}/{service.get('name')}" if service else "Local"


COLUMNS: Mapping[str, tuple[Column, ...]] = {
    "ConfigMap": (Column("Data", "integer", _count("data")), AGE),
    "Secret": (_path("Type", "type"), Column("Data", "integer", _count("data")), AGE),
    "ServiceAccount": (Column("Secrets", "integer", _count("secrets")), AGE),
    "LimitRange": (Column("Created At", "date", _created),),
    "Namespace": (_path("Status", "status.phase", default=""), AGE),
    "Node": (
        Column("Status", "string", _node_status),
        Column("Roles", "string", _node_roles),
        AGE,
        _path("Version", "status.nodeInfo.kubeletVersion", default=""),
        Column("Internal-IP", "string", _node_address("InternalIP"), priority=1),
        Column("External-IP", "string", _node_address("ExternalIP"), priority=1),
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
        Column("Ready", "string", _pod_ready),
        Column("Status", "string", _pod_status),
        Column("Restarts", "string", _pod_restarts),
        AGE,
        _path("IP", "status.podIP", priority=1),
        _path("Node", "spec.nodeName", priority=1),
        _path("Nominated Node", "status.nominatedNodeName", priority=1),
        Column("Readiness Gates", "string", _gates, priority=1),
    ),
    "PodTemplate": (
        _names(("template", "spec"), "name", "Containers"),
        _names(("template", "spec"), "image", "Images"),
    ),
    "Job": (
        Column("Status", "string", _job_status),
        Column("Completions", "string", _job_completions),
        Column("Duration", "string", _job_duration),
        AGE,
        _names(("template", "spec"), "name", "Containers"),
        _names(("template", "spec"), "image", "Images"),
        Column("Selector", "string", _selector, priority=1),
    ),
    "Deployment": (
        Column(
            "Ready",
            "string",
            lambda obj, _: (
                f"{(obj.get('status') or {}).get('readyReplicas', 0)}"
                f"/{(obj.get('spec') or {}).get('replicas', 1)}"
            ),
        ),
        _path("Up-to-date", "status.updatedReplicas", default="0"),
        _path("Available", "status.availableReplicas", default="0"),
        AGE,
        _names(("template", "spec"), "name", "Containers"),
        _names(("template", "spec"), "image", "Images"),
        Column("Selector", "string", _selector, priority=1),
    ),
    "ReplicaSet": _REPLICATED,
    "ReplicationController": _REPLICATED,
    "StatefulSet": (Column("Ready", "string", _replicas_ready), AGE),
    "DaemonSet": (
        _path("Desired", "status.desiredNumberScheduled", default="0"),
        _path("Current", "status.currentNumberScheduled", default="0"),
        _path("Ready", "status.numberReady", default="0"),
        _path("Up-to-date", "status.updatedNumberScheduled", default="0"),
        _path("Available", "status.numberAvailable", default="0"),
        AGE,
    ),
    "CronJob": (
        _path("Schedule", "spec.schedule"),
        _path("Timezone", "spec.timeZone"),
        _path("Suspend", "spec.suspend", default="False"),
        Column(
            "Active", "integer", lambda obj, _: len((obj.get("status") or {}).get("active", ()))
        ),
        Column("Last Schedule", "string", lambda _, __: NONE),
        AGE,
    ),
    "PersistentVolumeClaim": (
        _path("Status", "status.phase", default=""),
        _path("Volume", "spec.volumeName", default=""),
        _path("Capacity", "status.capacity.storage", default=""),
        _path("Access Modes", "status.accessModes", default=""),
        _path("StorageClass", "spec.storageClassName", default=""),
        AGE,
    ),
    "PersistentVolume": (
        _path("Capacity", "spec.capacity.storage", default=""),
        _path("Reclaim Policy", "spec.persistentVolumeReclaimPolicy", default=""),
        _path("Status", "status.phase", default=""),
        _path("StorageClass", "spec.storageClassName", default=""),
        AGE,
    ),
    "Ingress": (_path("Class", "spec.ingressClassName", default=NONE), AGE),
    "Endpoints": (Column("Endpoints", "string", _endpoints), AGE),
    "EndpointSlice": (_path("AddressType", "addressType", default=""), AGE),
    "ResourceQuota": (
        Column("Request", "string", _quota(limits=False)),
        Column("Limit", "string", _quota(limits=True)),
        AGE,
    ),
    "Service": (
        _path("Type", "spec.type"),
        _path("Cluster-IP", "spec.clusterIP"),
        Column("External-IP", "string", lambda _, __: NONE),
        Column("Port(s)", "string", _ports),
        AGE,
        Column("Selector", "string", _selector, priority=1),
    ),
    "Event": (
        Column("Last Seen", "string", _event_age),
        _path("Type", "type", default=""),
        _path("Reason", "reason", default=""),
        Column("Object", "string", _event_object),
        _path("Subobject", "involvedObject.fieldPath", default="", priority=1),
        Column("Source", "string", _event_source, priority=1),
        Column("Message", "string", lambda obj, _: str(obj.get("message") or "").strip()),
        Column("First Seen", "string", _event_first, priority=1),
        Column("Count", "string", _event_count, priority=1),
        Column("Name", "string", lambda obj, _: obj["metadata"]["name"], priority=1),
    ),
    "CustomResourceDefinition": (Column("Created At", "date", _created),),
    "MutatingWebhookConfiguration": (Column("Webhooks", "integer", _count("webhooks")), AGE),
    "ValidatingWebhookConfiguration": (Column("Webhooks", "integer", _count("webhooks")), AGE),
    "Lease": (_path("Holder", "spec.holderIdentity", default=""), AGE),
    "APIService": (Column("Service", "string", _backend), AGE),
    "RuntimeClass": (_path("Handler", "handler", default=""), AGE),
    "PriorityClass": (
        Column("Value", "integer", lambda obj, _: obj.get("value", 0)),
        Column("Global-Default", "boolean", lambda obj, _: bool(obj.get("globalDefault"))),
        AGE,
        _path("PreemptionPolicy", "preemptionPolicy", default=""),
    ),
    "ClusterRole": (Column("Created At", "date", _created),),
    "Role": (Column("Created At", "date", _created),),
    "ClusterRoleBinding": (Column("Role", "string", _role_ref), AGE),
    "RoleBinding": (Column("Role", "string", _role_ref), AGE),
}
