"""The rules in CEL about fields of topology-aware scheduling (KEP-2724)."""

from __future__ import annotations

from typing import Final

from kueuelib.api.crd_parts import Rule
from kueuelib.api.kinds import V1BETA1, V1BETA2

TOPOLOGY_NAME: Final = (
    Rule(
        "spec",
        "!has(self.topologyName) || (has(self.nodeLabels) && size(self.nodeLabels) > 0)",
        "a topology orders the nodes with these labels: set nodeLabels, or remove topologyName",
        ".nodeLabels",
    ),
    Rule(
        "spec",
        "!has(oldSelf.topologyName) || "
        "(has(self.topologyName) && self.topologyName == oldSelf.topologyName)",
        "field is immutable once it is set: create another ResourceFlavor instead",
        ".topologyName",
    ),
)
"""The rules of ResourceFlavors."""

_PLACED: Final = "status.admission.podSetAssignments[].topologyAssignment"
_SLICE: Final = f"{_PLACED}.slices[]"

PLACEMENT: Final = (
    Rule(
        _PLACED,
        "self.domains.all(d, size(d.values) == size(self.levels))",
        "every domain must have one value for each of the levels",
        ".domains",
        version=V1BETA1,
    ),
    Rule(
        _PLACED,
        "self.slices.all(s, size(s.valuesPerLevel) == size(self.levels))",
        "every slice must have one entry of valuesPerLevel for each of the levels",
        ".slices",
        version=V1BETA2,
    ),
    Rule(
        _SLICE,
        "!has(self.podCounts.individual) || size(self.podCounts.individual) == self.domainCount",
        "must have as many counts as domainCount",
        ".podCounts.individual",
        version=V1BETA2,
    ),
    Rule(
        _SLICE,
        "self.valuesPerLevel.all(v, !has(v.individual) || "
        "size(v.individual.roots) == self.domainCount)",
        "must have as many roots as domainCount",
        ".valuesPerLevel",
        version=V1BETA2,
    ),
    *(
        Rule(
            f"{_SLICE}.{field}",
            "has(self.universal) != has(self.individual)",
            "set either universal or individual",
            version=V1BETA2,
        )
        for field in ("podCounts", "valuesPerLevel[]")
    ),
)
"""The rules of Workloads."""
