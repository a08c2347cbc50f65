"""Capacity: quota beyond the nodes, and nodes beyond the quota."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

import attrs

from kueuelib.api.kueue import ResourceFlavor
from kueuelib.api.meta import Obj
from kueuelib.api.nodes import allocatable, is_of_flavor, is_usable
from kueuelib.api.quantity import amount_of, format_amount
from kueuelib.app.doctor.finding import Finding, Severity, Subject, check
from kueuelib.app.doctor.snapshot import Snapshot
from kueuelib.scheduler.explain.places import CLUSTER_QUEUE, COHORT, Place

NODE = "Node"
QUOTA = ("ClusterQueue", "Cohort", "ResourceFlavor")
_COUNTED = ("cpu", "memory")
"""Resources that matter on every node, besides extended ones."""
_MOST_NAMES = 5


@attrs.frozen(slots=False)
class _Capacity:
    """Nodes and quota, flavor by flavor."""

    snapshot: Snapshot

    @cached_property
    def promised(self) -> Mapping[tuple[str, str], int]:
        """The nominal quota of all ClusterQueues and Cohorts, by flavor and resource.

        Resources that only transformations make are left out: nodes do not have them.
        """
        world = self.snapshot.world
        made_up = world.settings.resources.generated
        places = [
            *(Place(CLUSTER_QUEUE, name) for name in world.cluster_queues),
            *(Place(COHORT, name) for name in world.cohorts),
        ]
        quotas: dict[tuple[str, str], int] = {}
        for place in places:
            for (flavor, resource), quota in place.quotas(world).items():
                if resource in made_up:
                    continue
                amount = amount_of(resource, quota.nominal_quota)
                quotas[flavor, resource] = quotas.get((flavor, resource), 0) + amount
        return quotas

    @cached_property
    def usable(self) -> tuple[Obj, ...]:
        """Nodes that take pods."""
        return tuple(node for node in self.snapshot.all(NODE) if is_usable(node))

    def nodes_of(self, flavor: ResourceFlavor) -> tuple[Obj, ...]:
        """The usable nodes of a flavor."""
        return tuple(node for node in self.usable if is_of_flavor(node, flavor))

    @cached_property
    def offered(self) -> Mapping[str, ResourceFlavor]:
        """The flavors with quota."""
        names = {flavor for flavor, _ in self.promised}
        return {name: one for name, one in self.snapshot.world.flavors.items() if name in names}


def _allocatable(nodes: tuple[Obj, ...]) -> dict[str, int]:
    amounts: dict[str, int] = {}
    for node in nodes:
        for resource, quantity in allocatable(node).items():
            amounts[resource] = amounts.get(resource, 0) + amount_of(resource, quantity)
    return amounts


@check("quota-promised", *QUOTA, NODE)
def promised(snapshot: Snapshot) -> Iterator[Finding]:
    """Flavors whose quota is more than their nodes have: admitted pods stay Pending."""
    capacity = _Capacity(snapshot)
    for name, flavor in sorted(capacity.offered.items()):
        nodes = capacity.nodes_of(flavor)
        there = _allocatable(nodes)
        lacks = [
            f"{format_amount(resource, amount)} of {resource}, and its nodes have "
            f"{format_amount(resource, there.get(resource, 0))}"
            for (each, resource), amount in sorted(capacity.promised.items())
            if each == name and amount > there.get(resource, 0)
        ]
        if lacks:
            unusable = sum(1 for one in snapshot.all(NODE) if not is_usable(one))
            out = f", {unusable} cordoned or not ready" if unusable else ""
            problem = f"quota promises {'; '.join(lacks)} (nodes: {len(nodes)} usable{out})"
            selector = ",".join(f"{key}={value}" for key, value in flavor.spec.node_labels.items())
            labels = f" -l {selector}" if selector else ""
            fix = f"kubectl get nodes{labels}  # add nodes, or lower nominalQuota"
            yield Finding(Severity.WARNING, Subject("ResourceFlavor", name), problem, fix)


@check("capacity-unused", *QUOTA, NODE)
def unused(snapshot: Snapshot) -> Iterator[Finding]:
    """Nodes, and parts of nodes, for which there is no quota."""
    capacity = _Capacity(snapshot)
    if not capacity.offered:
        return
    rules = snapshot.world.settings.resources
    of_node = {
        node["metadata"]["name"]: [
            name for name, flavor in capacity.offered.items() if is_of_flavor(node, flavor)
        ]
        for node in capacity.usable
    }
    for name, flavor in sorted(capacity.offered.items()):
        nodes = capacity.nodes_of(flavor)
        if any(len(of_node[node["metadata"]["name"]]) > 1 for node in nodes):
            continue  # another flavor may offer what this one lacks
        rest = [
            f"{format_amount(resource, amount - capacity.promised.get((name, resource), 0))} of "
            f"{format_amount(resource, amount)} {resource}"
            for resource, amount in sorted(_allocatable(nodes).items())
            if (resource in _COUNTED or "/" in resource)
            and not rules.excludes(resource)
            and amount > capacity.promised.get((name, resource), 0)
        ]
        if rest:
            problem = f"its nodes have more than any queue may use: {', '.join(rest)}"
            fix = "kubectl edit clusterqueue  # raise nominalQuota, or leave it to other pods"
            yield Finding(Severity.HINT, Subject("ResourceFlavor", name), problem, fix)
    alone = sorted(name for name, flavors in of_node.items() if not flavors)
    for name in alone[:_MOST_NAMES]:
        more = f" (and {len(alone) - _MOST_NAMES} more nodes)" if len(alone) > _MOST_NAMES else ""
        problem = f"no flavor with quota has its labels and taints{more}"
        fix = f"kubectl describe node {name}  # label it, or create a ResourceFlavor for it"
        yield Finding(Severity.HINT, Subject(NODE, name), problem, fix)
