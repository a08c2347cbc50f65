"""Placed Workloads, from the Go manager to ours and back, on a real control plane (KEP-2724).

Jobs and a group of pods run in racks, a group is being preempted, and pods are still gated.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest
from place import Place, gates, name_of, phase, pod_spec, uid_of
from real_plane import LINGERS, real_plane
from rest import Obj, Rest, eventually, is_true
from test_migration import MISSING, STILL, Managers
from test_topology import NAME, OS, RACK, hosts_of, nodes_in_racks, rack_of, topology

GATE = f"{NAME}/topology"
PRIORITY = f"{NAME}/priority-class"
IN_ONE_RACK = {f"{NAME}/podset-required-topology": RACK}
INDEX = "batch.kubernetes.io/job-completion-index"


class Flight:
    """What is in flight on two racks of five nodes with 8 CPUs each."""

    def __init__(self, rest: Rest) -> None:
        self.rest = rest
        topology(rest)
        self.place = place = Place(rest)
        for base, value in (("low", 1), ("high", 2)):
            place.priority(value, base)
        spec: Obj = {"nodeLabels": {OS: "linux"}, "topologyName": "racks"}
        flavor = place.create("ResourceFlavor", "hosts", spec=spec)
        row = {"name": flavor, "resources": [{"name": "cpu", "nominalQuota": "1000"}]}
        group = {"coveredResources": ["cpu"], "flavors": [row]}
        spec = {"namespaceSelector": {}, "resourceGroups": [group], **place.preempting()}
        place.create("ClusterQueue", "q", spec=spec)
        place.local_queue()

    def job(self, name: str, pods: int, cpu: str, priority: str = "high") -> Obj:
        return self.place.job(
            name,
            labels={PRIORITY: self.place.named(priority)},
            parallelism=pods,
            completions=pods,
            completionMode="Indexed",
            backoffLimit=50,
            template={"metadata": {"annotations": IN_ONE_RACK}, "spec": pod_spec(cpu)},
        )

    def group(self, name: str, cpu: str, priority: str, **notes: str) -> list[Obj]:
        labels = {PRIORITY: self.place.named(priority)}
        asked = {"labels": labels, "notes": {**IN_ONE_RACK, **notes}}
        return self.place.group(name, 2, cpu, terminationGracePeriodSeconds=3600, **asked)

    def pods(self, prefix: str) -> list[Obj]:
        """Those that have not ended."""
        return [
            {"kind": "Pod", **pod}
            for pod in self.rest.items(self.place.pods)
            if name_of(pod).startswith(f"{prefix}-") and phase(pod) not in ("Failed", "Succeeded")
        ]

    def run(self, prefix: str, owner: Obj, count: int) -> dict[str, str]:
        """The nodes of pods by their UIDs, once all run where their Workload has its places."""

        def found() -> dict[str, str]:
            pods = self.pods(prefix)
            assert [phase(pod) for pod in pods] == ["Running"] * count, [*map(gates, pods)]
            hosts = {uid_of(pod): str(pod["spec"]["nodeName"]) for pod in pods}
            places = hosts_of(self.place.workload(owner))
            assert Counter(hosts.values()) == places, places
            assert len({*map(rack_of, places)}) == 1
            return hosts

        return eventually(found)

    def lose(self, *pods: Obj) -> None:
        """The pods are gone at once, as after a forced deletion."""
        for pod in pods:
            self.rest.delete(self.place.path(pod), gracePeriodSeconds="0")
        self.place.gone(*pods)

    def lose_while_nobody_starts_pods(self, job: Obj) -> dict[str, str]:
        """A pod of a Job gets a successor, which is gated; the nodes of all by their indexes."""
        before = self.by_index(job)
        self.lose(self.pods(name_of(job))[0])
        eventually(lambda: sorted(map(gates, self.pods(name_of(job)))) == [[], [], [GATE]])
        return before

    def by_index(self, job: Obj) -> dict[str, str]:
        return {
            pod["metadata"]["labels"][INDEX]: pod["spec"]["nodeName"]
            for pod in self.pods(name_of(job))
        }

    def fail(self, node: str, prefix: str) -> None:
        """A node is gone with its pods."""
        self.rest.delete(f"/api/v1/nodes/{node}")
        self.lose(*[pod for pod in self.pods(prefix) if pod["spec"].get("nodeName") == node])

    def state(self) -> Obj:
        """What a change of managers must leave as it is."""
        place = self.place
        return {
            "pods": {
                uid_of(pod): (pod["spec"]["nodeName"], pod["metadata"].get("deletionTimestamp"))
                for pod in self.rest.items(place.pods)
                if phase(pod) == "Running"
            },
            "jobs": {
                name_of(job): (uid_of(job), job["spec"]["suspend"], job["status"].get("startTime"))
                for job in self.rest.items(place.jobs)
            },
            "workloads": {
                name_of(wl): (
                    uid_of(wl),
                    wl.get("status", {}).get("admission"),
                    [is_true(wl, one) for one in ("QuotaReserved", "Admitted", "Evicted")],
                )
                for wl in self.rest.items(place.workloads)
            },
        }


def assert_still(flight: Flight, before: Obj) -> None:
    """Now, and as long as a manager would need that wants to change something."""
    deadline = time.monotonic() + STILL
    while time.monotonic() < deadline:
        now = flight.state()
        assert before["pods"].items() <= now["pods"].items()
        assert (now["jobs"], now["workloads"]) == (before["jobs"], before["workloads"])
        time.sleep(1)


def assert_replaced(flight: Flight, job: Obj, before: dict[str, str]) -> None:
    """The first node fails, and only its pods move."""
    failed = min(before.values())
    left = {uid: node for uid, node in before.items() if node != failed}
    flight.fail(failed, name_of(job))

    def moved() -> dict[str, str]:
        after = flight.run(name_of(job), job, len(before))
        assert failed not in after.values()
        return after

    after = eventually(moved)
    assert left.items() <= after.items()
    assert not flight.place.workload(job)["status"].get("unhealthyNodes")


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(bool(MISSING), reason=MISSING)
def test_places_are_taken_over_and_handed_back(tmp_path: Path) -> None:
    with real_plane(tmp_path) as plane, Rest(plane.kubeconfig) as rest:
        nodes_in_racks(rest, "2x5")
        managers = Managers(plane, rest, tmp_path)
        managers.install_go()
        with managers.go():
            flight = Flight(rest)
            place = flight.place
            first = flight.job("first", 3, "3")
            flight.run("first", first, 3)
            second = flight.job("second", 3, "3")
            flight.run("second", second, 3)
            served = flight.group("serve", "3500m", "high")
            flight.run("serve", served[0], 2)
            low = flight.group("low", "8", "low", **{LINGERS: "true"})
            flight.run("low", low[0], 2)
            urgent = flight.job("urgent", 5, "8")
            place.when(low[0], "Evicted", reason="Preempted")
            eventually(lambda: all(map(is_leaving, flight.pods("low"))))
            time.sleep(STILL)
        assert is_true(place.workload(low[0]), "QuotaReserved"), "it is still being preempted"
        before = flight.state()
        managers.install_ours()
        hosts = flight.lose_while_nobody_starts_pods(first)
        before["pods"] = flight.state()["pods"]
        with managers.ours():
            assert_still(flight, before)
            running = flight.run("first", first, 3)
            assert flight.by_index(first) == hosts
            for pod in low:
                place.annotate(pod, **{LINGERS: None})
            place.gone(*low)
            flight.run("urgent", urgent, 5)
            assert_replaced(flight, first, running)
            nodes_in_racks(rest, "2x5")  # the failed one returns
            late = flight.job("late", 5, "8")
            place.waits(late)
            time.sleep(STILL)
        before = flight.state()
        hosts = flight.lose_while_nobody_starts_pods(second)
        before["pods"] = flight.state()["pods"]
        managers.install_go()
        with managers.go():
            assert_still(flight, before)
            running = flight.run("second", second, 3)
            assert flight.by_index(second) == hosts
            place.delete(urgent)
            flight.run("late", late, 5)
            assert_replaced(flight, second, running)


def is_leaving(pod: Obj) -> bool:
    return "deletionTimestamp" in pod["metadata"]
