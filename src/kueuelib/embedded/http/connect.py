"""The subresources of pods that a kubelet would answer: the containers here are played, not run."""

from __future__ import annotations

from aiohttp import web

from kueuelib.api.meta import Obj
from kueuelib.errors import ApiError, BadRequest

LOG = "log"
METHODS = {
    LOG: ("GET",),
    "attach": ("GET", "POST"),
    "exec": ("GET", "POST"),
    "portforward": ("GET", "POST"),
    "proxy": ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"),
}


def connect(request: web.BaseRequest, pod: Obj, subresource: str) -> web.Response:
    """The answer about a pod: its containers print nothing and take no commands.

    Raises:
        ApiError: there is no such container, it does not run, or it cannot be reached.
    """
    name, spec = pod["metadata"]["name"], pod.get("spec") or {}
    if subresource == LOG:
        container = _container(request.query.get("container", ""), name, spec)
        if not spec.get("nodeName"):
            return web.Response(text="")
        if (pod.get("status") or {}).get("phase") == "Pending":
            raise BadRequest(
                f'container "{container}" in pod "{name}" is waiting to start: ContainerCreating'
            )
        return web.Response(text="")
    if not spec.get("nodeName"):
        raise BadRequest(f"pod {name} does not have a host assigned")
    raise ApiError(
        "error dialing backend: the containers of this cluster are simulated, nothing runs in them",
        code=500,
        reason="",
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
