"""Amounts, declared quota, and trees of Cohorts with their usage.

Everything is computed recursively from the declared quota. Amounts of a node whose parents form a
cycle are undefined: check `endless` first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any

import attrs

from kueuelib.testing.storm.history import Obj
from kueuelib.testing.storm.laws.reading import name, queue_of, reserving, spec

# Amounts of resources, computed without the product: quantities, pods, pod sets, admissions.

Amounts = dict[str, Fraction]
"""Amount by resource name."""

Usage = dict[tuple[str, str], Fraction]
"""Amount by flavor and resource name."""

ZERO = Fraction(0)

_SUFFIXES = {
    **{suffix: Fraction(1024) ** power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti"), 1)},
    **{suffix: Fraction(1000) ** power for power, suffix in enumerate(("k", "M", "G", "T"), 1)},
    "m": Fraction(1, 1000),
    "u": Fraction(1, 1_000_000),
    "n": Fraction(1, 1_000_000_000),
}


def quantity(text: Any) -> Fraction:
    """The number of a Kubernetes quantity.

    Raises:
        ValueError: it is not a quantity.
    """
    written = str(text).strip()
    for suffix, factor in _SUFFIXES.items():
        if written.endswith(suffix):
            return Fraction(written[: -len(suffix)]) * factor
    return Fraction(written)


def add(total: dict[Any, Fraction], more: Mapping[Any, Fraction], factor: int = 1) -> None:
    """Adds amounts to a total in place."""
    for key, amount in more.items():
        total[key] = total.get(key, ZERO) + amount * factor


def _of_containers(containers: Iterable[Obj]) -> Iterable[Amounts]:
    for container in containers:
        resources = container.get("resources") or {}
        asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
        yield {name: quantity(amount) for name, amount in asked.items()}


def pod_request(spec: Obj) -> Amounts:
    """The request of one pod; init containers and overhead are counted as in Kubernetes.

    Sidecars and pod-level requests are not supported here; see `is_simple`.
    """
    total: Amounts = {}
    for asked in _of_containers(spec.get("containers") or ()):
        add(total, asked)
    for asked in _of_containers(spec.get("initContainers") or ()):
        for resource, amount in asked.items():
            total[resource] = max(total.get(resource, ZERO), amount)
    add(total, {name: quantity(amount) for name, amount in (spec.get("overhead") or {}).items()})
    return total


def is_simple(spec: Obj) -> bool:
    """Whether `pod_request` is exact and no flavor can be ruled out by the pod itself."""
    sidecars = any(one.get("restartPolicy") for one in spec.get("initContainers") or ())
    placed = spec.get("nodeSelector") or spec.get("affinity") or spec.get("runtimeClassName")
    return not sidecars and not placed and not spec.get("resources")


def reclaimed(workload: Obj) -> dict[str, int]:
    """How many pods of each pod set are done and no longer need quota."""
    entries = (workload.get("status") or {}).get("reclaimablePods") or ()
    return {entry["name"]: int(entry["count"]) for entry in entries}


def usage_of(workload: Obj) -> Usage:
    """The quota in the stored admission of a Workload, by flavor and resource."""
    status = workload.get("status") or {}
    done = reclaimed(workload)
    counts = {one["name"]: int(one.get("count", 1)) for one in workload["spec"]["podSets"]}
    total: Usage = {}
    for entry in (status.get("admission") or {}).get("podSetAssignments") or ():
        name = entry["name"]
        count = int(entry.get("count", counts.get(name, 1)))
        # A readmitted Workload is admitted only for what was left of it.
        left = min(count, max(0, counts.get(name, count) - done.get(name, 0)))
        share = Fraction(left, count) if count else ZERO
        for resource, amount in (entry.get("resourceUsage") or {}).items():
            flavor = (entry.get("flavors") or {}).get(resource, "")
            add(total, {(flavor, resource): quantity(amount) * share})
    return total


# ---- the declared quota of ClusterQueues and Cohorts, and the usage by Workloads -----------------

Pair = tuple[str, str]
"""Flavor and resource."""


@attrs.frozen
class Quota:
    """The own quota of a node for one flavor and resource; None: without a limit."""

    nominal: Fraction
    borrowing: Fraction | None
    lending: Fraction | None


NOTHING = Quota(ZERO, None, None)


@attrs.frozen
class NodeQuota:
    """The quota of a ClusterQueue or a Cohort.

    Attributes:
        name: its name.
        parent: the Cohort that it names; empty if there is none.
        quotas: its own.
        weight: of its share.
        inner: whether it is a Cohort.
    """

    name: str
    parent: str
    quotas: Mapping[Pair, Quota]
    weight: Fraction = Fraction(1)
    inner: bool = False

    def quota(self, pair: Pair) -> Quota:
        """Its quota of a pair; zero if it has none."""
        return self.quotas.get(pair, NOTHING)


def queue_of_raw(raw: Obj) -> NodeQuota:
    """Reads a ClusterQueue."""
    return _node(raw, str(spec(raw).get("cohortName") or ""), inner=False)


def cohort_of_raw(raw: Obj) -> NodeQuota:
    """Reads a Cohort."""
    return _node(raw, str(spec(raw).get("parentName") or ""), inner=True)


def _node(raw: Obj, parent: str, *, inner: bool) -> NodeQuota:
    quotas: dict[Pair, Quota] = {}
    for group in spec(raw).get("resourceGroups") or ():
        for flavor in group.get("flavors") or ():
            for resource in flavor.get("resources") or ():
                limits = (resource.get("borrowingLimit"), resource.get("lendingLimit"))
                borrowing, lending = (None if one is None else quantity(one) for one in limits)
                nominal = quantity(resource.get("nominalQuota", 0))
                quotas[flavor["name"], resource["name"]] = Quota(nominal, borrowing, lending)
    weight = (spec(raw).get("fairSharing") or {}).get("weight")
    return NodeQuota(
        name(raw), parent, quotas, Fraction(1 if weight is None else quantity(weight)), inner
    )


def usage_by_queue(workloads: Iterable[Obj]) -> dict[str, Usage]:
    """The usage of all Workloads that hold quota, by ClusterQueue."""
    usages: dict[str, Usage] = {}
    for workload in workloads:
        if reserving(workload):
            add(usages.setdefault(queue_of(workload), {}), usage_of(workload))
    return usages


# --------------------------------------------------------------------------------------------------


@attrs.frozen
class QuotaLedger:
    """All ClusterQueues, Cohorts, and their usage.

    Attributes:
        queues: by name.
        usage: by name of a ClusterQueue.
        cohorts: the Cohorts that have an object, by name.
    """

    queues: Mapping[str, NodeQuota]
    usage: Mapping[str, Usage]
    cohorts: Mapping[str, NodeQuota] = attrs.field(factory=dict)

    # ---- where Workloads are

    def above(self, node: NodeQuota) -> NodeQuota | None:
        """The Cohort above a node; one without an object has no quota and no parent."""
        if not node.parent:
            return None
        return self.cohorts.get(node.parent) or NodeQuota(node.parent, "", {}, inner=True)

    def chain(self, node: NodeQuota) -> list[NodeQuota]:
        """The Cohorts above a node, the nearest first; it ends where a cycle closes."""
        cohorts: list[NodeQuota] = []
        here = self.above(node)
        while here is not None and here not in cohorts:
            cohorts.append(here)
            here = self.above(here)
        return cohorts

    def endless(self, node: NodeQuota) -> bool:
        """Whether the parents of a node end in a cycle."""
        return self.above([node, *self.chain(node)][-1]) is not None

    def members(self, queue: NodeQuota) -> list[NodeQuota]:
        """The ClusterQueues of its tree, itself among them."""
        here = {cohort.name for cohort in self.chain(queue)}
        return [
            one
            for one in self.queues.values()
            if one.name == queue.name or here & {cohort.name for cohort in self.chain(one)}
        ]

    def _below(self, cohort: NodeQuota) -> Iterator[NodeQuota]:
        for one in (*self.queues.values(), *self.cohorts.values()):
            if one.parent == cohort.name:
                yield one

    def pairs(self, node: NodeQuota) -> set[Pair]:
        """The pairs for which a node, or any node below it, declares quota."""
        below = self._below(node) if node.inner else ()
        return set(node.quotas).union(*(self.pairs(child) for child in below))

    # ---- amounts

    def used(self, node: NodeQuota, pair: Pair) -> Fraction:
        """The usage of a ClusterQueue, or the amount that a Cohort has to provide to those
        below it.
        """
        if not node.inner:
            return self.usage.get(node.name, {}).get(pair, ZERO)
        children = self._below(node)
        return sum((self._asked(child, pair) for child in children), start=ZERO)

    def owned(self, node: NodeQuota, pair: Pair) -> Fraction:
        """The quota of a node, with what those below a Cohort lend to it."""
        total = node.quota(pair).nominal
        for child in self._below(node) if node.inner else ():
            total += self.owned(child, pair) - self._kept(child, pair)
        return total

    def _kept(self, node: NodeQuota, pair: Pair) -> Fraction:
        """The part that a node never lends."""
        lending = node.quota(pair).lending
        return ZERO if lending is None else max(ZERO, self.owned(node, pair) - lending)

    def _asked(self, node: NodeQuota, pair: Pair) -> Fraction:
        """What a node uses of its parent: everything beyond its own guaranteed part."""
        return max(ZERO, self.used(node, pair) - self._kept(node, pair))

    def free(self, node: NodeQuota, pair: Pair) -> Fraction:
        """How much of a pair a node can still use; negative if it, or a Cohort above, uses too
        much.
        """
        if not node.inner and pair not in node.quotas:
            return -self.used(node, pair)
        owned, used, parent = self.owned(node, pair), self.used(node, pair), self.above(node)
        if parent is None:
            return owned - used
        kept, left, limit = (
            self._kept(node, pair),
            self.free(parent, pair),
            node.quota(pair).borrowing,
        )
        if limit is not None:
            left = min(left, owned - kept + limit - self._asked(node, pair))
        return max(ZERO, kept - used) + left

    def largest(self, node: NodeQuota, pair: Pair) -> Fraction:
        """How much a node could use if nothing were used."""
        return attrs.evolve(self, usage={}).free(node, pair)

    def excess(self, queue: NodeQuota, pairs: Iterable[Pair]) -> Iterator[str]:
        """The pairs that a ClusterQueue overuses."""
        for pair in sorted(pairs):
            left = self.free(queue, pair)
            if left < 0:
                flavor, resource = pair
                used = float(self.used(queue, pair))
                yield (
                    f"{resource} in flavor {flavor}: ClusterQueue {queue.name} uses {used:g}, "
                    f"{float(-left):g} more than there is"
                )

    # ---- shares

    def share(self, node: NodeQuota) -> Fraction | None:
        """The share that a node has borrowed of what its parent could lend, in thousandths.

        Divided by the weight of the node; None for a node of weight 0 that borrows.
        """
        parent = self.above(node)
        if parent is None:
            return ZERO
        borrowed: dict[str, Fraction] = defaultdict(Fraction)
        for pair in self.pairs(node):
            borrowed[pair[1]] += max(ZERO, self.used(node, pair) - self.owned(node, pair))
        there: dict[str, Fraction] = defaultdict(Fraction)
        for pair in self.pairs(self.chain(node)[-1]):
            there[pair[1]] += self.largest(parent, pair)
        ratios = [
            amount * 1000 / there[resource]
            for resource, amount in borrowed.items()
            if there[resource] > 0
        ]
        ratio = max(ratios, default=ZERO)
        if not node.weight:
            return None if ratio else ZERO
        return ratio / node.weight
