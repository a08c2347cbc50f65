"""What a pod, or a pod template, gets for what its author left out."""

from __future__ import annotations

from collections.abc import Iterable

from kueuelib.api.meta import Obj
from kueuelib.embedded.builtins.fields import drop_nulls, listed, setdefault, subobject
from kueuelib.embedded.builtins.pod_placement import NOT_READY, UNREACHABLE
from kueuelib.embedded.builtins.resources import make_canonical

_FILE_MODE = 0o644
_TOKEN_SECONDS = 3600
CONTAINER_LISTS = ("containers", "initContainers", "ephemeralContainers")


def default_pod(pod: Obj) -> None:
    """The defaults of a pod: those of a template, and a request for every limit."""
    spec = subobject(pod, "spec")
    setdefault(spec, "enableServiceLinks", value=True)
    default_pod_spec(spec)
    for container in (*listed(spec, "containers"), *listed(spec, "initContainers")):
        _request_what_is_limited(container)
    status = subobject(pod, "status")
    if not status.get("phase"):
        status["phase"] = "Pending"


def default_pod_template(template: Obj) -> None:
    """The defaults of the pod template of a Job."""
    default_pod_spec(subobject(template, "spec"))


def default_pod_spec(spec: Obj) -> None:
    """The defaults that pods and templates share."""
    drop_nulls(spec)
    make_canonical(spec.get("overhead"))
    setdefault(spec, "restartPolicy", "Always")
    setdefault(spec, "terminationGracePeriodSeconds", 30)
    setdefault(spec, "dnsPolicy", "ClusterFirst")
    setdefault(spec, "securityContext", {})
    setdefault(spec, "schedulerName", "default-scheduler")
    if spec.get("serviceAccountName"):
        setdefault(spec, "serviceAccount", spec["serviceAccountName"])
    elif spec.get("serviceAccount"):
        spec["serviceAccountName"] = spec["serviceAccount"]
    for key in CONTAINER_LISTS:
        for container in listed(spec, key):
            _default_container(container)
            if spec.get("hostNetwork"):
                for port in listed(container, "ports"):
                    setdefault(port, "hostPort", port.get("containerPort"))
    for volume in listed(spec, "volumes"):
        _default_volume(volume)


def _request_what_is_limited(container: Obj) -> None:
    resources = container.get("resources") or {}
    limits = resources.get("limits")
    if limits:
        requests = subobject(resources, "requests")
        for name, amount in limits.items():
            requests.setdefault(name, amount)


def _default_container(container: Obj) -> None:
    setdefault(container, "terminationMessagePath", "/dev/termination-log")
    setdefault(container, "terminationMessagePolicy", "File")
    setdefault(container, "resources", {})
    for key in ("requests", "limits"):
        make_canonical(container["resources"].get(key))
    if not container.get("imagePullPolicy"):
        container["imagePullPolicy"] = _pull_policy(container.get("image") or "")
    for port in listed(container, "ports"):
        setdefault(port, "protocol", "TCP")
    for env in listed(container, "env"):
        _default_field_ref((env.get("valueFrom") or {}).get("fieldRef"))
    for key in ("livenessProbe", "readinessProbe", "startupProbe"):
        _default_probe(container.get(key))
    lifecycle = container.get("lifecycle") or {}
    for key in ("postStart", "preStop"):
        _default_http(lifecycle.get(key))


def _pull_policy(image: str) -> str:
    """Latest images are pulled always, others when they are missing."""
    if "@" in image:
        return "IfNotPresent"
    tag = image.rpartition("/")[2].partition(":")[2]
    return "Always" if tag in ("", "latest") else "IfNotPresent"


def _default_probe(probe: Obj | None) -> None:
    if probe is None:
        return
    _default_http(probe)
    setdefault(probe, "timeoutSeconds", 1)
    setdefault(probe, "periodSeconds", 10)
    setdefault(probe, "successThreshold", 1)
    setdefault(probe, "failureThreshold", 3)
    if probe.get("grpc") is not None:
        setdefault(probe["grpc"], "service", "")


def _default_http(handler: Obj | None) -> None:
    action = (handler or {}).get("httpGet")
    if action is not None:
        setdefault(action, "path", "/")
        setdefault(action, "scheme", "HTTP")


def _default_field_ref(ref: Obj | None) -> None:
    if ref is not None:
        setdefault(ref, "apiVersion", "v1")


def _default_volume(volume: Obj) -> None:
    if not any(value is not None for key, value in volume.items() if key != "name"):
        volume["emptyDir"] = {}
    for key in ("secret", "configMap", "downwardAPI", "projected"):
        source = volume.get(key)
        if source is not None:
            setdefault(source, "defaultMode", _FILE_MODE)
    for item in listed(volume.get("downwardAPI") or {}, "items"):
        _default_field_ref(item.get("fieldRef"))
    for source in listed(volume.get("projected") or {}, "sources"):
        token = source.get("serviceAccountToken")
        if token is not None:
            setdefault(token, "expirationSeconds", _TOKEN_SECONDS)
        for item in listed(source.get("downwardAPI") or {}, "items"):
            _default_field_ref(item.get("fieldRef"))
    if volume.get("hostPath") is not None:
        setdefault(volume["hostPath"], "type", "")


def tolerate_unready_nodes(spec: Obj, seconds: int = 300) -> None:
    """The tolerations every pod gets at creation, unless it has its own for these taints."""
    present = listed(spec, "tolerations")
    added = [
        {"key": name, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}
        for name in (NOT_READY, UNREACHABLE)
        if not _mentions(present, name)
    ]
    if added:
        spec["tolerations"] = [*present, *added]


def _mentions(tolerations: Iterable[Obj], key: str) -> bool:
    return any(
        (not found.get("key") or found["key"] == key)
        and found.get("effect") in (None, "", "NoExecute")
        for found in tolerations
    )
