"""HTTP exchanges on the in-memory wire, as the adversary sees them."""

from __future__ import annotations

import attrs

__all__ = ["Call"]


@attrs.frozen
class Call:
    """One complete HTTP request, seen on the wire before the server receives it.

    Attributes:
        owner: The simulated process that sent it, for example `manager-1`.
        peer: The process that receives it: `server`, or `webhook@manager-1`.
        method: The HTTP method, in upper case.
        path: The decoded path of the URL.
        query: The raw query string, without the question mark.
        verb: The Kubernetes verb (get list watch create update patch apply delete
            deletecollection), or `webhook`.
        resource: The resource with its group, for example `workloads.kueue.x-k8s.io`.
        namespace: The namespace, or an empty string.
        name: The name of the object, or an empty string.
        subresource: The subresource, or an empty string.
        ordinal: How many earlier calls had the same owner, verb, resource, namespace, name and
            subresource.
        body: The bytes of the request's body.
    """

    owner: str
    peer: str
    method: str
    path: str
    query: str
    verb: str
    resource: str
    namespace: str
    name: str
    subresource: str
    ordinal: int
    body: bytes = b""
