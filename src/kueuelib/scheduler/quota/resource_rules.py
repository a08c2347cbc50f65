"""Decides which resources of a pod count against quota, and under which names (KEP-2937, KEP-7513).

The administrator may exclude resources by prefix, turn one resource into others, and let the
ClusterQueue decide which resources are checked at all. Amounts stay exact, in nano units, until the
end.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from kueuelib.api.quantity import Quantity, amount_of
from kueuelib.api.struct import frozen
from kueuelib.scheduler.quota.amounts import Requests

_NANO = 10**9


@frozen
class Transformation:
    """The resources that one resource of a pod counts as.

    Attributes:
        outputs: per resource, the amount for one unit of the input; may be negative.
        retain: whether the input counts as well.
        multiply_by: a resource of the same pod whose amount multiplies the outputs; empty: none.
            A pod that does not request it counts as if it requested 1.
    """

    outputs: Mapping[str, Quantity] = attrs.field(factory=dict)
    retain: bool = True
    multiply_by: str = ""


@frozen
class ResourceRules:
    """The administrator's rules about resources (`resources` of the configuration).

    Attributes:
        excluded_prefixes: prefixes of resources that do not count.
        transformations: by the name of the input.
        ignores_undeclared: whether a resource that a ClusterQueue does not cover is left unchecked
            (`quotaCheckStrategy: IgnoreUndeclared`); otherwise no Workload that requests it fits.
        admits_claims: whether Workloads may use devices of resource claims, which no quota counts;
            otherwise they wait (gate KueueDRARejectWorkloadsWhenDRADisabled).
    """

    excluded_prefixes: tuple[str, ...] = ()
    transformations: Mapping[str, Transformation] = attrs.field(factory=dict)
    ignores_undeclared: bool = False
    admits_claims: bool = False

    def excludes(self, resource: str) -> bool:
        """Whether a resource does not count."""
        return resource.startswith(self.excluded_prefixes)

    @property
    def generated(self) -> frozenset[str]:
        """The outputs of transformations, which nodes need not have."""
        return frozenset(name for one in self.transformations.values() for name in one.outputs)

    def counted(self, per_pod: Mapping[str, int]) -> Requests:
        """The counted requests of one pod, in whole scheduling units, sorted by resource.

        Exclusions come first. Transformations then read the remaining requests, not each other's
        outputs. Their outputs under one name are added up, and never reduce a request.

        Args:
            per_pod: the requests of one pod, in nano units.
        """
        if not self.excluded_prefixes and not self.transformations:
            return _whole(per_pod)
        asked = {name: nanos for name, nanos in per_pod.items() if not self.excludes(name)}
        counted = {name: nanos for name, nanos in asked.items() if self._retains(name)}
        generated: dict[str, int] = {}
        for name in asked.keys() & self.transformations.keys():
            rule = self.transformations[name]
            times = asked.get(rule.multiply_by, _NANO) if rule.multiply_by else _NANO
            for output, each in rule.outputs.items():
                product = asked[name] * times * each.nanos
                generated[output] = generated.get(output, 0) + product
        for name, product in generated.items():
            counted[name] = counted.get(name, 0) + max(0, -(-product // _NANO**2))
        return _whole(counted)

    def _retains(self, name: str) -> bool:
        rule = self.transformations.get(name)
        return rule is None or rule.retain


def _whole(per_pod: Mapping[str, int]) -> Requests:
    return {name: amount_of(name, Quantity(per_pod[name])) for name in sorted(per_pod)}


AS_REQUESTED = ResourceRules()
"""Every resource counts as itself."""
