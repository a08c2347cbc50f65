"""What a simulation keeps does not grow with the jobs that have ended."""

from __future__ import annotations

import gc
import io
from collections.abc import Iterator

import pytest

from kueuelib.api.codec import encode
from kueuelib.simulator import meter as meters
from kueuelib.simulator.cluster import cluster_of
from kueuelib.simulator.driver import Driver
from kueuelib.simulator.history import FEWEST, Historian
from kueuelib.simulator.live import Listener, Live
from kueuelib.simulator.meter import OTHERS, Longest, Meter, Rivals
from kueuelib.simulator.play import JobRows, QueueRows
from kueuelib.simulator.trace import Trace, TraceJob, pods
from kueuelib.testing.builders import make_cluster_queue, make_flavor, make_local_queue

CLUSTER = cluster_of(
    [
        encode(make_flavor("f")),
        encode(make_cluster_queue("q", {"f": {"cpu": 3}})),
        encode(make_local_queue("q", "q", "default")),
    ]
)


class Counting(Listener):
    """How many objects there are after some jobs have ended, by the number of jobs."""

    def __init__(self, every: int) -> None:
        self._every = every
        self._ended = 0
        self.objects: list[int] = []

    def ended(self, live: Live, end: str, now: float) -> None:
        self._ended += 1
        if self._ended % self._every == 0:
            gc.collect()
            self.objects.append(len(gc.get_objects()))


def jobs(count: int) -> Iterator[TraceJob]:
    """Three at a time, every other trio waits for the one before it; all alike."""
    for at in range(count):
        yield TraceJob(f"j{at}", at // 3 * 30, 45, (pods({"cpu": 1}),), "q")


def test_objects_do_not_grow_with_the_jobs_that_have_ended() -> None:
    meter, counting = Meter(CLUSTER), Counting(300)
    # so short a span that all intervals are there before the first count
    historian = Historian(meter, FEWEST / 2)
    tables = JobRows(io.StringIO()), QueueRows(io.StringIO(), meter, 1)
    driver = Driver(CLUSTER, [meter, historian, Longest(), Rivals(), *tables, counting])
    coming = (job for job in jobs(1200) if int(job.name[1:]) % 6 < 3)
    driver.run(coming)
    first, last = counting.objects[0], counting.objects[-1]
    assert len(counting.objects) == 2
    assert last - first < 60


def test_shapes_that_are_too_many_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meters, "MOST_GROUPS", 2)
    meter = Meter(CLUSTER)
    found = [TraceJob(f"j{at}", 0, 1, (pods({"cpu": f"{at + 1}m"}),), "q") for at in range(5)]
    with Trace(found) as trace:
        Driver(CLUSTER, [meter]).run(trace)
    shapes = {name: group["jobs"] for name, group in meter.figures()["shapes"].items()}
    assert shapes == {"1x(cpu=1m)": 1, "1x(cpu=2m)": 1, OTHERS: 3}
