"""The data that was read from a cluster, as one value for all checks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final

import attrs

from kueuelib.api import kinds
from kueuelib.api.meta import Obj, ObjectKey, key_of, labels_of, parse_time
from kueuelib.api.names import (
    ADMITTED,
    CLUSTER_QUEUE_LABEL,
    LOCAL_QUEUE_LABEL,
    PREBUILT_LABEL,
    QUOTA_RESERVED,
)
from kueuelib.app.configuration import Configuration
from kueuelib.app.explaining.gather import NEEDED, ClusterData, Lists, labels_decide
from kueuelib.app.explaining.nodes import PLACING, names_topology
from kueuelib.app.explaining.subject import workload_of
from kueuelib.app.refusers import REASONS, dead_webhook, latest, standing
from kueuelib.jobs.contract.field_rules import identifier
from kueuelib.jobs.lookups.stores import job_uids
from kueuelib.jobs.reconcile.plan import NOT_QUEUED
from kueuelib.jobs.reconcile.steps import DELETED_WORKLOAD
from kueuelib.scheduler.engine import Engine
from kueuelib.scheduler.explain.trial import TrialOutcome, outcomes
from kueuelib.scheduler.explain.world import World
from kueuelib.scheduler.quota.queue_spec import queue_spec

FACTS: Final = "facts"
"""Everything that decisions depend on, except the labels of namespaces: `ClusterSnapshot.world` and
`.engine`.
"""
ADMISSION_CHECKS: Final = "checks"
"""The AdmissionChecks, if a ClusterQueue names one."""
COHORTS: Final = "cohorts"
"""The Cohorts, if a ClusterQueue is in one."""
LABELS: Final = "labels"
"""The labels of namespaces, if a ClusterQueue selects by them."""
PLACES: Final = "places"
"""The Topologies and nodes, if a ResourceFlavor names a Topology."""
PERMISSIONS: Final = "permissions"
"""What the manager may do: `ClusterSnapshot.reviews`."""
CALLS: Final = "calls"
"""Whether the API server reaches the webhooks: `ClusterSnapshot.calls`."""
ADMISSION: Final = "admission"
"""`WebhookProbe.what` of a call of the admission webhooks for our kinds."""
BYPASSING: Final = "bypassing pods"
"""The Pods with a queue name that our webhook has not marked, as if it were a kind."""
STARTED: Final = "started pods"
"""The Pods of jobs that a manager started, as if they were a kind; without those that it queues."""
WITHDRAWN: Final = "withdrawn jobs"
"""The Jobs that have or had a Workload and name no queue, as if they were a kind."""
GRANTS: Final = (QUOTA_RESERVED, ADMITTED)
"""The reasons of Events that name the ClusterQueue of a Workload."""
_GRANTED: Final = re.compile("(?:reserved in|Admitted by) ClusterQueue ([^ ,]+)")
_REFERRED: Final = {
    ADMISSION_CHECKS: (kinds.ADMISSION_CHECKS.kind,),
    COHORTS: (kinds.COHORTS.kind,),
    LABELS: (kinds.NAMESPACES.kind,),
    PLACES: tuple(one.kind for one in PLACING),
}
"""The kinds of those parts that only matter if a ClusterQueue or flavor refers to them."""
_FACTS: Final = (*(one.kind for one in NEEDED), ADMISSION_CHECKS, COHORTS, PLACES)


def says_withdrawn(event: Obj) -> bool:
    """Whether an Event says that a Job lost its Workload because it is no longer queued.

    Args:
        event: the raw one.
    """
    about, message = event["involvedObject"]["kind"], event.get("message") or ""
    withdrawn = event["reason"] == DELETED_WORKLOAD and message.endswith(NOT_QUEUED)
    return withdrawn and about == kinds.JOBS.kind


@attrs.frozen
class Review:
    """Whether the manager may do something.

    Attributes:
        group: the API group, empty for the core group.
        resource: the plural, with a subresource after a slash.
        verb: for example `list`.
        namespace: empty for all namespaces.
        allowed: the server's answer.
        binding: what the installation grants it by, as kind and key.
    """

    group: str
    resource: str
    verb: str
    namespace: str
    allowed: bool
    binding: str


@attrs.frozen
class WebhookProbe:
    """A request that makes the API server call a webhook and changes nothing.

    Attributes:
        what: for people: `admission`, `conversion`, or what others' webhooks keep from being
            written, for example `create Jobs`.
        error: why the webhook did not answer; empty when it did.
        by_manager: whether the answer is one that only a manager gives.
        refusal: why the write is refused, by a policy, by a webhook that answers, or by a quota.
        kind: of what cannot be written: the Lease, or the Secret.
    """

    what: str
    error: str
    by_manager: bool = False
    refusal: str = ""
    kind: str = ""

    @property
    def webhook(self) -> str:
        """The name of the webhook that did not answer, as far as the server named it."""
        return dead_webhook(self.error)


@attrs.frozen
class TriedStart:
    """A dry run of the start of a Job or Pod that is not started.

    Attributes:
        kind: its kind.
        uid: of the object.
        problem: why it would not be started; empty if it would be.
        is_changed_back: whether the server accepts the start, and keeps the object as it was.
        changers: kinds and names of the policies and webhook configurations that may do that.
    """

    kind: str
    uid: str
    problem: str
    is_changed_back: bool = False
    changers: tuple[tuple[str, str], ...] = ()


@attrs.frozen(slots=False)
class ClusterSnapshot:
    """A cluster at about one moment, as far as the caller may see it.

    Attributes:
        now: when that was, in seconds since the epoch.
        lists: the raw objects by kind; of Pods and Jobs only those that are queued, and
            `BYPASSING`, `STARTED` and `WITHDRAWN`; of Secrets only the one with the webhooks'
            certificate, of ConfigMaps only the manager's.
        cluster: the facts that decisions depend on; a check says which of them it needs.
        reviews: what the manager may do.
        calls: whether webhooks answer.
        starts: dry runs of overdue starts.
        unseen: why kinds and parts were not read.
        configuration: the manager's.
        file: the name of its file; empty if none was given.
    """

    now: float
    lists: Lists
    cluster: ClusterData
    reviews: Sequence[Review] = ()
    calls: Sequence[WebhookProbe] = ()
    starts: Sequence[TriedStart] = ()
    unseen: Mapping[str, str] = attrs.field(factory=dict)
    configuration: Configuration = attrs.field(factory=Configuration)
    file: str = ""

    def webhook_configurations(self) -> Iterator[tuple[str, Obj]]:
        """All webhook configurations, each after its kind."""
        for resource in (kinds.MUTATING_WEBHOOKS, kinds.VALIDATING_WEBHOOKS):
            yield from ((resource.kind, one) for one in self.all(resource.kind))

    def why_unseen(self, need: str) -> str:
        """Why something that a check needs was not read; empty if it was, or does not matter.

        Args:
            need: a kind, or a part.
        """
        if need == FACTS:
            return next(filter(None, map(self.why_unseen, _FACTS)), "")
        if need not in _REFERRED:
            return self.unseen.get(need, "")
        queues = self.unseen.get(kinds.CLUSTER_QUEUES.kind, "")
        if queues or not self._refers(need):
            return queues
        return next(filter(None, (self.unseen.get(kind, "") for kind in _REFERRED[need])), "")

    def _refers(self, need: str) -> bool:
        """Whether a ClusterQueue or flavor refers to such a part."""
        world = self.cluster.world
        if need == PLACES:
            flavors = self.all(kinds.RESOURCE_FLAVORS.kind)
            return world.settings.places_pods and names_topology(flavors)
        if need == LABELS:
            return labels_decide(world)
        if need == COHORTS:
            return any(one.spec.cohort_name for one in world.cluster_queues.values())
        return any(queue_spec(one).checks for one in world.cluster_queues.values())

    def all(self, kind: str) -> Sequence[Obj]:
        """The raw objects of a kind."""
        return self.lists.of(kind)

    def find(self, kind: str, name: str, namespace: str = "") -> Obj | None:
        """One raw object; None when there is none."""
        return self._by_key.get(kind, {}).get(ObjectKey(namespace, name))

    @cached_property
    def _by_key(self) -> Mapping[str, Mapping[ObjectKey, Obj]]:
        return {
            kind: {key_of(obj): obj for obj in objects}
            for kind, objects in self.lists.objects.items()
        }

    def last_event(self, reason: str, *about: Obj) -> Obj | None:
        """The latest Event of a reason about one of some objects; None if none was read.

        Args:
            reason: of the Event; only those about refused writes were read.
            about: the raw objects.
        """
        uids = {one["metadata"]["uid"] for one in about}
        return latest(event for uid in uids for event in self._events.get((reason, uid), ()))

    def refusal(self, workload: Obj, job: Obj | None = None) -> Obj | None:
        """The last Event that says what is still refused for a Workload or its job; see `standing`.

        Args:
            workload: the raw one; Events about it count.
            job: the raw one; Events about it count.
        """
        uids = [one["metadata"]["uid"] for one in (workload, job) if one is not None]
        events = [
            event
            for uid in uids
            for reason in REASONS
            for event in self._events.get((reason, uid), ())
        ]
        return standing(events, workload, job, self.now) if events else None

    @cached_property
    def _events(self) -> Mapping[tuple[str, str], Sequence[Obj]]:
        """The Events by reason, and the UID of what they are about."""
        events: dict[tuple[str, str], list[Obj]] = {}
        for one in self.all(kinds.EVENTS.kind):
            uid = (one.get("involvedObject") or {}).get("uid") or ""
            events.setdefault((one.get("reason") or "", uid), []).append(one)
        return events

    def workload_of(self, obj: Obj) -> Obj | None:
        """The raw Workload that stands for a Job or Pod; None when there is none."""
        meta, prebuilt = obj["metadata"], identifier(obj, PREBUILT_LABEL)
        owned = list(self._by_owner.get(meta["uid"], ()))
        named = self.find("Workload", prebuilt, meta.get("namespace") or "")
        return workload_of(obj, [*owned, *([] if named is None else [named])])

    def homes_of(self, local_queue: ObjectKey) -> list[str]:
        """The ClusterQueues to which a LocalQueue led that no longer exists, as far as admissions,
        labels of Pods, or Events still say so.

        Args:
            local_queue: the missing one.
        """
        homes = set[str]()
        inside = {
            key: one
            for key, one in self.world.workloads.items()
            if ObjectKey(key.namespace, one.spec.queue_name) == local_queue
        }
        homes.update(
            one.status.admission.cluster_queue
            for one in inside.values()
            if one.status.admission is not None
        )
        for pod in self.all(kinds.PODS.kind):
            labels = labels_of(pod)
            if labels.get(LOCAL_QUEUE_LABEL) == local_queue.name and (
                pod["metadata"]["namespace"] == local_queue.namespace
            ):
                homes.add(labels.get(CLUSTER_QUEUE_LABEL, ""))
        for event in self.all(kinds.EVENTS.kind):
            about = event.get("involvedObject") or {}
            key = ObjectKey(about.get("namespace") or "", about.get("name") or "")
            if event.get("reason") in GRANTS and key in inside:
                homes.update(_GRANTED.findall(event.get("message") or ""))
        return sorted(homes - {""})

    @cached_property
    def _by_owner(self) -> Mapping[str, Sequence[Obj]]:
        """The Workloads by the UIDs of their owners."""
        by_owner: dict[str, list[Obj]] = {}
        for workload in self.all("Workload"):
            for uid in job_uids(workload):
                by_owner.setdefault(uid, []).append(workload)
        return by_owner

    @property
    def namespace(self) -> str:
        """The manager's namespace."""
        return self.configuration.manager_namespace

    @cached_property
    def world(self) -> World:
        """The facts that were read."""
        return self.cluster.world

    @cached_property
    def engine(self) -> Engine:
        """An engine that has the facts but has run no cycle."""
        return self.world.engine(self.now)

    @cached_property
    def outcomes(self) -> Mapping[ObjectKey, TrialOutcome]:
        """The fate of every Workload in the cycles that are due now."""
        return outcomes(self.world, self.now)

    def age(self, text: str | None) -> float:
        """Seconds since a time; 0 for none.

        Args:
            text: a time of the API.
        """
        return max(0.0, self.now - parse_time(text)) if text else 0.0
