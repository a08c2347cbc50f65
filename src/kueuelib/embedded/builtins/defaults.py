"""Defaults that depend on other fields, by the type of their object.

Other defaults are in `schema/wire.txt` next to their fields, and are filled in before.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from typing import Final

from kueuelib.api.meta import Obj
from kueuelib.embedded.builtins.fields import listed, section, setdefault, subobject
from kueuelib.embedded.builtins.resources import CONTAINER_LISTS, containers_of

NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"
TEMPLATE_GENERATION: Final = "deprecated.daemonset.template.generation"
RBAC: Final = "rbac.authorization.k8s.io"
_MOST_RETRIES: Final = 2**31 - 1


_IMAGE: Final = re.compile(
    r"(?:(?:localhost|[\w.-]*[.][\w.-]*|[\w.-]+(?=:\d)|[\w.-]*[A-Z][\w.-]*)(?::\d+)?/)?"
    r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*"
    r"(?::(?P<tag>\w[\w.-]{0,127}))?(?P<digest>@[a-z0-9+._-]+:[0-9a-fA-F]{32,})?",
    re.ASCII,
).fullmatch


def _pod(pod: Obj) -> None:
    """Missing requests of a pod equal its limits."""
    setdefault(pod["spec"], "enableServiceLinks", value=True)
    for container in containers_of(pod["spec"]):
        limits = section(container, "resources").get("limits")
        if limits:
            requests = subobject(container["resources"], "requests")
            for name, amount in limits.items():
                requests.setdefault(name, amount)


def _pod_spec(spec: Obj) -> None:
    """Copy the service account to its second field, and with the host network, container ports
    to host ports.
    """
    if spec.get("serviceAccountName"):
        setdefault(spec, "serviceAccount", spec["serviceAccountName"])
    elif spec.get("serviceAccount"):
        spec["serviceAccountName"] = spec["serviceAccount"]
    if spec.get("hostNetwork"):
        for key in CONTAINER_LISTS:
            for container in listed(spec, key):
                for port in listed(container, "ports"):
                    setdefault(port, "hostPort", port.get("containerPort"))


def _container(container: Obj) -> None:
    """Latest images are always pulled, others only if they are missing."""
    image = _IMAGE(container.get("image") or "")
    latest = image and (image["tag"] or ("" if image["digest"] else "latest")) == "latest"
    setdefault(container, "imagePullPolicy", "Always" if latest else "IfNotPresent")


def _volume(volume: Obj) -> None:
    """A volume without a source is an empty folder."""
    if not any(value is not None for key, value in volume.items() if key != "name"):
        volume["emptyDir"] = {}


def _job(job: Obj) -> None:
    """A Job runs one pod, and gets the labels of its pods."""
    spec = job["spec"]
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    setdefault(spec, "parallelism", 1)
    per_index = spec.get("backoffLimitPerIndex") is not None
    setdefault(spec, "backoffLimit", _MOST_RETRIES if per_index else 6)
    setdefault(spec, "completionMode", "NonIndexed")
    setdefault(spec, "suspend", value=False)
    setdefault(spec, "manualSelector", value=False)
    policy = spec.get("podFailurePolicy")
    setdefault(spec, "podReplacementPolicy", "Failed" if policy else "TerminatingOrFailed")
    labels = section(spec, "template", "metadata").get("labels")
    if labels and not section(job, "metadata").get("labels"):
        # The same ones: what a new Job gets for its pods, it gets itself.
        job["metadata"]["labels"] = labels


def _controller(controller: Obj) -> None:
    """A ReplicationController selects and gets the labels of its pods."""
    labels = section(controller, "spec", "template", "metadata", "labels")
    for place, name in ((controller["spec"], "selector"), (controller["metadata"], "labels")):
        if labels and not place.get(name):
            place[name] = dict(labels)


def _daemon_set(daemons: Obj) -> None:
    """Add the annotation that counts changes of the template."""
    subobject(daemons["metadata"], "annotations").setdefault(TEMPLATE_GENERATION, "0")


def _rolling(**defaults: str | int) -> Callable[[Obj], None]:
    """Fill in the parameters of a rolling update, if it is one."""

    def default(strategy: Obj) -> None:
        if strategy["type"] == "RollingUpdate":
            rolling = subobject(strategy, "rollingUpdate")
            for name, value in defaults.items():
                setdefault(rolling, name, value)

    return default


def _set_strategy(strategy: Obj) -> None:
    """Fill in the parameters only if the type is not given, or the parameters are."""
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
        subobject(strategy, "rollingUpdate")
    if strategy["type"] == "RollingUpdate" and strategy.get("rollingUpdate") is not None:
        setdefault(strategy["rollingUpdate"], "partition", 0)


def _service(spec: Obj) -> None:
    """Fill in the timeout of affinity, and the policies of traffic."""
    if spec["sessionAffinity"] == "ClientIP":
        client = subobject(subobject(spec, "sessionAffinityConfig"), "clientIP")
        setdefault(client, "timeoutSeconds", 10800)
    if spec["type"] != "ExternalName":
        setdefault(spec, "internalTrafficPolicy", "Cluster")
    if spec["type"] in ("LoadBalancer", "NodePort"):
        setdefault(spec, "externalTrafficPolicy", "Cluster")
    if spec["type"] == "LoadBalancer":
        setdefault(spec, "allocateLoadBalancerNodePorts", value=True)


def _service_port(port: Obj) -> None:
    """The default target port is the port of the Service."""
    if port.get("targetPort") in (None, 0, ""):
        port["targetPort"] = port.get("port", 0)


def _namespace(namespace: Obj) -> None:
    """Add the label with the name."""
    meta = namespace["metadata"]
    if meta.get("name"):
        subobject(meta, "labels")[NAMESPACE_NAME] = meta["name"]


def _node_status(status: Obj) -> None:
    """The default of allocatable is the capacity."""
    if status.get("capacity") and not status.get("allocatable"):
        status["allocatable"] = dict(status["capacity"])


def _node_spec(spec: Obj) -> None:
    """Copy the first network to its second field; if they differ, the older field counts."""
    first, networks = spec.get("podCIDR"), listed(spec, "podCIDRs")
    if first and networks[:1] != [first]:
        spec["podCIDRs"] = [first]
    elif networks:
        spec["podCIDR"] = networks[0]


def _secret(secret: Obj) -> None:
    """Move `stringData` into `data`."""
    texts = secret.pop("stringData", None)
    if texts:
        data = secret["data"] = dict(section(secret, "data"))
        for key, text in texts.items():
            data[key] = base64.b64encode(text.encode()).decode()


def _limits(item: Obj) -> None:
    """For containers, the default limit is the maximum, and the default request is that limit."""
    if item.get("type") != "Container":
        return
    limits = {**section(item, "max"), **section(item, "default")}
    requests = {**section(item, "min"), **limits, **section(item, "defaultRequest")}
    for key, amounts in (("default", limits), ("defaultRequest", requests)):
        if amounts:
            item[key] = amounts


def _subject(subject: Obj) -> None:
    """Fill in the API group of users and groups."""
    if subject.get("kind") in ("User", "Group") and not subject.get("apiGroup"):
        subject["apiGroup"] = RBAC


BY_TYPE: Final[Mapping[str, Callable[[Obj], None]]] = {
    "apps.DaemonSet": _daemon_set,
    "apps.DaemonSetUpdateStrategy": _rolling(maxUnavailable=1, maxSurge=0),
    "apps.DeploymentStrategy": _rolling(maxUnavailable="25%", maxSurge="25%"),
    "apps.StatefulSetUpdateStrategy": _set_strategy,
    "batch.Job": _job,
    "core.Container": _container,
    "core.EphemeralContainer": _container,
    "core.LimitRangeItem": _limits,
    "core.Namespace": _namespace,
    "core.NodeSpec": _node_spec,
    "core.NodeStatus": _node_status,
    "core.Pod": _pod,
    "core.PodSpec": _pod_spec,
    "core.ReplicationController": _controller,
    "core.Secret": _secret,
    "core.ServicePort": _service_port,
    "core.ServiceSpec": _service,
    "core.Volume": _volume,
    "rbac.Subject": _subject,
}
"""The functions by the names of types in `schema/wire.txt`; each works in place."""
