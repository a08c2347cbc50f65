"""What one run measured."""

from __future__ import annotations

from collections import Counter

import attrs

from .calls import WRITES
from .recorder import Waits


@attrs.frozen
class Result:
    """One run of one manager.

    Attributes:
        manager: its label.
        server: what it ran against.
        workloads: how many were created.
        finished: how many of them finished.
        wall: seconds from the first creation to the last end.
        use: quota that was held, as a part of the nominal quota over that time.
        waits: per class.
        cpu: seconds of the manager's processor, from its start until it rests.
        start: those of them before the first Workload.
        rss: megabytes (2**20) of the manager that were resident at most.
        player_cpu: seconds of the player's processor.
        server_cpu: of the API server and its store, if they were started for this run.
        calls: of the manager, by verb and resource.
        load: the load average of one minute at the end.
    """

    manager: str
    server: str
    workloads: int
    finished: int
    wall: float
    use: float
    waits: dict[str, Waits]
    cpu: float
    start: float
    rss: float
    player_cpu: float
    server_cpu: float
    calls: Counter[str]
    load: float

    @property
    def left(self) -> int:
        """Workloads that did not finish."""
        return self.workloads - self.finished

    def number(self, *calls: str) -> float:
        """So many calls were made per Workload."""
        return sum(self.calls[each] for each in calls) / self.workloads

    def writes(self) -> float:
        """All writes per Workload."""
        numbers = [number for call, number in self.calls.items() if call.split()[0] in WRITES]
        return sum(numbers) / self.workloads

    def figures(self) -> dict[str, float]:
        """The numbers that are compared, by their title."""
        status = ("apply workloads/status", "patch workloads/status", "update workloads/status")
        events = ("create events", "patch events")
        figures = {
            "wall, s": self.wall,
            "quota use, %": self.use * 100,
            "manager CPU, s": self.cpu,
            "manager CPU before the load, s": self.start,
            "manager RSS, MB": self.rss,
            "status writes per Workload": self.number(*status),
            "Events per Workload": self.number(*events),
            "all writes per Workload": self.writes(),
            "evictions": float(sum(each.evictions for each in self.waits.values())),
            "left over": float(self.left),
        }
        for name, waits in self.waits.items():
            figures[f"wait of {name}, mean, s"] = waits.mean
            figures[f"wait of {name}, p50, s"] = waits.p50
            figures[f"wait of {name}, p90, s"] = waits.p90
            figures[f"wait of {name}, longest, s"] = waits.longest
        others = {"player CPU, s": self.player_cpu, "server CPU, s": self.server_cpu}
        return {**figures, **others, "load": self.load}
