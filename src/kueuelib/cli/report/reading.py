"""Reads a cluster for a page; sends nothing but GET, LIST and WATCH."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from kueuelib.api.meta import Resource
from kueuelib.app.explaining.existing import insist_on_namespace
from kueuelib.app.explaining.gather import Lists, decisive
from kueuelib.app.explaining.waiting import list_near
from kueuelib.errors import KueuelibError
from kueuelib.runtime.client import Client
from kueuelib.workload.served import queueing_version

_SHOWN = ("ClusterQueue", "Workload")


@attrs.frozen
class Read:
    """What the caller may read.

    Attributes:
        near: the listed objects.
        unseen: the kinds that may not be listed in the whole cluster.
        resources: all requested kinds.
    """

    near: Lists
    unseen: tuple[Resource, ...]
    resources: Sequence[Resource]


async def read(client: Client, namespace: str) -> Read:
    """Lists the kinds that decisions depend on.

    Args:
        client: whose cluster.
        namespace: where to list kinds that may not be listed in the whole cluster; empty for
            nowhere.

    Raises:
        ConfigError: the cluster does not serve the queueing API, or none of these kinds.
        ObjectNotFound: there is no such namespace.
        KueuelibError: there is nothing to show, or the server did not answer.
    """
    resources = decisive(await queueing_version(client))
    near, unseen = await list_near(client, resources, namespace)
    insist_on_namespace(namespace, near)
    if not any(kind in near.objects for kind in _SHOWN):
        near.insist_on_kinds(_SHOWN)
        why = "; ".join(str(near.refused[kind]) for kind in _SHOWN)
        fix = "ask for the right to list one of them"
        if not namespace:
            fix += ", or name a namespace with -n"
        raise KueuelibError(f"neither ClusterQueues nor Workloads may be listed: {why}; {fix}")
    return Read(near, unseen, resources)
