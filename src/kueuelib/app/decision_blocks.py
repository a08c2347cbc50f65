"""The blocks of the configuration that decisions read: fair sharing, preemption, resources, ..."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

import attrs

from kueuelib.api.quantity import Quantity
from kueuelib.app.decoding import ConfigurationRefusal, Duration, at_least, key, one_of, refuse_any
from kueuelib.errors import ConfigError
from kueuelib.scheduler.policy import KUEUE, PreemptionPolicy
from kueuelib.scheduler.quota.amounts import PODS
from kueuelib.scheduler.quota.past_usage import UsageRule
from kueuelib.scheduler.quota.resource_rules import ResourceRules, Transformation
from kueuelib.scheduler.settings import BOTH_STRATEGIES, FINAL_SHARE, INITIAL_SHARE

if TYPE_CHECKING:
    from kueuelib.workload.life import PodsReadyPolicy


# The block `resources` of the configuration: what counts against quota (KEP-2937, KEP-7513).

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
class ResourcesConfiguration:
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


def check_resources(resources: ResourcesConfiguration) -> Iterator[ConfigurationRefusal]:
    """Refuses the rules that Kueue refuses, and those without an effect."""
    where = "resources.quotaCheckStrategy"
    if resources.quota_check_strategy not in (BLOCK_UNDECLARED, IGNORE_UNDECLARED):
        yield ConfigurationRefusal(
            f"{where} is {resources.quota_check_strategy!r}",
            f"write {BLOCK_UNDECLARED} or {IGNORE_UNDECLARED}",
        )
    if resources.exclude_resource_prefixes and resources.quota_check_strategy == IGNORE_UNDECLARED:
        yield ConfigurationRefusal(
            f"resources.excludeResourcePrefixes cannot be combined with {IGNORE_UNDECLARED}",
            f"remove the prefixes, or set {where} to {BLOCK_UNDECLARED}",
        )
    for index, prefix in enumerate(resources.exclude_resource_prefixes):
        if not prefix:
            where = f"resources.excludeResourcePrefixes[{index}]"
            yield ConfigurationRefusal(
                f"{where} is empty and excludes every resource", "write a prefix"
            )
    uses = Counter(one.input for one in resources.transformations)
    for index, one in enumerate(resources.transformations):
        where = f"resources.transformations[{index}]"
        if not one.input:
            yield ConfigurationRefusal(f"{where}.input is missing", "name a resource")
        if uses[one.input] > 1:
            problem = f"{where}.input: {one.input} has more than one transformation"
            yield ConfigurationRefusal(problem, "write all outputs into one of them")
        if one.strategy not in (RETAIN, REPLACE):
            problem = f"{where}.strategy is {one.strategy!r}"
            yield ConfigurationRefusal(problem, f"write {RETAIN} or {REPLACE}")
        if PODS in one.outputs:
            problem = f"{where}.outputs: {PODS} is counted from the pods themselves"
            yield ConfigurationRefusal(problem, "choose another name")


# ---- the block `borrowing` of the configuration --------------------------------------------------


@attrs.frozen
class BorrowingConfiguration:
    """What ClusterQueues of a cohort may borrow from each other.

    Attributes:
        protect_nominal_quota: whether no new Workload borrows the nominal quota that waiting
            Workloads of its owner need.
    """

    protect_nominal_quota: bool = False


# The block `preemption` of the configuration: a policy of an installed package, and two rules.
# A package offers a policy as an entry point of the group `kueuelib.preemption`. The name of the
# entry point is the name of the policy; its value is called with the parameters of the
# configuration and returns the policy:
#
#     [project.entry-points."kueuelib.preemption"]
#     "example.com/minimum-run-time" = "preemption_policies:MinimumRunTime"

GROUP = "kueuelib.preemption"


@attrs.frozen
class PreemptionConfiguration:
    """The preemption policy, and what holds until victims have left their room.

    Attributes:
        policy: the name of an installed one; empty for Kueue's own.
        parameters: its keyword arguments.
        parallel_preemptors: whether the next Workloads of a queue choose victims while a preemptor
            waits for its own.
        exceed_quota_until_victims_leave: whether others are admitted into that room, as by the Go
            manager.
    """

    policy: str = ""
    parameters: Mapping[str, Any] = attrs.field(factory=dict)
    parallel_preemptors: bool = True
    exceed_quota_until_victims_leave: bool = False


def check_preemption(preemption: PreemptionConfiguration) -> Iterator[ConfigurationRefusal]:
    """Refuses a policy that no package offers; nothing is imported."""
    if not preemption.policy:
        if preemption.parameters:
            yield ConfigurationRefusal(
                "preemption.parameters without preemption.policy", "name the policy"
            )
        return
    offered = sorted({entry.name for entry in _entries()})
    if preemption.policy not in offered:
        known = f"use one of {', '.join(offered)}" if offered else f"offer one as {GROUP}"
        yield ConfigurationRefusal(
            f"preemption.policy: no installed package offers {preemption.policy!r}",
            f"install its package, or {known}",
        )


def load_policy(preemption: PreemptionConfiguration, source: str) -> PreemptionPolicy:
    """The policy that the configuration names, ready for use.

    Raises:
        ConfigError: its package cannot be imported, the parameters do not suit it, or the package's
            object is not a policy. The message names the policy and the fix.
    """
    if not preemption.policy:
        return KUEUE
    from kueuelib.runtime.importing import loaded

    refuse_any(source, check_preemption(preemption))
    subject = f'{source}: preemption.policy "{preemption.policy}"'
    entries = {entry.value: entry for entry in _entries() if entry.name == preemption.policy}
    if len(entries) > 1:
        raise ConfigError(
            subject, f"is offered more than once: {', '.join(sorted(entries))}", "uninstall one"
        )
    ((value, entry),) = entries.items()
    make = loaded(f"{subject}, {value}", entry.load, "repair or uninstall its package")
    if not callable(make):
        raise ConfigError(
            subject, f"{value} is not callable", "name a class or a function in the entry point"
        )
    try:
        policy = make(**preemption.parameters)
    except Exception as error:
        raise ConfigError(
            subject,
            f"{value} refuses the parameters: {type(error).__name__}: {error}",
            "correct preemption.parameters",
        ) from error
    problem = _problem(policy, preemption.policy)
    if problem:
        raise ConfigError(subject, f"{value} {problem}", "correct its package")
    assert isinstance(policy, PreemptionPolicy)
    return policy


def _problem(policy: Any, name: str) -> str:
    if not isinstance(policy, PreemptionPolicy):
        return f"returns a {type(policy).__name__}, not a PreemptionPolicy"
    if policy.name != name:
        return f"calls itself {policy.name!r}"
    span = policy.remembers
    if not isinstance(span, int | float) or not 0 <= span < float("inf"):
        return f"remembers {span!r}, which is not a number of seconds"
    return ""


def _entries() -> Any:
    from importlib.metadata import entry_points

    return entry_points(group=GROUP)


# ---- the block `waitForPodsReady` of the configuration (KEP-349) ---------------------------------


@attrs.frozen
class RequeuingStrategy:
    """How a workload is requeued after its pods were not ready in time."""

    timestamp: str = key("Eviction", rule=one_of("Eviction", "Creation"))
    backoff_limit_count: int | None = key(None, live=True, rule=at_least(0))
    backoff_base_seconds: int = key(60, live=True, rule=at_least(0))
    backoff_max_seconds: int = key(3600, live=True, rule=at_least(0))


@attrs.frozen
class WaitForPodsReady:
    """All-or-nothing start with a time-out; without a `recovery_timeout`, or if it is 0, pods that
    fail later may stay away.
    """

    enable: bool = False
    timeout: Duration = key(Duration(300), live=True)
    recovery_timeout: Duration | None = None
    block_admission: bool | None = None
    requeuing_strategy: RequeuingStrategy = RequeuingStrategy()

    @property
    def blocks(self) -> bool:
        """Whether workloads are admitted one at a time, which is the default."""
        return self.enable and self.block_admission is not False

    @property
    def policy(self) -> PodsReadyPolicy:
        """The same for the life of Workloads."""
        from kueuelib.workload.life import PodsReadyPolicy

        strategy = self.requeuing_strategy
        return PodsReadyPolicy(
            timeout=self.timeout,
            recovery_timeout=self.recovery_timeout or None,
            backoff_base=strategy.backoff_base_seconds,
            backoff_max=strategy.backoff_max_seconds,
            limit=strategy.backoff_limit_count,
        )


# --------------------------------------------------------------------------------------------------

_STRATEGIES: Final = ((FINAL_SHARE,), (INITIAL_SHARE,), BOTH_STRATEGIES)


@attrs.frozen
class FairSharingConfiguration:
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


def check_fair_sharing(sharing: FairSharingConfiguration) -> Iterator[ConfigurationRefusal]:
    """Refuses the lists of strategies that Kueue refuses."""
    strategies = sharing.preemption_strategies
    if strategies and strategies not in _STRATEGIES:
        yield ConfigurationRefusal(
            f"fairSharing.preemptionStrategies is [{', '.join(strategies)}]",
            f"write one of {strategy_lists()}",
        )


def strategy_lists() -> str:
    """The lists of strategies that are accepted, as text."""
    return ", ".join(f"[{', '.join(names)}]" for names in _STRATEGIES)


def check_admission_fair_sharing(sharing: AdmissionFairSharing) -> Iterator[ConfigurationRefusal]:
    """Refuses intervals and weights that cannot work."""
    where = "admissionFairSharing"
    if sharing.usage_sampling_interval <= 0:
        yield ConfigurationRefusal(f"{where}.usageSamplingInterval is 0", "write for example 5m")
    for name, weight in sharing.resource_weights.items():
        if not 0 <= weight < math.inf:
            yield ConfigurationRefusal(
                f"{where}.resourceWeights[{name}] is {weight}", "give 0 or more"
            )
