"""Whatever happens to the pods of a group, and wherever the process dies, it ends soundly."""

from __future__ import annotations

import contextlib
import copy
import json
import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from pod_group_server import KEPT, KUEUE, Server

from kueuelib.jobs.contract.commands import Delete
from kueuelib.jobs.pods.declaration import parse
from kueuelib.jobs.pods.reading import (
    PodStage,
    has_finalizer,
    is_managed,
    is_unretriable,
    stage_of,
)
from kueuelib.jobs.pods.roster import role_by_name, role_by_shape, roles_of
from kueuelib.jobs.pods.webhook import validate_pod
from kueuelib.jobs.reconcile.executor import stretches
from kueuelib.workload import states
from kueuelib.workload.phases import DEACTIVATED, DUE_TO

FINALIZER = f"{KUEUE}/managed"
MOST_PLANS = 60


def crashing(commands: Sequence[Any], shuffle: random.Random | None) -> list[Any]:
    """The commands in one of the orders in which they may be carried out.

    Pods are written in lanes at the same time, so a crash may come after any part of each.
    """
    if shuffle is None:
        return list(commands)
    found: list[Any] = []
    for lanes in stretches(commands):
        left = [list(lane) for lane in lanes]
        while left:
            lane = shuffle.choice(left)
            found.append(lane.pop(0))
            left = [each for each in left if each]
    return found


def unlabelled(pod):
    """The pod without the label by which the manager sees it."""
    changed = copy.deepcopy(pod)
    changed["metadata"]["labels"].pop(f"{KUEUE}/managed", None)
    return changed


def given_up(workload, now):
    """The Workload after its last try."""
    changed = {**workload, "spec": {**workload["spec"], "active": False}}
    reason = f"{DUE_TO}RequeuingLimitExceeded"
    return states.evict(changed, reason, "the last try", now)


ENDINGS = ("delete", "complete", "give up", "delete workload", "retention")


class GroupLife(RuleBasedStateMachine):
    """A group of two small pods and a large one."""

    cpus = ("1", "1", "2")

    @initialize(ending=st.sampled_from([*ENDINGS]))
    def begin(self, ending):
        self.server = Server()
        self.ending = ending

    def send(self, cpu):
        self.server.create("pod", cpu, annotations={f"{KUEUE}/pod-group-total-count": "3"})

    def send_missing(self):
        """Send pods until every place is filled by one that is or may become alive."""
        for cpu in self.missing():
            self.send(cpu)

    def missing(self):
        """The CPUs of each pod that the group lacks."""
        present = [
            self.asked(pod["spec"])
            for pod in self.counted(PodStage.GATED, PodStage.STARTED, PodStage.SUCCEEDED)
        ]
        found = []
        for cpu in self.wanted():
            if cpu in present:
                present.remove(cpu)
            else:
                found.append(cpu)
        return found

    def is_over(self):
        """Whether the Workload says so, or all pods succeeded and somebody took it away."""
        if self.server.workload is not None:
            return states.is_finished(self.server.workload)
        alive = self.counted(PodStage.GATED, PodStage.STARTED, PodStage.LEAVING)
        return not alive and not self.missing()

    def counted(self, *stages):
        """Pods in these stages that the manager counts.

        Whoever takes the finalizer off a pod that is over and then its label has let it go: its
        place is free, as if the pod were deleted.
        """
        return [pod for pod in self.server.in_stage(*stages) if is_managed(pod)]

    def wanted(self):
        """The CPUs of each pod of the group: of the Workload's shape, once there is one."""
        if self.server.workload is None:
            return self.cpus
        return [
            self.asked(entry["template"]["spec"])
            for entry in self.server.workload["spec"]["podSets"]
            for _ in range(entry["count"])
        ]

    def asked(self, spec):
        """What a pod asks for, as `send` takes it."""
        return spec["containers"][0]["resources"]["requests"]["cpu"]

    # ---- the manager

    @rule(crash_after=st.integers(0, 12), seed=st.integers(0, 1000))
    def reconcile_and_crash(self, crash_after, seed):
        for command in crashing(self.server.plan(), random.Random(seed))[:crash_after]:
            if not self.server.execute(command):
                break

    @rule()
    def settle(self):
        with self.explained():
            self.bring_to_rest()

    def bring_to_rest(self):
        for _ in range(MOST_PLANS):
            self.server.collect_garbage()
            self.server.find_missed()
            before = next(self.server.versions)
            commands = self.server.plan()
            for command in commands:
                if not self.server.execute(command):
                    break
            if next(self.server.versions) == before + 1:
                break
        else:
            raise AssertionError(f"plans never end: {commands}")
        self.check_settled()

    def check_settled(self):
        server, workload = self.server, self.server.workload
        for pod in () if server.in_stage(PodStage.LEAVING) else server.in_stage(PodStage.DROPPED):
            raise AssertionError(f"{pod['metadata']['name']} never ran and is still there")
        held = [pod for pod in server.pods.values() if pod["metadata"].get("finalizers")]
        if workload is None:
            assert not server.in_stage(PodStage.STARTED)
            assert not held or server.in_stage(PodStage.GATED, PodStage.LEAVING)
            return
        if states.is_finished(workload):
            assert {stage_of(pod) for pod in held} <= {PodStage.GATED}
            return
        if states.is_admitted(workload) and not states.is_evicted(workload):
            counts = {entry["name"]: entry["count"] for entry in workload["spec"]["podSets"]}
            for role, count in counts.items():
                mine = [pod for pod in self.counted(*PodStage) if self.role(pod) == role]
                waits = [pod for pod in mine if stage_of(pod) is PodStage.GATED]
                busy = [
                    pod for pod in mine if stage_of(pod) not in (PodStage.GATED, PodStage.FAILED)
                ]
                assert not waits or len(busy) >= count, "a pod waits although there is a place"
        else:
            assert not server.in_stage(PodStage.STARTED)

    def role(self, pod):
        """The pod set that counts a pod."""
        workload, pods = self.server.workload, [*self.server.pods.values()]
        return role_by_shape(pod) if workload is None else roles_of(workload, pods).by_shape(pod)

    # ---- the rest of the world

    @rule(cpu=st.sampled_from(["1", "2", "3"]))
    def a_pod_comes(self, cpu):
        self.send(cpu)

    @rule()
    def missing_pods_come(self):
        self.send_missing()

    @rule()
    def the_group_runs(self):
        self.send_missing()
        self.settle()
        self.the_scheduler_admits()
        self.settle()
        self.server.bind()

    @rule(which=st.integers(0, 5))
    def a_pod_is_replaced_while_it_leaves(self, which):
        self.server.bind()
        self.somebody_deletes_a_pod(which)
        self.send_missing()
        self.settle()

    @rule()
    def all_nodes_are_drained(self):
        """Whatever was there before, the group keeps its quota if nothing but this has hit it."""
        self.the_group_runs()
        server, workload = self.server, self.server.workload
        pods = [*server.pods.values()]
        keeps = (
            workload is not None
            and states.phase_of(workload) is states.Phase.ADMITTED
            and all(stage_of(pod) is PodStage.STARTED and has_finalizer(pod) for pod in pods)
            and all(is_managed(pod) and not is_unretriable(pod) for pod in pods)
        )
        server.drain()
        self.settle()
        server.terminate()
        self.settle()
        if keeps:
            assert server.workload is not None
            assert server.workload["metadata"]["uid"] == workload["metadata"]["uid"]
            assert states.phase_of(server.workload) is states.Phase.ADMITTED

    @rule()
    def the_cluster_goes_on(self):
        self.server.bind()

    @rule()
    def leaving_pods_end(self):
        self.server.terminate()
        self.server.collect_garbage()

    @rule(phase=st.sampled_from(["Succeeded", "Failed"]), which=st.integers(0, 5))
    def a_pod_ends(self, phase, which):
        self.server.bind()
        running = self.server.in_stage(PodStage.STARTED, PodStage.LEAVING)
        if running:
            self.server.end(running[which % len(running)], phase)

    @rule(which=st.integers(0, 5))
    def somebody_deletes_a_pod(self, which):
        found = list(self.server.pods.values())
        if found:
            self.server.delete(found[which % len(found)])

    @rule(which=st.integers(0, 5))
    def somebody_gives_up(self, which):
        found = list(self.server.pods.values())
        if found and which == 5:
            pod = copy.deepcopy(found[0])
            pod["metadata"]["annotations"][f"{KUEUE}/retriable-in-group"] = "false"
            self.server.put(pod)

    @rule()
    def somebody_deletes_the_workload(self):
        if self.server.workload is not None:
            self.server.delete(self.server.workload)

    @rule(how=st.sampled_from(["gone", "not admitted", "as it is", "as it is"]))
    def somebody_tampers_with_the_workload(self, how):
        workload = self.server.workload
        if how == "gone":
            self.server.workload = None
        elif how == "not admitted" and workload is not None and workload.get("status"):
            self.server.put({**workload, "status": {}})
        if how != "as it is":
            self.settle()

    @rule()
    def the_scheduler_admits(self):
        workload = self.server.workload
        if workload is None or states.phase_of(workload) is not states.Phase.PENDING:
            return
        if states.is_held_back(workload) or states.is_deleted(workload):
            return
        if not states.is_active(workload):
            return
        assigned = [
            {"name": entry["name"], "flavors": {"cpu": "spot"}, "count": entry["count"]}
            for entry in workload["spec"]["podSets"]
        ]
        admission = {"clusterQueue": "cq", "podSetAssignments": assigned}
        self.server.put(states.reserve(workload, admission, (), self.server.now))

    @rule(active=st.booleans())
    def somebody_deactivates_or_activates(self, active):
        """What the workload controller does about it belongs to it: eviction, and back again."""
        workload = self.server.workload
        if workload is None or states.is_finished(workload) or states.is_deleted(workload):
            return
        changed = {**workload, "spec": {**workload["spec"], "active": active}}
        if not active and states.phase_of(workload) is states.Phase.ADMITTED:
            changed = states.evict(changed, DEACTIVATED, "by hand", self.server.now)
        self.server.put(changed)

    @rule(which=st.integers(0, 5))
    def somebody_takes_the_finalizer_off(self, which):
        found = list(self.server.pods.values())
        if found:
            pod = copy.deepcopy(found[which % len(found)])
            pod["metadata"]["finalizers"] = []
            self.server.put(pod)

    @rule(which=st.integers(0, 5))
    def somebody_takes_the_label_off(self, which):
        """Where the webhook lets that pass."""
        found = list(self.server.pods.values())
        if found:
            old = found[which % len(found)]
            new = unlabelled(old)
            known = set(validate_pod(old, None))
            if not set(validate_pod(new, old, group_exists=True)) - known:
                self.server.put(new)

    @rule(which=st.integers(0, 5))
    def the_label_goes_while_the_webhook_is_away(self, which):
        found = list(filter(has_finalizer, self.server.pods.values()))
        if found:
            self.server.put(unlabelled(found[which % len(found)]))
            self.server.find_missed()

    @rule()
    def the_group_is_given_up_by_the_manager(self):
        workload = self.server.workload
        if workload is not None and states.phase_of(workload) is states.Phase.ADMITTED:
            self.server.put(given_up(workload, self.server.now))

    @rule()
    def much_time_goes_by(self):
        self.server.now += 2 * KEPT

    @rule()
    def the_scheduler_evicts(self):
        workload = self.server.workload
        if workload is not None and states.phase_of(workload) is states.Phase.ADMITTED:
            self.server.put(states.evict(workload, "Preempted", "room", self.server.now))

    # ---- laws

    @invariant()
    def no_pod_beyond_the_count_runs(self):
        server = getattr(self, "server", None)
        if server is None or server.workload is None:
            return
        for entry in server.workload["spec"]["podSets"]:
            busy = [
                *server.in_stage(PodStage.STARTED, PodStage.LEAVING),
                *self.counted(PodStage.SUCCEEDED),
            ]
            mine = [pod for pod in busy if self.role(pod) == entry["name"]]
            assert len(mine) <= entry["count"]

    @invariant()
    def quota_is_held_while_pods_run(self):
        server = getattr(self, "server", None)
        if server is None or server.workload is None:
            return
        if not server.workload.get("status"):
            return  # somebody tampered with it
        if server.in_stage(PodStage.STARTED) and not states.is_finished(server.workload):
            assert states.has_quota(server.workload)

    @invariant()
    def conditions_are_sound(self):
        server = getattr(self, "server", None)
        if server is not None and server.workload is not None:
            assert states.violations(server.workload) == ()

    @invariant()
    def nothing_is_deleted_twice(self):
        server = getattr(self, "server", None)
        if server is not None:
            assert len(server.deleted_by_us) == len(set(server.deleted_by_us))

    # ---- the end

    def teardown(self):
        if hasattr(self, "server"):
            with self.explained():
                self.end()

    @contextlib.contextmanager
    def explained(self):
        """Tells with a failure what there was: steps alone are hard to follow by hand."""
        try:
            yield
        except AssertionError as error:
            if not hasattr(error, "__notes__"):
                error.add_note(self.told())
            raise

    def told(self) -> str:
        """All there is, and what the manager wants to do about it, for people."""
        server = self.server
        pods = [
            f"pod {pod['metadata']['name']}: {stage_of(pod).value}, role {self.role(pod)}"
            f"{'' if is_managed(pod) else ', not ours'}"
            f"{', finalizer' if pod['metadata'].get('finalizers') else ''}"
            for pod in server.pods.values()
        ]
        workload = f"workload: {json.dumps(server.workload)}"
        plan = [f"plan: {command}" for command in server.plan()]
        return "\n".join([f"ending {self.ending}, now {server.now}", *pods, workload, *plan])

    def end(self):
        self.settle()
        getattr(self, f"end_by_{self.ending.replace(' ', '_')}")()
        left = [
            (pod["metadata"]["name"], stage_of(pod))
            for pod in self.server.pods.values()
            if pod["metadata"].get("finalizers")
        ]
        assert not left, f"finalizers stay: {left}"
        workload = self.server.workload
        assert workload is None or not workload["metadata"]["finalizers"]
        assert workload is None or states.is_finished(workload)

    def settle_all(self):
        for _ in range(10):
            self.settle()
            self.server.bind()
            self.server.terminate()
            self.server.collect_garbage()
        self.settle()

    def end_by_delete(self):
        """Whoever deletes what is left has given the group up; what we stopped needs a last pod."""
        self.settle_all()
        self.send_missing()
        for pod in list(self.server.pods.values()):
            self.server.delete(pod)
        self.settle_all()
        assert not self.server.pods

    def end_by_delete_workload(self):
        if self.server.workload is not None:
            self.server.delete(self.server.workload)
        self.settle_all()
        for pod in list(self.server.pods.values()):
            self.server.delete(pod)
        self.settle_all()
        assert not self.server.pods

    def end_by_complete(self):
        for _ in range(20):
            self.settle_all()
            if self.is_over():
                break
            self.somebody_deactivates_or_activates(True)
            self.send_missing()
            self.settle_all()
            self.the_scheduler_admits()
            self.settle_all()
            for pod in self.server.in_stage(PodStage.STARTED):
                self.server.end(pod, "Succeeded")
        else:
            raise AssertionError("the group never finishes")
        self.clean_up()

    def end_by_retention(self):
        """The manager gives the group up; once it was kept long enough nothing of it is left."""
        self.settle_all()
        self.somebody_deactivates_or_activates(True)
        self.the_group_runs()
        workload = self.server.workload
        if workload is None or states.is_finished(workload):
            self.clean_up()
            self.end_by_delete()
            return
        self.the_scheduler_admits()
        self.the_group_is_given_up_by_the_manager()
        self.settle_all()
        workload = self.server.workload
        if workload is not None and states.is_finished(workload):
            return  # it ended by itself while it was stopped: a driver that succeeded, for example
        self.server.now += 2 * KEPT
        self.settle_all()
        left = [pod["metadata"]["name"] for pod in self.server.pods.values() if is_managed(pod)]
        assert not left, f"pods outlive their group: {left}"
        assert self.server.workload is None

    def clean_up(self):
        """Pods that came too late wait for ever; that they can be deleted is all they need."""
        for pod in self.server.in_stage(PodStage.GATED):
            self.server.delete(pod)
        self.settle_all()

    def end_by_give_up(self):
        self.settle_all()
        for pod in list(self.server.pods.values()):
            changed = copy.deepcopy(pod)
            changed["metadata"]["annotations"][f"{KUEUE}/retriable-in-group"] = "false"
            self.server.put(changed)
        for pod in self.server.in_stage(PodStage.STARTED):
            self.server.end(pod, "Failed")
        for pod in self.server.in_stage(PodStage.GATED, PodStage.SUCCEEDED):
            if not has_finalizer(pod) or stage_of(pod) is PodStage.GATED:
                self.server.delete(pod)  # without our finalizer a pod gives no group up
        self.settle_all()


class FastGroupLife(GroupLife):
    """One that may start before all of its pods exist."""

    def send(self, cpu):
        notes = {f"{KUEUE}/pod-group-total-count": "3", f"{KUEUE}/pod-group-fast-admission": "true"}
        self.server.create("pod", cpu, annotations=notes)

    @rule(first=st.integers(0, 2), admitted=st.booleans())
    def the_group_is_evicted_and_comes_back(self, first, admitted):
        """Every pod that comes back has a place, in whatever order."""
        self.the_group_runs()
        self.the_scheduler_evicts()
        for _ in range(2):
            self.settle()
            self.server.terminate()
        workload, missing = self.server.workload, self.missing()
        if workload is None or states.has_quota(workload) or states.is_finished(workload):
            return
        wanted, rejected = sorted(self.wanted()), len(self.server.deleted_by_us)
        for cpu in (*missing[first:], *missing[:first]):
            self.send(cpu)
            self.settle()
            assert sorted(self.wanted()) == wanted
            if admitted:
                self.the_scheduler_admits()
                self.settle()
        assert len(self.server.deleted_by_us) == rejected


SPOT = {"key": "spot", "operator": "Exists"}
DEFAULT = {"key": "node.kubernetes.io/not-ready", "operator": "Exists"}
"""The API server adds it to new pods, after those of the user."""


class EditedGroupLife(GroupLife):
    """One whose waiting pods are edited: they get a zone, or a toleration, or first one of them."""

    def asked(self, spec):
        zone = "zone" in spec.get("nodeSelector", {})
        spot = SPOT in spec.get("tolerations", ())
        return f"{super().asked(spec)}{' zone' if zone else ''}{' spot' if spot else ''}"

    def send(self, asked):
        cpu, *edits = asked.split()
        spec = {"tolerations": [SPOT, DEFAULT] if "spot" in edits else [DEFAULT]}
        if "zone" in edits:
            spec["nodeSelector"] = {"zone": "a"}
        notes = {f"{KUEUE}/pod-group-total-count": "3"}
        return self.server.create("pod", cpu, annotations=notes, **spec)

    @rule(which=st.integers(0, 5), edit=st.sampled_from(["zone", "spot"]))
    def somebody_edits_a_waiting_pod(self, which, edit):
        waiting = self.server.in_stage(PodStage.GATED)
        if waiting:
            self.edit(waiting[which % len(waiting)]["metadata"]["uid"], edit)

    @rule(edit=st.sampled_from(["zone", "spot"]), settled=st.booleans())
    def somebody_edits_all_waiting_pods(self, edit, settled):
        for pod in self.server.in_stage(PodStage.GATED):
            self.edit(pod["metadata"]["uid"], edit)
            if settled:
                self.settle()

    def edit(self, uid, edit):
        pod = copy.deepcopy(self.server.pods.get(uid))
        if pod is None or stage_of(pod) is not PodStage.GATED:
            return
        if edit == "zone":
            pod["spec"].setdefault("nodeSelector", {})["zone"] = "a"
        elif SPOT not in pod["spec"].get("tolerations", ()):
            pod["spec"]["tolerations"].append(SPOT)
        rejects = self.rejects()
        self.server.put(pod)
        assert rejects or not self.rejects(), "an edit costs a pod"

    def rejects(self):
        """Whether the manager is about to delete pods that wait."""
        gone = [each.obj for each in self.server.plan() if isinstance(each, Delete)]
        return any(pod["kind"] == "Pod" and stage_of(pod) is PodStage.GATED for pod in gone)

    @rule(which=st.integers(0, 5), ready=st.booleans())
    def a_pod_is_replaced_by_one_like_it(self, which, ready):
        """Whatever was edited: the new pod has the place of the other one."""
        if ready:
            self.the_group_runs()
        server, workload = self.server, self.server.workload
        if workload is None or states.is_deleted(workload) or states.is_finished(workload):
            return
        owners = {ref["uid"] for ref in workload["metadata"]["ownerReferences"]}
        alive = self.counted(PodStage.GATED, PodStage.STARTED)
        known = [pod for pod in alive if pod["metadata"]["uid"] in owners and has_finalizer(pod)]
        places = sum(entry["count"] for entry in workload["spec"]["podSets"])
        full = len(alive) + len(self.counted(PodStage.SUCCEEDED)) > places
        if not known or full or self.rejects():
            return
        old = known[which % len(known)]
        if stage_of(old) is PodStage.GATED:
            server.delete(old)
        else:
            server.end(old, "Failed")
        new = self.send(self.asked(old["spec"]))
        self.settle()
        if is_unretriable_group(server) or server.workload is None:
            return
        assert new in server.pods
        assert new not in server.deleted_by_us
        assert server.workload["metadata"]["uid"] == workload["metadata"]["uid"]


def is_unretriable_group(server):
    return any(map(is_unretriable, server.pods.values()))


SETS = json.dumps(
    [
        {"name": "driver", "count": 1},
        {
            "name": "worker",
            "count": 2,
            "template": {
                "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}
            },
        },
    ]
)
OTHER_SETS = SETS.replace('"count": 2', '"count": 1')


class DeclaredGroupLife(GroupLife):
    """A driver that declares two workers."""

    cpus = ("2", "1", "1")

    def send(self, cpu):
        if cpu == "2":
            self.server.create("driver", "2", annotations={f"{KUEUE}/pod-group-sets": self.sets()})
        elif cpu == "3":
            sets = {f"{KUEUE}/pod-group-sets": OTHER_SETS}
            self.server.create("other", "2", annotations=sets)
        else:
            self.server.create("worker", cpu, labels={f"{KUEUE}/pod-group-role": "worker"})

    def sets(self):
        """What a driver has to declare, given what the Workload was made from."""
        notes = (self.server.workload or {"metadata": {}})["metadata"].get("annotations", {})
        digest = notes.get(f"{KUEUE}/pod-group-sets-digest")
        return OTHER_SETS if digest == parse(OTHER_SETS).digest else SETS

    @rule(role=st.sampled_from(["worker", "stranger"]))
    def a_wrong_worker_comes(self, role):
        self.server.create("wrong", "9", labels={f"{KUEUE}/pod-group-role": role})

    def role(self, pod):
        return role_by_name(pod)


GroupLife.TestCase.settings = hypothesis_settings(
    max_examples=40, stateful_step_count=30, deadline=None
)
DeclaredGroupLife.TestCase.settings = GroupLife.TestCase.settings
FastGroupLife.TestCase.settings = GroupLife.TestCase.settings
EditedGroupLife.TestCase.settings = GroupLife.TestCase.settings


@pytest.mark.parametrize("machine", [GroupLife, DeclaredGroupLife])
def test_a_pod_that_was_let_go_and_lost_its_label_is_replaced(machine):
    life = machine()
    life.begin(ending="complete")
    life.the_group_runs()
    life.a_pod_ends(phase="Succeeded", which=0)
    life.somebody_takes_the_finalizer_off(which=0)
    life.somebody_takes_the_label_off(which=0)
    life.teardown()
    assert len(life.counted(PodStage.SUCCEEDED)) == 3
    assert len(life.server.pods) == 4


@pytest.mark.parametrize("machine", [GroupLife, DeclaredGroupLife])
def test_pods_that_succeed_while_their_workload_goes_need_no_other(machine):
    life = machine()
    life.begin(ending="complete")
    life.the_group_runs()
    life.somebody_deletes_the_workload()
    for _ in life.cpus:
        life.a_pod_ends(phase="Succeeded", which=0)
    life.teardown()
    assert life.server.workload is None
    assert len(life.server.pods) == 3


test_a_group_comes_to_a_sound_end = GroupLife.TestCase
test_a_fast_group_comes_to_a_sound_end = FastGroupLife.TestCase
test_a_declared_group_comes_to_a_sound_end = DeclaredGroupLife.TestCase
test_an_edited_group_comes_to_a_sound_end = EditedGroupLife.TestCase
