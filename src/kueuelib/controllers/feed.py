"""The one writer of the scheduler's state: turns deltas of informers into events of the engine.

Everything that the engine learns passes through `Feed.observe`, in one thread and without awaiting,
so the engine needs no locks. An object that cannot be read is reported, and counts as absent until
it can be read; it never stops the feed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import attrs

from kueuelib.api import core, kueue
from kueuelib.api.codec import decode
from kueuelib.api.meta import Condition, Obj, ObjectKey, annotations_of, labels_of
from kueuelib.api.workload import Admission, PodSet, Workload
from kueuelib.errors import InvalidObject, InvalidSelector
from kueuelib.machinery.store import Delta, DeltaKind
from kueuelib.runtime.cache import PartTimeInformer
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock
from kueuelib.runtime.informer import Informer
from kueuelib.runtime.logs import get_logger
from kueuelib.scheduler import events
from kueuelib.scheduler.events import Effects, Event

if TYPE_CHECKING:
    from kueuelib.runtime.events import EventSink
    from kueuelib.scheduler.engine import Engine


# Decodes Workloads as informers store them: most of their parts are like parts seen before.
# Such a part is decoded once, and Workloads share its typed value. An informer stores equal pod
# sets, and equal admissions, as one object, so these are known by their identity.

RECENT: Final = 256
"""The number of different parts of one sort whose typed values are kept."""


class _Parts:
    """The typed values of raw parts, by the identity of these."""

    def __init__(self, typed: Callable[[Any], Any]) -> None:
        self._typed = typed
        self._known: dict[int, tuple[Any, Any]] = {}

    def __call__(self, part: Any) -> Any:
        known = self._known.get(id(part))
        if known is None:
            known = self._known[id(part)] = (part, self._typed(part))  # so no other has its id
            if len(self._known) > RECENT:
                del self._known[next(iter(self._known))]
        return known[1]


@lru_cache(maxsize=4 * RECENT)
def _condition(fields: tuple[tuple[str, Any], ...]) -> Condition:
    return decode(Condition, dict(fields))


stored_admission: Final = _Parts(lambda part: decode(Admission, part))
"""The typed value of a raw `status.admission`; it may not be changed later."""
_SHARED: Final[Mapping[str, Callable[[Any], Any]]] = {
    "podSets": _Parts(lambda part: tuple([decode(PodSet, each) for each in part])),
    "admission": stored_admission,
    "conditions": lambda part: tuple([_condition(tuple(each.items())) for each in part]),
}


def stored_workload(obj: Obj) -> Workload:
    """The typed value of a raw Workload; neither it nor a part of it may be changed later.

    Raises:
        InvalidObject: as `decode`.
    """
    if obj.get("apiVersion") != Workload.resource.api_version:
        return decode(Workload, obj)
    try:
        parts: Obj = {name: _with_shared(obj[name]) for name in ("spec", "status") if name in obj}
    except (AttributeError, TypeError, InvalidObject):
        return decode(Workload, obj)  # which names every bad field
    return decode(Workload, {**obj, **parts})


def _with_shared(fields: Obj) -> Obj:
    return {
        name: _SHARED[name](part) if part and name in _SHARED else part
        for name, part in fields.items()
    }


# --------------------------------------------------------------------------------------------------

COMPONENT = "kueue-scheduler-feed"
MESSAGE_LIMIT = 1000

Digest = Callable[[Obj], object]


@attrs.frozen
class ObjectSource:
    """How to turn one kind of objects into events.

    Attributes:
        present: the event of an existing object.
        gone: the event of a deleted one.
        digest: the part of the raw object that the engine reads; a change of anything else is not
            an event.
    """

    present: Callable[[Obj], Event]
    gone: Callable[[ObjectKey], Event]
    digest: Digest


def _life(obj: Obj) -> bool:
    return bool(obj["metadata"].get("deletionTimestamp"))


def _spec(obj: Obj) -> object:
    return obj.get("spec"), _life(obj)


def _spec_and_status(obj: Obj) -> object:
    return obj.get("spec"), obj.get("status"), _life(obj)


def _workload(obj: Obj) -> object:
    """An admission holds for one generation of the spec, even if the spec has changed back
    meanwhile.
    """
    generation = obj["metadata"].get("generation")
    return _spec_and_status(obj), labels_of(obj), annotations_of(obj), generation


def _content(obj: Obj) -> object:
    return {name: value for name, value in obj.items() if name != "metadata"}


CLUSTER_QUEUES = ObjectSource(
    lambda obj: events.ClusterQueueSet(decode(kueue.ClusterQueue, obj)),
    lambda key: events.ClusterQueueGone(key.name),
    _spec,
)
COHORTS = ObjectSource(
    lambda obj: events.CohortChanged(decode(kueue.Cohort, obj)),
    lambda key: events.CohortDeleted(key.name),
    _spec,
)
LOCAL_QUEUES = ObjectSource(
    lambda obj: events.LocalQueueSet(decode(kueue.LocalQueue, obj)),
    events.LocalQueueGone,
    _spec,
)
FLAVORS = ObjectSource(
    lambda obj: events.FlavorSet(decode(kueue.ResourceFlavor, obj)),
    lambda key: events.FlavorGone(key.name),
    _spec,
)
CHECKS = ObjectSource(
    lambda obj: events.CheckSet(decode(kueue.AdmissionCheck, obj)),
    lambda key: events.CheckGone(key.name),
    _spec_and_status,
)
NAMESPACES = ObjectSource(
    lambda obj: events.NamespaceSet(obj["metadata"]["name"], labels_of(obj)),
    lambda key: events.NamespaceGone(key.name),
    labels_of,
)
LIMIT_RANGES = ObjectSource(
    lambda obj: events.LimitRangeSet(decode(core.LimitRange, obj)), events.LimitRangeGone, _spec
)
RUNTIME_CLASSES = ObjectSource(
    lambda obj: events.RuntimeClassSet(decode(core.RuntimeClass, obj)),
    lambda key: events.RuntimeClassGone(key.name),
    _content,
)
WORKLOADS = ObjectSource(
    lambda obj: events.WorkloadSet(stored_workload(obj)), events.WorkloadGone, _workload
)


class Feed:
    """Passes what happens to the engine, and what that affects to others.

    Args:
        engine: the scheduler's state.
        recorder: reports objects that cannot be read.
        clock: stamps events.
    """

    def __init__(self, engine: Engine, recorder: EventSink, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._engine = engine
        self._recorder = recorder
        self._clock = clock
        self._listeners: list[Callable[[Effects], None]] = []
        self._followers: list[Callable[[Event], None]] = []
        self._unreadable: dict[tuple[str, ObjectKey], str] = {}
        self._log = get_logger("feed")

    def subscribe(self, listener: Callable[[Effects], None]) -> None:
        """Calls `listener` with the effects of every event; it must be quick and not raise."""
        self._listeners.append(listener)

    def follow(self, follower: Callable[[Event], None]) -> None:
        """Calls `follower` with every event from now on; it must be quick and not raise."""
        self._followers.append(follower)

    def attach(self, informer: Informer | PartTimeInformer, source: ObjectSource) -> None:
        """Turns the deltas of an informer into events from now on."""
        informer.add_handler(lambda delta: self._on_change(informer.resource.kind, source, delta))

    def observe(self, event: Event) -> None:
        """Passes one fact to the engine, and what it affects to the listeners."""
        for follower in self._followers:
            follower(event)
        self.spread(self._engine.observe(event, self._clock.now()))

    def spread(self, effects: Effects) -> None:
        """Passes what something affects to the listeners."""
        for listener in self._listeners:
            listener(effects)

    def _on_change(self, kind: str, source: ObjectSource, delta: Delta[Obj]) -> None:
        new, old = delta.new, delta.old
        if delta.kind is DeltaKind.DELETED or new is None:
            self._unreadable.pop((kind, delta.key), None)
            self.observe(source.gone(delta.key))
            return
        if old is not None:
            recreated = old["metadata"].get("uid") != new["metadata"].get("uid")
            if not recreated and source.digest(old) == source.digest(new):
                return
            if recreated:
                self.observe(source.gone(delta.key))
        try:
            self.observe(source.present(new))
        except (InvalidObject, InvalidSelector) as error:
            self._report(kind, delta.key, new, error)
            self.observe(source.gone(delta.key))
        else:
            self._unreadable.pop((kind, delta.key), None)

    def _report(self, kind: str, key: ObjectKey, obj: Mapping[str, Any], error: Exception) -> None:
        """Reports what is wrong with an object, once until it changes."""
        problem = str(error)
        if self._unreadable.get((kind, key)) == problem:
            return
        self._unreadable[kind, key] = problem
        self._log.warning("an object cannot be read", kind=kind, object=str(key), problem=problem)
        message = f"The object cannot be read and is ignored: {problem}"[:MESSAGE_LIMIT]
        self._recorder.event(obj, "Warning", "InvalidObject", message, component=COMPONENT)
