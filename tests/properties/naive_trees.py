"""The trees of ClusterQueues and Cohorts as nodes of the naive model of quota."""

from __future__ import annotations

from collections.abc import Mapping

from quota_model import Node

from kueuelib.api.kueue import ClusterQueue, Cohort, ResourceGroup
from kueuelib.scheduler.quota.amounts import FlavorResource

MILLI = 1000
"""Units of cpu."""


def naive_trees(
    queues: Mapping[str, ClusterQueue],
    cohorts: Mapping[str, Cohort],
    used: Mapping[tuple[str, FlavorResource], int],
) -> dict[str, Node]:
    """The node of every ClusterQueue, with all cohorts above; below a cycle there are none.

    Args:
        queues: the ClusterQueues.
        cohorts: the Cohorts.
        used: what the workloads of each ClusterQueue use.
    """
    above = {name: each.spec.parent_name for name, each in cohorts.items()}
    nodes = {name: _node(name, each.spec.resource_groups) for name, each in cohorts.items()}
    for name, parent in above.items():
        if parent:
            nodes[name].parent = nodes.setdefault(parent, Node(parent, is_queue=False))
    for cut in [node for node in nodes.values() if node.cyclic]:
        cut.parent = None
    leaves = {}
    for name, queue in queues.items():
        leaf = leaves[name] = _node(name, queue.spec.resource_groups)
        leaf.is_queue = True
        cohort = queue.spec.cohort_name
        if cohort:
            leaf.parent = nodes.setdefault(cohort, Node(cohort, is_queue=False))
    for node in (*nodes.values(), *leaves.values()):
        if node.parent is not None:
            node.parent.children.append(node)
    for (name, pair), amount in used.items():
        if name in leaves:
            leaves[name].add({tuple(pair): amount})
    return leaves


def _node(name: str, groups: tuple[ResourceGroup, ...]) -> Node:
    node = Node(name, is_queue=False)
    for group in groups:
        for flavor in group.flavors:
            for quota in flavor.resources:
                x = (flavor.name, quota.name)
                unit = MILLI if quota.name == "cpu" else 1
                node.nominal[x] = quota.nominal_quota.value() * unit
                if quota.borrowing_limit is not None:
                    node.borrowing[x] = quota.borrowing_limit.value() * unit
                if quota.lending_limit is not None:
                    node.lending[x] = quota.lending_limit.value() * unit
    return node
