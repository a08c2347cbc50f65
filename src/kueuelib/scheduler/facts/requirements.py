"""What Workloads ask for, and the objects that this depends on: LimitRanges and RuntimeClasses."""

from __future__ import annotations

from kueuelib.api.core import LimitRange, RuntimeClass
from kueuelib.api.kueue import Workload
from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler.pending.limit_ranges import NO_LIMIT_RANGES, LimitSummary, summarize
from kueuelib.scheduler.pending.workload_info import Needs, needs_of
from kueuelib.scheduler.quota.resource_rules import ResourceRules

RECENT = 256
"""The number of different needs that are kept for other Workloads."""


class Requirements:
    """Computes what Workloads ask for, once for all that share their pod sets.

    Args:
        rules: for counting resources.
    """

    def __init__(self, rules: ResourceRules) -> None:
        self._rules = rules
        self._limit_ranges: dict[str, dict[str, LimitRange]] = {}
        self._limits: dict[str, LimitSummary] = {}
        self._runtime_classes: dict[str, RuntimeClass] = {}
        self._known: dict[tuple[int, int, int | None], tuple[object, object, Needs]] = {}

    def put_limit_range(self, limit_range: LimitRange) -> None:
        """A LimitRange was created or changed."""
        self._limit_ranges.setdefault(limit_range.namespace, {})[limit_range.name] = limit_range
        self._summarize(limit_range.namespace)

    def drop_limit_range(self, key: ObjectKey) -> None:
        """A LimitRange was deleted."""
        self._limit_ranges.get(key.namespace, {}).pop(key.name, None)
        self._summarize(key.namespace)

    def _summarize(self, namespace: str) -> None:
        self._limits[namespace] = summarize(self._limit_ranges.get(namespace, {}).values())

    def put_runtime_class(self, runtime_class: RuntimeClass) -> None:
        """A RuntimeClass was created or changed."""
        self._runtime_classes[runtime_class.name] = runtime_class
        self._known.clear()

    def drop_runtime_class(self, name: str) -> None:
        """A RuntimeClass was deleted."""
        self._runtime_classes.pop(name, None)
        self._known.clear()

    def of(self, workload: Workload) -> Needs:
        """What a Workload asks for."""
        limits = self._limits.get(workload.namespace, NO_LIMIT_RANGES)
        if workload.status.reclaimable_pods:
            return needs_of(workload, limits, self._runtime_classes, self._rules)
        pod_sets = workload.spec.pod_sets
        key = (id(pod_sets), id(limits), workload.spec.priority)
        known = self._known.get(key)
        if known is None:
            needs = needs_of(workload, limits, self._runtime_classes, self._rules)
            known = self._known[key] = (pod_sets, limits, needs)  # so no others have these ids
            if len(self._known) > RECENT:
                del self._known[next(iter(self._known))]
        return known[-1]
