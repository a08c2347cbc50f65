"""Whatever happens to a job, and wherever the process dies, plans lead it to a sound end."""

from __future__ import annotations

import copy
import itertools
import sys
from typing import Any

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kueuelib.api.meta import ObjectKey, format_time, key_of
from kueuelib.api.patch import merge_patch
from kueuelib.jobs.batch import BatchJob
from kueuelib.jobs.contract.commands import Change, Create, Delete, DropFinalizer, Emit, PatchStatus
from kueuelib.jobs.reconcile.job_snapshot import JobSnapshot
from kueuelib.jobs.reconcile.matching import by_age, controlled_by
from kueuelib.jobs.reconcile.plan import plan
from kueuelib.workload import states
from kueuelib.workload.states import BUNDLE

KUEUE = "kueue.x-k8s.io"
QUEUE = f"{KUEUE}/queue-name"
SPOT = {"key": "spot", "operator": "Exists"}
FLAVORS = {
    "spot": {"spec": {"nodeLabels": {"pool": "spot"}, "tolerations": [SPOT]}},
    "plain": {"spec": {}},
}
OWN_TEMPLATE = {"containers": [{"name": "c"}], "nodeSelector": {"arch": "arm"}}
OTHERS = "example.com/licenses.0123456789"
MOST_PLANS = 30


class Server:
    """As much of an API server and its Job controller as plans touch.

    The controller acts on the Job that it has read, which may have changed since. Then its status
    is refused, and it looks again.
    """

    def __init__(self, job: dict[str, Any]) -> None:
        self.job: dict[str, Any] | None = job
        self.workloads: dict[str, dict[str, Any]] = {}
        self.versions = iter(range(1, sys.maxsize))  # Python 3.14 copies no counters
        self.uids = iter(range(1, sys.maxsize))
        self.now = 1_700_000_000.0
        self.read: dict[str, Any] | None = None
        self.pods = 0

    def situation(self) -> JobSnapshot:
        job = None if self.job is None else BatchJob(self.job)
        mine = [wl for wl in self.workloads.values() if job and controlled_by(wl, job.uid)]
        rest = [wl for wl in self.workloads.values() if wl not in mine]
        return JobSnapshot(
            job, self.now, workloads=by_age(mine), orphans=by_age(rest), flavors=FLAVORS
        )

    def execute(self, command: Any) -> None:
        self.now += 1
        match command:
            case Create(_, obj):
                name = obj["metadata"]["name"]
                assert name not in self.workloads
                created = copy.deepcopy(obj)
                created["metadata"].update(
                    uid=f"wl-{next(self.uids)}",
                    resourceVersion=str(next(self.versions)),
                    creationTimestamp=format_time(self.now),
                )
                self.workloads[name] = created
            case Change(_, old, _, subresource, _):
                current = self._find(old)
                changed = merge_patch(current, command.patch)
                if current["kind"] == "Job":
                    self._check_job(current, changed, subresource)
                self._put(changed)
            case PatchStatus(_, obj, style, status, manager):
                self._put(self._with_status(self._find(obj), style, status, manager))
            case DropFinalizer(_, obj, finalizer):
                changed = copy.deepcopy(self._find(obj))
                changed["metadata"]["finalizers"].remove(finalizer)
                self._put(changed)
            case Delete(_, obj):
                self.delete(self._find(obj))
            case Emit():
                pass

    def _with_status(self, current, style, status, manager):
        if style == "merge":
            return merge_patch(current, {"status": status})
        changed = copy.deepcopy(current)
        found = changed.setdefault("status", {})
        if manager == "kueue-admission":
            for field in ("admission", "requeueState"):
                found.pop(field, None)
            kept = [c for c in found.get("conditions", []) if c["type"] not in BUNDLE]
        else:
            types = {c["type"] for c in status.get("conditions", [])}
            kept = [c for c in found.get("conditions", []) if c["type"] not in types]
        found.update(copy.deepcopy(status))
        found["conditions"] = [*kept, *copy.deepcopy(status.get("conditions", []))]
        return changed

    def _check_job(self, old, new, subresource):
        """The rules of the API server for Jobs."""
        if subresource == "status":
            assert old["spec"] == new["spec"]
            if old["status"].get("startTime") and not new["status"].get("startTime"):
                assert new["spec"]["suspend"], "a start time may go only while suspended"
        elif old["spec"]["template"] != new["spec"]["template"]:
            assert old["spec"]["suspend"], "the template of a running Job is immutable"
            assert not old.get("status", {}).get("startTime"), "the Job has started"

    def _find(self, obj):
        if obj["kind"] == "Job":
            assert self.job is not None
            return self.job
        return self.workloads[obj["metadata"]["name"]]

    def _put(self, obj):
        obj["metadata"] = {**obj["metadata"], "resourceVersion": str(next(self.versions))}
        if obj["kind"] == "Job":
            self.job = obj
        elif obj["metadata"].get("deletionTimestamp") and not obj["metadata"]["finalizers"]:
            del self.workloads[obj["metadata"]["name"]]
        else:
            self.workloads[obj["metadata"]["name"]] = obj

    def delete(self, workload):
        if not workload["metadata"]["finalizers"]:
            del self.workloads[workload["metadata"]["name"]]
            return
        changed = copy.deepcopy(workload)
        changed["metadata"]["deletionTimestamp"] = format_time(self.now)
        self._put(changed)

    def job_controller(self) -> None:
        """Pods follow the spec at once."""
        for _ in range(2):
            self.controller_acts()
            self.controller_reads()

    def controller_reads(self) -> None:
        if self.read is None and self.job is not None and not ended(self.job):
            self.read = copy.deepcopy(self.job)

    def controller_acts(self) -> None:
        """Creates or deletes the pods of the Job as it was read, and reports about them."""
        job, self.read = self.read, None
        if job is None or self.job is None or job["metadata"]["uid"] != self.job["metadata"]["uid"]:
            return
        if ended(self.job):
            return
        suspended, status = job["spec"]["suspend"], job.setdefault("status", {})
        before = copy.deepcopy(status)
        self.pods = 0 if suspended else job["spec"]["parallelism"]
        known = {entry["type"]: entry["status"] for entry in status.get("conditions", ())}
        if suspended or "Suspended" in known:
            at = {"type": "Suspended", "status": str(suspended)}
            status["conditions"] = [at]
        status["active"] = self.pods
        if not suspended:
            status.setdefault("startTime", format_time(self.now))
        same = job["metadata"]["resourceVersion"] == self.job["metadata"]["resourceVersion"]
        if same and status != before:
            self._put(job)


def is_in_use(workload: dict[str, Any]) -> bool:
    return f"{KUEUE}/resource-in-use" in workload["metadata"]["finalizers"]


def ended(job: dict[str, Any]) -> bool:
    conditions = job.get("status", {}).get("conditions", ())
    return any(entry["type"] in ("Complete", "Failed") for entry in conditions)


def new_job() -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "job",
            "namespace": "ns",
            "uid": "job-1",
            "resourceVersion": "0",
            "labels": {QUEUE: "main"},
            "annotations": {f"{KUEUE}/job-min-parallelism": "1"},
        },
        "spec": {
            "suspend": True,
            "parallelism": 3,
            "completions": 9,
            "template": {"spec": copy.deepcopy(OWN_TEMPLATE)},
        },
    }


class JobLife(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.server = Server(new_job())
        self.wanted = 3
        self.meddled = False

    # ---- the manager

    @rule(crash_after=st.integers(0, 4))
    def reconcile_and_crash(self, crash_after):
        for command in plan(self.server.situation())[:crash_after]:
            self.server.execute(command)

    @rule()
    def settle(self):
        for _ in range(MOST_PLANS):
            self.server.job_controller()
            commands = plan(self.server.situation())
            if not commands:
                break
            for command in commands:
                self.server.execute(command)
        else:
            raise AssertionError(f"plans never end: {commands}")
        self._check_settled()

    def _check_settled(self):
        job, workloads = self.server.job, list(self.server.workloads.values())
        if job is None:
            assert not any(map(is_in_use, workloads))
            return
        done = ended(job)
        mine = [wl for wl in workloads if controlled_by(wl, job["metadata"]["uid"])]
        kept = [wl for wl in mine if states.is_deleted(wl) and not is_in_use(wl)]
        mine = [wl for wl in mine if wl not in kept]
        assert len(mine) <= 1
        if done:
            assert not any(map(is_in_use, mine))
            return
        if kept and not mine:
            assert job["spec"]["suspend"] is True
            return  # it waits until others let the Workload go, which has the name of the next one
        (workload,) = mine
        assert not workload["metadata"].get("deletionTimestamp")
        if states.is_finished(workload):
            assert not is_in_use(workload)
            return
        assert workload["spec"]["podSets"][0]["count"] == self.wanted
        if states.is_admitted(workload):
            (assigned,) = workload["status"]["admission"]["podSetAssignments"]
            assert not states.is_evicted(workload)
            assert job["spec"]["suspend"] is False
            assert job["spec"]["parallelism"] == assigned["count"]
            spot = assigned["flavors"]["cpu"] == "spot"
            added = {"pool": "spot"} if spot else {}
            spec = job["spec"]["template"]["spec"]
            assert spec["nodeSelector"] == {"arch": "arm", **added}
            assert spec.get("tolerations", []) == ([SPOT] if spot else [])
        else:
            assert workload["spec"]["queueName"] == job["metadata"]["labels"][QUEUE]
            assert job["spec"]["suspend"] is True
            assert job["spec"]["parallelism"] == self.wanted
            assert job["spec"]["template"] == {"spec": OWN_TEMPLATE}
            assert f"{KUEUE}/stopping" not in job["metadata"].get("annotations", {})
            assert not job["status"].get("startTime")

    # ---- the rest of the world

    @rule()
    def pods_follow(self):
        self.server.job_controller()

    @rule()
    def the_job_controller_reads(self):
        self.server.controller_reads()

    @rule()
    def the_job_controller_acts_on_what_it_has_read(self):
        self.server.controller_acts()

    def _some(self, *phases):
        return next(
            (
                wl
                for wl in self.server.workloads.values()
                if states.phase_of(wl) in phases and not states.is_deleted(wl)
            ),
            None,
        )

    @rule(count=st.integers(1, 3), flavor=st.sampled_from(["spot", "plain"]))
    def scheduler_admits(self, count, flavor):
        workload = self._some(states.Phase.PENDING)
        if workload is not None and not states.is_held_back(workload):
            stored = workload["spec"]["podSets"][0]["count"]
            count = min(count, stored)
            if count == self.wanted != stored:
                return  # an edited Job would look as if it had been started with that count
            assigned = {"name": "main", "flavors": {"cpu": flavor}, "count": count}
            admission = {"clusterQueue": "cq", "podSetAssignments": [assigned]}
            self.server._put(states.reserve(workload, admission, (), self.server.now))

    @rule()
    def scheduler_evicts(self):
        workload = self._some(states.Phase.ADMITTED, states.Phase.RESERVED)
        if workload is not None:
            self.server._put(states.evict(workload, "Preempted", "room", self.server.now))

    @rule()
    def somebody_deletes_the_workload(self):
        for workload in list(self.server.workloads.values())[:1]:
            self.server.delete(workload)

    @rule()
    def somebody_copies_the_workload(self):
        for workload in list(self.server.workloads.values())[:1]:
            changed = copy.deepcopy(workload)
            uid = f"wl-{next(self.server.uids)}"
            changed["metadata"].update(name=uid, uid=uid)
            self.server._put(changed)

    @rule(last=st.booleans())
    def others_keep_a_workload(self, last):
        for workload in list(self.server.workloads.values())[-1 if last else 0 :][:1]:
            changed, finalizers = copy.deepcopy(workload), workload["metadata"]["finalizers"]
            if OTHERS not in finalizers and not states.is_deleted(workload):
                changed["metadata"]["finalizers"] = [*finalizers, OTHERS]
                self.server._put(changed)

    @rule()
    def others_let_all_workloads_go(self):
        for workload in list(self.server.workloads.values()):
            changed, finalizers = copy.deepcopy(workload), workload["metadata"]["finalizers"]
            changed["metadata"]["finalizers"] = [each for each in finalizers if each != OTHERS]
            self.server._put(changed)

    @precondition(lambda self: self.server.job and self.server.job["spec"]["suspend"])
    @rule(parallelism=st.integers(2, 3), queue=st.sampled_from(["main", "other"]))
    def the_user_edits_the_waiting_job(self, parallelism, queue):
        job = copy.deepcopy(self.server.job)
        assigned = [
            entry["count"]
            for wl in self.server.workloads.values()
            for entry in states.status_of(wl).get("admission", {}).get("podSetAssignments", ())
        ]
        if BatchJob(job).is_stopping() or parallelism in assigned:
            return  # the Job would look as if it had been started with that count
        job["spec"]["parallelism"] = self.wanted = parallelism
        job["metadata"]["labels"][QUEUE] = queue
        self.server._put(job)

    @precondition(lambda self: self.server.job and not self.server.job["spec"]["suspend"])
    @rule(type=st.sampled_from(["Complete", "Failed"]))
    def the_job_ends(self, type):
        job = copy.deepcopy(self.server.job)
        job["status"] = {"conditions": [{"type": type, "status": "True"}], "active": 0}
        self.server.pods = 0
        self.server._put(job)

    @precondition(lambda self: self.server.job)
    @rule()
    def the_user_unsuspends_the_job(self):
        """An edit that no Workload knows of yet would be undone by the stop, so it comes first."""
        job = copy.deepcopy(self.server.job)
        stored = [wl["spec"]["podSets"][0]["count"] for wl in self.server.workloads.values()]
        if not BatchJob(job).is_stopping() and set(stored) <= {self.wanted}:
            job["spec"]["suspend"] = False
            self.meddled = True
            self.server._put(job)

    @precondition(lambda self: self.server.job)
    @rule(again=st.booleans())
    def the_user_deletes_the_job(self, again):
        job, self.server.job = self.server.job, None
        self.server.pods = 0
        for workload in list(self.server.workloads.values()):
            self.server.delete(workload)
        if again and job is not None:
            fresh = copy.deepcopy(job)
            fresh["metadata"].update(uid=f"job-{next(self.server.uids)}", annotations={})
            fresh["spec"].update(suspend=True, parallelism=3)
            fresh["spec"]["template"] = {"spec": copy.deepcopy(OWN_TEMPLATE)}
            fresh.pop("status", None)
            fresh["metadata"]["annotations"] = {f"{KUEUE}/job-min-parallelism": "1"}
            self.wanted = 3
            self.server._put(fresh)

    @invariant()
    def pods_run_on_quota(self):
        """Whenever the Job controller looks, and wherever the manager dies."""
        if self.server.pods and not self.meddled and self.server.job is not None:
            uid = self.server.job["metadata"]["uid"]
            mine = [wl for wl in self.server.workloads.values() if controlled_by(wl, uid)]
            assert any(map(states.has_quota, mine))

    @invariant()
    def conditions_are_sound(self):
        for workload in self.server.workloads.values():
            assert states.violations(workload) == ()

    @invariant()
    def keys_are_what_they_say(self):
        for name, workload in self.server.workloads.items():
            assert key_of(workload) == ObjectKey("ns", name)

    def teardown(self) -> None:
        self.settle()


JobLife.TestCase.settings = hypothesis_settings(
    max_examples=60, stateful_step_count=25, deadline=None
)
test_plans_lead_a_job_to_a_sound_end = JobLife.TestCase


@pytest.mark.parametrize("looked", [True, False], ids=["looked", "never-looked"])
@pytest.mark.parametrize("before", ["", "R", "RA"])
def test_in_every_order_the_pods_of_a_preempted_job_have_quota(looked: bool, before: str) -> None:
    """One command of the manager, a look of the Job controller, or what follows from its last
    look. It may have looked before the start, and between start and eviction.
    """
    server = Server(new_job())
    for _ in range(3):
        step(server, "M")
        if looked:
            server.job_controller()
    (workload,) = server.workloads.values()
    assigned = {"name": "main", "flavors": {"cpu": "spot"}, "count": 3}
    admission = {"clusterQueue": "cq", "podSetAssignments": [assigned]}
    server._put(states.reserve(workload, admission, (), server.now))
    server.read = None
    step(server, "M")
    assert server.job is not None
    assert not server.job["spec"]["suspend"]
    for letter in before:
        step(server, letter)
    (workload,) = server.workloads.values()
    server._put(states.evict(workload, "Preempted", "room", server.now))
    ends = 0
    for order in itertools.product("MRA", repeat=7):
        world = copy.deepcopy(server)
        for letter in order:
            step(world, letter)
            (workload,) = world.workloads.values()
            assert states.has_quota(workload) or not world.pods, "".join(order)
        ends += not states.has_quota(workload)
    assert ends, "some orders are long enough"


def step(server: Server, letter: str) -> None:
    """One step of the manager (M), or of the Job controller: it reads (R), it acts (A)."""
    if letter == "M":
        for command in plan(server.situation())[:1]:
            server.execute(command)
    elif letter == "R":
        server.controller_reads()
    else:
        server.controller_acts()
