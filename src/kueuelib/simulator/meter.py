"""The figures of a simulation, per ClusterQueue, LocalQueue, priority, shape and size of jobs."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Mapping

import attrs

from kueuelib.api.kueue import ClusterQueue
from kueuelib.api.meta import Obj
from kueuelib.scheduler.decide.cycle import Admit
from kueuelib.scheduler.decide.preemption.victims import Preemption
from kueuelib.scheduler.quota.amounts import FlavorResource
from kueuelib.scheduler.quota.queue_spec import cohort_spec, queue_spec
from kueuelib.simulator.cluster import Cluster
from kueuelib.simulator.figures import Level, jain, shown
from kueuelib.simulator.groups import GROUPS, Group
from kueuelib.simulator.listener import Listener
from kueuelib.simulator.live import Live
from kueuelib.simulator.trace import Sizes

SHORTEST = 10.0
"""The shortest run time, in seconds, in the bounded slowdown."""
MOST_GROUPS = 5000
"""The maximum number of shapes, priorities or queues that are counted separately, to bound the
memory.
"""
OTHERS = "(others)"


@attrs.define
class QueueLevels:
    """The levels of a ClusterQueue over time.

    Attributes:
        cohort: the root of its tree, empty if it has no cohort.
        used: by flavor and resource.
        waiting: jobs without quota.
        holding: jobs with quota.
    """

    cohort: str
    used: dict[FlavorResource, Level]
    waiting: Level = attrs.field(factory=Level)
    holding: Level = attrs.field(factory=Level)

    def all(self) -> Iterator[Level]:
        """All of its levels."""
        yield from self.used.values()
        yield self.waiting
        yield self.holding


class Meter(Listener):
    """Measures a simulation.

    Args:
        cluster: its queues.
        sizes: which jobs are large.

    Attributes:
        queues: the levels by ClusterQueue.
        shared: the cohorts' own quota, as levels without usage.
        changed: the ClusterQueues whose levels have changed since it was cleared.
        first: the first arrival; None before it.
        last: the last end of a job; None before it.
    """

    def __init__(self, cluster: Cluster, sizes: Sizes = Sizes()) -> None:  # noqa: B008 - frozen
        self._sizes = sizes
        self._world = cluster.world
        self._groups: dict[str, dict[str, Group]] = {name: {} for name in GROUPS}
        self._hash = hashlib.sha256()
        self.total = Group()
        self.queues = {name: self._levels(name) for name in sorted(self._world.cluster_queues)}
        self.shared = _owning({}, self._shared(), 0.0)
        self.changed: dict[str, None] = {}
        self._known: dict[str, tuple[str, list[Group]]] = {}
        self._held: dict[str, tuple[Live, float]] = {}
        self.first: float | None = None
        self.last: float | None = None
        self._now = 0.0

    def _levels(self, name: str) -> QueueLevels:
        queue = self._world.cluster_queues[name]
        above = self._world.above(queue.spec.cohort_name)
        return QueueLevels(above[-1] if above else "", _owning({}, _nominal(queue), 0.0))

    def _shared(self) -> Counter[FlavorResource]:
        nominal: Counter[FlavorResource] = Counter()
        for cohort in self._world.cohorts.values():
            for pair, limit in cohort_spec(cohort).limits.items():
                nominal[pair] += limit.nominal
        return nominal

    def cluster_changed(self, cluster: Cluster, now: float) -> None:
        """Takes over nominal quota and cohorts; the ClusterQueues are the same as before."""
        self._world = cluster.world
        for name, queue in self.queues.items():
            queue.cohort = self._levels(name).cohort
            _owning(queue.used, _nominal(self._world.cluster_queues[name]), now)
            self.changed[name] = None
        _owning(self.shared, self._shared(), now)

    def _of(self, live: Live) -> list[Group]:
        """The groups of a job; known until it ends, unless it moves to another ClusterQueue."""
        home = live.cluster_queue or self._world.home_of(live.workload)
        uid = live.workload.metadata.uid
        known = self._known.get(uid)
        if known is None or known[0] != home:
            known = self._known[uid] = home, self._find(live, home)
        return known[1]

    def _find(self, live: Live, home: str) -> list[Group]:
        job, counted = live.job, [self.total]
        queues = home or "(none)", f"{job.namespace}/{job.queue}"
        names = (*queues, str(job.priority), job.shape, self._sizes.of(job))
        for kind, name in zip(GROUPS, names, strict=True):
            groups = self._groups[kind]
            mine = name if name in groups or len(groups) < MOST_GROUPS else OTHERS
            if mine not in groups:
                groups[mine] = Group()
            counted.append(groups[mine])
        return counted

    def _queue(self, live: Live) -> QueueLevels | None:
        name = live.cluster_queue or self._world.home_of(live.workload)
        self.changed[name] = None
        return self.queues.get(name)

    def arrived(self, live: Live, now: float) -> None:
        """Counts it."""
        if self.first is None:
            self.first = now
            for level in self._all():
                level.begin(now)
        for group in self._of(live):
            group.jobs += 1
        queue = self._queue(live)
        if queue is not None:
            queue.waiting.change(1, now)

    def reserved(self, live: Live, admit: Admit | None, now: float) -> None:
        """Adds its usage."""
        if admit is not None:
            self._decide(now, "admit", live, admit.cluster_queue, *_chosen(admit))
        self._held[live.workload.metadata.uid] = live, now
        self._hold(live, 1, now)

    def _hold(self, live: Live, sign: int, now: float) -> None:
        queue = self._queue(live)
        if queue is None:
            return
        queue.waiting.change(-sign, now)
        queue.holding.change(sign, now)
        for pair, amount in live.usage.items():
            queue.used.setdefault(pair, Level(since=now)).change(sign * amount, now)

    def started(self, live: Live, now: float) -> None:
        """Adds the wait until a first start."""
        if live.turn == 1 and not live.given:
            for group in self._of(live):
                group.started += 1
                group.wait.add(now - live.arrived)

    def preempted(self, live: Live, preemption: Preemption, now: float) -> None:
        """Counts it."""
        self._decide(now, "preempt", live, str(preemption.key))
        for group in self._of(live):
            group.preemptions += 1

    def released(self, live: Live, now: float) -> None:
        """Subtracts its usage."""
        self._hold(live, -1, now)
        _, since = self._held.pop(live.workload.metadata.uid)
        for group in self._of(live):
            group.hold(live.usage, now - since)

    def ended(self, live: Live, end: str, now: float) -> None:
        """Adds its slowdown and lost work."""
        self.last = now
        slowdown = (now - live.arrived) / max(live.job.run_seconds, SHORTEST)
        for group in self._of(live):
            group.ends[end] += 1
            if not live.given:
                group.slowdown.add(max(1.0, slowdown))
            group.lost += live.lost
        del self._known[live.workload.metadata.uid]
        queue = self._queue(live)
        if queue is not None:
            queue.waiting.change(-1, now)

    def rested(self, now: float, until: float) -> None:
        """Remembers the present time."""
        del until
        self._now = now

    def _all(self) -> Iterator[Level]:
        for queue in self.queues.values():
            yield from queue.all()
        yield from self.shared.values()

    def _decide(self, now: float, what: str, live: Live, *how: str) -> None:
        line = " ".join((f"{now:.3f}", what, str(live.key), *how))
        self._hash.update(line.encode() + b"\n")

    # --- results

    def figures(self) -> Obj:
        """All measurements as JSON; call it after the simulation."""
        for level in self._all():
            level.pass_time(self._now)
        for live, since in self._held.values():
            for group in self._of(live):
                group.hold(live.usage, self._now - since)
        seconds = self._now - (self.first if self.first is not None else self._now)
        groups = {
            kind: {name: by_name[name].figures(seconds) for name in sorted(by_name, key=_by_name)}
            for kind, by_name in self._groups.items()
        }
        shares = [
            share
            for name, levels in self.queues.items()
            if name in self._groups["cluster_queues"] and (share := _share(levels)) is not None
        ]
        return {
            "total": self.total.figures(seconds),
            "makespan_seconds": None if self.last is None else self.last - (self.first or 0.0),
            "jain_index": jain(shares),
            **groups,
            "use": {
                name: {str(pair): _use(pair, level, seconds) for pair, level in queue.used.items()}
                for name, queue in self.queues.items()
            },
            "lent": self._lent(seconds),
            "decisions": self._hash.hexdigest(),
        }

    def _lent(self, seconds: float) -> Obj:
        """By cohort, what its ClusterQueues borrowed from each other on average."""
        by_cohort: Obj = {}
        for queue in self.queues.values():
            if queue.cohort and seconds:
                lent = by_cohort.setdefault(queue.cohort, {})
                for pair, level in queue.used.items():
                    mean = shown(pair.resource, level.borrowed / seconds)
                    lent[str(pair)] = lent.get(str(pair), 0.0) + mean
        return by_cohort


def _nominal(queue: ClusterQueue) -> dict[FlavorResource, int]:
    return {pair: limit.nominal for pair, limit in queue_spec(queue).limits.items()}


def _owning(
    levels: dict[FlavorResource, Level], nominal: Mapping[FlavorResource, int], now: float
) -> dict[FlavorResource, Level]:
    """Changes the nominal quota of levels; 0 if none is named."""
    for pair in nominal:
        levels.setdefault(pair, Level(since=now))
    for pair, level in levels.items():
        level.pass_time(now)
        level.nominal = nominal.get(pair, 0)
    return levels


def _chosen(admit: Admit) -> list[str]:
    return [
        f"{assignment.name}:{assignment.count}:{sorted(assignment.flavors.items())}"
        for assignment in admit.admission.pod_set_assignments
    ]


def quota_of(cluster: Cluster) -> Counter[str]:
    """The nominal quota of all ClusterQueues and cohorts by resource, in units of the scheduler."""
    world = cluster.world
    limits = [queue_spec(queue).limits for queue in world.cluster_queues.values()]
    limits += [cohort_spec(cohort).limits for cohort in world.cohorts.values()]
    quota = Counter[str]()
    for pair, limit in (one for each in limits for one in each.items()):
        quota[pair.resource] += limit.nominal
    return quota


def _by_name(name: str) -> tuple[float, str]:
    """Numbers by their value, texts by themselves."""
    try:
        return float(name), ""
    except ValueError:
        return math.inf, name


def _share(levels: QueueLevels) -> float | None:
    """The largest usage of a resource relative to its nominal quota; None without quota or time."""
    owned: dict[str, float] = {}
    area: dict[str, float] = {}
    for pair, level in levels.used.items():
        owned[pair.resource] = owned.get(pair.resource, 0.0) + level.owned
        area[pair.resource] = area.get(pair.resource, 0.0) + level.area
    return max((area[name] / owned[name] for name in area if owned[name]), default=None)


def _use(pair: FlavorResource, level: Level, seconds: float) -> Obj:
    mean = level.area / seconds if seconds else 0.0
    borrowed = level.borrowed / seconds if seconds else 0.0
    return {
        "nominal": shown(pair.resource, level.owned / seconds if seconds else level.nominal),
        "mean": shown(pair.resource, mean),
        "max": shown(pair.resource, level.most),
        "borrowed": shown(pair.resource, borrowed),
        "of_nominal": level.area / level.owned if level.owned else None,
    }
