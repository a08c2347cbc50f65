"""The manager's settings for jobs, and what pods and Workloads take over from them."""

from __future__ import annotations

import copy
import enum
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from kueuelib.api.meta import Obj, Resource, annotations_of, labels_of
from kueuelib.api.missing_features import of_jobs
from kueuelib.api.names import (
    CLUSTER_QUEUE_LABEL,
    LOCAL_QUEUE_LABEL,
    PARAMETER_PREFIX,
    POD_SET_LABEL,
    WORKLOAD_ANNOTATION,
    is_dns1123_label,
    is_label_value,
)
from kueuelib.errors import ConfigError
from kueuelib.jobs.contract.podset_info import PodSetInfo, combine, infos_for_start
from kueuelib.machinery.selectors import Selector, from_label_selector

# ---- what a start writes on pods about their origin: Workload, pod set and queues ----------------
# Dashboards and network policies select pods by these labels. They always describe the last start,
# whatever a template or an admission check says, and they are never compared.


@attrs.frozen
class Origin:
    """What pods say about their origin besides the name of their pod set.

    Attributes:
        queues: labels with their ClusterQueue and their LocalQueue, if these are labels' values.
        workload: an annotation with their Workload.
    """

    queues: bool = True
    workload: bool = True

    def infos_for_start(
        self, workload: Mapping[str, Any], flavors: Mapping[str, Mapping[str, Any]]
    ) -> tuple[PodSetInfo, ...]:
        """What flavors and checks add to each pod set of an admitted Workload, and their origin.

        Args:
            workload: the raw Workload.
            flavors: the raw ResourceFlavors by name.

        Raises:
            FlavorNotFound: a flavor is missing.
            InvalidPodSetInfo: the admission does not name the pod sets of the Workload.
            InvalidPodSetUpdate: flavors and checks contradict each other.
        """
        labels, annotations = self._labels(workload), self._annotations(workload)
        return tuple(
            combine(
                info,
                PodSetInfo(
                    info.name,
                    labels={POD_SET_LABEL: info.name, **labels},
                    annotations=annotations,
                ),
            )
            for info in infos_for_start(workload, flavors)
        )

    def _labels(self, workload: Mapping[str, Any]) -> dict[str, str]:
        local = workload["spec"].get("queueName") or ""
        queue = ((workload.get("status") or {}).get("admission") or {}).get("clusterQueue") or ""
        if not self.queues:
            return {}
        labels = {LOCAL_QUEUE_LABEL: local} if local and is_label_value(local) else {}
        return labels | ({CLUSTER_QUEUE_LABEL: queue} if is_dns1123_label(queue) else {})

    def _annotations(self, workload: Mapping[str, Any]) -> dict[str, str]:
        return {WORKLOAD_ANNOTATION: workload["metadata"]["name"]} if self.workload else {}


WHOLE_ORIGIN: Final = Origin()


# ---- the labels and annotations that a new Workload takes over from its job ----------------------


@attrs.frozen
class MetadataConflict:
    """A disagreement between pods of one group about a label or annotation to be taken over.

    Attributes:
        pod: the raw pod that differs from one before it.
        what: `label` or `annotation`, and its key.
    """

    pod: Obj
    what: str


@attrs.frozen
class TakenOver:
    """The keys of labels and annotations that a Workload takes over.

    Parameters of ProvisioningRequests and requests for missing features are always taken over.
    Given a Workload instead of a job, the methods return what it has taken over.
    """

    labels: tuple[str, ...] = ()
    annotations: tuple[str, ...] = ()

    def labels_of(self, objects: Sequence[Obj]) -> dict[str, str]:
        """The labels for the Workload of a job, or of several pods."""
        return _merged(_chosen(labels_of(obj), self.labels) for obj in objects)

    def annotations_of(self, objects: Sequence[Obj]) -> dict[str, str]:
        """The annotations for the Workload of a job, or of several pods."""
        return _merged(
            {
                key: value
                for key, value in annotations_of(obj).items()
                if key in self.annotations or key.startswith(PARAMETER_PREFIX)
            }
            | of_jobs(obj)
            for obj in objects
        )

    def difference(self, pods: Sequence[Obj]) -> MetadataConflict | None:
        """The first disagreement between pods of a group, or None; pods without a value do not
        count.
        """
        labels, annotations = self.labels_of(pods), self.annotations_of(pods)
        for pod in pods:
            for key, value in _chosen(labels_of(pod), self.labels).items():
                if labels[key] != value:
                    return MetadataConflict(pod, f"label {key}")
            for key, value in _chosen(annotations_of(pod), self.annotations).items():
                if annotations[key] != value:
                    return MetadataConflict(pod, f"annotation {key}")
        return None


NOTHING_ELSE: Final = TakenOver()


def _chosen(values: Mapping[str, str], keys: Sequence[str]) -> dict[str, str]:
    return {key: values[key] for key in keys if key in values}


def _merged(mappings: Iterator[dict[str, str]]) -> dict[str, str]:
    """All keys, each with its first value."""
    merged: dict[str, str] = {}
    for each in mappings:
        merged = {**each, **merged}
    return merged


# --------------------------------------------------------------------------------------------------

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
        places_pods: whether Workloads may get domains of a topology (KEP-2724); otherwise jobs
            that ask for some wait, and a warning says so.
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
    places_pods: bool = True

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
