"""The block `resources` of the configuration: what counts against quota (KEP-2937, KEP-7513)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

import attrs

from kueuelib.api.quantity import Quantity
from kueuelib.app.refusals import Refusal
from kueuelib.scheduler.quota.amounts import PODS
from kueuelib.scheduler.quota.resource_rules import ResourceRules, Transformation

RETAIN: Final = "Retain"
REPLACE: Final = "Replace"
BLOCK_UNDECLARED: Final = "BlockUndeclared"
IGNORE_UNDECLARED: Final = "IgnoreUndeclared"


@attrs.frozen
class ResourceTransformation:
    """The resources that one resource of a pod counts as.

    Attributes:
        input: the resource.
        strategy: `Retain` counts the input as well, `Replace` only the outputs.
        multiply_by: a resource of the same pod whose amount multiplies the outputs.
        outputs: per resource the amount for one unit of the input.
    """

    input: str = ""
    strategy: str = RETAIN
    multiply_by: str = ""
    outputs: Mapping[str, Quantity] = attrs.field(factory=dict)


@attrs.frozen
class Resources:
    """Which resources count against quota.

    Attributes:
        quota_check_strategy: the handling of a resource that a ClusterQueue does not cover:
            `BlockUndeclared` keeps the Workload waiting, `IgnoreUndeclared` leaves it unchecked.
        exclude_resource_prefixes: prefixes of resources that do not count.
        transformations: what resources count as; at most one for an input.
    """

    quota_check_strategy: str = BLOCK_UNDECLARED
    exclude_resource_prefixes: tuple[str, ...] = ()
    transformations: tuple[ResourceTransformation, ...] = ()

    @property
    def rules(self) -> ResourceRules:
        """The same for the decision engine."""
        return ResourceRules(
            self.exclude_resource_prefixes,
            {
                one.input: Transformation(one.outputs, one.strategy == RETAIN, one.multiply_by)
                for one in self.transformations
            },
            self.quota_check_strategy == IGNORE_UNDECLARED,
        )


def check_resources(resources: Resources) -> Iterator[Refusal]:
    """Refuses the rules that Kueue refuses, and those without an effect."""
    where = "resources.quotaCheckStrategy"
    if resources.quota_check_strategy not in (BLOCK_UNDECLARED, IGNORE_UNDECLARED):
        yield Refusal(
            f"{where} is {resources.quota_check_strategy!r}",
            f"write {BLOCK_UNDECLARED} or {IGNORE_UNDECLARED}",
        )
    if resources.exclude_resource_prefixes and resources.quota_check_strategy == IGNORE_UNDECLARED:
        yield Refusal(
            f"resources.excludeResourcePrefixes cannot be combined with {IGNORE_UNDECLARED}",
            f"remove the prefixes, or set {where} to {BLOCK_UNDECLARED}",
        )
    for index, prefix in enumerate(resources.exclude_resource_prefixes):
        if not prefix:
            where = f"resources.excludeResourcePrefixes[{index}]"
            yield Refusal(f"{where} is empty and excludes every resource", "write a prefix")
    uses = Counter(one.input for one in resources.transformations)
    for index, one in enumerate(resources.transformations):
        where = f"resources.transformations[{index}]"
        if not one.input:
            yield Refusal(f"{where}.input is missing", "name a resource")
        if uses[one.input] > 1:
            problem = f"{where}.input: {one.input} has more than one transformation"
            yield Refusal(problem, "write all outputs into one of them")
        if one.strategy not in (RETAIN, REPLACE):
            problem = f"{where}.strategy is {one.strategy!r}"
            yield Refusal(problem, f"write {RETAIN} or {REPLACE}")
        if PODS in one.outputs:
            problem = f"{where}.outputs: {PODS} is counted from the pods themselves"
            yield Refusal(problem, "choose another name")
