"""Checks whether a pod asks for no more than its role declares (KEP-976)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from kueuelib.api.codec import decode
from kueuelib.api.core import LimitRange, PodSpec, RuntimeClass
from kueuelib.api.meta import Obj
from kueuelib.scheduler.pending.limit_ranges import NO_LIMIT_RANGES, LimitSummary, summarize
from kueuelib.scheduler.pending.requests import pod_request
from kueuelib.scheduler.quota.resource_rules import AS_REQUESTED


@attrs.frozen
class PodRequests:
    """Computes what pods ask for, as the scheduler does.

    Attributes:
        limits: the LimitRanges of the namespace.
        runtime_classes: the raw RuntimeClasses by name.
    """

    limits: LimitSummary = NO_LIMIT_RANGES
    runtime_classes: Mapping[str, Mapping[str, Any]] = attrs.field(factory=dict)

    def larger(self, pod: Mapping[str, Any], template: Mapping[str, Any]) -> tuple[str, ...]:
        """The resources for which a pod asks for more than a template, sorted.

        Args:
            pod: the raw pod.
            template: the raw template of its pod set.
        """
        wanted, allowed = self._amounts(pod["spec"]), self._amounts(template.get("spec") or {})
        return tuple(
            name for name, amount in sorted(wanted.items()) if amount > allowed.get(name, 0)
        )

    def _amounts(self, spec: Mapping[str, Any]) -> Mapping[str, int]:
        pod_spec = decode(PodSpec, dict(spec))
        raw = self.runtime_classes.get(pod_spec.runtime_class_name)
        runtime_class = None if raw is None else decode(RuntimeClass, dict(raw))
        return AS_REQUESTED.counted(pod_request(pod_spec, self.limits, runtime_class).per_pod)


NO_REQUESTS = PodRequests()


def pod_requests_of(
    limit_ranges: Iterable[Obj], runtime_classes: Mapping[str, Mapping[str, Any]]
) -> PodRequests:
    """Computes requests of pods in a namespace with these raw LimitRanges."""
    return PodRequests(summarize(decode(LimitRange, raw) for raw in limit_ranges), runtime_classes)
