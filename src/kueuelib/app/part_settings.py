"""The settings of the parts that act from a configuration: jobs, and the life of Workloads."""

from __future__ import annotations

from kueuelib.app.configuration import Configuration
from kueuelib.app.decision_settings import admits_claims, pods_ready
from kueuelib.app.feature_gates import (
    FAST_GROUP_RELEASE,
    PRIORITY_DEFAULTING,
    QUEUE_LABELS,
    TOPOLOGY,
)
from kueuelib.app.metrics_block import taken_over
from kueuelib.jobs.contract.settings import (
    JobSettings,
    Origin,
    PodSettings,
    QuotaReleaseStrategy,
    TakenOver,
    system_excluded,
)
from kueuelib.workload.life import LifeSettings


def job_settings(configuration: Configuration) -> JobSettings:
    """The settings for jobs."""
    frameworks = configuration.integrations.frameworks
    options = configuration.integrations.pod_options
    excluded = system_excluded(configuration.manager_namespace)
    selector = configuration.managed_jobs_namespace_selector
    waiting = pods_ready(configuration)
    retention = configuration.object_retention_policies.workloads
    release, group_release = quota_release(configuration)
    return JobSettings(
        frameworks=frameworks,
        manage_jobs_without_queue_name=configuration.manage_jobs_without_queue_name,
        namespace_selector=excluded if selector is None else selector,
        workers=configuration.controller.group_kind_concurrency,
        external_kinds=configuration.integrations.external_kinds,
        taken_over=TakenOver(
            *taken_over(
                configuration.metrics.custom_labels, configuration.integrations.label_keys_to_copy
            )
        ),
        pods=PodSettings(
            namespace_selector=(
                excluded if options.namespace_selector is None else options.namespace_selector
            ),
            pod_selector=options.pod_selector,
            shape_policy=options.pod_group_shape_policy,
            group_release=group_release,
        ),
        quota_release=release,
        origin=Origin(
            queues=configuration.feature_gates.get(QUEUE_LABELS, True),
            workload=configuration.feature_gates.get(TOPOLOGY, True),
        ),
        defaults_priority_class=configuration.feature_gates.get(PRIORITY_DEFAULTING, True),
        admits_claims=admits_claims(configuration),
        places_pods=configuration.feature_gates.get(TOPOLOGY, True),
        delete_deactivated_after=retention.after_deactivated_by_kueue,
        wait_for_pods_ready=waiting is not None,
        pods_ready_recovery=waiting is not None and bool(waiting.recovery_timeout),
    )


def quota_release(
    configuration: Configuration,
) -> tuple[QuotaReleaseStrategy, QuotaReleaseStrategy]:
    """When the quota of most kinds, and that of groups of pods, is released.

    Without the key, each is as in the Go manager, which has a gate for groups.
    """
    given = configuration.quota_release_strategy
    if given is not None:
        return QuotaReleaseStrategy(given), QuotaReleaseStrategy(given)
    fast = configuration.feature_gates.get(FAST_GROUP_RELEASE, False)
    early, late = QuotaReleaseStrategy.ON_TERMINATION, QuotaReleaseStrategy.ON_TERMINAL
    return early, early if fast else late


def life_settings(configuration: Configuration) -> LifeSettings:
    """The settings for times."""
    waiting = pods_ready(configuration)
    kept = configuration.object_retention_policies.workloads.after_finished
    return LifeSettings(None if waiting is None else waiting.policy, delete_finished_after=kept)
