"""The declared quota of ClusterQueues and Cohorts, and the usage by Workloads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction

import attrs

from kueuelib.testing.storm.history import Obj
from kueuelib.testing.storm.laws.amounts import ZERO, Usage, add, quantity, usage_of
from kueuelib.testing.storm.laws.reading import name, queue_of, reserving, spec

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
class Node:
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


def queue_of_raw(raw: Obj) -> Node:
    """Reads a ClusterQueue."""
    return _node(raw, str(spec(raw).get("cohortName") or ""), inner=False)


def cohort_of_raw(raw: Obj) -> Node:
    """Reads a Cohort."""
    return _node(raw, str(spec(raw).get("parentName") or ""), inner=True)


def _node(raw: Obj, parent: str, *, inner: bool) -> Node:
    quotas: dict[Pair, Quota] = {}
    for group in spec(raw).get("resourceGroups") or ():
        for flavor in group.get("flavors") or ():
            for resource in flavor.get("resources") or ():
                limits = (resource.get("borrowingLimit"), resource.get("lendingLimit"))
                borrowing, lending = (None if one is None else quantity(one) for one in limits)
                nominal = quantity(resource.get("nominalQuota", 0))
                quotas[flavor["name"], resource["name"]] = Quota(nominal, borrowing, lending)
    weight = (spec(raw).get("fairSharing") or {}).get("weight")
    return Node(
        name(raw), parent, quotas, Fraction(1 if weight is None else quantity(weight)), inner
    )


def usage_by_queue(workloads: Iterable[Obj]) -> dict[str, Usage]:
    """The usage of all Workloads that hold quota, by ClusterQueue."""
    usages: dict[str, Usage] = {}
    for workload in workloads:
        if reserving(workload):
            add(usages.setdefault(queue_of(workload), {}), usage_of(workload))
    return usages
