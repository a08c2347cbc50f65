"""Changes of a cluster over time: objects that change, flavors that are lost.

An object with the annotation `kueuelib.dev/at-seconds` replaces the object of its kind and name at
that time. A ResourceFlavor with `kueuelib.dev/lost-at-seconds` is lost then: its quota counts as 0
everywhere, and jobs that hold some of it are evicted. It returns when it changes later.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import attrs

from kueuelib.api.meta import Obj, annotations_of
from kueuelib.errors import ConfigError
from kueuelib.scheduler.settings import DEFAULTS, Settings
from kueuelib.simulator.cluster import ClusterSetup, cluster_of, key_in, kind_and_key, overlaid
from kueuelib.simulator.parsing import BadValue, moment

AT_SECONDS = "kueuelib.dev/at-seconds"
LOST_AT_SECONDS = "kueuelib.dev/lost-at-seconds"
FLAVOR = "ResourceFlavor"


@attrs.frozen(eq=False)
class ClusterChange:
    """The state of the cluster from a time on.

    Attributes:
        at: seconds on the trace's clock.
        cluster: the cluster from then on.
        lost: the flavors that are lost at this time.
        what: the objects that change, for people.
    """

    at: float
    cluster: ClusterSetup
    lost: frozenset[str]
    what: tuple[str, ...]


@attrs.frozen(eq=False)
class _Timed:
    at: float
    obj: Obj
    lost: bool


def course(
    objects: Iterable[Obj], settings: Settings = DEFAULTS
) -> tuple[ClusterSetup, tuple[ClusterChange, ...]]:
    """The initial cluster, and its changes in the order of time.

    Args:
        objects: raw objects; those with a time take effect then; of several with the same time, the
            last one.
        settings: the administrator's choices.

    Raises:
        ConfigError: an object or its time cannot be read, or a queue is added later.
    """
    timed: list[_Timed] = []
    now: list[Obj] = []
    for obj in objects:
        change = _timed(obj)
        if change is None:
            now.append(obj)
        else:
            timed.append(change)
    for one in timed:
        _refuse_new_queue(one.obj, now)
    first = cluster_of(now, settings)
    lost: set[str] = set()
    changes = []
    for at in sorted({one.at for one in timed}):
        due = [one for one in timed if one.at == at]
        before = set(lost)
        now = list(overlaid(now, [one.obj for one in due if not one.lost]))
        for one in due:
            if one.obj["kind"] == FLAVOR:
                name = one.obj["metadata"]["name"]
                (lost.add if one.lost else lost.discard)(name)
        cluster = cluster_of([_without(obj, lost) for obj in now], settings)
        what = tuple(
            f"{one.obj['kind']} {key_in(one.obj)} {'is lost' if one.lost else 'changes'}"
            for one in due
        )
        changes.append(ClusterChange(at, cluster, frozenset(lost - before), what))
    return first, tuple(changes)


def key_of_change(obj: Obj) -> tuple[Any, ...]:
    """The identity of an object: kind, name and time."""
    notes = annotations_of(obj)
    return obj["kind"], key_in(obj), notes.get(AT_SECONDS), notes.get(LOST_AT_SECONDS)


def _timed(obj: Obj) -> _Timed | None:
    notes = annotations_of(obj)
    names = [name for name in (AT_SECONDS, LOST_AT_SECONDS) if name in notes]
    if not names:
        return None
    subject = f"{obj['kind']} {key_in(obj)}"
    if len(names) > 1:
        raise ConfigError(subject, f"has both {' and '.join(names)}", "write two objects")
    if names == [LOST_AT_SECONDS] and obj["kind"] != FLAVOR:
        fix = f"change it with {AT_SECONDS}, for example its stopPolicy"
        raise ConfigError(subject, f"{LOST_AT_SECONDS} is for ResourceFlavors only", fix)
    try:
        at = moment(notes[names[0]], names[0])
    except BadValue as error:
        fix = "write seconds on the clock of the trace, or a date and time"
        raise ConfigError(subject, str(error), fix) from error
    return _Timed(at, obj, names == [LOST_AT_SECONDS])


def _refuse_new_queue(obj: Obj, now: Iterable[Obj]) -> None:
    """Refuses queues that are added later, and LocalQueues that change their ClusterQueue."""
    if obj["kind"] not in ("ClusterQueue", "LocalQueue"):
        return
    before = next((one for one in now if kind_and_key(one) == kind_and_key(obj)), None)
    subject = f"{obj['kind']} {key_in(obj)}"
    if before is None:
        fix = "add it without a time, for example with stopPolicy Hold"
        raise ConfigError(subject, "changes, but does not exist at the beginning", fix)
    if obj["spec"].get("clusterQueue") != before["spec"].get("clusterQueue"):
        fix = "give it the same clusterQueue as at first"
        raise ConfigError(subject, "moves to another ClusterQueue, which is not possible", fix)


def _without(obj: Obj, lost: set[str]) -> Obj:
    """A ClusterQueue or Cohort without quota in some flavors; other objects unchanged."""
    groups = (obj.get("spec") or {}).get("resourceGroups")
    if not lost or not groups:
        return obj
    changed = [
        {**group, "flavors": [_emptied(one, lost) for one in group["flavors"]]} for group in groups
    ]
    return {**obj, "spec": {**obj["spec"], "resourceGroups": changed}}


def _emptied(flavor: Obj, lost: set[str]) -> Obj:
    if flavor["name"] not in lost:
        return flavor
    none: Sequence[Obj] = [
        {"name": resource["name"], "nominalQuota": "0"} for resource in flavor["resources"]
    ]
    return {**flavor, "resources": none}
