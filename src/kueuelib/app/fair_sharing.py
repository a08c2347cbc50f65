"""The blocks `fairSharing` and `admissionFairSharing` of the configuration (KEP-1714, KEP-4136)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Final

import attrs

from kueuelib.app.decoding import Duration
from kueuelib.app.refusals import Refusal
from kueuelib.scheduler.quota.past_usage import UsageRule
from kueuelib.scheduler.settings import BOTH_STRATEGIES, FINAL_SHARE, INITIAL_SHARE

_STRATEGIES: Final = ((FINAL_SHARE,), (INITIAL_SHARE,), BOTH_STRATEGIES)


@attrs.frozen
class FairSharing:
    """Whether quota is borrowed in proportion to weights.

    Attributes:
        enable: only in `v1beta1`; in `v1beta2` the block itself turns fair sharing on.
        preemption_strategies: how victims are chosen, the first strategy first; empty: both.
    """

    enable: bool = False
    preemption_strategies: tuple[str, ...] = ()

    @property
    def strategies(self) -> tuple[str, ...]:
        """The strategies in the order they are tried."""
        return self.preemption_strategies or BOTH_STRATEGIES


@attrs.frozen
class AdmissionFairSharing:
    """Whether LocalQueues that used less are admitted first.

    Attributes:
        usage_half_life_time: the time after which past usage counts half; 0: it does not count.
        usage_sampling_interval: the time between two updates of the usage.
        resource_weights: how much a unit of a resource counts; 1 for unnamed ones.
    """

    usage_half_life_time: Duration = Duration(0)
    usage_sampling_interval: Duration = Duration(300)
    resource_weights: Mapping[str, float] = attrs.field(factory=dict)

    @property
    def rule(self) -> UsageRule:
        """The same for the decision engine; weights are taken as they are written."""
        weights = {name: Fraction(str(each)) for name, each in self.resource_weights.items()}
        half_life, interval = self.usage_half_life_time, self.usage_sampling_interval
        return UsageRule(float(half_life), float(interval), weights)


def check_fair_sharing(sharing: FairSharing) -> Iterator[Refusal]:
    """Refuses the lists of strategies that Kueue refuses."""
    strategies = sharing.preemption_strategies
    if strategies and strategies not in _STRATEGIES:
        yield Refusal(
            f"fairSharing.preemptionStrategies is [{', '.join(strategies)}]",
            f"write one of {strategy_lists()}",
        )


def strategy_lists() -> str:
    """The lists of strategies that are accepted, as text."""
    return ", ".join(f"[{', '.join(names)}]" for names in _STRATEGIES)


def check_admission_fair_sharing(sharing: AdmissionFairSharing) -> Iterator[Refusal]:
    """Refuses intervals and weights that cannot work."""
    where = "admissionFairSharing"
    if sharing.usage_sampling_interval <= 0:
        yield Refusal(f"{where}.usageSamplingInterval is 0", "write for example 5m")
    for name, weight in sharing.resource_weights.items():
        if not 0 <= weight < math.inf:
            yield Refusal(f"{where}.resourceWeights[{name}] is {weight}", "give 0 or more")
