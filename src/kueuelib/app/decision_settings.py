"""The settings for decisions from a configuration."""

from __future__ import annotations

import attrs

from kueuelib.app.configuration import Configuration
from kueuelib.app.decision_blocks import WaitForPodsReady, load_policy
from kueuelib.app.feature_gates import (
    FLAVOR_FUNGIBILITY,
    MIXED_PROFILE,
    NODE_FAIL_FAST,
    NODE_NOT_READY,
    NODE_PODS,
    NODE_REPLACEMENT,
    NODE_TAINTS,
    PARTIAL_ADMISSION,
    PRIORITY_SORTING,
    REJECT_CLAIMS,
    TOPOLOGY,
)
from kueuelib.scheduler.settings import FairSharingRules, NodeFailureRules, Settings


def engine_settings(configuration: Configuration, source: str = "configuration") -> Settings:
    """The settings for decisions.

    Args:
        configuration: the user's configuration.
        source: what to call the configuration in errors.

    Raises:
        ConfigError: the preemption policy cannot be loaded.
    """
    waiting, gates = pods_ready(configuration), configuration.feature_gates
    sharing, by_usage = configuration.fair_sharing, configuration.admission_fair_sharing
    settings = Settings(
        fair_sharing=FairSharingRules(sharing.strategies) if sharing and sharing.enable else None,
        past_usage=None if by_usage is None else by_usage.rule,
        preemption=load_policy(configuration.preemption, source),
        exceeds_quota=configuration.preemption.exceed_quota_until_victims_leave,
        parallel_preemptors=configuration.preemption.parallel_preemptors,
        protects_nominal=configuration.borrowing.protect_nominal_quota,
        resources=attrs.evolve(
            configuration.resources.rules, admits_claims=admits_claims(configuration)
        ),
        partial_admission=gates.get(PARTIAL_ADMISSION, True),
        flavor_fungibility=gates.get(FLAVOR_FUNGIBILITY, True),
        priority_sorting=gates.get(PRIORITY_SORTING, True),
        places_pods=gates.get(TOPOLOGY, True),
        node_failures=NodeFailureRules(
            replaces=gates.get(NODE_REPLACEMENT, True),
            evicts=gates.get(NODE_FAIL_FAST, True),
            taints=gates.get(NODE_TAINTS, True),
            waits_for_pods=gates.get(NODE_PODS, True),
            not_ready_too_long=gates.get(NODE_NOT_READY, False),
        ),
        mixed_profile=gates.get(MIXED_PROFILE, True),
    )
    if waiting is None:
        return settings
    timestamp = waiting.requeuing_strategy.timestamp
    return attrs.evolve(settings, queue_timestamp=timestamp, block_admission=waiting.blocks)


def admits_claims(configuration: Configuration) -> bool:
    """Whether devices of resource claims may be used without quota."""
    return not configuration.feature_gates.get(REJECT_CLAIMS, True)


def pods_ready(configuration: Configuration) -> WaitForPodsReady | None:
    """The settings of `waitForPodsReady`; None if it is off."""
    waiting = configuration.wait_for_pods_ready
    return waiting if waiting is not None and waiting.enable else None
