"""What is asked of the kubelet of a pod's node, or of a server in the pod, and where they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import urlencode

import attrs

from kueuelib.api.meta import Obj, is_true, labels_of
from kueuelib.embedded import failures
from kueuelib.embedded.builtins.fields import forbidden, listed, section
from kueuelib.embedded.builtins.network_rules import target_of
from kueuelib.embedded.builtins.rule_table import check
from kueuelib.embedded.http.requests import Query, flag, number
from kueuelib.embedded.schema.formats import problem
from kueuelib.errors import BadRequest, Unavailable

LOG: Final = "log"
PROXY: Final = "proxy"
METHODS: Final[Mapping[str, tuple[str, ...]]] = {
    LOG: ("GET",),
    "attach": ("GET", "POST"),
    "exec": ("GET", "POST"),
    "portforward": ("GET", "POST"),
    PROXY: ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"),
}
"""The subresources of pods that are not stored, and their methods; nodes and Services have the
last one.
"""
_OPTIONS: Final = {
    "attach": ("PodAttachOptions", "stdin stdout stderr tty container"),
    "exec": ("PodExecOptions", "stdin stdout stderr tty container command"),
    "portforward": ("PodPortForwardOptions", "ports"),
    PROXY: ("PodProxyOptions", "path"),
}
_LOG_NUMBERS: Final = ("tailLines", "limitBytes", "sinceSeconds")
_LOG_FLAGS: Final = ("follow", "previous", "timestamps")
_STREAM_FLAGS: Final = {"stdin": "input", "stdout": "output", "stderr": "error", "tty": "tty"}
"""The parameters of a kubelet, by those of the API."""
ADDRESS_TYPES: Final = ("InternalIP", "ExternalIP", "Hostname", "InternalDNS", "ExternalDNS")
"""The addresses of a node in the order of preference, addresses before names, as kubeadm has it."""


# ---- options -------------------------------------------------------------------------------------


def check_log(query: Query, pod: str) -> None:
    """Checks the parameters of a request for a log, before the pod is read.

    Raises:
        BadRequest: one is not a number or a time.
        Invalid: one is out of range, or two contradict each other.
    """
    numbers = {name: number(query, name) for name in _LOG_NUMBERS}
    since = query.get("sinceTime")
    if since not in (None, "", "null") and (why := problem(since)):
        raise BadRequest(why)
    both = since is not None and numbers.pop("sinceSeconds") is not None
    errors = check("PodLogOptions", numbers, "")
    if both:
        text = "at most one of `sinceTime` or `sinceSeconds` may be specified"
        errors.append(forbidden("[]", text))
    if "stream" in query:
        errors.append(forbidden("stream", "may not be specified"))
    if errors:
        raise failures.invalid_named("PodLogOptions", "", pod, errors)


def options_of(subresource: str, query: Any, path: str, kind: str = "Pod") -> Obj:
    """The options of a connection, which admission sees; `path` is that of a proxy."""
    name, names = _OPTIONS[subresource]
    read: Obj = {"container": query.get("container"), "path": path}
    read["command"] = query.getall("command", [])
    ports = ",".join(query.getall("ports", ())).split(",")
    read["ports"] = [int(each) for each in ports if each.isdecimal()]
    options = {each: read[each] if each in read else flag(query, each) for each in names.split()}
    given = {each: value for each, value in options.items() if value}
    return {"apiVersion": "v1", "kind": name.replace("Pod", kind, 1), **given}


def container_of(asked: str, pod: Obj) -> str:
    """The name of the container that is meant.

    Raises:
        BadRequest: the pod does not have it, or has several and none is named.
    """
    name, spec = pod["metadata"]["name"], section(pod, "spec")
    names = [
        each["name"]
        for part in ("initContainers", "containers", "ephemeralContainers")
        for each in listed(spec, part)
    ]
    if asked:
        if asked not in names:
            raise BadRequest(f"container {asked} is not valid for pod {name}")
        return asked
    own = [each["name"] for each in listed(spec, "containers")]
    if len(own) > 1:
        text = f"a container name must be specified for pod {name}, choose one of: "
        raise BadRequest(f"{text}[{' '.join(names)}]")
    return str(own[0])


# ---- where to ask --------------------------------------------------------------------------------


@attrs.frozen
class Backend:
    """A server that answers in place of this one.

    Attributes:
        name: for errors, for example `node a`.
        scheme: `http` or `https`; a kubelet has the latter.
        host: a name or an address.
        port: its port.
        identified: whether this server shows its certificate, as kubelets want it.
    """

    name: str
    scheme: str
    host: str
    port: int
    identified: bool = False

    @property
    def authority(self) -> str:
        """Host and port in a URL."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.name} at {self.authority}"


def kubelet_of(node: Obj | None) -> Backend | None:
    """The kubelet of a node; None if the node does not say where it listens."""
    if node is None:
        return None
    status = section(node, "status")
    port = section(status, "daemonEndpoints", "kubeletEndpoint").get("Port")
    given: Obj = {}
    for each in listed(status, "addresses"):
        given.setdefault(each["type"], each["address"])
    hosts = [given[type_] for type_ in ADDRESS_TYPES if given.get(type_)]
    if not port or not hosts:
        return None
    return Backend(f"node {node['metadata']['name']}", "https", hosts[0], port, identified=True)


def reachable(kubelet: Backend | None, port: str = "") -> Backend:
    """The same kubelet.

    Args:
        kubelet: of a node.
        port: that it must have; empty for any.

    Raises:
        BadRequest: it has another port.
        ApiError: there is none; the code is that of kube-apiserver for one that it cannot reach.
    """
    if kubelet is None:
        raise failures.unexplained(
            "error dialing backend: the node has no kubelet: its containers are simulated, so "
            "nothing runs in them"
        )
    if port not in ("", str(kubelet.port)):
        raise BadRequest("address not allowed")
    return kubelet


def split_name(name: str, kind: str) -> tuple[str, str, str]:
    """Scheme, name and port of `name`, `name:port` or `scheme:name:port`; the port may be empty.

    Raises:
        BadRequest: it has another form.
    """
    parts = name.split(":")
    if len(parts) < 3:
        parts = ["http", *parts, ""][:3]
    if len(parts) != 3 or parts[0] not in ("", "http", "https") or not parts[1]:
        raise BadRequest(f'invalid {kind.lower()} request "{name}"')
    return parts[0] or "http", parts[1], parts[2]


def server_in(pod: Obj, scheme: str, port: str) -> Backend:
    """The server in a pod that listens on a port, by default the first that its containers name.

    Raises:
        BadRequest: the pod has no address on loopback, which is all that is reached without a
            cluster network, or there is no such port.
    """
    host = section(pod, "status").get("podIP") or ""
    named = [
        one["containerPort"] for each in pod["spec"]["containers"] for one in listed(each, "ports")
    ]
    asked = port or str((*named, 443 if scheme == "https" else 80)[0])
    if not (host.startswith("127.") or host == "::1") or not asked.isdecimal():
        raise BadRequest("address not allowed")
    return Backend(f"pod {pod['metadata']['name']}", scheme, host, int(asked))


def pod_behind(service: Obj, port: str, pods: Iterable[Obj]) -> tuple[Obj, str]:
    """The oldest ready pod of a Service, and the port that reaches the Service there.

    Not by Endpoints, which have no addresses on loopback.

    Args:
        service: whose proxy is asked for.
        port: its number or its name; empty for the one without a name.
        pods: of the namespace.

    Raises:
        Unavailable: there is no such port, or no pod is ready.
    """
    name, spec = service["metadata"]["name"], section(service, "spec")
    ports, selector = listed(spec, "ports"), section(spec, "selector").items()
    field = "port" if port.isdecimal() else "name"
    asked = next((one for one in ports if str(one.get(field) or "") == port), None)
    if asked is None and port.isdecimal():
        raise Unavailable(f'no service port {port} found for service "{name}"')
    ready = [
        (pod["metadata"]["creationTimestamp"], pod["metadata"]["name"], pod, number)
        for pod in pods
        if selector and asked and selector <= labels_of(pod).items() and is_true(pod, "Ready")
        if (number := target_of(asked, pod)) is not None
    ]
    if not ready:
        raise Unavailable(f'no endpoints available for service "{name}"')
    *_, pod, number = min(ready, key=lambda one: one[:2])
    return pod, str(number)


# ---- what to ask ---------------------------------------------------------------------------------


def log_target(pod: Obj, container: str, query: Query) -> str:
    """The path and the query of a container's log."""
    asked = {name: "true" for name in _LOG_FLAGS if flag(query, name)}
    values = {name: query.get(name) for name in (*_LOG_NUMBERS, "sinceTime")}
    asked |= {name: value for name, value in values.items() if value not in (None, "", "null")}
    return _target("containerLogs", pod, container, list(asked.items()))


def stream_target(pod: Obj, subresource: str, options: Obj) -> str:
    """The path and the query of `exec`, `attach` or `portforward`."""
    if subresource == "portforward":
        ports = ",".join(map(str, options.get("ports") or ()))
        return _target("portForward", pod, "", [("port", ports)] if ports else [])
    asked = [(given, "1") for name, given in _STREAM_FLAGS.items() if options.get(name)]
    asked += [("command", each) for each in options.get("command", ())]
    return _target(subresource, pod, options["container"], asked)


def proxied(raw_path: str, *, namespaced: bool) -> tuple[str, str]:
    """The path of a proxy, and what is handed on: the rest of the path, with the query.

    Args:
        raw_path: of the request, with its query.
        namespaced: whether it is a proxy of a pod, and not of a node.

    Returns:
        The second is empty if nothing follows the first.
    """
    path, mark, query = raw_path.partition("?")
    size = 8 if namespaced else 6
    parts = path.split("/", size)
    return "/".join(parts[:size]), f"/{parts[size]}{mark}{query}" if len(parts) > size else ""


def _target(root: str, pod: Obj, container: str, query: list[tuple[str, Any]]) -> str:
    meta = pod["metadata"]
    path = "/".join(filter(None, (root, meta["namespace"], meta["name"], container)))
    return f"/{path}?{urlencode(query)}" if query else f"/{path}"
