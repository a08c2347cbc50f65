"""What a watch of Workloads says about a run: waits, evictions, use of quota."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import attrs

from kueuelib.api.meta import Obj, is_true
from kueuelib.api.quantity import Quantity

from .shape import CLASS_LABEL, Shape


@attrs.define
class Seen:
    """One Workload; moments are seconds of a monotonic clock, None until they come.

    Attributes:
        class_: its class.
        cpu: that it requests.
        seconds: how long it runs.
        created: when it was created.
        admitted: when it was last admitted.
        finished: when it finished.
        evictions: how often it lost quota.
        lost: seconds that it had run before evictions, at most its run time each.
        cut: the part of these that was lost before the run time was over.
        ended: evictions after its run time, while its end was still to be written.
        held: CPU seconds of quota that it had until its last admission ended.
        running: whether it is admitted and not finished.
        evicted: whether its condition `Evicted` is true.
    """

    class_: str
    cpu: int
    seconds: float
    created: float
    admitted: float | None = None
    finished: float | None = None
    evictions: int = 0
    lost: float = 0.0
    cut: float = 0.0
    ended: int = 0
    held: float = 0.0
    running: bool = False
    evicted: bool = False


@attrs.frozen
class Waits:
    """How long the Workloads of a class waited, in seconds from creation to the last admission.

    With the evictions, the seconds of work that these lost, the part of it that was lost before the
    run time was over, and how many came after it, while the end was still to be written.
    """

    count: int
    mean: float
    p50: float
    p90: float
    longest: float
    evictions: int
    lost: float = 0.0
    cut: float = 0.0
    ended: int = 0


@attrs.define
class Recorder:
    """Takes events of Workloads and ClusterQueues, in their order."""

    shape: Shape
    seen: dict[str, Seen] = attrs.field(factory=dict)
    finished: int = 0
    _said: dict[str, list[tuple[float, float]]] = attrs.field(factory=dict)
    """What each ClusterQueue reports: since when, and how many CPUs it uses."""

    @property
    def started(self) -> float:
        """When the first Workload was created."""
        return min(each.created for each in self.seen.values())

    @property
    def ended(self) -> float:
        """When the last one finished."""
        return max(each.finished for each in self.seen.values() if each.finished is not None)

    def see(self, uid: str, obj: Obj, now: float) -> None:
        """Take the state of a Workload in."""
        record = self.seen.get(uid)
        if record is None:
            class_ = obj["metadata"]["labels"][CLASS_LABEL]
            kind = next(each for each in self.shape.classes if each.name == class_)
            record = self.seen[uid] = Seen(class_, kind.cpu, kind.seconds, now)
        if record.finished is not None:
            return
        done, evicted = is_true(obj, "Finished"), is_true(obj, "Evicted")
        running = is_true(obj, "Admitted") and not done
        if running and not record.running:
            record.admitted = now
        elif record.running and not running and record.admitted is not None:
            record.held += record.cpu * (now - record.admitted)
        if evicted and not record.evicted:
            record.evictions += 1
            if record.admitted is not None and (record.running or running):
                ran = now - record.admitted
                record.lost += min(ran, record.seconds)
                if ran < record.seconds:
                    record.cut += ran
                else:
                    record.ended += 1
        record.running, record.evicted = running, evicted
        if done:
            record.finished = now
            self.finished += 1

    def see_queue(self, obj: Obj, now: float) -> None:
        """Take the use that a ClusterQueue reports in."""
        flavors = obj.get("status", {}).get("flavorsUsage", ())
        totals = (each["total"] for flavor in flavors for each in flavor["resources"])
        used = sum(Quantity.parse(each).milli() for each in totals) / 1000
        self._said.setdefault(obj["metadata"]["name"], []).append((now, used))

    def said_use(self) -> float:
        """As `use`, from what ClusterQueues report, as in upstream's runner."""
        held = sum(
            used * max(0.0, min(until, self.ended) - since)
            for said in self._said.values()
            for (since, used), (until, _) in pairwise([*said, (self.ended, 0.0)])
        )
        return held / (self.shape.quota * (self.ended - self.started))

    def use(self) -> float:
        """The quota that was held, as a part of the nominal quota over the whole run."""
        spent = sum(each.held for each in self.seen.values())
        return spent / (self.shape.quota * (self.ended - self.started))

    def waits(self) -> dict[str, Waits]:
        """The waits of each class, in the order of the shape."""
        return {each.name: self._waits(each.name) for each in self.shape.classes}

    def _waits(self, class_: str) -> Waits:
        records = [each for each in self.seen.values() if each.class_ == class_]
        waited = sorted(
            each.admitted - each.created for each in records if each.admitted is not None
        )
        return Waits(
            len(waited),
            sum(waited) / len(waited) if waited else 0.0,
            at(waited, 50),
            at(waited, 90),
            at(waited, 100),
            sum(each.evictions for each in records),
            sum(each.lost for each in records),
            sum(each.cut for each in records),
            sum(each.ended for each in records),
        )


def at(ordered: Sequence[float], percent: float) -> float:
    """The smallest value that is not below `percent` of all; 0 when there is none."""
    if not ordered:
        return 0.0
    return ordered[min(int(len(ordered) * percent / 100), len(ordered) - 1)]
