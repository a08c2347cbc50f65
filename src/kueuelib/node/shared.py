"""What all pods of a node share: the server, the images, the sandbox."""

from __future__ import annotations

import ssl
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from kueuelib.api.kinds import PODS, SERVICE_ACCOUNTS
from kueuelib.api.meta import Obj, ObjectKey, key_of, parse_time
from kueuelib.errors import NotFound
from kueuelib.node.environment import (
    ContainerConfigError,
    Surroundings,
    object_refs,
    token_requests,
)
from kueuelib.node.pod_fields import NodeAbilities
from kueuelib.node.sandbox import ImageFolder
from kueuelib.node.services import ServicePlace, links_of, names_of
from kueuelib.runtime.client import Client
from kueuelib.runtime.events import EventSink
from kueuelib.runtime.logs import get_logger
from kueuelib.runtime.queries import PatchType

_RENEWED: float = 0.8
"""The part of its lifetime after which a token is replaced."""


@attrs.define(eq=False, slots=False)
class NodeShared:
    """What all pods of a node share.

    Attributes:
        client: the API.
        events: reports on pods.
        folder: of the node.
        images: the allowed images.
        abilities: what it can do.
        bwrap: the program of the sandbox; None: without.
        address: of the node.
        allocatable: what its pods may request together.
        authority: the certificates of the API server, PEM.
        server: host and port of the API server.
        stopping: whether the node stops.
        places: where Services are.
    """

    client: Client
    events: EventSink
    folder: Path
    images: Sequence[ImageFolder]
    abilities: NodeAbilities
    bwrap: str | None
    address: str
    allocatable: Mapping[str, str]
    authority: str
    server: tuple[str, int]
    stopping: bool = False
    places: Sequence[ServicePlace] = ()

    def __attrs_post_init__(self) -> None:
        self.log = get_logger("node")
        self._tokens: dict[str, dict[tuple[str, int], tuple[str, float]]] = {}

    def image(self, name: str) -> ImageFolder | None:
        """The folders of an image, if it is allowed."""
        return next((each for each in self.images if each.includes(name)), None)

    async def write_status(self, pod: Obj, status: Mapping[str, Any]) -> Obj:
        """Writes the status of a pod, unless it has changed meanwhile."""
        meta = pod["metadata"]
        guard = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
        patch = {"metadata": guard, "status": dict(status)}
        key = key_of(pod)
        return await self.client.patch(PODS, key, patch, PatchType.MERGE, subresource="status")

    async def remove(self, pod: Obj) -> None:
        """Removes a pod that has ended from the server."""
        try:
            await self.client.delete(PODS, key_of(pod), uid=pod["metadata"]["uid"], grace_period=0)
        except NotFound:
            return

    async def gather(self, pod: Obj, address: str) -> Surroundings:
        """Reads what the specification of a pod refers to.

        Raises:
            ContainerConfigError: the service account does not exist.
            ApiError: something cannot be read.
            TransportError: the same.
        """
        namespace = pod["metadata"]["namespace"]
        objects = {}
        for resource, name in object_refs(pod):
            try:
                objects[resource, name] = await self.client.get(
                    resource, ObjectKey(namespace, name)
                )
            except NotFound:
                continue
        linked = pod["spec"].get("enableServiceLinks") is not False
        links = links_of(self.places, namespace) if linked else {}
        addressed = {"podIP": address, "hostIP": self.address}
        return Surroundings(
            pod={**pod, "status": {**(pod.get("status") or {}), **addressed}},
            objects=objects,
            allocatable=self.allocatable,
            services={**self._api_variables(), **links},
            hosts=names_of(self.places, namespace),
            tokens=await self._all_tokens(pod),
            authority=self.authority,
        )

    def _api_variables(self) -> dict[str, str]:
        host, port = self.server
        url = f"tcp://{host}:{port}"
        prefix = f"KUBERNETES_PORT_{port}_TCP"
        return {
            "KUBERNETES_SERVICE_HOST": host,
            "KUBERNETES_SERVICE_PORT": str(port),
            "KUBERNETES_SERVICE_PORT_HTTPS": str(port),
            "KUBERNETES_PORT": url,
            prefix: url,
            f"{prefix}_PROTO": "tcp",
            f"{prefix}_PORT": str(port),
            f"{prefix}_ADDR": host,
        }

    async def _all_tokens(self, pod: Obj) -> dict[tuple[str, int], str]:
        known = self._tokens.setdefault(pod["metadata"]["uid"], {})
        for audience, seconds in token_requests(pod):
            if known.get((audience, seconds), ("", 0.0))[1] <= time.time():
                known[audience, seconds] = await self._token(pod, audience, seconds)
        return {asked: token for asked, (token, _) in known.items()}

    async def _token(self, pod: Obj, audience: str, seconds: int) -> tuple[str, float]:
        """A token, and when to replace it."""
        meta, account = pod["metadata"], pod["spec"].get("serviceAccountName") or "default"
        bound = {"kind": "Pod", "apiVersion": "v1", "name": meta["name"], "uid": meta["uid"]}
        spec = {"expirationSeconds": seconds, "boundObjectRef": bound}
        if audience:
            spec["audiences"] = [audience]
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "metadata": {"namespace": meta["namespace"]},
            "spec": spec,
        }
        begun = time.time()
        try:
            answer = await self.client.create(
                SERVICE_ACCOUNTS, request, subresource="token", name=account
            )
        except NotFound as error:
            raise ContainerConfigError(f'serviceaccount "{account}" not trusted') from error
        status = answer["status"]
        life = parse_time(status["expirationTimestamp"]) - begun
        return status["token"], begun + _RENEWED * life

    def forget(self, uid: str) -> None:
        """Forgets the tokens of a pod."""
        self._tokens.pop(uid, None)


def authority_of(tls: ssl.SSLContext | None) -> str:
    """The certificates that a client trusts, PEM."""
    trusted = [] if tls is None else tls.get_ca_certs(binary_form=True)
    return "".join(ssl.DER_cert_to_PEM_cert(each) for each in trusted)
