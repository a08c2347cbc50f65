"""Forecasts when a waiting Workload will start, by many simulations from the present state.

Each simulation draws run times from similar finished jobs, and later arrivals from recent ones.
Nothing else is random.
"""

from __future__ import annotations

import math
from bisect import bisect_right, insort
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from random import Random
from typing import Any

import attrs
import orjson

from kueuelib.api import meta as conditions
from kueuelib.api import names
from kueuelib.api.codec import encode
from kueuelib.api.kinds import NODES
from kueuelib.api.kueue import Workload, WorkloadStatus
from kueuelib.api.meta import Obj, ObjectKey, ObjectMeta
from kueuelib.api.quantity import quantity_of
from kueuelib.api.workload_state import has_quota, is_finished
from kueuelib.scheduler.explain.world import World
from kueuelib.scheduler.reasons import condition_reason
from kueuelib.scheduler.topology.nodes import NodeFacts
from kueuelib.simulator.cluster import ClusterSetup
from kueuelib.simulator.driver import Driver
from kueuelib.simulator.live import Listener, Live
from kueuelib.simulator.trace import PodShape, TraceJob
from kueuelib.workload.life import LifeSettings

# ---- estimates run times from earlier jobs of the same queue with the same requests --------------

Likeness = tuple[ObjectKey, str]
"""A class of similar jobs: their LocalQueue, and their requests as a text."""


def likeness(workload: Workload) -> Likeness:
    """The class of a job."""
    parts = []
    for pod_set in workload.spec.pod_sets:
        containers = [
            sorted((name, str(amount)) for name, amount in each.resources.requests.items())
            for each in pod_set.template.spec.containers
        ]
        parts.append((pod_set.name, pod_set.count, containers))
    return ObjectKey(workload.namespace, workload.spec.queue_name), repr(parts)


class RunTimes:
    """The run times of jobs that have ended, in seconds.

    Args:
        most: how many are kept, the last ones; None for all.
    """

    def __init__(self, most: int | None = None) -> None:
        self._alike: dict[Likeness, list[float]] = {}
        self._in_queue: dict[ObjectKey, list[float]] = {}
        self._most = most
        self._order: deque[tuple[Likeness, float]] = deque()

    def add(self, workload: Workload, seconds: float) -> None:
        """Adds a job that has ended."""
        group = likeness(workload)
        insort(self._alike.setdefault(group, []), seconds)
        insort(self._in_queue.setdefault(group[0], []), seconds)
        if self._most is not None:
            self._order.append((group, seconds))
            if len(self._order) > self._most:
                self._drop(*self._order.popleft())

    def _drop(self, group: Likeness, seconds: float) -> None:
        self._in_queue[group[0]].remove(seconds)
        self._alike[group].remove(seconds)
        if not self._alike[group]:
            del self._alike[group]

    def of(self, workload: Workload) -> tuple[float, ...]:
        """The run times of similar jobs, ascending."""
        return tuple(self._alike.get(likeness(workload), ()))

    def in_queue(self, workload: Workload) -> tuple[float, ...]:
        """The run times of all jobs of its LocalQueue, ascending."""
        return tuple(self._in_queue.get(likeness(workload)[0], ()))

    def middle(self, workload: Workload) -> float | None:
        """The median run time of similar jobs, or else of its LocalQueue."""
        times = self.of(workload) or self.in_queue(workload)
        return times[len(times) // 2] if times else None


# Turns a world of facts into the simulator's input: the cluster, and jobs with their quota.


def objects_of(world: World) -> Iterator[Obj]:
    """Everything but the Workloads of a world, as raw objects."""
    for name, labels in world.namespaces.items():
        meta: Obj = {"name": name, "labels": dict(labels)}
        yield {"apiVersion": "v1", "kind": "Namespace", "metadata": meta}
    tables: tuple[Mapping[Any, Any], ...] = (
        world.limit_ranges,
        world.runtime_classes,
        world.topologies,
        world.flavors,
        world.checks,
        world.cohorts,
        world.cluster_queues,
        world.local_queues,
    )
    for table in tables:
        yield from map(encode, table.values())
    taken: dict[str, Counter[str]] = {}
    for pod in world.foreign_pods.values():
        taken.setdefault(pod.node, Counter()).update(pod.request or {})
    for node in world.nodes.values():
        yield _raw_node(node, taken.get(node.name, Counter()))


def _raw_node(node: NodeFacts, taken: Mapping[str, int]) -> Obj:
    """A Node without what pods outside of the queue take."""
    left = {name: amount - taken.get(name, 0) for name, amount in node.capacity.items()}
    return {
        "apiVersion": NODES.api_version,
        "kind": NODES.kind,
        "metadata": {"name": node.name, "labels": dict(node.labels)},
        "spec": {"taints": list(map(encode, node.taints)), "unschedulable": node.cordoned},
        "status": {
            "allocatable": {name: str(quantity_of(name, max(0, n))) for name, n in left.items()},
            "conditions": [{"type": "Ready", "status": str(node.ready)}],
        },
    }


def cluster_in(world: World) -> ClusterSetup:
    """The cluster of a world; its checks are as active as in the world."""
    return ClusterSetup(
        attrs.evolve(world, workloads={}),
        {name: encode(queue) for name, queue in world.cluster_queues.items()},
        {key: encode(local_queue) for key, local_queue in world.local_queues.items()},
        {name: encode(check) for name, check in world.checks.items()},
    )


def job_of(
    workload: Workload, arrival: float, run_seconds: float, ran_seconds: float = 0.0
) -> TraceJob:
    """A job that brings its Workload, with the quota that it holds.

    Args:
        workload: the object.
        arrival: when it arrives in the simulation.
        run_seconds: its total run time.
        ran_seconds: how long it has run on arrival.
    """
    raw = encode(workload)
    shapes = tuple(
        PodShape(pod_set.count, (), pod_set.name, pod_set.min_count)
        for pod_set in workload.spec.pod_sets
    )
    return TraceJob(
        name=workload.name,
        arrival=arrival,
        run_seconds=run_seconds,
        pod_sets=shapes,
        queue=workload.spec.queue_name,
        namespace=workload.namespace,
        priority=workload.spec.priority or 0,
        workload=orjson.dumps(raw),
        ran_seconds=ran_seconds,
    )


def run_time(workload: Workload) -> float | None:
    """How long the last run of a finished Workload took; None if it never ran or has not
    finished.
    """
    ended = conditions.since(workload.status.conditions, names.FINISHED)
    since = conditions.since(workload.status.conditions, names.ADMITTED)
    return None if ended is None or since is None else max(0.0, ended - since)


# --------------------------------------------------------------------------------------------------

RUNS = 200
"""The default number of simulations."""
HORIZON = 30 * 86400.0
"""Seconds after which a simulation ends."""
MOST_LATER = 2000
"""The maximum number of later arrivals in each simulation."""
SHORTEST = 3600.0
"""The shortest period, in seconds, whose arrivals are used to predict later ones."""
FEW = 5
"""With fewer finished jobs than this, run times are unreliable."""
_FOREVER = 2 * HORIZON


@attrs.frozen
class Known:
    """Knowledge besides the objects.

    Attributes:
        times: the run times of jobs that have ended.
        limits: by UID, the maximum number of seconds that a Workload may run.
        recent: Workloads that arrived recently, whatever their fate.
        since: the time since which `recent` is complete, in seconds since the epoch.
    """

    times: RunTimes
    limits: Mapping[str, float] = attrs.field(factory=dict)
    recent: Sequence[Workload] = ()
    since: float = math.inf


@attrs.frozen
class Forecast:
    """When a Workload will start.

    Attributes:
        waits: the seconds until it starts, ascending; one for each simulation in which it starts.
        runs: how many simulations there were.
        because: why it did not start in the others: condition reasons with their numbers.
        sources: how many run times of present Workloads came from each source: `alike`,
            `few alike`, `limit`, `longer than all similar ones`, `unknown`.
        unknown: the Workloads whose run time is unknown; they never end here.
        arrivals: the median number of later arrivals.
    """

    waits: tuple[float, ...]
    runs: int
    because: Mapping[str, int]
    sources: Mapping[str, int]
    unknown: tuple[ObjectKey, ...]
    arrivals: int

    def quantile(self, part: float) -> float | None:
        """Seconds after which it has started with a probability; None if that is not certain
        enough.

        Reality counts as one more simulation: of nine, the longest wait is the p90.
        """
        index = math.ceil(part * (self.runs + 1)) - 1
        return self.waits[index] if 0 <= index < len(self.waits) else None


def forecast(
    world: World,
    key: ObjectKey,
    now: float,
    known: Known,
    *,
    runs: int = RUNS,
    seed: int = 0,
    life: LifeSettings | None = None,
    goes_on: Callable[[int], bool] = lambda _: True,
) -> Forecast:
    """Simulates forward until a Workload starts, many times.

    Args:
        world: the facts; not changed.
        key: the Workload; it waits.
        now: seconds since the epoch.
        known: run times and recent arrivals.
        runs: how many simulations there are at most.
        seed: of all random numbers; the same seed gives the same answer.
        life: the settings for times.
        goes_on: called before each simulation but the first, with the number of finished ones.
    """
    return forecasts(world, (key,), now, known, runs=runs, seed=seed, life=life, goes_on=goes_on)[
        key
    ]


def forecasts(
    world: World,
    keys: Sequence[ObjectKey],
    now: float,
    known: Known,
    *,
    runs: int = RUNS,
    seed: int = 0,
    life: LifeSettings | None = None,
    goes_on: Callable[[int], bool] = lambda _: True,
    stops: Callable[[], bool] = lambda: False,
) -> dict[ObjectKey, Forecast]:
    """Simulates forward until several Workloads of one ClusterQueue start, many times.

    Args:
        world: as for `forecast`.
        keys: the Workloads, at least one.
        now: as for `forecast`.
        known: as for `forecast`.
        runs: as for `forecast`.
        seed: as for `forecast`.
        life: as for `forecast`.
        goes_on: as for `forecast`.
        stops: asked again and again in a simulation, which does not count if it ends that way; so
            `runs` of the results may be 0.
    """
    world = _tree_of(world, keys[0])
    draw = _Draw(world, known, now, Random(seed))
    cluster = cluster_in(world)

    def play(awaited: Collection[ObjectKey], *, later: bool) -> _Watch:
        watch = _Watch(awaited, now + HORIZON, stops)
        watch.driver = Driver(cluster, (watch,), life=life)
        watch.driver.run(draw.jobs(later=later))
        return watch

    # Where they do not even start alone, others that come make no difference, and would pile up.
    alone = play(keys, later=False)
    awaited = [key for key in keys if key in alone.starts] or keys
    later = awaited[0] in alone.starts
    starts: dict[ObjectKey, list[float]] = {key: [] for key in keys}
    arrivals: list[int] = []
    because: dict[ObjectKey, Counter[str]] = {key: Counter() for key in keys}
    while len(arrivals) < runs and (not arrivals or goes_on(len(arrivals))):
        watch = play(awaited, later=later)
        if watch.stopped:
            break
        arrivals.append(draw.later)
        for key in keys:
            if key in watch.starts:
                starts[key].append(watch.starts[key] - now)
            else:
                because[key][watch.why(key)] += 1
    return {
        key: Forecast(
            tuple(sorted(starts[key])),
            len(arrivals),
            dict(because[key].most_common()),
            dict(draw.sources),
            draw.unknown,
            sorted(arrivals)[len(arrivals) // 2] if arrivals else 0,
        )
        for key in keys
    }


def _tree_of(world: World, key: ObjectKey) -> World:
    """The ClusterQueues that matter to a Workload because they share quota with its own."""
    queue = world.cluster_queue_of(world.workloads[key])
    if queue is None or world.settings.block_admission:
        return world
    scope = world.scope_of(queue)
    return attrs.evolve(
        world,
        cluster_queues={name: world.cluster_queues[name] for name in sorted(scope)},
        local_queues={
            each: local_queue
            for each, local_queue in world.local_queues.items()
            if local_queue.spec.cluster_queue in scope
        },
        workloads={
            each: workload
            for each, workload in world.workloads.items()
            if world.home_of(workload) in scope
        },
    )


class _Watch(Listener):
    """Ends a simulation when some Workloads have started, or when it takes too long.

    Attributes:
        starts: when Workloads started, the awaited ones and others.
        stopped: whether it was ended from outside.
    """

    def __init__(
        self, awaited: Collection[ObjectKey], deadline: float, stops: Callable[[], bool]
    ) -> None:
        self._awaited = set(awaited)
        self._deadline = deadline
        self._stops = stops
        self.starts: dict[ObjectKey, float] = {}
        self.stopped = False
        self.driver: Driver | None = None

    def arrived(self, live: Live, now: float) -> None:
        """A job was submitted."""
        del live, now
        self._look()

    def started(self, live: Live, now: float) -> None:
        """A job runs."""
        self.starts.setdefault(live.key, now)
        self._awaited.discard(live.key)
        if not self._awaited:
            self._stop()

    def rested(self, now: float, until: float) -> None:
        """Nothing happens until a time."""
        del now
        if until > self._deadline:
            self._stop()
        self._look()

    def why(self, key: ObjectKey) -> str:
        """Why a Workload waits at the end, in the words of a condition."""
        assert self.driver is not None, "it is set before the run"
        reason = self.driver.engine.standing(key).reason
        return "Unknown" if reason is None else condition_reason(reason)

    def _look(self) -> None:
        if self._stops():
            self.stopped = True
            self._stop()

    def _stop(self) -> None:
        assert self.driver is not None, "it is set before the run"
        self.driver.stop()


class _Draw:
    """Draws run times and arrivals."""

    def __init__(self, world: World, known: Known, now: float, random: Random) -> None:
        self._world = world
        self._known = known
        self._now = now
        self._random = random
        self.sources: Counter[str] = Counter()
        self._present = sorted(
            (each for each in world.workloads.values() if not is_finished(each)),
            key=lambda each: (not has_quota(each), each.key),
        )
        self.later = 0
        self._encoded: dict[ObjectKey, TraceJob] = {}
        unknown = []
        for each in self._present:
            source = self._source(each, self._elapsed(each))
            self.sources[source] += 1
            if source == "unknown":
                unknown.append(each.key)
        self.unknown = tuple(unknown)
        self._recent = [
            each
            for each in known.recent
            if world.home_of(each) in world.cluster_queues and self._source(each, 0.0) != "unknown"
        ]

    def jobs(self, *, later: bool) -> Iterator[TraceJob]:
        """The present jobs and, if requested, later ones, in the order of arrivals."""
        self.later = 0
        yield from map(self._job, self._present)
        span, count = max(SHORTEST, self._now - self._known.since), len(self._recent)
        if not later or not count:
            return
        # The number and kind of arrivals are known from one period only, so they are drawn, too.
        rate = self._random.gammavariate(count, 1.0) / span
        recent = self._random.choices(self._recent, k=count)
        at = self._now
        while self.later < MOST_LATER:
            at += self._random.expovariate(rate)
            self.later += 1
            yield self._job_later(self._random.choice(recent), at, self.later)

    def _job(self, workload: Workload) -> TraceJob:
        elapsed = self._elapsed(workload)
        job = self._encoded.get(workload.key) or job_of(workload, self._now, 0.0, elapsed)
        self._encoded[workload.key] = job
        return attrs.evolve(job, run_seconds=self._seconds(workload, elapsed))

    def _elapsed(self, workload: Workload) -> float:
        if not has_quota(workload):
            return 0.0
        since = conditions.since(workload.status.conditions, names.ADMITTED)
        return 0.0 if since is None else max(0.0, self._now - since)

    def _source(self, workload: Workload, elapsed: float) -> str:
        alike = self._known.times.of(workload)
        if alike and alike[-1] > elapsed:
            return "alike" if len(alike) >= FEW else "few alike"
        if workload.uid in self._known.limits:
            return "limit"
        return "longer than all similar jobs" if alike else "unknown"

    def _seconds(self, workload: Workload, elapsed: float) -> float:
        """The total run time of a job that has already run for some seconds."""
        limit = self._known.limits.get(workload.uid, math.inf)
        alike = self._known.times.of(workload)
        longer = alike[bisect_right(alike, elapsed) :]
        if longer:
            return min(self._random.choice(longer), limit)
        if limit < math.inf:
            return limit
        if alike:  # the longer it runs, the longer it will
            return elapsed / (1.0 - self._random.random())
        return _FOREVER

    def _job_later(self, like: Workload, at: float, number: int) -> TraceJob:
        meta = ObjectMeta(
            name=f"later-{number}",
            namespace=like.namespace,
            uid=f"later-{number:09d}",
            creation_timestamp=float(int(at)),
            generation=1,
        )
        spec = attrs.evolve(like.spec, active=True)
        fresh = attrs.evolve(like, metadata=meta, spec=spec, status=WorkloadStatus())
        return job_of(fresh, at, self._seconds(like, 0.0))
