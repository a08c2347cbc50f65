"""The figures of groups of jobs."""

from __future__ import annotations

from collections import Counter

import attrs

from kueuelib.api.meta import Obj
from kueuelib.scheduler.quota.amounts import Amounts, FlavorResource
from kueuelib.simulator.figures import Spread, shown

GROUPS = ("cluster_queues", "local_queues", "priorities", "shapes", "sizes")
QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


@attrs.define
class Group:
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
