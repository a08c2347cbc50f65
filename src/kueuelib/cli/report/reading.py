"""Reads a cluster for a page; sends nothing but GET, LIST and WATCH."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from kueuelib.api.codec import decode
from kueuelib.api.kinds import CLUSTER_QUEUES, RESOURCE_FLAVORS, WORKLOADS
from kueuelib.api.meta import Resource
from kueuelib.app.configuration import Configuration
from kueuelib.app.decision_settings import engine_settings
from kueuelib.app.explaining.gather import Decode, Lists, decisive, insist_on_namespace, list_nodes
from kueuelib.app.explaining.nodes import PLACING, names_topology
from kueuelib.app.explaining.waiting import list_near
from kueuelib.app.overview.gathering import ListedFacts, facts_of
from kueuelib.app.running_configuration import running_configuration
from kueuelib.errors import KueuelibError
from kueuelib.runtime.client import Client
from kueuelib.scheduler.settings import Settings
from kueuelib.workload.served import queueing_version

_SHOWN = (CLUSTER_QUEUES, WORKLOADS)


@attrs.frozen
class Read:
    """What the caller may read.

    Attributes:
        near: the listed objects.
        unseen: the kinds that may not be listed in the whole cluster.
        resources: all requested kinds.
        settings: the manager's settings for decisions.
        version: of the queueing API.
        notes: where the settings are from.
        source: the name of the cluster, its address, and a namespace if only that was read.
    """

    near: Lists
    unseen: tuple[Resource, ...]
    resources: Sequence[Resource]
    settings: Settings
    version: str
    notes: tuple[str, ...]
    source: tuple[str, ...]

    def needs_places(self, lists: Lists) -> bool:
        """Whether nodes, Topologies and the pods on nodes have to be read, too.

        Args:
            lists: later lists of the same kinds.
        """
        return self.settings.places_pods and names_topology(lists.of(RESOURCE_FLAVORS.kind))

    def facts(self, lists: Lists, now: float, decoder: Decode = decode) -> ListedFacts:
        """The facts in later lists of the same kinds.

        Args:
            lists: what was listed.
            now: when that was, in seconds since the epoch.
            decoder: makes values of raw objects.
        """
        facts = facts_of(lists, self.unseen, self.settings, now, decoder)
        notes = (*facts.cluster.notes, *self.notes)
        cluster = attrs.evolve(facts.cluster, notes=notes)
        return attrs.evolve(facts, cluster=cluster, source=self.source)


async def read(client: Client, namespace: str, given: Configuration | None = None) -> Read:
    """Lists the kinds that decisions depend on.

    Args:
        client: whose cluster.
        namespace: where to list kinds that may not be listed in the whole cluster; empty for
            nowhere.
        given: the manager's configuration; found in the cluster when None.

    Raises:
        ConfigError: the cluster does not serve the queueing API, or none of these kinds.
        ObjectNotFound: there is no such namespace.
        KueuelibError: there is nothing to show, or the server did not answer.
    """
    version = await queueing_version(client)
    resources = decisive(version)
    near, unseen = await list_near(client, resources, namespace)
    insist_on_namespace(namespace, near)
    if not any(one.kind in near.objects for one in _SHOWN):
        near.insist_on_kinds([one.kind for one in _SHOWN])
        near.insist_on_versions(_SHOWN)
        why = "; ".join(str(near.refused[one.kind]) for one in _SHOWN)
        fix = "ask for the right to list one of them"
        if not namespace:
            fix += ", or name a namespace with -n"
        raise KueuelibError(f"neither ClusterQueues nor Workloads may be listed: {why}; {fix}")
    running = await running_configuration(client, given)
    endpoint = await client.transport.endpoint()
    scope = f"namespace {namespace}" if unseen and namespace else ""
    source = tuple(filter(None, (endpoint.context, endpoint.url, scope)))
    settings = engine_settings(running.configuration)
    seen = Read(near, unseen, resources, settings, version, running.notes, source)
    return await with_places(client, seen, near) if seen.needs_places(near) else seen


async def with_places(client: Client, seen: Read, lists: Lists) -> Read:
    """Adds nodes, Topologies and the pods on nodes, as far as the caller may list them.

    Args:
        client: reads them from the cluster.
        seen: what has been read before.
        lists: the listed objects; a ResourceFlavor among them names a Topology.

    Raises:
        KueuelibError: the server did not answer.
    """
    near = await list_nodes(client, lists, seen.version, seen.settings)
    more = tuple(one for one in PLACING if one.kind in near.objects)
    return attrs.evolve(seen, near=near, resources=(*seen.resources, *more))
