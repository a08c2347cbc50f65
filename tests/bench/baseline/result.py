"""What one run measured."""

from __future__ import annotations

from collections import Counter

import attrs
from prometheus_client.parser import text_string_to_metric_families

from .calls import WRITES
from .recorder import Waits


@attrs.frozen
class Lag:
    """How late the event loop of kueuelib ran its timers; 0 for other managers.

    Attributes:
        p99: seconds that 99 % of them were not late by, rounded up to a bucket.
        late: the part that was late by more than 50 ms.
    """

    p99: float = 0.0
    late: float = 0.0


def lag_of(text: str) -> Lag:
    """The lateness in the metrics of a manager.

    Args:
        text: what its `/metrics` answers.
    """
    buckets = [
        (float(sample.labels["le"]), sample.value)
        for metric in text_string_to_metric_families(text)
        for sample in metric.samples
        if sample.name == "kueuelib_loop_lag_seconds_bucket"
    ]
    count = buckets[-1][1]
    p99 = next(bound for bound, number in buckets if number >= 0.99 * count)
    return Lag(p99, 1 - dict(buckets)[0.05] / count if count else 0.0)


@attrs.frozen
class Result:
    """One run of one manager.

    Attributes:
        manager: its label.
        server: what it ran against.
        objects: how many there are to create.
        finished: how many of them came to the end that the run waits for.
        wall: seconds from the first creation to the last end.
        cpu: seconds of the manager's processor, from its start until it rests.
        start: those of them before the first object.
        rss: megabytes (2**20) of the manager that were resident at most.
        player_cpu: seconds of the player's processor.
        server_cpu: of the API server and its store, if they were started for this run.
        calls: of the manager, by verb and resource.
        load: the load average of one minute at the end.
        use: quota that was held, as a part of the nominal quota over that time; None in flows.
        said_use: the same by the status of ClusterQueues, which comes later; None in flows.
        waits: per class; empty in flows.
        creation: seconds until the last object of a flow was created.
        others: seconds of processors of the player, and of the server if it was started for this
            run, from the first object until the last end.
        lag: of the manager's event loop.
    """

    manager: str
    server: str
    objects: int
    finished: int
    wall: float
    cpu: float
    start: float
    rss: float
    player_cpu: float
    server_cpu: float
    calls: Counter[str]
    load: float
    use: float | None = None
    waits: dict[str, Waits] = attrs.field(factory=dict)
    creation: float | None = None
    said_use: float | None = None
    others: float = 0.0
    lag: Lag = attrs.field(factory=Lag)

    @property
    def left(self) -> int:
        """Objects that did not come to their end."""
        return self.objects - self.finished

    def number(self, *calls: str) -> float:
        """So many calls were made per object."""
        return sum(self.calls[each] for each in calls) / self.objects

    def writes(self) -> float:
        """All writes per object."""
        numbers = [number for call, number in self.calls.items() if call.split()[0] in WRITES]
        return sum(numbers) / self.objects

    def figures(self) -> dict[str, float]:
        """The numbers that are compared, by their title."""
        status = ("apply workloads/status", "patch workloads/status", "update workloads/status")
        events = ("create events", "patch events")
        creation = {} if self.creation is None else {"creation, s": self.creation}
        uses = {"quota use, %": self.use, "quota use by status, %": self.said_use}
        use = {title: each * 100 for title, each in uses.items() if each is not None}
        figures = {
            "wall, s": self.wall,
            **creation,
            **use,
            "manager CPU, s": self.cpu,
            "manager CPU before the load, s": self.start,
            "manager RSS, MB": self.rss,
            "status writes of Workloads, each": self.number(*status),
            "Events, each": self.number(*events),
            "all writes, each": self.writes(),
            "left over": float(self.left),
        }
        if self.waits:
            figures["evictions"] = float(sum(each.evictions for each in self.waits.values()))
            figures["evictions after the run time"] = float(
                sum(each.ended for each in self.waits.values())
            )
            figures["work lost by evictions, s"] = sum(each.lost for each in self.waits.values())
            figures["work lost before the run time, s"] = sum(
                each.cut for each in self.waits.values()
            )
        for name, waits in self.waits.items():
            figures[f"wait of {name}, mean, s"] = waits.mean
            figures[f"wait of {name}, p50, s"] = waits.p50
            figures[f"wait of {name}, p90, s"] = waits.p90
            figures[f"wait of {name}, longest, s"] = waits.longest
        processors = {
            "player CPU, s": self.player_cpu,
            "server CPU, s": self.server_cpu,
            "player and server CPU until the last end, s": self.others,
            "loop lag p99, at most, ms": self.lag.p99 * 1000,
            "loop lag above 50 ms, %": self.lag.late * 100,
        }
        return {**figures, **processors, "load": self.load}
