"""What a user writes is what runs: a model of a job's templates, for random histories.

The model knows what the user wrote last and what the admission adds, and nothing of how the manager
finds out. The manager dies after any write, plans from states that have just become old, and meets
lost Workloads, changed flavors and jobs that another manager started.
"""

from __future__ import annotations

import copy
from typing import Any

import attrs
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from kueuelib.api.kinds import WORKLOADS
from kueuelib.api.meta import Resource
from kueuelib.jobs.builtin import builtin_registry
from kueuelib.jobs.contract.commands import Change, PatchStatus
from kueuelib.jobs.declared.declarative import Pods, declare, enough, equals
from kueuelib.jobs.reconcile.plan import plan
from kueuelib.testing.job_world import JobWorld
from kueuelib.workload import states

Obj = dict[str, Any]
QUEUE = {"kueue.x-k8s.io/queue-name": "team"}
NOTE = "kueuelib.dev/added-at-start"
TRAINING = declare(
    Resource("ml.example.com", "v1", "trainings", "Training", namespaced=True),
    pods=[
        Pods("launcher", template="spec.launcher"),
        Pods("name", template="template", count="count", min_count="least", each="spec.groups"),
    ],
    active="status.active",
    ready=enough("status.ready"),
    succeeded=equals("status.phase", "Succeeded"),
    failed=equals("status.phase", "Failed"),
)
(BATCH,) = [each for each in builtin_registry().integrations if each.name == "batch/job"]
LEAST = "kueue.x-k8s.io/job-min-parallelism"
NAMES = {"Job": ["main"], "Training": ["launcher", "workers"]}
"""Of the pod sets, in the model; that of the workers may change."""
COUNTS = {"Job": ("main", "parallelism"), "Training": ("workers", "count")}
FLAVORS = {
    "spot": ({"pool": "spot"}, [{"key": "spot", "operator": "Exists"}]),
    "reserved": ({"pool": "reserved", "zone": "a"}, []),
    "plain": ({}, []),
}
MAPS = ("nodeSelector", "labels", "annotations")
ORIGIN = ("podset", "cluster-queue-name", "local-queue-name", "workload")
"""What the templates of a started job say about their origin, without its domain."""
TOLERATIONS = [{"key": "own", "operator": "Exists"}, {"key": "spot", "operator": "Exists"}]


def part_of(template: Obj, field: str) -> Obj:
    """The part of a template that has a field; it is created if it does not exist."""
    section = "metadata" if field in ("labels", "annotations") else "spec"
    return template.setdefault(section, {})


def origin_of(workload: Obj, name: str) -> Obj:
    """What a start adds about the origin of the pods of one pod set."""
    queue = workload["status"]["admission"]["clusterQueue"]
    values = (name, queue, workload["spec"]["queueName"], workload["metadata"]["name"])
    notes = {
        f"kueue.x-k8s.io/{key}": value for key, value in zip(ORIGIN, values, strict=True) if value
    }
    kept = notes.pop("kueue.x-k8s.io/workload")
    return {"labels": notes, "annotations": {"kueue.x-k8s.io/workload": kept}}


def placed(template: Obj) -> Obj:
    """What the model is about; absent equals empty."""
    found = {field: part_of(template, field).get(field) or {} for field in MAPS}
    found["tolerations"] = part_of(template, "tolerations").get("tolerations") or []
    found["affinity"] = part_of(template, "affinity").get("affinity") or {}
    return copy.deepcopy(found)


class World(JobWorld):
    """A world in which a write from an old state of an object is refused, as by an API server."""

    refused = 0
    drops = False
    """Whether its Workloads lack a field of containers, because their CRD is old."""

    def _store(self, kind: str, obj: Obj) -> None:
        if self.drops and kind == WORKLOADS.kind:
            obj = copy.deepcopy(obj)
            for entry in obj["spec"]["podSets"]:
                entry["template"]["spec"]["containers"][0].pop("future", None)
        super()._store(kind, obj)

    def _write(self, command: Any) -> bool:
        match command:
            case Change(resource, old, _, _, True) | PatchStatus(resource, old, versioned=True):
                now = self._get(resource.kind, old)["metadata"]["resourceVersion"]
                if old["metadata"]["resourceVersion"] != now:
                    self.refused += 1
                    return False
        return super()._write(command)

    def plan(self) -> Any:
        self.now += 1
        return plan(self._situation())

    def carry_out(self, commands: Any) -> bool:
        return self._carry_out(commands)


class Edits(RuleBasedStateMachine):
    """One job, its user, its scheduler, its controller and a manager that dies."""

    @initialize(kind=st.sampled_from(["Job", "Training"]), least=st.booleans(), drops=st.booleans())
    def begin(self, kind: str, least: bool, drops: bool) -> None:
        self.kind = kind
        spec: Obj = {"suspend": True}
        if kind == "Training":
            spec["groups"] = [{"name": "workers"}]
        self.counted(spec)[COUNTS[kind][1]] = 3
        for name in NAMES[kind]:
            containers = [{"name": "c", "image": "i", "future": "a"}]
            self.template(spec, name).update(metadata={}, spec={"containers": containers})
        meta: Obj = {"name": "job", "labels": dict(QUEUE)}
        if least and kind == "Job":
            meta["annotations"] = {LEAST: "1"}
        elif least:
            self.counted(spec)["least"] = 1
        self.least = least
        job = {"metadata": meta, "spec": spec}
        self.world = World(BATCH if kind == "Job" else TRAINING, job, one_at_a_time=True)
        self.world.drops = drops
        self.flavors: dict[str, Any] = copy.deepcopy(FLAVORS)
        self.written = {name: placed({}) for name in NAMES[kind]}
        self.count = self.completions = 3
        if kind == "Training":
            self.completions = 9
        self.added: dict[str, Obj] = {}
        self.noted: dict[str, Obj] = {}
        self.foreign = self.handled = False
        self.seen = True
        self.rest()
        self.place = self.world.workload["metadata"]["uid"]

    # ---- what there is

    def counted(self, spec: Obj) -> Obj:
        """Where the number of pods is, with its bound."""
        return spec if self.kind == "Job" else spec["groups"][0]

    def template(self, spec: Obj, name: str) -> Obj:
        where = spec if name == "launcher" else self.counted(spec)
        return where.setdefault("launcher" if name == "launcher" else "template", {})

    @property
    def spec(self) -> Obj:
        return self.world.live_job["spec"]

    @property
    def runs(self) -> bool:
        return self.spec.get("suspend") is not True

    @property
    def is_active(self) -> bool:
        return bool((self.world.live_job.get("status") or {}).get("active"))

    @property
    def is_clean(self) -> bool:
        """Whether nothing of a start can be in the templates."""
        return not self.runs and not self.added

    def is_admitted(self) -> bool:
        return any(map(states.is_admitted, self.world.workloads))

    def quota(self) -> bool:
        return len(self.world.workloads) == 1 and states.has_quota(self.world.workload)

    def change(self, job: Obj) -> None:
        self.world.change(job)

    # ---- the manager

    def watch_starts(self, before: Obj) -> None:
        """The model of a start and of a complete stop, from what is visible of them."""
        was, runs = before["spec"].get("suspend") is not True, self.runs
        self.seen = self.seen and not runs
        if runs and not was:
            (workload,) = self.world.workloads
            assert states.is_admitted(workload), "it was started without an admission"
            assert not self.added or self.handled, "it was started twice"
            self.added, self.handled = {}, False
            assigned = workload["status"]["admission"]["podSetAssignments"]
            for name, entry in zip(NAMES[self.kind], assigned, strict=True):
                labels, tolerations = self.flavors[entry["flavors"]["cpu"]]
                own = self.written[name]
                for key, value in labels.items():
                    mine = own["nodeSelector"].get(key, value)
                    assert mine == value, f"a decision about another template was written: {key}"
                self.added[name] = {
                    "nodeSelector": {
                        key: value
                        for key, value in labels.items()
                        if key not in own["nodeSelector"]
                    },
                    "tolerations": [each for each in tolerations if each not in own["tolerations"]],
                    **origin_of(workload, entry["name"]),
                }
                self.noted[name] = dict(labels)
        elif not runs and self.added and self.template_is_written():
            if not self.world.integration.job_type(self.world.live_job).is_suspended():
                return
            self.added, self.noted, self.foreign, self.handled = {}, {}, False, False

    def template_is_written(self) -> bool:
        return all(
            placed(self.template(self.spec, name)) == self.written[name]
            for name in NAMES[self.kind]
        )

    def step(self, commands: Any) -> bool:
        before = copy.deepcopy(self.world.live_job)
        wrote = self.world.carry_out(commands)
        self.watch_starts(before)
        return wrote

    def rest(self) -> None:
        for _ in range(40):
            if not self.step(self.world.plan()):
                return
        raise AssertionError("the manager never comes to rest")

    @rule(writes=st.integers(0, 3))
    def the_manager_dies(self, writes: int) -> None:
        for _ in range(writes):
            self.step(self.world.plan())

    # ---- the user

    @precondition(lambda self: self.may_edit())
    @rule(
        name=st.integers(0, 1),
        field=st.sampled_from(["nodeSelector", "nodeSelector", *MAPS]),
        key=st.sampled_from(["pool", "pool", "zone"]),
        value=st.sampled_from(["spot", "reserved", "a", None]),
        late=st.booleans(),
    )
    def a_key_is_edited(
        self, name: int, field: str, key: str, value: str | None, late: bool
    ) -> None:
        chosen = NAMES[self.kind][name % len(NAMES[self.kind])]
        added = self.added.get(chosen, {}).get(field, {})
        if value is not None and self.noted.get(chosen, {}).get(key) == value:
            return  # the same as what the start added, so it cannot be distinguished from that
        if key in added and value is None:
            return  # it would take the addition away
        added.pop(key, None)
        commands = self.late_plan() if late else ()
        job = copy.deepcopy(self.world.live_job)
        part = part_of(self.template(job["spec"], chosen), field)
        entries = part.setdefault(field, {})
        for values in (entries, self.written[chosen][field]):
            values.pop(key, None)
            if value is not None:
                values[key] = value
        self.change(job)
        self.step(commands)

    @precondition(lambda self: self.may_edit())
    @rule(name=st.integers(0, 1), toleration=st.sampled_from(TOLERATIONS), late=st.booleans())
    def a_toleration_is_edited(self, name: int, toleration: Obj, late: bool) -> None:
        chosen = NAMES[self.kind][name % len(NAMES[self.kind])]
        if toleration in self.added.get(chosen, {}).get("tolerations", ()):
            return
        commands = self.late_plan() if late else ()
        job = copy.deepcopy(self.world.live_job)
        part = part_of(self.template(job["spec"], chosen), "tolerations")
        mine = self.written[chosen]["tolerations"]
        listed = list(part.get("tolerations") or ())
        if toleration in mine:
            mine.remove(toleration)
            listed.remove(toleration)
        else:
            mine.append(toleration)
            listed.append(toleration)
        part["tolerations"] = listed
        self.change(job)
        self.step(commands)

    @precondition(lambda self: self.may_edit())
    @rule(name=st.integers(0, 1), weight=st.integers(1, 3))
    def the_affinity_is_edited(self, name: int, weight: int) -> None:
        chosen = NAMES[self.kind][name % len(NAMES[self.kind])]
        term = {"weight": weight, "preference": {"matchExpressions": []}}
        affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}
        job = copy.deepcopy(self.world.live_job)
        part_of(self.template(job["spec"], chosen), "affinity")["affinity"] = affinity
        self.written[chosen]["affinity"] = affinity
        self.change(job)

    @precondition(lambda self: self.is_clean)
    @rule(count=st.integers(2, 4))
    def the_count_is_edited(self, count: int) -> None:
        job = copy.deepcopy(self.world.live_job)
        self.counted(job["spec"])[COUNTS[self.kind][1]] = self.count = count
        self.change(job)

    @precondition(lambda self: not self.foreign)
    @rule(rest=st.booleans(), restarted=st.booleans())
    def it_may_or_may_not_run_with_fewer_pods(self, rest: bool, restarted: bool) -> None:
        """By the user, or by the gate of a new manager: neither stops a running job."""
        if rest:
            self.rest()
        ran = rest and self.runs
        if restarted:
            partial = not self.world.settings.partial_admission
            self.world.settings = attrs.evolve(self.world.settings, partial_admission=partial)
        else:
            self.edit_least()
        if ran:
            self.rest()
            assert self.runs, "it was stopped although no pod of it has changed"

    def edit_least(self) -> None:
        self.least = not self.least
        job = copy.deepcopy(self.world.live_job)
        where, key, value = self.counted(job["spec"]), "least", 1
        if self.kind == "Job":
            where, key, value = job["metadata"].setdefault("annotations", {}), LEAST, "1"
        where.pop(key, None)
        if self.least:
            where[key] = value
        self.change(job)

    @precondition(lambda self: self.kind == "Job" and not self.foreign)
    @rule()
    def no_more_completions_than_run_now_are_wanted(self) -> None:
        job = copy.deepcopy(self.world.live_job)
        fewest = min(job["spec"]["parallelism"], self.completions)
        job["spec"]["completions"] = self.completions = fewest
        self.change(job)

    @precondition(lambda self: self.kind == "Training" and not self.foreign)
    @rule(name=st.sampled_from(["workers", "others", "more"]))
    def a_pod_set_is_renamed(self, name: str) -> None:
        job = copy.deepcopy(self.world.live_job)
        job["spec"]["groups"][0]["name"] = name
        self.change(job)

    @precondition(lambda self: self.may_edit())
    @rule(field=st.sampled_from(["image", "future"]), value=st.sampled_from(["i", "a", "b"]))
    def a_container_is_edited(self, field: str, value: str) -> None:
        job = copy.deepcopy(self.world.live_job)
        template = self.template(job["spec"], NAMES[self.kind][0])
        template["spec"]["containers"][0][field] = value
        self.change(job)

    @precondition(lambda self: self.kind == "Training" and not self.runs and not self.quota())
    @rule(
        flavor=st.sampled_from([*FLAVORS]),
        zone=st.sampled_from(["a", "b", None]),
        suspend=st.booleans(),
        evicted=st.booleans(),
        fewest=st.booleans(),
    )
    def it_runs_and_is_replaced(
        self, flavor: str, zone: str | None, suspend: bool, evicted: bool, fewest: bool
    ) -> None:
        """By the user's own file, which has neither the note nor what the start added."""
        self.it_runs([flavor, *FLAVORS], fewest, 0)
        if any(zone and added["nodeSelector"].get("zone") == zone for added in self.added.values()):
            zone = None  # the same as what the start added, so it cannot be distinguished from that
        job = copy.deepcopy(self.world.live_job)
        job["spec"]["suspend"] = self.handled = suspend
        self.counted(job["spec"])[COUNTS[self.kind][1]] = self.count
        for name, own in self.written.items():
            if zone is not None:
                own["nodeSelector"]["zone"] = zone
            for field, value in own.items():
                part_of(self.template(job["spec"], name), field)[field] = copy.deepcopy(value)
        del job["metadata"]["annotations"]
        self.added = {name: placed({}) for name in NAMES[self.kind]}
        self.noted = {}
        self.change(job)
        if evicted and self.quota():
            self.it_is_stopped(2, looks=False)

    @precondition(lambda self: self.is_clean and not self.is_admitted())
    @rule(zone=st.sampled_from(["a", "b"]))
    def a_waiting_job_is_edited_and_unsuspended(self, zone: str) -> None:
        """The manager suspends it before the scheduler looks: it would count as started."""
        job = copy.deepcopy(self.world.live_job)
        del job["spec"]["suspend"]
        name = NAMES[self.kind][0]
        part_of(self.template(job["spec"], name), "labels")["labels"] = {"zone": zone}
        self.written[name]["labels"] = {"zone": zone}
        self.change(job)
        self.seen = False
        while self.runs:
            self.step(self.world.plan())

    @precondition(lambda self: self.runs and not self.foreign)
    @rule(rest=st.booleans())
    def the_user_suspends_it(self, rest: bool) -> None:
        job = copy.deepcopy(self.world.live_job)
        job["spec"]["suspend"] = self.handled = True
        self.change(job)
        if rest:
            self.rest()

    def late_plan(self) -> Any:
        """A plan that is made before an edit and carried out after it."""
        for flavor in self.flavors:
            self.decide(flavor, check=False, fewest=self.least_counts())
        return self.world.plan()

    def may_edit(self) -> bool:
        """A Job's template cannot change while it runs; without a note it is Kueue that edits."""
        if self.foreign:
            return False
        started = (self.world.live_job.get("status") or {}).get("startTime")
        return self.kind != "Job" or not (self.runs or started)

    # ---- everybody else

    @rule(flavor=st.sampled_from([*FLAVORS]), check=st.booleans(), fewest=st.booleans())
    def the_scheduler_decides(self, flavor: str, check: bool, fewest: bool) -> None:
        self.decide(flavor, check=check, fewest=fewest)

    @precondition(lambda self: not self.runs and not self.quota())
    @rule(flavors=st.permutations([*FLAVORS]), fewest=st.booleans(), writes=st.integers(0, 2))
    def it_runs(self, flavors: list[str], fewest: bool, writes: int) -> None:
        self.the_controller_looks()
        self.rest()
        for flavor in flavors:
            self.decide(flavor, check=False, fewest=fewest)
        self.rest()
        assert self.runs, "an admitted job does not start"
        self.the_controller_looks()
        self.the_manager_dies(writes)

    @precondition(lambda self: self.quota())
    @rule(writes=st.integers(0, 4), looks=st.booleans())
    def it_is_stopped(self, writes: int, looks: bool) -> None:
        self.world.evict()
        self.the_manager_dies(writes)
        if looks and not self.runs:
            self.the_controller_looks()

    def decide(self, flavor: str, *, check: bool, fewest: bool) -> None:
        if len(self.world.workloads) != 1:
            return
        workload = self.world.workload
        if states.phase_of(workload) is not states.Phase.PENDING or states.is_deleted(workload):
            return
        if states.is_held_back(workload):  # it does not match its job yet
            return
        labels = self.flavors[flavor][0]
        for entry in workload["spec"]["podSets"]:
            selector = placed(copy.deepcopy(entry["template"]))["nodeSelector"]
            if any(selector.get(key, value) != value for key, value in labels.items()):
                return
        if check:
            self.world.reserve(flavor)
        else:
            self.world.admit(flavor, fewest=fewest and self.least_counts())
        self.tell_flavors()

    @precondition(lambda self: self.quota())
    @rule()
    def the_check_is_ready(self) -> None:
        self.world.pass_checks()

    @rule(flavor=st.sampled_from([*FLAVORS]), zone=st.sampled_from(["a", "c"]))
    def a_flavor_is_changed(self, flavor: str, zone: str) -> None:
        if self.foreign:
            return
        labels, tolerations = self.flavors[flavor]
        if flavor != "plain":
            self.flavors[flavor] = ({**labels, "zone": zone}, tolerations)
        self.tell_flavors()

    def least_counts(self) -> bool:
        return self.least and self.world.settings.partial_admission

    def tell_flavors(self) -> None:
        """The manager sees the flavors of the model."""
        for name, (labels, tolerations) in self.flavors.items():
            self.world.flavors[name] = {"spec": {"nodeLabels": labels, "tolerations": tolerations}}

    @rule()
    def the_controller_looks(self) -> None:
        job = copy.deepcopy(self.world.live_job)
        status = job.setdefault("status", {})
        if self.runs:
            status["active"] = 1
            if self.kind == "Job":
                status.setdefault("startTime", "2024-01-01T00:00:00Z")
        else:
            status["active"] = 0
        seen = {"type": "Suspended", "status": str(not self.runs), "reason": "Looked"}
        status["conditions"] = [seen]
        self.seen = not self.runs
        self.change(job)

    @precondition(lambda self: len(self.world.workloads) == 1 and not self.foreign)
    @rule()
    def the_workload_is_lost(self) -> None:
        self.world.lose_workload()
        self.place = ""

    @precondition(lambda self: self.runs and self.added and self.quota() and self.is_active)
    @rule(
        flavor=st.none() | st.sampled_from(["spot", "reserved"]),
        copied=st.booleans(),
        origin=st.sets(st.sampled_from(ORIGIN)),
    )
    def another_manager_started_it(
        self, flavor: str | None, copied: bool, origin: set[str]
    ) -> None:
        """Either it started the job, or it stopped what we started, and started it again.

        By its version and its gates, it says more or less about the origin of the pods.
        """
        job = copy.deepcopy(self.world.live_job)
        workload = self.world.workload
        asked = [placed(copy.deepcopy(each["template"])) for each in workload["spec"]["podSets"]]
        same = asked == [*self.written.values()]
        pending = states.is_evicted(workload) or not states.is_admitted(workload)
        if NOTE not in (job["metadata"].get("annotations") or {}) or not same or pending:
            return
        if flavor is None and not copied:
            self.world.forget_start()
            job = copy.deepcopy(self.world.live_job)
        elif flavor is None:
            del job["metadata"]["annotations"][NOTE]
        elif not self.starts_elsewhere(job, flavor):
            return
        for name, added in self.added.items():
            whole = origin_of(self.world.workload, self.pod_set(name))
            for field, values in whole.items():
                said = {k: v for k, v in values.items() if k.partition("/")[2] in origin}
                added[field] = said
                own = self.written[name][field]
                part_of(self.template(job["spec"], name), field)[field] = {**own, **said}
        self.foreign = True
        self.change(job)

    def pod_set(self, name: str) -> str:
        """The name that a pod set of the model has in the Workload."""
        index = NAMES[self.kind].index(name)
        return str(self.world.workload["spec"]["podSets"][index]["name"])

    def starts_elsewhere(self, job: Obj, flavor: str) -> bool:
        """As Kueue does: it restores the Workload's templates, and leaves our note alone."""
        labels, tolerations = self.flavors[flavor]
        chosen = [written["nodeSelector"] for written in self.written.values()]
        if any(each.get(key, value) != value for each in chosen for key, value in labels.items()):
            return False
        self.world.now += 5
        self.world.evict()
        self.world.free()
        self.decide(flavor, check=False, fewest=False)
        for name in NAMES[self.kind]:
            own, template = self.written[name], self.template(job["spec"], name)
            part_of(template, "nodeSelector")["nodeSelector"] = {**own["nodeSelector"], **labels}
            both = [*own["tolerations"], *(e for e in tolerations if e not in own["tolerations"])]
            part_of(template, "tolerations")["tolerations"] = both
            for field in ("labels", "annotations"):
                part_of(template, field)[field] = dict(own[field])
            self.added[name] = {
                "nodeSelector": {k: v for k, v in labels.items() if k not in own["nodeSelector"]},
                "tolerations": [e for e in tolerations if e not in own["tolerations"]],
            }
        self.counted(job["spec"])[COUNTS[self.kind][1]] = self.count
        return True

    # ---- the laws

    @rule()
    def at_rest_the_job_is_what_its_user_wrote_and_what_the_admission_adds(self) -> None:
        self.rest()
        for name in NAMES[self.kind]:
            present, wanted = (
                placed(self.template(self.spec, name)),
                copy.deepcopy(self.written[name]),
            )
            added = self.added.get(name) or placed({})
            running = copy.deepcopy(wanted)
            for field in MAPS:
                running[field] = {**added[field], **wanted[field]}
            running["tolerations"] += added["tolerations"]
            for each in (present, running, wanted):
                each["tolerations"].sort(key=str)
            if self.runs:
                assert present == running
            elif self.is_active or not self.seen:  # its pods end, and its kind may restore it later
                assert present in (running, wanted)
            else:
                assert present == wanted
        if not self.runs and not self.is_active and self.seen:
            count = self.counted(self.spec)[COUNTS[self.kind][1]]
            assert min(count, self.completions) == min(self.count, self.completions)
            assert NOTE not in (self.world.live_job["metadata"].get("annotations") or {})
            (workload,) = self.world.workloads
            assert not (states.is_evicted(workload) and self.quota()), "its stop never ends"
            assert not states.is_finished(workload), "FailedToStart"
            assert self.place in ("", workload["metadata"]["uid"]), "it lost its place"
            self.place = workload["metadata"]["uid"]
            asked = [placed(copy.deepcopy(e["template"])) for e in workload["spec"]["podSets"]]
            assert asked == [*self.written.values()], "the Workload is another one's"

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.at_rest_the_job_is_what_its_user_wrote_and_what_the_admission_adds()


Edits.TestCase.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
TestEdits = Edits.TestCase


@pytest.mark.parametrize("flavor", FLAVORS)
@pytest.mark.parametrize("origin", [(), ("workload",), ("podset", "local-queue-name"), ORIGIN])
def test_a_job_that_another_manager_started_after_our_note_starts_again(flavor, origin):
    """The manager died between its two writes of a start, and another one wrote the job instead."""
    edits = Edits()
    edits.begin(kind="Training", least=False, drops=False)
    edits.a_waiting_job_is_edited_and_unsuspended(zone="a")
    edits.it_runs(flavors=[flavor, *FLAVORS], fewest=False, writes=0)
    edits.another_manager_started_it(flavor=None, copied=True, origin={*origin})
    assert edits.foreign
    edits.it_is_stopped(looks=True, writes=3)
    edits.the_manager_dies(writes=3)
    assert not edits.added, "its templates are not as they were before the start"
    edits.it_runs(flavors=["plain", *FLAVORS], fewest=False, writes=1)
    edits.teardown()


def test_a_smallest_count_stops_no_running_job_whose_workload_lacks_fields() -> None:
    edits = Edits()
    edits.begin(kind="Job", least=False, drops=True)
    edits.it_runs(fewest=False, flavors=[*FLAVORS], writes=0)
    edits.it_may_or_may_not_run_with_fewer_pods(rest=True, restarted=False)
    edits.teardown()
