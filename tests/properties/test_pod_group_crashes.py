"""A crash between any two writes of a plan for a group leads to the state that the whole plan leads
to, if nothing else happens.
"""

from __future__ import annotations

import copy
import itertools
from typing import Any

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import rule
from pod_group_server import Server
from test_pod_groups_life import (
    MOST_PLANS,
    DeclaredGroupLife,
    EditedGroupLife,
    FastGroupLife,
    GroupLife,
)

from kueuelib.jobs.contract.commands import Count, Emit
from kueuelib.jobs.pods.reading import PodStage, gates_of, has_finalizer, is_deleted, stage_of
from kueuelib.workload import states


def copied(server: Server) -> Server:
    """The same cluster, to be changed apart."""
    other = copy.copy(server)
    other.pods = copy.deepcopy(server.pods)
    other.workload = copy.deepcopy(server.workload)
    other.deleted_by_us = list(server.deleted_by_us)
    other.versions, server.versions = itertools.tee(server.versions)  # type: ignore[assignment]
    other.uids, server.uids = itertools.tee(server.uids)  # type: ignore[assignment]
    return other


def run(server: Server, commands: Any) -> None:
    for command in commands:
        if not server.execute(command):
            break


def rest(server: Server) -> None:
    """Plan and execute until nothing is left to write."""
    for _ in range(MOST_PLANS):
        server.collect_garbage()
        server.find_missed()
        before = next(server.versions)
        run(server, server.plan())
        if next(server.versions) == before + 1:
            return
    raise AssertionError("plans never end")


def essence(server: Server) -> Any:
    """What the manager has made of the group, without times and texts."""
    pods = {
        uid: (
            stage_of(pod).value,
            is_deleted(pod),
            has_finalizer(pod),
            gates_of(pod),
            pod["spec"].get("nodeSelector"),
            pod["metadata"]["labels"],
            pod["metadata"]["annotations"],
            [one["type"] for one in pod["status"].get("conditions", ())],
        )
        for uid, pod in server.pods.items()
    }
    workload = server.workload
    if workload is None:
        return pods, None
    meta, status = workload["metadata"], states.status_of(workload)
    conditions = {
        one["type"]: (one["status"], one["reason"]) for one in status.get("conditions", ())
    }
    return pods, {
        "spec": workload["spec"],
        "identity": (meta["uid"], meta.get("annotations"), meta.get("labels")),
        "deleted": is_deleted(workload),
        "finalizers": meta.get("finalizers"),
        "owners": sorted(ref["uid"] for ref in meta.get("ownerReferences", ())),
        "conditions": conditions,
        "reclaimable": status.get("reclaimablePods"),
        "admission": status.get("admission"),
    }


def writes(commands: Any) -> list[int]:
    """After how many commands another write is done, without the last one."""
    return [
        number
        for number, command in enumerate(commands, start=1)
        if not isinstance(command, Emit | Count) and number < len(commands)
    ]


class Crashes(GroupLife):
    def bring_to_rest(self):
        """Before each plan, every crash in it is tried on copies."""
        for _ in range(MOST_PLANS):
            commands = self.server.plan()
            if not commands:
                break
            self.try_crashes(commands)
            before = next(self.server.versions)
            run(self.server, commands)
            if next(self.server.versions) == before + 1:
                break
        super().bring_to_rest()

    def try_crashes(self, commands):
        whole = copied(self.server)
        run(whole, commands)
        rest(whole)
        end = essence(whole)
        for number in writes(commands):
            crashed = copied(self.server)
            run(crashed, commands[:number])
            rest(crashed)
            found = essence(crashed)
            assert found == end, f"after {number} of {commands}"

    @rule(
        cpus=st.lists(st.sampled_from(["1", "2", "3"]), min_size=1, max_size=4),
        deleted=st.booleans(),
    )
    def the_group_is_replaced_by_pods_of_other_shapes(self, cpus, deleted):
        """Its pods fail together; without quota the group is what its new pods make it."""
        self.the_group_runs()
        failed = self.server.in_stage(PodStage.STARTED)
        for pod in failed:
            self.server.end(pod, "Failed")
        self.the_scheduler_evicts()
        self.settle()
        for cpu in cpus:
            self.send(cpu)
        for pod in self.server.in_stage(PodStage.FAILED) if deleted else ():
            self.server.delete(pod)
        self.settle()


class FastCrashes(Crashes, FastGroupLife):
    pass


class DeclaredCrashes(Crashes, DeclaredGroupLife):
    pass


class EditedCrashes(Crashes, EditedGroupLife):
    pass


Crashes.TestCase.settings = hypothesis_settings(
    max_examples=20, stateful_step_count=20, deadline=None
)
FastCrashes.TestCase.settings = Crashes.TestCase.settings
DeclaredCrashes.TestCase.settings = Crashes.TestCase.settings
EditedCrashes.TestCase.settings = Crashes.TestCase.settings

test_a_group_survives_any_crash = Crashes.TestCase
test_a_fast_group_survives_any_crash = FastCrashes.TestCase
test_a_declared_group_survives_any_crash = DeclaredCrashes.TestCase
test_an_edited_group_survives_any_crash = EditedCrashes.TestCase
