"""The manager dies at any moment; nothing is lost, nothing is admitted twice, nothing is left."""

from __future__ import annotations

import random
import threading
import time

import httpx
import pytest
from rest import JOBS, PODS, WORKLOADS, Rest, eventually, is_true, job, queues

from kueuelib.testing.processes import LocalCluster

QUOTA = 8
COUNT = 50
KILLS = 20
OLD_WORKLOADS = WORKLOADS.replace("v1beta2", "v1beta1")


class Watchman:
    """Adds up, on a watch of its own, what the Workloads hold, and remembers the worst."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.worst = 0
        self.events = 0
        self._held: dict[str, int] = {}
        self._cluster = cluster
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        with Rest(self._cluster.kubeconfig) as rest:
            for kind, wl in rest.watch(WORKLOADS, 240):
                self.events += 1
                self._see(kind, wl)

    def _see(self, kind: str, wl: dict) -> None:
        admission = wl.get("status", {}).get("admission")
        name = wl["metadata"]["name"]
        if kind == "DELETED" or is_true(wl, "Finished") or not admission:
            self._held.pop(name, None)
        else:
            usage = admission["podSetAssignments"][0]["resourceUsage"]["cpu"]
            over = sum(each["count"] for each in wl["status"].get("reclaimablePods", ()))
            self._held[name] = int(usage) - over  # each pod has one CPU
        self.worst = max(self.worst, sum(self._held.values()))


def are_converted(rest: Rest) -> bool:
    """Whether the manager converted all Workloads before it died; not if it died on the way."""
    try:
        rest.items(OLD_WORKLOADS)
    except httpx.HTTPStatusError as error:
        if "conversion webhook" not in str(error):
            raise
        return False
    return True


@pytest.mark.slow
def test_a_manager_killed_at_random_moments_loses_nothing(cluster: LocalCluster) -> None:
    """50 Jobs flow through a quota of 8 CPUs while the manager is killed 20 times.

    The old version, which the manager converts, is read after every kill, which may fail. It may
    not fail while the manager lives, nor without a manager once all that is stored was converted.
    """
    chance = random.Random(4)
    with Rest(cluster.kubeconfig) as rest:
        queues(rest, QUOTA)
        watchman = Watchman(cluster)
        watchman.start()
        names = [f"job-{index:02d}" for index in range(COUNT)]
        for index, name in enumerate(names):
            pods = 1 + index % 3
            rest.create(JOBS, job(name, seconds=0.5 + index % 4 * 0.3, pods=pods))
        rest.items(OLD_WORKLOADS)
        for _ in range(KILLS):
            time.sleep(chance.uniform(0.02, 0.9))
            cluster.processes.kill("manager")
            are_converted(rest)
            cluster.start_manager()
            if chance.random() < 0.7:  # else it is killed while it starts
                cluster.wait_for_manager()
        cluster.wait_for_manager()
        eventually(lambda: are_converted(rest))

        def all_complete() -> bool:
            left = [
                found["metadata"]["name"]
                for found in rest.items(JOBS)
                if not is_true(found, "Complete")
            ]
            assert not left, f"not complete: {left}"
            return True

        eventually(all_complete)

        def nothing_held() -> bool:
            found = rest.items(WORKLOADS)
            assert len(found) == COUNT, f"{len(found)} Workloads for {COUNT} Jobs"
            for wl in found:
                assert is_true(wl, "Finished"), wl["metadata"]["name"]
                assert not wl["metadata"].get("finalizers"), wl["metadata"]["name"]
            return True

        eventually(nothing_held)
        assert len(rest.items(OLD_WORKLOADS)) == COUNT
        cluster.processes.kill("manager")
        assert len(rest.items(OLD_WORKLOADS)) == COUNT
        cluster.start_manager()
        cluster.wait_for_manager()
        assert watchman.events > COUNT
        assert 0 < watchman.worst <= QUOTA, f"{watchman.worst} CPUs were in use at once"
        for name in names:
            rest.delete(f"{JOBS}/{name}")

        def nothing_left() -> bool:
            assert rest.items(JOBS) == []
            assert rest.items(WORKLOADS) == []
            assert rest.items(PODS) == []
            return True

        eventually(nothing_left)
