"""Laws of two-phase admission, whatever checks say and whatever happens to queues (KEP-993).

The whole of it without a server: engine, cycle, the steps of the workload controller and of the
job reconciler, each in any order and as late as chance will have it.
"""

from __future__ import annotations

import copy
from typing import Any

import attrs
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kueuelib.api.codec import decode, encode
from kueuelib.api.kueue import ClusterQueue, Workload
from kueuelib.api.meta import Obj, ObjectKey, format_time
from kueuelib.scheduler import events
from kueuelib.scheduler.decide.cycle import decide
from kueuelib.scheduler.engine import Engine, Settled
from kueuelib.scheduler.object_reasons import LocalQueueFacts
from kueuelib.testing.builders import make_check, make_flavor, make_local_queue, make_workload
from kueuelib.workload import states
from kueuelib.workload.checks import may_preempt, required_checks
from kueuelib.workload.next_step import WorkloadContext, next_step
from kueuelib.workload.states import IllegalTransition, Phase

CHECKS = ("first", "second", "special")
FLAVORS = ("f", "g")
NAMES = ("a", "b", "c")
LOCAL = LocalQueueFacts("lq", "cq")

names = st.sampled_from(NAMES)
checks = st.sampled_from(CHECKS)
answers = st.sampled_from(["Pending", "Asks", "Ready", "Ready", "Retry", "Rejected"])


class TwoPhases(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 1_700_000_000.0
        self.engine = Engine()
        self.stored: dict[str, Obj] = {}
        self.queue: Obj = {}
        self.version = 0
        self.plans: list[Settled] = []
        self.asking: dict[str, set[str]] = {}

    # ---- the server

    def put(self, wl: Obj) -> None:
        self.version += 1
        old = self.stored.get(wl["metadata"]["name"])
        wl = copy.deepcopy(wl)
        wl["metadata"]["resourceVersion"] = str(self.version)
        if old is not None:
            self.judge(old, wl)
        self.stored[wl["metadata"]["name"]] = wl
        self.engine.observe(events.WorkloadSet(decode(Workload, wl)), self.now)

    def judge(self, old: Obj, new: Obj) -> None:
        """The first law, at the moment of every write."""
        assert states.violations(new) == ()
        self.judge_answers(old, new)
        if not states.is_admitted(new) or states.is_admitted(old):
            return
        assert states.has_quota(new)
        needed = required_checks(self.queue, new["status"]["admission"])
        said = {entry["name"]: entry["state"] for entry in states.check_states(new)}
        assert {said.get(name) for name in needed} <= {"Ready"}, (needed, said)
        offered = {
            flavor["name"]
            for group in self.queue["spec"]["resourceGroups"]
            for flavor in group["flavors"]
        }
        for assignment in new["status"]["admission"]["podSetAssignments"]:
            assert {*assignment["flavors"].values()} <= offered
        assert self.charged(new) <= self.quota(new), "admitted beyond the quota"

    def judge_answers(self, old: Obj, new: Obj) -> None:
        """The third law: what a check says is about one reservation; only a delay outlives it."""
        if states.has_quota(new) == states.has_quota(old) or states.is_finished(new):
            return
        self.asking.pop(new["metadata"]["name"], None)
        for entry in states.check_states(new):
            if states.has_quota(new):
                assert "reason" not in entry, "a request of an earlier reservation"
            elif not (states.is_active(new) and entry["state"] in ("Retry", "Rejected")):
                assert entry["state"] == "Pending"
                assert not {"reason", "podSetUpdates"} & entry.keys()

    def judge_preemptor(self, name: str) -> None:
        """Victims of a Workload whose check comes first leave when it has passed or asks now."""
        if "second" in required_checks(self.queue, None):
            said = {one["name"]: one["state"] for one in states.check_states(self.stored[name])}
            assert said.get("second") == "Ready" or self.asking.get(name), "nobody asked for this"

    def quota(self, wl: Obj) -> int:
        flavor = _flavor(wl)
        for group in self.queue["spec"]["resourceGroups"]:
            for entry in group["flavors"]:
                if entry["name"] == flavor:
                    return int(entry["resources"][0]["nominalQuota"])
        return 0

    def charged(self, wl: Obj) -> int:
        """What is admitted in the flavor of a workload, and the workload itself."""
        others = [
            one
            for one in self.stored.values()
            if one["metadata"]["name"] != wl["metadata"]["name"]
            and states.is_admitted(one)
            and states.has_quota(one)
            and not states.is_finished(one)
            and _flavor(one) == _flavor(wl)
        ]
        return 1 + len(others)

    def set_queue(self, **spec: Any) -> None:
        self.queue = {**self.queue, "spec": {**self.queue.get("spec", {}), **spec}}
        self.engine.observe(events.ClusterQueueSet(decode(ClusterQueue, self.queue)), self.now)

    @initialize()
    def begin(self) -> None:
        for flavor in FLAVORS:
            self.engine.observe(events.FlavorSet(make_flavor(flavor)), self.now)
        for check in CHECKS:
            policy = "AfterCheckPassedOrOnDemand" if check == "second" else "Anytime"
            made = make_check(check, preemptionPolicy=policy)
            self.engine.observe(events.CheckSet(made), self.now)
        self.engine.observe(events.NamespaceSet("ns", {}), self.now)
        self.queue = {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "ClusterQueue",
            "metadata": {"name": "cq", "uid": "cq"},
            "spec": {"namespaceSelector": {}},
        }
        self.set_queue(
            resourceGroups=_groups({"f": 2}),
            admissionChecksStrategy=_rules("first", "second"),
            preemption={"withinClusterQueue": "LowerPriority"},
        )
        self.engine.observe(events.LocalQueueSet(make_local_queue("lq", "cq")), self.now)
        for priority, name in enumerate(NAMES):
            made = make_workload(name, "lq", {"cpu": 1}, created=self.now, priority=priority)
            self.put(encode(made))

    # ---- what people and checks do

    @rule(name=names, number=st.integers(0, 2), state=answers)
    def a_check_answers(self, name: str, number: int, state: str) -> None:
        wl = copy.deepcopy(self.stored[name])
        entries: Any = states.check_states(wl)
        if entries:
            entry = entries[number % len(entries)]
            asking = self.asking.setdefault(name, set())
            asking.discard(entry["name"])
            for field in ("reason", "podSetUpdates"):
                entry.pop(field, None)
            if state == "Asks":
                state, entry["reason"] = "Pending", "PreemptionRequired"
                if states.has_quota(wl):
                    asking.add(entry["name"])
            elif state == "Ready":
                entry["podSetUpdates"] = [{"name": "main"}]
            entry.update(state=state, lastTransitionTime=format_time(self.now))
            self.put(wl)

    @rule(state=answers)
    def all_checks_answer(self, state: str) -> None:
        self.everything_comes_to_rest()
        for name in NAMES:
            for number in range(3):
                self.a_check_answers(name, number, state)

    @rule(quota=st.dictionaries(st.sampled_from(FLAVORS), st.integers(0, 3), min_size=1))
    def the_quota_changes(self, quota: dict[str, int]) -> None:
        self.set_queue(resourceGroups=_groups(quota))

    @rule(listed=st.lists(checks, unique=True))
    def the_checks_change(self, listed: list[str]) -> None:
        self.set_queue(admissionChecksStrategy=_rules(*listed))

    @rule(policy=st.sampled_from(["None", "Hold", "HoldAndDrain"]))
    def the_queue_is_stopped_or_started(self, policy: str) -> None:
        self.set_queue(stopPolicy=policy)

    @rule(name=names, active=st.booleans())
    def a_workload_is_activated_or_not(self, name: str, active: bool) -> None:
        wl = copy.deepcopy(self.stored[name])
        wl["spec"]["active"] = active
        self.put(wl)

    @rule(name=names)
    def a_workload_is_evicted(self, name: str) -> None:
        wl = self.stored[name]
        if states.phase_of(wl).holds_quota:
            self.put(states.evict(wl, "Preempted", "for others", self.now))

    @rule(seconds=st.sampled_from([1, 60, 2000]))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds

    # ---- what the controllers do, in any order

    @rule()
    def a_cycle_is_decided(self) -> None:
        found = self.engine.next_cycle(self.now)
        if found is not None:
            settled = self.engine.settle(decide(found, self.now), self.now)
            self.plans.append(settled)
            self.preempt(settled)

    def preempt(self, settled: Settled) -> None:
        for preemption in settled.preemptions:
            self.judge_preemptor(preemption.key.name)
            for victim in preemption.victims:
                wl = self.stored[victim.key.name]
                if states.phase_of(wl).holds_quota:
                    self.put(states.evict(wl, "Preempted", "for others", self.now))
                else:  # its reservation was not written yet
                    self.plans = [_without(plan, victim.key) for plan in self.plans]
                    self.engine.observe(events.Forgotten(victim.key), self.now)

    @rule()
    def a_plan_is_written(self) -> None:
        for settled in self.plans:
            for admit in settled.admissions:
                wl = self.stored[admit.key.name]
                if states.is_active(wl) is not admit.workload.spec.active:
                    self.engine.observe(events.Forgotten(admit.key), self.now)
                    continue
                admission = encode(admit.admission)
                try:
                    new = states.reserve(wl, admission, admit.required_checks, self.now)
                except IllegalTransition:
                    self.engine.observe(events.Forgotten(admit.key), self.now)
                else:
                    self.reserve(new, admit.required_checks)
        self.plans.clear()

    def reserve(self, new: Obj, decided_on: tuple[str, ...]) -> None:
        """What a cycle decided on may be old by now: the law holds for what it knew."""
        queue = self.queue
        if states.is_admitted(new):
            self.queue = {**queue, "spec": {**queue["spec"], **_as_known(new, decided_on)}}
        try:
            self.put(new)
        finally:
            self.queue = queue

    @rule(name=names)
    def the_workload_controller_looks(self, name: str) -> None:
        self.step(name)

    def step(self, name: str) -> bool:
        wl = self.stored[name]
        void = None
        if states.phase_of(wl) is Phase.RESERVED:
            required = required_checks(self.queue, states.status_of(wl).get("admission"))
            early = not may_preempt(wl, required, {*required} & {"second"})
            void = self.engine.void_reservation(ObjectKey("ns", name), flavors_only=early)
        around = WorkloadContext(
            LOCAL,
            self.queue,
            self.engine.activity("cq"),
            retry_delays=dict.fromkeys(CHECKS, 900.0),
            void=void,
        )
        step = next_step(wl, around, self.now)
        if step.make_room:
            self.preempt(self.engine.make_room(ObjectKey("ns", name)))
        if step.deactivate:
            self.put({**wl, "spec": {**wl["spec"], "active": False}})
        elif step.workload is not None:
            self.put(step.workload)
        else:
            return False
        return True

    @rule(name=names)
    def a_stopped_job_lets_its_quota_go(self, name: str) -> None:
        self.release(name)

    def release(self, name: str) -> bool:
        wl = self.stored[name]
        if states.phase_of(wl) is not Phase.EVICTING:
            return False
        self.put(states.release(wl, self.now))
        return True

    @rule()
    def everything_comes_to_rest(self) -> None:
        """The second law: a Workload that can no longer be admitted holds no quota, and one that
        can be is not kept out of its queue.
        """
        for _ in range(60):
            before = self.version
            self.a_cycle_is_decided()
            self.a_plan_is_written()
            for name in NAMES:
                self.step(name)
                self.release(name)
            if self.version == before:
                break
        else:
            raise AssertionError("it never comes to rest")
        for wl in self.stored.values():
            if not states.has_quota(wl):
                kept_out = states.condition(wl, "Requeued").get("status") == "False"
                stopped = self.queue["spec"].get("stopPolicy", "None") != "None"
                assert stopped or not (kept_out and states.is_active(wl))
                continue
            assert states.is_active(wl)
            assert not states.is_finished(wl)
            assert states.checks_in(wl, "Retry", "Rejected") == ()
            if states.phase_of(wl) is Phase.RESERVED:
                assert self.queue["spec"].get("stopPolicy", "None") == "None"
                assert _flavor(wl) in _offered(self.queue)
                assert states.checks_in(wl, "Pending"), "nothing is left to wait for"

    @invariant()
    def quota_and_charge_agree(self) -> None:
        for name, wl in self.stored.items():
            holder = self.engine.cache.holder(ObjectKey("ns", name))
            if states.has_quota(wl) and not states.is_finished(wl):
                assert holder is not None


def _without(plan: Settled, key: ObjectKey) -> Settled:
    admissions = tuple(one for one in plan.admissions if one.key != key)
    return attrs.evolve(plan, admissions=admissions)


def _groups(quota: dict[str, int]) -> list[Obj]:
    flavors = [
        {"name": flavor, "resources": [{"name": "cpu", "nominalQuota": str(amount)}]}
        for flavor, amount in quota.items()
    ]
    return [{"coveredResources": ["cpu"], "flavors": flavors}]


def _rules(*listed: str) -> Obj:
    """`special` is for one flavor only."""
    rules: list[Obj] = [
        {"name": name, **({"onFlavors": ["g"]} if name == "special" else {})} for name in listed
    ]
    return {"admissionChecks": rules}


def _as_known(wl: Obj, decided_on: tuple[str, ...]) -> Obj:
    return {
        "admissionChecksStrategy": {"admissionChecks": [{"name": n} for n in decided_on]},
        "resourceGroups": _groups({_flavor(wl): len(NAMES)}),
    }


def _flavor(wl: Obj) -> str:
    (assignment,) = wl["status"]["admission"]["podSetAssignments"]
    return str(assignment["flavors"]["cpu"])


def _offered(queue: Obj) -> set[str]:
    return {
        flavor["name"] for group in queue["spec"]["resourceGroups"] for flavor in group["flavors"]
    }


TwoPhases.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestTwoPhases = TwoPhases.TestCase
