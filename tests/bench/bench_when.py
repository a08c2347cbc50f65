"""Whether the answers of `explain --when` hold, on a trace whose run times nobody told it."""

from __future__ import annotations

import math
import time
from random import Random

import attrs
import pytest
from figures import show

from kueuelib.app.expected_starts import PLACES
from kueuelib.scheduler.explain.world import World
from kueuelib.simulator.cluster import ClusterSetup
from kueuelib.simulator.driver import Driver
from kueuelib.simulator.forecast import Known, RunTimes, cluster_in, forecasts
from kueuelib.simulator.live import Listener, Live
from kueuelib.simulator.trace import TraceJob, pods
from kueuelib.testing.builders import make_cluster_queue, make_flavor, make_local_queue

DAYS = 18
WINDOW = 6 * 3600.0
"""How far back the answers look for jobs that came lately."""
MOST = 110
RUNS = 19
SHAPES = ((1, 900.0, 0.8), (2, 1800.0, 1.0), (4, 3600.0, 0.6))
"""CPUs, and the median and sigma of log-normal run times in seconds."""


def world() -> World:
    preemption = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}
    queues = {
        name: make_cluster_queue(name, {"f": {"cpu": 12}}, cohort="all", preemption=preemption)
        for name in ("a", "b", "c")
    }
    local = [make_local_queue(name, name, "ns") for name in queues]
    return World(
        cluster_queues=queues,
        local_queues={queue.key: queue for queue in local},
        flavors={"f": make_flavor("f")},
        namespaces={"ns": {}},
    )


def trace(random: Random) -> list[TraceJob]:
    """Poisson arrivals, at about two thirds of the quota."""
    mean = sum(cpu * median * math.exp(sigma**2 / 2) for cpu, median, sigma in SHAPES) / len(SHAPES)
    rate = 0.67 * 36 / mean
    jobs, at = [], 1_900_000_000.0
    end = at + DAYS * 86400
    while (at := at + random.expovariate(rate)) < end:
        cpu, median, sigma = random.choice(SHAPES)
        jobs.append(
            TraceJob(
                name=f"j{len(jobs):05d}",
                arrival=at,
                run_seconds=random.lognormvariate(math.log(median), sigma),
                pod_sets=(pods({"cpu": cpu}),),
                queue=random.choice("abc"),
                namespace="ns",
                priority=random.choice((0, 0, 0, 10)),
            )
        )
    return jobs


@attrs.define(eq=False)
class Asker(Listener):
    """Asks when jobs will start that wait, and hears later when they did."""

    random: Random
    chance: float
    whole_queue: bool
    answers: list = attrs.field(factory=list)
    starts: dict = attrs.field(factory=dict)
    times: RunTimes = attrs.field(factory=RunTimes)
    recent: list = attrs.field(factory=list)
    seconds: float = 0.0
    driver: Driver | None = None

    def arrived(self, live: Live, now: float) -> None:
        self.recent.append((now, live.workload))

    def started(self, live: Live, now: float) -> None:
        self.starts.setdefault(live.key, now)

    def ended(self, live: Live, end: str, now: float) -> None:
        self.times.add(live.workload, live.job.run_seconds)

    def rested(self, now: float, until: float) -> None:
        if len(self.answers) >= MOST or now < 1_900_000_000.0 + 86400:
            return
        waiting = sorted(key for key, live in self.driver.live.items() if live.first_start is None)
        if not waiting or self.random.random() > self.chance:
            return
        key = self.random.choice(waiting)
        self.recent = [arrival for arrival in self.recent if arrival[0] > now - WINDOW]
        known = Known(self.times, {}, [each for _, each in self.recent], now - WINDOW)
        began = time.process_time()
        facts, keys = self.driver.world(), [key]
        if self.whole_queue:
            keys = list(facts.lines()[facts.home_of(facts.workloads[key])])[:PLACES]
            facts = facts.narrowed(keys[-1])
        made = forecasts(facts, keys, now, known, runs=RUNS, seed=len(self.answers))
        prediction = made[key]
        self.seconds += time.process_time() - began
        self.answers.append((key, now, prediction.quantile(0.5), prediction.quantile(0.9)))


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("whole_queue", [False, True])
def test_how_many_answers_hold(*, whole_queue: bool) -> None:
    random = Random(11)
    asker = Asker(random, 0.1, whole_queue)
    cluster: ClusterSetup = cluster_in(world())
    driver = asker.driver = Driver(cluster, (asker,))
    driver.run(trace(random))
    held = dict.fromkeys((2, 3), 0)
    for key, now, *waits in asker.answers:
        for index, wait in enumerate(waits, 2):
            held[index] += wait is not None and asker.starts[key] - now <= wait
    count = len(asker.answers)
    actual = sorted(asker.starts[key] - now for key, now, *_ in asker.answers)
    answering = "the visibility API" if whole_queue else "explain --when"
    show(
        f"{answering}: {count} questions about a trace of {DAYS} days",
        [
            ("of the p50 answers hold", f"{held[2] / count:.0%}"),
            ("of the p90 answers hold", f"{held[3] / count:.0%}"),
            (
                "actual waits, p50 and p90",
                f"{actual[count // 2]:.0f} s, {actual[count * 9 // 10]:.0f} s",
            ),
            (f"processor time of an answer, {RUNS} simulations", f"{asker.seconds / count:.2f} s"),
        ],
    )
    assert count >= 100
