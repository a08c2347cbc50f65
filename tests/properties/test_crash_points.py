"""The manager dies after every single write of a long life, one run each, and nothing is lost.

A script plays a life: of a Job, a plain pod, a group. It is run once to count the writes, and then
once per write: right after that one the rest of the plan is dropped, as if the process had died,
and the next plan is made from what is stored. The life has to end as it did without any crash.
"""

from __future__ import annotations

import copy
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from pod_group_server import FLAVORS, Server
from test_pod_groups_life import GroupLife, crashing

from kueuelib.jobs.batch import BatchJob
from kueuelib.jobs.builtin import builtin_registry
from kueuelib.jobs.contract.commands import Count, Emit, RequeueAfter
from kueuelib.jobs.pods.pod_plan import plan_pod
from kueuelib.jobs.pods.reading import PodStage
from kueuelib.jobs.pods.single import PodJob
from kueuelib.jobs.reconcile.job_snapshot import JobSnapshot
from kueuelib.testing.job_world import JobWorld
from kueuelib.workload import states

SILENT = (Emit, Count, RequeueAfter)


class Power:
    """Counts writes, and says after which one the process dies."""

    def __init__(self, dies_after: int = 0) -> None:
        self.writes = 0
        self._dies_after = dies_after

    def survives(self, command: Any) -> bool:
        """Called after each command that was carried out."""
        if isinstance(command, SILENT):
            return True
        self.writes += 1
        return self.writes != self._dies_after


# ---- a Job


class MortalWorld(JobWorld):
    """A world whose manager dies once."""

    power: Power

    def _carry_out(self, commands: tuple[Any, ...]) -> bool:
        for command in commands:
            wrote = super()._carry_out((command,))
            if wrote and not self.power.survives(command):
                return True
        return bool([c for c in commands if not isinstance(c, SILENT)])


def a_job(power: Power) -> Any:
    (integration,) = [
        found for found in builtin_registry().integrations if found.job_type is BatchJob
    ]
    container = {"name": "c", "resources": {"requests": {"cpu": "1"}}}
    spec = {"template": {"spec": {"containers": [container]}}, "parallelism": 2, "suspend": True}
    labels = {"kueue.x-k8s.io/queue-name": "team"}
    world = MortalWorld(integration, {"metadata": {"name": "job", "labels": labels}, "spec": spec})
    world.power = power

    def status(**fields: Any) -> None:
        world.change({**world.live_job, "status": fields})
        world.settle()

    def start(flavor: str) -> None:
        world.settle()
        world.admit(flavor)
        world.settle()
        assert not world.is_suspended()
        looked("False", active=2, startTime="2024-01-01T00:00:00Z")

    def looked(suspended: str, **fields: Any) -> None:
        """The Job controller has looked at the Job."""
        status(conditions=[{"type": "Suspended", "status": suspended}], **fields)

    start("one")
    world.evict()
    world.settle()
    assert world.holds_quota()
    looked("True")
    assert not world.holds_quota()
    assert "nodeSelector" not in world.live_job["spec"]["template"]["spec"]
    start("two")
    world.delete_workload()
    world.settle()
    looked("True")
    start("three")
    spec = {**world.live_job["spec"], "parallelism": 1}
    world.change({**world.live_job, "spec": spec})
    world.settle()
    looked("True")
    start("one")
    status(conditions=[{"type": "Complete", "status": "True"}])
    assert states.is_finished(world.workload)
    assert not world.workload["metadata"]["finalizers"]
    world.delete_job()
    world.settle()
    return world.exists, len(world.workloads)


# ---- pods


def settle(server: Server, power: Power, shuffle: random.Random | None = None) -> None:
    for _ in range(60):
        server.collect_garbage()
        done = 0
        for command in crashing(server.plan(), shuffle):
            going_on = server.execute(command)
            done += not isinstance(command, SILENT)
            if not going_on or not power.survives(command):
                break
        if not done:
            return
    raise AssertionError("plans never end")


def admit(server: Server) -> None:
    workload = server.workload
    assert workload is not None
    assigned = [
        {"name": entry["name"], "flavors": {"cpu": "spot"}, "count": entry["count"]}
        for entry in workload["spec"]["podSets"]
    ]
    admission = {"clusterQueue": "cq", "podSetAssignments": assigned}
    server.put(states.reserve(workload, admission, (), server.now))


class OnePod(Server):
    """Where a plain pod lives."""

    def plan(self) -> Any:
        workloads = () if self.workload is None else (copy.deepcopy(self.workload),)
        pods = copy.deepcopy(list(self.pods.values()))
        if not pods:
            return ()
        job = PodJob(pods[0], workloads[0] if workloads else None)
        return plan_pod(JobSnapshot(job, self.now, workloads=workloads, flavors=FLAVORS))


def pod_life(how: str) -> Callable[[Power], Any]:
    def life(power: Power) -> Any:
        server = OnePod()
        server.create("pod", "1", labels={"kueue.x-k8s.io/pod-group-name": ""})
        settle(server, power)
        admit(server)
        settle(server, power)
        server.bind()
        (pod,) = server.in_stage(PodStage.STARTED)
        if how == "evicted":
            server.put(states.evict(server.workload, "Preempted", "room", server.now))
            settle(server, power)
            assert not states.has_quota(server.workload)
            assert states.is_held_back(server.workload)
            server.terminate()
        elif how == "deleted":
            server.delete(pod)
            settle(server, power)
            server.terminate()
        else:
            server.end(pod, how)
        settle(server, power)
        assert not any(pod["metadata"]["finalizers"] for pod in server.pods.values())
        for pod in list(server.pods.values()):
            server.delete(pod)
        settle(server, power)
        server.collect_garbage()
        left = server.workload
        return len(server.pods), left is None or not left["metadata"].get("finalizers")

    return life


def group_life(seed: int | None) -> Callable[[Power], Any]:
    def life(power: Power) -> Any:
        server = Server()
        shuffle = None if seed is None else random.Random(seed)
        machine = GroupLife()
        machine.server = server

        def settled() -> None:
            settle(server, power, shuffle)
            machine.check_settled()
            machine.no_pod_beyond_the_count_runs()
            machine.conditions_are_sound()
            machine.nothing_is_deleted_twice()

        def running() -> None:
            machine.send_missing()
            settled()
            if not states.is_admitted(server.workload):
                admit(server)
            settled()
            server.bind()
            assert len(server.in_stage(PodStage.STARTED, PodStage.SUCCEEDED)) == len(machine.cpus)

        for cpu in (*machine.cpus, "1"):  # one too many
            machine.send(cpu)
        running()
        first, second = server.in_stage(PodStage.STARTED)[:2]
        server.end(first, "Failed")
        settled()
        running()  # replaced
        machine.send("3")  # of no role
        settled()
        server.delete(second)
        settled()
        server.terminate()
        running()
        server.drain()
        settled()
        server.terminate()
        settled()
        assert states.is_admitted(server.workload)
        running()
        server.put(states.evict(server.workload, "Preempted", "room", server.now))
        settled()
        assert states.has_quota(server.workload)
        server.terminate()
        settled()
        assert not states.has_quota(server.workload)
        assert states.is_held_back(server.workload)
        running()
        for pod in server.in_stage(PodStage.STARTED):
            server.end(pod, "Succeeded")
        settled()
        assert states.is_finished(server.workload)
        assert not any(pod["metadata"]["finalizers"] for pod in server.pods.values())
        for pod in list(server.pods.values()):
            server.delete(pod)
        settled()
        server.collect_garbage()
        settled()
        return len(server.pods), server.workload

    return life


def drained_group_life(seed: int | None) -> Callable[[Power], Any]:
    """Of the pods one is deleted by a user, and the others are evicted, so nobody replaces them."""

    def life(power: Power) -> Any:
        server = Server()
        shuffle = None if seed is None else random.Random(seed)
        machine = GroupLife()
        machine.server = server
        machine.send_missing()
        settle(server, power, shuffle)
        admit(server)
        settle(server, power, shuffle)
        server.bind()
        server.delete(server.in_stage(PodStage.STARTED)[1])
        server.drain()
        settle(server, power, shuffle)
        assert states.has_quota(server.workload)
        server.terminate()
        settle(server, power, shuffle)
        return len(server.pods), server.workload

    return life


LIVES: dict[str, Callable[[Power], Any]] = {
    "a Job": a_job,
    "a pod that succeeds": pod_life("Succeeded"),
    "a pod that fails": pod_life("Failed"),
    "a pod that is evicted": pod_life("evicted"),
    "a pod that is deleted": pod_life("deleted"),
    "a group": group_life(None),
    "a group whose pods are written in any order": group_life(7),
    "a group that a user deletes in a drain": drained_group_life(None),
    "a group that a user deletes in a drain, in any order": drained_group_life(7),
}


@pytest.mark.parametrize("name", LIVES)
def test_a_life_ends_the_same_wherever_the_manager_dies(name: str) -> None:
    life, whole = LIVES[name], Power()
    end = life(whole)
    assert whole.writes >= 3, "the script writes nothing"
    for point in range(1, whole.writes + 1):
        assert life(Power(dies_after=point)) == end, f"killed after write {point}"
