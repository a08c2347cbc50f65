"""The manager's settings for jobs."""

from __future__ import annotations

import copy
import enum
import functools
from collections.abc import Mapping
from typing import Any, Final

import attrs

from kueuelib.api.meta import Resource
from kueuelib.errors import ConfigError
from kueuelib.jobs.contract.origin import WHOLE_ORIGIN, Origin
from kueuelib.jobs.contract.taken_over import NOTHING_ELSE, TakenOver
from kueuelib.machinery.selectors import Selector, from_label_selector

WORKERS: Final = 5
"""How many objects of a kind are reconciled at a time, as in the configuration that Kueue ships: a
worker mostly waits for the API server.
"""


class QuotaReleaseStrategy(enum.StrEnum):
    """When the quota of an evicted Workload is released (Kueue's KEP-6143)."""

    ON_TERMINATION = "OnTermination"
    """When none of its pods runs, except pods that are being deleted."""
    ON_TERMINAL = "OnTerminal"
    """When its pods are gone, or have ended."""


def strategy(value: QuotaReleaseStrategy | str) -> QuotaReleaseStrategy:
    """A strategy, which may be given by its name.

    Raises:
        ConfigError: there is no such strategy.
    """
    try:
        return QuotaReleaseStrategy(value)
    except ValueError:
        names = " or ".join(QuotaReleaseStrategy)
        raise ConfigError("quota release", f"{value!r} is not a strategy", f"use {names}") from None


def system_excluded(manager: str = "kueue-system") -> Mapping[str, Any]:
    """The raw namespace selector that leaves the system and the manager alone.

    Args:
        manager: the namespace of the manager.
    """
    values = list(dict.fromkeys(["kube-system", *filter(None, [manager])]))
    expression = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": values}
    return {"matchExpressions": [expression]}


@attrs.frozen
class PodSettings:
    """The manager's settings for plain pods (`integrations.podOptions`).

    Attributes:
        namespace_selector: the raw selector of the namespaces whose pods are queued.
        pod_selector: the raw selector of the pods that are queued.
        shape_policy: `Enforce` or `Warn`: what happens to pods that ask for more than their role
            declares.
        group_release: when the quota of an evicted group of pods is released.
    """

    namespace_selector: Mapping[str, Any] = attrs.field(factory=system_excluded)
    pod_selector: Mapping[str, Any] = attrs.field(factory=dict)
    shape_policy: str = "Enforce"
    group_release: QuotaReleaseStrategy = attrs.field(
        default=QuotaReleaseStrategy.ON_TERMINAL, converter=strategy
    )

    @functools.cached_property
    def namespaces(self) -> Selector:
        """The namespaces whose pods are queued."""
        return from_label_selector(self.namespace_selector)

    @functools.cached_property
    def selected(self) -> Selector:
        """The pods that are queued."""
        return from_label_selector(self.pod_selector)


@attrs.frozen
class JobSettings:
    """The manager's settings for jobs.

    Attributes:
        frameworks: the names of the enabled integrations.
        manage_jobs_without_queue_name: whether every job of an enabled kind is queued.
        namespace_selector: the raw selector of the namespaces where jobs are managed.
        partial_admission: whether jobs may run with fewer pods than they ask for.
        wait_for_pods_ready: whether all Workloads report if their pods are ready; otherwise only
            those that have such a report already.
        pods_ready_recovery: whether PodsReady turns False again when a pod of a running job fails;
            without it, it stays True while the Workload is admitted.
        workers: how many objects are reconciled at a time, by `Kind.group`; `WORKERS` by default.
        external_kinds: group and kind of jobs that another process queues; their children get no
            Workload, like those of our own jobs (`integrations.externalFrameworks`).
        taken_over: the labels and annotations that a Workload copies from its job.
        delete_deactivated_after: seconds after which a job is deleted if the manager deactivated
            its Workload; None: never (`objectRetentionPolicies`).
        defaults_priority_class: whether jobs without a priority class get the WorkloadPriorityClass
            `default`, if it exists.
        pods: which plain pods are queued.
        quota_release: when the quota of an evicted Workload is released; for groups of pods,
            `pods.group_release` decides.
        admits_claims: whether devices of resource claims may be used, which no quota counts;
            otherwise jobs that ask for some wait, and a warning says so.
        origin: what pods say about their Workload and their queues.
    """

    frameworks: tuple[str, ...] = ("batch/job",)
    manage_jobs_without_queue_name: bool = False
    namespace_selector: Mapping[str, Any] = attrs.field(factory=system_excluded)
    partial_admission: bool = True
    wait_for_pods_ready: bool = False
    pods_ready_recovery: bool = False
    workers: Mapping[str, int] = attrs.field(factory=dict)
    external_kinds: frozenset[tuple[str, str]] = frozenset()
    taken_over: TakenOver = NOTHING_ELSE
    delete_deactivated_after: float | None = None
    defaults_priority_class: bool = True
    pods: PodSettings = PodSettings()
    quota_release: QuotaReleaseStrategy = attrs.field(
        default=QuotaReleaseStrategy.ON_TERMINATION, converter=strategy
    )
    admits_claims: bool = False
    origin: Origin = WHOLE_ORIGIN

    def release_of(self, *, group: bool) -> QuotaReleaseStrategy:
        """When the quota of an evicted Workload is released; `group`: whether it is a group's."""
        return self.pods.group_release if group else self.quota_release

    def workers_of(self, resource: Resource) -> int:
        """How many objects of a kind are reconciled at a time."""
        return self.workers.get(".".join(filter(None, (resource.kind, resource.group))), WORKERS)

    def manages(self, queue_name: str, namespace_labels: Mapping[str, str] | None) -> bool:
        """Whether a job of an enabled kind is queued.

        Args:
            queue_name: the queue that the job names; empty if it names none.
            namespace_labels: the labels of its namespace; None while it is not known, when the API
                server has compared them with the selector of the webhook.
        """
        if not queue_name and not self.manage_jobs_without_queue_name:
            return False
        return namespace_labels is None or self.selects(namespace_labels)

    @property
    def pods_namespace_selector(self) -> Mapping[str, Any]:
        """The raw selector of the namespaces that are selected for jobs and for pods."""
        expressions: list[Any] = []
        for selector in (self.pods.namespace_selector, self.namespace_selector):
            wanted = [
                {"key": key, "operator": "In", "values": [value]}
                for key, value in (selector.get("matchLabels") or {}).items()
            ]
            wanted += copy.deepcopy(selector.get("matchExpressions") or [])
            expressions += [each for each in wanted if each not in expressions]
        return {"matchExpressions": expressions}

    def selects(self, namespace_labels: Mapping[str, str]) -> bool:
        """Whether jobs in a namespace with these labels may be queued at all."""
        return self._namespaces.matches(namespace_labels)

    @functools.cached_property
    def _namespaces(self) -> Selector:
        return from_label_selector(self.namespace_selector)
