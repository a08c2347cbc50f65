"""The objects of a recording at any time, and the later fate of its Workloads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs

from kueuelib.api import meta, names
from kueuelib.api.kueue import Workload
from kueuelib.api.meta import ObjectKey
from kueuelib.recording.facts import is_last, subject_of
from kueuelib.scheduler import events
from kueuelib.scheduler.events import Event
from kueuelib.scheduler.explain.world import World
from kueuelib.scheduler.settings import DEFAULTS, Settings

_FIELDS = {
    "ClusterQueue": "cluster_queues",
    "Cohort": "cohorts",
    "LocalQueue": "local_queues",
    "Flavor": "flavors",
    "Check": "checks",
    "Topology": "topologies",
    "Node": "nodes",
    "ForeignPod": "foreign_pods",
    "Namespace": "namespaces",
    "LimitRange": "limit_ranges",
    "RuntimeClass": "runtime_classes",
    "Workload": "workloads",
}
"""The field of a world for the objects of each kind of fact."""
_BY_KEY = ("local_queues", "limit_ranges", "workloads", "foreign_pods")


class PresentObjects:
    """The present objects by kind and key, according to the facts so far."""

    def __init__(self) -> None:
        self._tables: dict[str, dict[ObjectKey, Any]] = {name: {} for name in _FIELDS.values()}

    def workload(self, key: ObjectKey) -> Workload | None:
        """A Workload that is not finished."""
        return self._tables["workloads"].get(key)

    def observe(self, event: Event) -> None:
        """Takes in a fact."""
        subject = subject_of(event)
        if subject is None or isinstance(event, events.Unreadable):
            return  # what a manager meant or was able to do; objects say what was done
        kind, key = subject
        table = self._tables[_FIELDS[kind]]
        if is_last(event):
            table.pop(key, None)
        elif isinstance(event, events.NamespaceSet):
            table[key] = event.labels
        elif isinstance(event, events.ForeignPod):
            table[key] = event
        else:
            (field,) = attrs.fields(type(event))
            table[key] = getattr(event, field.name)

    def world(self, settings: Settings = DEFAULTS) -> World:
        """The present world as a value."""
        tables: dict[str, Any] = {
            name: dict(table)
            if name in _BY_KEY
            else {key.name: each for key, each in table.items()}
            for name, table in self._tables.items()
        }
        return World(settings=settings, **tables)


@attrs.define(eq=False)
class WorkloadHistory:
    """The history of one Workload in a recording.

    Attributes:
        workload: its last known state.
        first: its first known state.
        seen: when it was first seen, in seconds since the epoch.
        ended: when it finished or was deleted; None if neither.
        finished: whether it finished; otherwise it was deleted, or still exists.
    """

    workload: Workload
    first: Workload
    seen: float
    ended: float | None = None
    finished: bool = False

    @property
    def ran(self) -> float | None:
        """How many seconds its last admission took; None if there was none, or it continues."""
        since = meta.since(self.workload.status.conditions, names.ADMITTED)
        return None if since is None or self.ended is None else max(0.0, self.ended - since)


class WorkloadFates:
    """The fate of every Workload from one time on.

    Args:
        begin: the Workloads at that time.
        at: the time, in seconds since the epoch.
    """

    def __init__(self, begin: Iterable[Workload], at: float) -> None:
        self.by_uid: dict[str, WorkloadHistory] = {
            each.uid: WorkloadHistory(each, each, at) for each in begin
        }
        self._uids = {past.workload.key: uid for uid, past in self.by_uid.items()}

    def observe(self, event: Event, at: float) -> None:
        """Takes in a fact."""
        if isinstance(event, events.WorkloadSet):
            self._set(event.workload, at)
        elif isinstance(event, events.WorkloadGone):
            past = self.by_uid.get(self._uids.pop(event.key, ""))
            if past is not None and past.ended is None:
                past.ended = at

    def _set(self, workload: Workload, at: float) -> None:
        past = self.by_uid.get(workload.uid)
        if past is None:
            past = self.by_uid[workload.uid] = WorkloadHistory(workload, workload, at)
        self._uids[workload.key] = workload.uid
        past.workload = workload
        ended = meta.since(workload.status.conditions, names.FINISHED)
        if ended is not None and not past.finished:
            past.ended, past.finished = ended, True
