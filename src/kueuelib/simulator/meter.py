"""The figures of a simulation, per ClusterQueue, LocalQueue, priority, shape and size of jobs."""

from __future__ import annotations

import hashlib
import heapq
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import attrs

from kueuelib.api.kueue import ClusterQueue
from kueuelib.api.meta import Obj
from kueuelib.scheduler.decide.cycle import Admit
from kueuelib.scheduler.decide.preemption.victims import PendingPreemption
from kueuelib.scheduler.quota.amounts import Amounts, FlavorResource
from kueuelib.scheduler.quota.queue_spec import cohort_spec, queue_spec
from kueuelib.simulator.cluster import ClusterSetup
from kueuelib.simulator.figures import AmountOverTime, Spread, jain, shown
from kueuelib.simulator.live import Listener, Live
from kueuelib.simulator.trace import Sizes

# ---- the figures of groups of jobs ---------------------------------------------------------------

GROUPS = ("cluster_queues", "local_queues", "priorities", "shapes", "sizes")
QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


@attrs.define
class JobGroup:
    """A group of jobs with a common property.

    Attributes:
        jobs: the number of arrivals.
        started: how many of them started, without those that arrived with quota.
        ends: how many ended, by kind of end.
        wait: seconds from arrival to the first start.
        slowdown: bounded slowdown of those that ended, without those that arrived with quota.
        preemptions: how often they made room for others.
        lost: seconds of work that had to be repeated.
        used: by flavor and resource, the quota that they held, times seconds.
    """

    jobs: int = 0
    started: int = 0
    ends: Counter[str] = attrs.field(factory=Counter)
    wait: Spread = attrs.field(factory=Spread)
    slowdown: Spread = attrs.field(factory=Spread)
    preemptions: int = 0
    lost: float = 0.0
    used: dict[FlavorResource, float] = attrs.field(factory=dict)

    def hold(self, usage: Amounts, seconds: float) -> None:
        """Counts the quota that a job held."""
        for pair, amount in usage.items():
            self.used[pair] = self.used.get(pair, 0.0) + amount * seconds

    def figures(self, seconds: float) -> Obj:
        """As JSON; times in seconds.

        Args:
            seconds: how long the simulation took.
        """
        wait: Obj = {name: self.wait.quantile(part) for name, part in QUANTILES.items()}
        wait |= {"max": self.wait.most if self.wait.count else None, "mean": self.wait.mean}
        slowdown: Obj = {name: self.slowdown.quantile(part) for name, part in QUANTILES.items()}
        slowdown["mean"] = self.slowdown.mean
        return {
            "jobs": self.jobs,
            "started": self.started,
            "ended": dict(sorted(self.ends.items())),
            "wait_seconds": wait,
            "bounded_slowdown": slowdown,
            "preemptions": self.preemptions,
            "work_lost_seconds": self.lost,
            "mean_use": {
                str(pair): shown(pair.resource, area / seconds if seconds else 0.0)
                for pair, area in sorted(self.used.items())
            },
        }


# ---- the jobs that waited longest, and preemptions by ClusterQueue -------------------------------

KEPT = 20
"""The number of jobs that are kept."""
MOST_TURNS = 200
"""The maximum number of runs of a job that are kept; later ones are not."""


@attrs.define
class Longest(Listener):
    """Keeps the jobs with the longest waits until their first start.

    Jobs that arrived with quota are left out, because their wait is unknown.
    """

    _since: dict[str, float] = attrs.field(factory=dict, init=False)
    _ran: dict[str, list[tuple[float, float]]] = attrs.field(factory=dict, init=False)
    _heap: list[tuple[float, int, Obj]] = attrs.field(factory=list, init=False)
    _seen: int = attrs.field(default=0, init=False)

    def started(self, live: Live, now: float) -> None:
        """Records the start of a run."""
        self._since[live.workload.metadata.uid] = now

    def released(self, live: Live, now: float) -> None:
        """Records the run, if there was one."""
        since = self._since.pop(live.workload.metadata.uid, None)
        if since is not None:
            turns = self._ran.setdefault(live.workload.metadata.uid, [])
            if len(turns) < MOST_TURNS:
                turns.append((since, now))

    def ended(self, live: Live, end: str, now: float) -> None:
        """Keeps the job if it waited long."""
        self._keep(live, end, now, now)

    def unfinished(self, lives: Iterable[Live], now: float) -> None:
        """Adds the jobs that have not ended, with their waits so far."""
        for live in lives:
            self.released(live, now)
            self._keep(live, "", None, now)

    def _keep(self, live: Live, end: str, ended: float | None, now: float) -> None:
        ran = self._ran.pop(live.workload.metadata.uid, [])
        start = live.first_start
        wait = (now if start is None else start) - live.arrived
        least = self._heap[0][0] if len(self._heap) >= KEPT else 0.0
        if live.given or wait <= least:
            return
        self._seen += 1
        entry: Obj = {
            "job": str(live.key),
            "cluster_queue": live.cluster_queue,
            "priority": live.job.priority,
            "shape": live.job.shape,
            "wait_seconds": wait,
            "arrived": live.arrived,
            "started": start,
            "ended": ended,
            "end": end,
            "preemptions": live.preemptions,
            "ran": ran,
        }
        heapq.heappush(self._heap, (wait, -self._seen, entry))
        if len(self._heap) > KEPT:
            heapq.heappop(self._heap)

    def figures(self) -> list[Obj]:
        """The jobs, the longest wait first."""
        return [entry for _, _, entry in sorted(self._heap, key=lambda one: (-one[0], -one[1]))]


@attrs.define
class Rivals(Listener):
    """Counts preemptions by the ClusterQueues on both sides."""

    _count: Counter[tuple[str, str]] = attrs.field(factory=Counter, init=False)

    def preempted(self, live: Live, preemption: PendingPreemption, now: float) -> None:
        """Counts a preemption."""
        del now
        self._count[preemption.cluster_queue, live.cluster_queue] += 1

    def figures(self) -> Obj:
        """By ClusterQueue of the preemptors, the number of victims by their ClusterQueue."""
        by_preemptor: Obj = {}
        for (by, whom), count in sorted(self._count.items()):
            by_preemptor.setdefault(by, {})[whom] = count
        return by_preemptor


# --------------------------------------------------------------------------------------------------

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
    used: dict[FlavorResource, AmountOverTime]
    waiting: AmountOverTime = attrs.field(factory=AmountOverTime)
    holding: AmountOverTime = attrs.field(factory=AmountOverTime)

    def all(self) -> Iterator[AmountOverTime]:
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

    def __init__(self, cluster: ClusterSetup, sizes: Sizes = Sizes()) -> None:  # noqa: B008 - frozen
        self._sizes = sizes
        self._world = cluster.world
        self._groups: dict[str, dict[str, JobGroup]] = {name: {} for name in GROUPS}
        self._hash = hashlib.sha256()
        self.total = JobGroup()
        self.queues = {name: self._levels(name) for name in sorted(self._world.cluster_queues)}
        self.shared = _owning({}, self._shared(), 0.0)
        self.changed: dict[str, None] = {}
        self._known: dict[str, tuple[str, list[JobGroup]]] = {}
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

    def cluster_changed(self, cluster: ClusterSetup, now: float) -> None:
        """Takes over nominal quota and cohorts; the ClusterQueues are the same as before."""
        self._world = cluster.world
        for name, queue in self.queues.items():
            queue.cohort = self._levels(name).cohort
            _owning(queue.used, _nominal(self._world.cluster_queues[name]), now)
            self.changed[name] = None
        _owning(self.shared, self._shared(), now)

    def _of(self, live: Live) -> list[JobGroup]:
        """The groups of a job; known until it ends, unless it moves to another ClusterQueue."""
        home = live.cluster_queue or self._world.home_of(live.workload)
        uid = live.workload.metadata.uid
        known = self._known.get(uid)
        if known is None or known[0] != home:
            known = self._known[uid] = home, self._find(live, home)
        return known[1]

    def _find(self, live: Live, home: str) -> list[JobGroup]:
        job, counted = live.job, [self.total]
        queues = home or "(none)", f"{job.namespace}/{job.queue}"
        names = (*queues, str(job.priority), job.shape, self._sizes.of(job))
        for kind, name in zip(GROUPS, names, strict=True):
            groups = self._groups[kind]
            mine = name if name in groups or len(groups) < MOST_GROUPS else OTHERS
            if mine not in groups:
                groups[mine] = JobGroup()
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
            queue.used.setdefault(pair, AmountOverTime(since=now)).change(sign * amount, now)

    def started(self, live: Live, now: float) -> None:
        """Adds the wait until a first start."""
        if live.turn == 1 and not live.given:
            for group in self._of(live):
                group.started += 1
                group.wait.add(now - live.arrived)

    def preempted(self, live: Live, preemption: PendingPreemption, now: float) -> None:
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

    def _all(self) -> Iterator[AmountOverTime]:
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
    levels: dict[FlavorResource, AmountOverTime], nominal: Mapping[FlavorResource, int], now: float
) -> dict[FlavorResource, AmountOverTime]:
    """Changes the nominal quota of levels; 0 if none is named."""
    for pair in nominal:
        levels.setdefault(pair, AmountOverTime(since=now))
    for pair, level in levels.items():
        level.pass_time(now)
        level.nominal = nominal.get(pair, 0)
    return levels


def _chosen(admit: Admit) -> list[str]:
    return [
        f"{assignment.name}:{assignment.count}:{sorted(assignment.flavors.items())}"
        for assignment in admit.admission.pod_set_assignments
    ]


def quota_of(cluster: ClusterSetup) -> Counter[str]:
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


def _use(pair: FlavorResource, level: AmountOverTime, seconds: float) -> Obj:
    mean = level.area / seconds if seconds else 0.0
    borrowed = level.borrowed / seconds if seconds else 0.0
    return {
        "nominal": shown(pair.resource, level.owned / seconds if seconds else level.nominal),
        "mean": shown(pair.resource, mean),
        "max": shown(pair.resource, level.most),
        "borrowed": shown(pair.resource, borrowed),
        "of_nominal": level.area / level.owned if level.owned else None,
    }
