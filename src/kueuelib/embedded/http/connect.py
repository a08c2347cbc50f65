"""The subresources of pods that a kubelet would answer; containers are only simulated here."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from kueuelib.api.meta import Obj
from kueuelib.embedded import failures
from kueuelib.embedded.builtins.fields import forbidden
from kueuelib.embedded.builtins.rule_table import check
from kueuelib.embedded.http.parameters import Query, flag, number
from kueuelib.embedded.schema import times
from kueuelib.errors import BadRequest

LOG = "log"
METHODS = {
    LOG: ("GET",),
    "attach": ("GET", "POST"),
    "exec": ("GET", "POST"),
    "portforward": ("GET", "POST"),
    "proxy": ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"),
}

_OPTIONS = {
    "attach": ("PodAttachOptions", "stdin stdout stderr tty container"),
    "exec": ("PodExecOptions", "stdin stdout stderr tty container command"),
    "portforward": ("PodPortForwardOptions", "ports"),
    "proxy": ("PodProxyOptions", "path"),
}
_LOG_NUMBERS = ("tailLines", "limitBytes", "sinceSeconds")


def check_log(query: Query, pod: str) -> None:
    """Checks the parameters of a request for a log, before the pod is read.

    Raises:
        BadRequest: one is not a number or a time.
        Invalid: one is out of range, or two contradict each other.
    """
    numbers = {name: number(query, name) for name in _LOG_NUMBERS}
    since = query.get("sinceTime")
    if since not in (None, "", "null") and (why := times.problem(since)):
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


def options_of(subresource: str, query: Any, path: str) -> Obj:
    """The options of a connection, which admission sees; `path` is that of a proxy."""
    kind, names = _OPTIONS[subresource]
    read: Obj = {"container": query.get("container"), "path": path}
    read["command"] = query.getall("command", [])
    read["ports"] = [int(each) for each in query.getall("ports", ()) if each.isdecimal()]
    options = {name: read[name] if name in read else flag(query, name) for name in names.split()}
    given = {name: value for name, value in options.items() if value}
    return {"apiVersion": "v1", "kind": kind, **given}


def connect(request: web.BaseRequest, pod: Obj, subresource: str) -> web.Response:
    """The answer for a pod, whose containers print nothing and accept no commands.

    Raises:
        ApiError: the container does not exist, does not run, or cannot be reached.
    """
    name, spec = pod["metadata"]["name"], pod.get("spec") or {}
    if subresource == LOG:
        container = _container(request.query.get("container", ""), name, spec)
        if not spec.get("nodeName"):
            return web.Response(status=204)
        if (pod.get("status") or {}).get("phase") == "Pending":
            raise BadRequest(
                f'container "{container}" in pod "{name}" is waiting to start: ContainerCreating'
            )
        return web.Response(text="")
    if not spec.get("nodeName"):
        raise BadRequest(f"pod {name} does not have a host assigned")
    raise failures.unexplained(
        "error dialing backend: the containers of this cluster are simulated, nothing runs in them"
    )


def _container(asked: str, pod: str, spec: Obj) -> str:
    names = [
        each["name"]
        for part in ("initContainers", "containers", "ephemeralContainers")
        for each in spec.get(part) or ()
    ]
    if asked:
        if asked not in names:
            raise BadRequest(f"container {asked} is not valid for pod {pod}")
        return asked
    own = [each["name"] for each in spec.get("containers") or ()]
    if len(own) > 1:
        text = f"a container name must be specified for pod {pod}, choose one of: [{' '.join(own)}]"
        raise BadRequest(text)
    return str(own[0])
