"""Laws of the simulator: they hold in every instant in which it comes to rest."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable, Sequence

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from preemption_worlds import PAIRS, QUEUES, worlds

from kueuelib.api.codec import encode
from kueuelib.api.meta import Obj
from kueuelib.api.quantity import amount_of
from kueuelib.scheduler import events
from kueuelib.scheduler.decide.cycle import decide
from kueuelib.scheduler.settings import FairSharingRules, Settings
from kueuelib.simulator.changes import AT_SECONDS, LOST_AT_SECONDS, ClusterChange, course
from kueuelib.simulator.cluster import ClusterSetup, cluster_of
from kueuelib.simulator.driver import Driver, Timing
from kueuelib.simulator.live import Listener, Live
from kueuelib.simulator.meter import GROUPS, Meter
from kueuelib.simulator.play import JobRows, QueueRows
from kueuelib.simulator.trace import Trace, TraceJob, pods
from kueuelib.testing.builders import make_cluster_queue, make_flavor, make_local_queue
from kueuelib.workload import states

KINDS = {
    events.FlavorSet: "flavor",
    events.ClusterQueueSet: "cluster_queue",
    events.LocalQueueSet: "local_queue",
}


@st.composite
def clusters(draw: st.DrawFn) -> ClusterSetup:
    found = draw(worlds(loners=True))
    objects = [encode(getattr(one, KINDS[type(one)])) for one in found if type(one) in KINDS]
    fair = FairSharingRules() if draw(st.integers(0, 3)) == 0 else None
    return cluster_of(objects, Settings(fair_sharing=fair))


@st.composite
def jobs(draw: st.DrawFn) -> list[TraceJob]:
    found = []
    for number in range(draw(st.integers(1, 14))):
        count = draw(st.sampled_from([1, 1, 1, 2, 3]))
        fewest = draw(st.none() | st.integers(1, count)) if count > 1 else None
        shape = pods({"gpu": draw(st.integers(1, 5))}, count, fewest)
        found.append(
            TraceJob(
                name=f"j{number}",
                arrival=draw(st.integers(0, 40)) / 2,
                run_seconds=draw(st.integers(0, 30)),
                pod_sets=(shape,),
                queue=draw(st.sampled_from(QUEUES)),
                namespace="ns",
                priority=draw(st.integers(-2, 2)),
                after=f"j{draw(st.integers(0, number - 1))}"
                if number and draw(st.booleans())
                else "",
                think_seconds=draw(st.integers(0, 3)),
                checkpoint_seconds=draw(st.none() | st.integers(1, 10)),
            )
        )
    return found


timings = st.builds(Timing, stop_seconds=st.sampled_from([0.0, 0.0, 1.0, 7.5]))


class Judge(Listener):
    """Looks at every instant of rest, with formulas of its own."""

    def __init__(self, cluster: ClusterSetup, meter: Meter) -> None:
        self.cluster = cluster
        self.meter = meter
        self.driver: Driver
        self.changing = False
        self.instants = 0

    def rested(self, now: float, until: float) -> None:
        self.instants += 1
        used = self.usage()
        if not self.changing:  # who holds quota keeps it when there is less of it
            self.check_limits(used)
        self.check_meter(used)
        if until > now and not self.driver.interrupted and not self.anybody_leaves():
            self.check_nobody_sleeps(now)

    def usage(self) -> dict[str, Counter[str]]:
        """What the objects say, by ClusterQueue and flavor."""
        found = {name: Counter[str]() for name in QUEUES}
        for live in self.driver.live.values():
            admission = states.status_of(live.raw).get("admission")
            for one in admission["podSetAssignments"] if admission else ():
                amount = live.workload.status.admission.pod_set_assignments[0]
                gpu = amount_of("gpu", amount.resource_usage["gpu"])
                found[admission["clusterQueue"]][one["flavors"]["gpu"]] += gpu
        return found

    def check_limits(self, used: dict[str, Counter[str]]) -> None:
        for pair in PAIRS:
            nominal = taken = 0
            for name in QUEUES:
                queue = self.cluster.cluster_queues[name]["spec"]
                (quota,) = [
                    resource
                    for flavor in queue["resourceGroups"][0]["flavors"]
                    for resource in flavor["resources"]
                    if flavor["name"] == pair.flavor
                ]
                own, amount = int(quota["nominalQuota"]), used[name][pair.flavor]
                if not queue.get("cohortName"):
                    assert amount <= own
                    continue
                assert amount <= own + int(quota.get("borrowingLimit", 10**9))
                kept = max(0, own - int(quota.get("lendingLimit", own)))
                nominal, taken = nominal + own, taken + max(amount, kept)
            assert taken <= nominal

    def check_meter(self, used: dict[str, Counter[str]]) -> None:
        for name, levels in self.meter.queues.items():
            amounts = {pair.flavor: level.amount for pair, level in levels.used.items()}
            assert {flavor: found for flavor, found in amounts.items() if found} == {
                flavor: found for flavor, found in used[name].items() if found
            }
            waiting = [live for live in self.lives(name) if not states.has_quota(live.raw)]
            assert levels.waiting.amount == len(waiting)

    def anybody_leaves(self) -> bool:
        """Whether a victim has yet to leave.

        Until then the head that it leaves for keeps its place, which an engine that is told
        everything anew does not know.
        """
        lives = self.driver.live.values()
        return any(states.is_evicted(live.raw) and states.has_quota(live.raw) for live in lives)

    def lives(self, queue: str) -> list[Live]:
        return [live for live in self.driver.live.values() if live.job.queue == queue]

    def check_nobody_sleeps(self, now: float) -> None:
        """An engine that is told everything anew admits nobody."""
        engine = self.driver.world().engine(now)
        for _ in range(200):
            found = engine.next_cycle(now)
            if found is None:
                return
            settled = engine.settle(decide(found, now), now)
            assert settled.admissions == ()
        raise AssertionError("cycles without an end")


def simulated(
    cluster: ClusterSetup,
    found: list[TraceJob],
    timing: Timing,
    changes: Sequence[ClusterChange] = (),
) -> tuple[Judge, Meter, str]:
    meter = Meter(cluster)
    judge, rows, levels = Judge(cluster, meter), io.StringIO(), io.StringIO()
    listeners = (meter, judge, JobRows(rows), QueueRows(levels, meter, 5))
    judge.driver = Driver(cluster, listeners, changes=changes, timing=timing)
    judge.changing = bool(changes)
    with Trace(found) as trace:
        judge.driver.run(trace, trace.awaited)
    return judge, meter, rows.getvalue() + levels.getvalue()


@given(clusters(), jobs(), timings)
@settings(max_examples=25, deadline=None)
def test_the_laws_hold_in_every_instant(
    cluster: ClusterSetup, found: list[TraceJob], timing: Timing
) -> None:
    judge, meter, _ = simulated(cluster, found, timing)
    assert judge.instants
    left = judge.driver.live.values()
    assert all(live.started is None for live in left)
    figures = meter.figures()
    total = figures["total"]
    assert total["jobs"] == total["ended"].get("completed", 0) + len(left)
    assert judge.driver.stalls == 0
    assert total["work_lost_seconds"] >= 0
    for kind in GROUPS:
        check_use(figures, figures[kind].values())
    for name, group in figures["cluster_queues"].items():
        use = {pair: one["mean"] for pair, one in figures["use"][name].items() if one["mean"]}
        assert {pair: mean for pair, mean in group["mean_use"].items() if mean} == pytest.approx(
            use
        )


def check_use(figures: Obj, groups: Iterable[Obj]) -> None:
    """The groups of a kind use together what all jobs use."""
    found: Counter[str] = Counter()
    for group in groups:
        found.update(group["mean_use"])
    assert dict(found) == pytest.approx(figures["total"]["mean_use"])


@given(clusters(), jobs(), timings)
@settings(max_examples=25, deadline=None)
def test_the_same_jobs_give_the_same_results(
    cluster: ClusterSetup, found: list[TraceJob], timing: Timing
) -> None:
    _, first, text = simulated(cluster, found, timing)
    _, second, again = simulated(cluster, found, timing)
    assert (first.figures(), text) == (second.figures(), again)


@given(clusters(), jobs(), timings, st.data())
@settings(max_examples=20, deadline=None)
def test_nobody_sleeps_while_the_cluster_changes(
    cluster: ClusterSetup, found: list[TraceJob], timing: Timing, data: st.DataObject
) -> None:
    """Quota of another world, stopped queues and lost flavors at any time."""
    names = sorted(cluster.world.flavors)
    objects = [*cluster.cluster_queues.values(), *cluster.local_queues.values()]
    objects += [encode(flavor) for flavor in cluster.world.flavors.values()]
    for _ in range(data.draw(st.integers(1, 4))):
        at = str(data.draw(st.integers(0, 40)) / 2)
        name = data.draw(st.sampled_from(QUEUES))
        policy = data.draw(st.sampled_from(["None", "Hold", "HoldAndDrain"]))
        other = data.draw(clusters()).cluster_queues[name]
        changed = [
            {**other, "spec": {**other["spec"], "stopPolicy": policy}},
            encode(cluster.world.flavors[data.draw(st.sampled_from(names))]),
        ]
        kinds = [AT_SECONDS, data.draw(st.sampled_from([AT_SECONDS, LOST_AT_SECONDS]))]
        for obj, kind in zip(changed, kinds, strict=True):
            objects.append({**obj, "metadata": {**obj["metadata"], "annotations": {kind: at}}})
    first, changes = course(objects, cluster.world.settings)
    assert changes
    judge, meter, _ = simulated(first, found, timing, changes)
    assert judge.instants
    total = meter.figures()["total"]
    assert total["jobs"] == total["ended"].get("completed", 0) + len(judge.driver.live)


def naive_starts(found: list[TraceJob], quota: int) -> dict[str, float]:
    """First come, first served on one queue, written down without any engine."""
    waiting: list[TraceJob] = []
    running: list[tuple[float, int]] = []
    coming = sorted(found, key=lambda job: job.arrival)
    starts: dict[str, float] = {}
    while coming or running:
        now = min([job.arrival for job in coming[:1]] + [end for end, _ in running])
        running = [(end, amount) for end, amount in running if end > now]
        while coming and coming[0].arrival <= now:
            waiting.append(coming.pop(0))
        waiting.sort(key=lambda job: (-job.priority, int(job.arrival)))
        while waiting:
            amount = int(waiting[0].pod_sets[0].requests[0][1])
            if sum(used for _, used in running) + amount > quota:
                break
            job = waiting.pop(0)
            starts[job.name] = now
            if job.run_seconds:
                running.append((now + job.run_seconds, amount))
    return starts


@given(jobs(), st.integers(1, 8))
@settings(max_examples=25, deadline=None)
def test_first_come_first_served_is_that_of_a_naive_model(
    found: list[TraceJob], quota: int
) -> None:
    group = {"one": {"gpu": quota}}
    objects = [
        encode(make_flavor("one")),
        encode(make_cluster_queue("a", group, queueingStrategy="StrictFIFO")),
        encode(make_local_queue("a", "a")),
    ]
    single = [
        attrs.evolve(
            job,
            queue="a",
            after="",
            pod_sets=(attrs.evolve(job.pod_sets[0], count=1, min_count=None),),
        )
        for job in found
    ]
    starts: dict[str, float] = {}

    class Starts(Listener):
        def started(self, live: Live, now: float) -> None:
            starts[live.job.name] = now

    with Trace(single) as trace:
        Driver(cluster_of(objects), [Starts()]).run(trace)
    assert starts == naive_starts(single, quota)
