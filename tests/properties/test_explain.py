"""Laws of `explain` over random worlds: what it proposes helps, and one unit less does not."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from types import MethodType
from typing import Any
from unittest.mock import patch

import attrs
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from smaller_changes import one_unit_less

from kueuelib.api.codec import decode, encode
from kueuelib.api.kueue import ClusterQueue, Cohort, Workload
from kueuelib.api.meta import Obj, ObjectKey, format_time
from kueuelib.api.workload_state import has_quota
from kueuelib.scheduler.decide.cycle import decide
from kueuelib.scheduler.engine import Engine
from kueuelib.scheduler.explain.answer import Explanation, explain
from kueuelib.scheduler.explain.changes import CandidateChange, RaiseQuota
from kueuelib.scheduler.explain.fork import fork
from kueuelib.scheduler.explain.leaving import engine_of
from kueuelib.scheduler.explain.own_changes import FewerPods
from kueuelib.scheduler.explain.rows import Fit
from kueuelib.scheduler.explain.trial import (
    Probe,
    TrialOutcome,
    TrialResult,
    Trials,
    TriedChange,
    outcome,
    outcomes,
    usage_of,
)
from kueuelib.scheduler.explain.world import World, difference
from kueuelib.scheduler.object_reasons import PodsMissing
from kueuelib.scheduler.pending.waking import ShapeVerdict
from kueuelib.scheduler.pending.workload_info import WorkloadInfo
from kueuelib.scheduler.reasons import FitsAfterPreemptions, NotEvaluated, Preempting, Reason
from kueuelib.scheduler.settings import FINAL_SHARE, INITIAL_SHARE, FairSharingRules, Settings
from kueuelib.testing.builders import (
    make_assignment,
    make_check,
    make_cluster_queue,
    make_cohort,
    make_condition,
    make_flavor,
    make_local_queue,
    make_pod_set,
    make_workload,
)
from kueuelib.workload import states

NOW = 1000.0
QUEUES = ("a", "b")
FLAVORS = ("one", "two")
COHORTS = ("x", "y", "z")
SHARES = (
    None,
    FairSharingRules(),
    FairSharingRules((FINAL_SHARE,)),
    FairSharingRules((INITIAL_SHARE,)),
)
SUBJECT = ObjectKey("ns", "subject")
TAINT = {"key": "spot", "value": "yes", "effect": "NoSchedule"}
NOBODY_BEHIND = patch("kueuelib.scheduler.explain.world.MOST_BEHIND", 0)
"""Leaves out all that wait behind the Workload, however few they are."""


@st.composite
def quotas(draw: st.DrawFn, cohort: str) -> dict[str, int]:
    nominal = draw(st.integers(0, 5))
    found = {"nominal": nominal}
    if cohort and draw(st.booleans()):
        found["borrowing"] = draw(st.integers(0, 3))
    if cohort and draw(st.booleans()):
        found["lending"] = draw(st.integers(0, nominal))
    return found


def rarely(usual: object, *others: object) -> st.SearchStrategy[Any]:
    """Mostly the usual, so that several problems seldom meet."""
    return st.integers(0, 19).flatmap(
        lambda number: st.sampled_from(others) if number == 13 else st.just(usual)
    )


weights = st.sampled_from(["1", "1", "0", "0.5", "3"])


@st.composite
def cluster_queues(draw: st.DrawFn, name: str) -> ClusterQueue:
    cohort = draw(st.sampled_from(("", "x", "x", "y", "z")))
    flavors = draw(st.sampled_from([("one",), ("one", "two"), ("two", "one")]))
    group = {
        flavor: {"cpu": draw(quotas(cohort)), "memory": draw(quotas(cohort))} for flavor in flavors
    }
    never = st.sampled_from(["Never", "Never", "LowerPriority"])
    return make_cluster_queue(
        name,
        group,
        cohort=cohort,
        selector=draw(rarely(None, {"matchLabels": {"team": "red"}})),
        checks=draw(rarely((), ("check",))),
        queueingStrategy=draw(st.sampled_from(["StrictFIFO", "BestEffortFIFO"])),
        stopPolicy=draw(rarely("None", "Hold")),
        preemption={"withinClusterQueue": draw(never), "reclaimWithinCohort": draw(never)},
        fairSharing={"weight": draw(weights)},
        flavorFungibility={
            "whenCanBorrow": draw(st.sampled_from(["MayStopSearch", "TryNextFlavor"])),
            "whenCanPreempt": draw(st.sampled_from(["MayStopSearch", "TryNextFlavor"])),
        },
    )


@st.composite
def cohorts(draw: st.DrawFn, name: str) -> Cohort:
    others = [other for other in COHORTS if other != name]
    higher = [other for other in others if other > name]
    parent = draw(st.sampled_from(("", *higher)) | rarely("", *others))
    group = {flavor: {"cpu": draw(quotas(parent))} for flavor in FLAVORS}
    return make_cohort(name, group, parent=parent, weight=draw(weights))


def preempted(wl: Obj) -> Obj:
    assignment = make_assignment({"cpu": 1}, "one")
    admission = {"clusterQueue": "a", "podSetAssignments": [assignment]}
    wl = states.preempt(states.reserve(wl, admission, [], NOW - 9), "InClusterQueue", "", NOW - 8)
    return states.release(wl, NOW - 7)


def lacks_pods(wl: Obj) -> Obj:
    text = "The group waits for 1 pod to be replaced"
    return in_group(states.hold_back(preempted(wl), text, NOW - 6))


def in_group(wl: Obj) -> Obj:
    metadata = {**wl["metadata"], "annotations": {"kueue.x-k8s.io/is-group-workload": "true"}}
    return {**wl, "metadata": metadata}


def backs_off(wl: Obj) -> Obj:
    evicted = make_condition("Evicted", reason="PodsReadyTimeout", at=NOW - 9)
    return states.back_off({**wl, "status": {"conditions": [evicted]}}, 1, NOW + 9)


def refused(state: str) -> Callable[[Obj], Obj]:
    entry = {"name": "check", "message": "", "lastTransitionTime": format_time(NOW)}
    return lambda wl: {**wl, "status": {"admissionChecks": [{**entry, "state": state}]}}


def deactivated(wl: Obj) -> Obj:
    return {**wl, "spec": {**wl["spec"], "active": False}}


STAGES: tuple[Callable[[Obj], Obj], ...] = (
    lambda wl: wl,
    preempted,
    lacks_pods,
    lambda wl: states.requeue(lacks_pods(wl), NOW),
    lambda wl: deactivated(lacks_pods(wl)),
    lambda wl: states.hold_back(wl, "The pod is being deleted", NOW),
    lambda wl: states.finish(in_group(wl), "Succeeded", "All pods have succeeded", NOW),
    backs_off,
    refused("Retry"),
    refused("Rejected"),
    deactivated,
)
"""The stages of a Workload without quota; all but the first few keep it out of its queue."""


def in_stage(workload: Workload, stage: Callable[[Obj], Obj]) -> Workload:
    raw = encode(workload)
    plain = {**raw, "status": {}, "spec": {**raw["spec"], "active": True}}
    return decode(Workload, stage(plain))


@st.composite
def waiting(draw: st.DrawFn, name: str) -> Workload:
    count = draw(st.integers(1, 4))
    pod_sets: list[Obj] = [
        make_pod_set(
            {"cpu": draw(st.integers(1, 3)), "memory": draw(st.integers(0, 2))},
            count=count,
            min_count=draw(st.none() | st.integers(1, count)),
            nodeSelector=draw(rarely({}, {"kind": "one"})),
        )
    ]
    workload = make_workload(
        name,
        draw(st.sampled_from(QUEUES).flatmap(lambda name: rarely(name, "absent"))),
        priority=draw(st.integers(-1, 2)),
        created=draw(st.integers(0, 9)),
        pod_sets=pod_sets,
    )
    return in_stage(workload, draw(rarely(*STAGES)))


@st.composite
def holding(draw: st.DrawFn, name: str) -> Workload:
    queue, flavor = draw(st.sampled_from(QUEUES)), draw(rarely("one", "two"))
    requests = {"cpu": draw(st.integers(0, 4)), "memory": draw(st.integers(0, 2))}
    return holder(name, queue, flavor, requests, draw(st.integers(-1, 2)))


def holder(name: str, queue: str, flavor: str, requests: dict[str, int], priority: int) -> Workload:
    admission = {
        "clusterQueue": queue,
        "podSetAssignments": [make_assignment(requests, flavor)],
    }
    return make_workload(
        name,
        queue,
        requests,
        priority=priority,
        conditions=[make_condition("QuotaReserved"), make_condition("Admitted")],
        status={"admission": admission},
    )


@st.composite
def worlds(draw: st.DrawFn) -> World:
    found = World(settings=Settings(fair_sharing=draw(st.sampled_from(SHARES))))
    found = found.with_namespace("ns", {"team": draw(st.sampled_from(["red", "blue"]))})
    for flavor in FLAVORS:
        if draw(rarely(True, False)):
            taints = draw(rarely((), (TAINT,)))
            found = found.with_flavor(make_flavor(flavor, {"kind": flavor}, taints))
    if draw(st.booleans()):
        found = found.with_check(make_check("check", active=draw(st.booleans())))
    for name in sorted(draw(st.sets(st.sampled_from(COHORTS)))):
        found = found.with_cohort(draw(cohorts(name)))
    for name in QUEUES:
        found = found.with_cluster_queue(draw(cluster_queues(name)))
        policy = draw(rarely("None", "Hold"))
        found = found.with_local_queue(make_local_queue(name, name, stopPolicy=policy))
    for number in range(draw(st.integers(0, 4))):
        found = found.with_workload(draw(holding(f"h{number}")))
    for number in range(draw(st.integers(0, 3))):
        found = found.with_workload(draw(waiting(f"w{number}")))
    return found.with_workload(draw(waiting(SUBJECT.name)))


@st.composite
def trees(draw: st.DrawFn) -> World:
    """Borrowers on two sides of a tree, who hold most of what a lender has."""
    found = World(settings=Settings(fair_sharing=draw(st.sampled_from(SHARES))))
    found = found.with_namespace("ns", {}).with_flavor(make_flavor("one"))
    for name, parent in (("x", "z"), ("y", "z"), ("z", "")):
        limits = {"borrowing": draw(st.integers(2, 6))} if parent and draw(st.booleans()) else {}
        group = {"one": {"cpu": {"nominal": draw(st.integers(0, 1)), **limits}}}
        groups = [group] if draw(st.booleans()) else []
        found = found.with_cohort(make_cohort(name, *groups, parent=parent, weight=draw(weights)))
    free = 0
    for name, cohort in (
        ("a", "x"),
        ("b", draw(st.sampled_from(("x", "y")))),
        ("lender", draw(st.sampled_from(COHORTS))),
    ):
        nominal = draw(st.integers(4, 8)) if name == "lender" else draw(st.integers(0, 1))
        free += nominal
        policy = draw(st.sampled_from(["Never", "LowerPriority", "Any", "Any"]))
        queue = make_cluster_queue(
            name,
            {"one": {"cpu": nominal}},
            cohort=cohort,
            fairSharing={"weight": draw(weights)},
            preemption={"reclaimWithinCohort": policy},
        )
        found = found.with_cluster_queue(queue)
        found = found.with_local_queue(make_local_queue(name, name))
    for number in range(draw(st.integers(2, 5))):
        cpu = min(free, draw(st.integers(1, 3)))
        free -= cpu
        name = draw(st.sampled_from(QUEUES))
        found = found.with_workload(holder(f"h{number}", name, "one", {"cpu": cpu}, 0))
    for number in range(draw(st.integers(0, 2))):
        rival = make_workload(
            f"w{number}",
            draw(st.sampled_from(QUEUES)),
            {"cpu": draw(st.integers(1, 3))},
            created=draw(st.integers(0, 9)),
        )
        found = found.with_workload(rival)
    lacks = draw(st.integers(0, 3))
    return found.with_workload(make_workload(SUBJECT.name, "a", {"cpu": max(1, free + lacks)}))


def content(world: World) -> object:
    tables = attrs.asdict(world, recurse=False)
    del tables["settings"]
    return {
        name: {key: value if name == "namespaces" else encode(value) for key, value in each.items()}
        for name, each in tables.items()
    }


class Whole(World):
    """A world that leaves nothing out."""

    def narrowed(self, key: ObjectKey) -> World:
        del key
        return self


def is_less(more: TriedChange) -> Callable[[TriedChange], bool]:
    """Whether a change is a smaller size of another one, at the cost of others."""

    def test(found: TriedChange) -> bool:
        mine, theirs = found.change, more.change
        if type(mine) is not type(theirs):
            return False
        if isinstance(mine, RaiseQuota) and isinstance(theirs, RaiseQuota):
            sizes = {each.resource: each.by for each in theirs.amounts}
            same = (mine.place, mine.flavor, mine.field) == (
                theirs.place,
                theirs.flavor,
                theirs.field,
            )
            less = all(each.by <= sizes.get(each.resource, 0) for each in mine.amounts)
        else:
            assert isinstance(theirs, FewerPods)
            same = isinstance(mine, FewerPods) and mine.pod_set == theirs.pod_set
            less = isinstance(mine, FewerPods) and mine.to > theirs.to
        return bool(found.victims) and same and less and mine != theirs

    return test


LAW = settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))


@settings(LAW, max_examples=40)
@given(world=worlds() | trees())
def test_every_change_helps_and_one_unit_less_does_not(world: World) -> None:
    found = explain(world, SUBJECT, NOW)
    event(found.verdict.value)
    for one in found.changes:
        event(f"{one.change.kind} of {one.change.subject.split()[0]}")
        after = outcome(one.change.apply(world), SUBJECT, NOW)
        assert after == one.outcome
        assert after.helps, one.change
        assert after.admits or found.verdict is TrialResult.WAITS
        for smaller in one_unit_less(one.change):
            less = outcome(smaller.apply(world), SUBJECT, NOW)
            assert not less.admits, smaller
            if one.victims or one.change.kind in ("priority", "weight"):
                assert not less.helps, smaller
            if less.helps and found.verdict is TrialResult.WAITS:
                assert any(map(is_less(one), found.changes)), one.change


@settings(LAW, max_examples=20)
@given(world=worlds(), stage=st.sampled_from(STAGES))
def test_who_is_told_that_it_would_get_quota_can_get_it(
    world: World, stage: Callable[[Obj], Obj]
) -> None:
    """The engine's word is compared with the rules of the life of a Workload, which are others."""
    world = world.with_workload(in_stage(world.workloads[SUBJECT], stage))
    found = explain(world, SUBJECT, NOW)
    event(f"{STAGES.index(stage)}: {found.verdict.value}")
    offers = [(one.change.apply(world), one.outcome) for one in found.changes]
    for after, promised in [(world, found.outcome), *offers]:
        if promised.helps:
            workload = encode(after.workloads[SUBJECT])
            admit = promised.admit
            admission = {"clusterQueue": "a"} if admit is None else encode(admit.admission)
            assert states.has_quota(states.reserve(workload, admission, ("check",), NOW))
    if stage is lacks_pods and found.outcome.reason is not None:
        assert isinstance(found.reason, PodsMissing)
        assert {one.change.kind for one in found.changes} <= {"pods-return"}


@LAW
@given(world=worlds())
def test_the_world_is_left_as_it_was_and_the_answer_is_the_same_again(world: World) -> None:
    before = content(world)
    first = explain(world, SUBJECT, NOW)
    assert content(world) == before
    assert explain(world, SUBJECT, NOW) == first


@LAW
@given(world=worlds())
def test_leaving_out_what_does_not_matter_changes_no_verdict(world: World) -> None:
    with NOBODY_BEHIND:
        narrow = outcome(world, SUBJECT, NOW)
    whole = outcome(Whole(**attrs.asdict(world, recurse=False)), SUBJECT, NOW)
    assert (narrow.verdict, narrow.reason) == (whole.verdict, whole.reason)


@LAW
@given(world=trees())
def test_leaving_out_what_does_not_matter_changes_no_verdict_in_trees(world: World) -> None:
    """Who looks again after those behind it were admitted sees other numbers then."""
    whole = outcome(Whole(**attrs.asdict(world, recurse=False)), SUBJECT, NOW)
    with NOBODY_BEHIND:
        assert outcome(world, SUBJECT, NOW).verdict is whole.verdict


@LAW
@given(world=worlds() | trees())
def test_one_run_for_all_gives_the_verdict_that_each_gets_in_a_run_of_its_own(world: World) -> None:
    found = outcomes(world, NOW)
    assert found.keys() == world.workloads.keys()
    whole = Whole(**attrs.asdict(world, recurse=False))
    for key in world.workloads:
        alone = outcome(whole, key, NOW)
        event(alone.verdict.value)
        assert (found[key].verdict, found[key].reason) == (alone.verdict, alone.reason)
        assert found[key].victims == alone.victims


@LAW
@given(world=worlds() | trees())
def test_the_lines_of_a_world_are_those_of_the_engine(world: World) -> None:
    engine, lines = world.engine(NOW), world.lines()
    assert lines.keys() == world.cluster_queues.keys()
    for name, line in lines.items():
        assert line == tuple(info.key for info in engine.pending(name))
        for place, key in enumerate(line):
            assert world.ahead_of(key) == line[:place]


@LAW
@given(world=worlds() | trees())
def test_the_table_agrees_with_the_verdict(world: World) -> None:
    found = explain(world, SUBJECT, NOW, changes=False)
    pod_sets = {row.pod_set for row in found.rows}
    assert pod_sets <= {pod_set.name for pod_set in found.workload.spec.pod_sets}
    for row in found.rows:
        assert row.fit is not Fit.FITS or row.requested <= row.available
        assert row.fit is not Fit.EXCEEDS or row.requested > row.capacity
        assert row.available <= max(row.capacity, row.nominal)
        rooms = [
            one.room
            for one in found.tree
            if (one.flavor, one.resource) == (row.flavor, row.resource) and one.room is not None
        ]
        assert not rooms or row.available == max(0, min(rooms))


# --- shortcuts


def slowly(world: World, key: ObjectKey, engine: Engine | None = None) -> TrialOutcome:
    """A fresh engine that keeps the room of preemptors, and cycles to the very end."""
    engine = engine or engine_of(world, NOW)
    held = engine.standing(key)
    if held.where.name in ("HOLDS_QUOTA", "FINISHED", "UNKNOWN", "LEAVING"):
        return outcome(world, key, NOW)
    reason: Reason | None = None
    while (found := engine.next_cycle(NOW)) is not None:
        settled = engine.settle(decide(found, NOW), NOW)
        for number, admit in enumerate(settled.admissions):
            if admit.key == key:
                usage = usage_of(engine, settled.admissions[number + 1 :])
                return TrialOutcome(
                    TrialResult.ADMITTED, None, evaluated=True, admit=admit, usage=usage
                )
        for wait in settled.waits:
            reason = wait.reason if wait.key == key else reason
        if isinstance(reason, Preempting | FitsAfterPreemptions):
            return TrialOutcome(
                TrialResult.PREEMPTS, reason, evaluated=True, victims=reason.victims
            )
    told = engine.standing(key).reason if engine.is_promised(key) else None
    if reason is None and isinstance(told, Preempting | FitsAfterPreemptions):
        return TrialOutcome(TrialResult.PREEMPTS, told, evaluated=True, victims=told.victims)
    reason = reason or engine.standing(key).reason or NotEvaluated()
    evaluated, promised = not isinstance(reason, NotEvaluated), engine.promised_near(key)
    return TrialOutcome(TrialResult.WAITS, reason, evaluated=evaluated, promised=promised)


class SlowTrials(Trials):
    """Every question to a fresh engine, nothing remembered."""

    def unchanged(self) -> TrialOutcome:
        return slowly(self.world.narrowed(self._key), self._key)

    def with_change(self, change: CandidateChange) -> TrialOutcome:
        return self.within(change.apply(self.world))

    def within(self, changed: World) -> TrialOutcome:
        return slowly(changed.narrowed(self._key), self._key)


class ToldTrials(SlowTrials):
    """A fresh engine for every question, which hears of the change after the promises."""

    def within(self, changed: World) -> TrialOutcome:
        near, then = self.world.narrowed(self._key), changed.narrowed(self._key)
        engine = engine_of(near, NOW)
        for each in difference(near, then):
            engine.observe(each, NOW)
        return slowly(then, self._key, engine)


class SlowProbe(Probe):
    """The same for a world in which nobody else waits."""

    def without(self, other: ObjectKey) -> TrialOutcome:
        return slowly(self._world.without_workloads(other), self._key)


@st.composite
def promises(draw: st.DrawFn) -> World:
    """Worlds in which some leave, and the conditions of some say that they wait for their room."""
    found = draw(worlds() | trees())
    for workload in tuple(found.workloads.values()):
        if draw(st.booleans()):
            continue
        raw = encode(workload)
        given = raw.get("status", {}).get("conditions", [])
        if has_quota(workload):
            added = make_condition("Evicted", reason="Preempted", at=NOW - 5)
        else:
            added = make_condition(
                "QuotaReserved", False, "WaitingForPreemptedWorkloads", at=NOW - 5
            )
        others = [one for one in given if one["type"] != added["type"]]
        status = {**raw.get("status", {}), "conditions": [*others, added]}
        found = found.with_workload(decode(Workload, {**raw, "status": status}))
    return found


def without_shortcuts(world: World, trials: type[Trials]) -> Explanation:
    with (
        patch("kueuelib.scheduler.explain.answer.Trials", trials),
        patch("kueuelib.scheduler.explain.search.Trials", trials),
        patch("kueuelib.scheduler.explain.search.Probe", SlowProbe),
    ):
        return explain(world, SUBJECT, NOW)


@LAW
@given(world=worlds() | trees())
def test_the_whole_answer_is_that_of_a_search_without_any_shortcut(world: World) -> None:
    fast = explain(world, SUBJECT, NOW)
    assert fast == without_shortcuts(world, SlowTrials)
    event(fast.verdict.value)


@LAW
@given(world=promises())
def test_shortcuts_miss_nothing_while_preempted_ones_leave(world: World) -> None:
    """Notes may name fewer preemptors: the search ends as soon as the Workload rests."""
    fast = explain(world, SUBJECT, NOW)
    slow = without_shortcuts(world, ToldTrials)
    assert attrs.evolve(fast, notes=()) == attrs.evolve(slow, notes=())
    event(fast.verdict.value)


def rest(engine: Engine, cycles: int = 1000) -> list[object]:
    told: list[object] = []
    for _ in range(cycles):
        found = engine.next_cycle(NOW)
        if found is None:
            break
        plan = decide(found, NOW)
        # A holder is itself and nothing else; so victims are compared by what they hold.
        victims = [
            (one.key, victim.path, attrs.astuple(victim.holder, recurse=False))
            for one in plan.preemptions
            for victim in one.victims
        ]
        told.append((plan.admissions, plan.waits, plan.order, victims))
        engine.settle(plan, NOW)
    return told


@LAW
@given(world=worlds() | trees(), cycles=st.integers(0, 3))
def test_a_copy_of_an_engine_decides_the_same_and_leaves_the_engine_alone(
    world: World, cycles: int
) -> None:
    engine, twin = world.engine(NOW), world.engine(NOW)
    assert rest(engine, cycles) == rest(twin, cycles)
    copy = fork(engine)
    wanted = rest(twin)
    assert rest(copy) == wanted
    assert rest(engine) == wanted


def parts_of(value: Any, found: dict[int, object]) -> dict[int, object]:
    """What a value of the engine is made of, down to what is frozen; by identity."""
    kind = type(value)
    if isinstance(value, dict):
        children = [*value.values()]
    elif isinstance(value, MethodType):
        return parts_of(value.__self__, found)
    elif kind.__module__.startswith("kueuelib.scheduler") and not isinstance(value, tuple | Enum):
        frozen = attrs.has(kind) and "frozen" in kind.__setattr__.__name__
        hashed = attrs.has(kind) and kind.__hash__ is not object.__hash__  # a record
        checked = kind in (ShapeVerdict, WorkloadInfo)  # values: frozen for the type checker
        if frozen or hashed or checked or kind.__name__.startswith("Frozen"):
            return found
        slots = (name for base in kind.__mro__ for name in getattr(base, "__slots__", ()))
        children = [getattr(value, name) for name in slots if name != "__weakref__"]
        children += getattr(value, "__dict__", {}).values()
    else:
        return found
    if id(value) not in found:
        found[id(value)] = value
        for child in children:
            parts_of(child, found)
    return found


@given(world=worlds() | trees(), cycles=st.integers(0, 3))
@settings(max_examples=5, deadline=None)
def test_a_copy_of_an_engine_shares_nothing_that_may_change(world: World, cycles: int) -> None:
    engine = world.engine(NOW)
    rest(engine, cycles)
    mine, copied = parts_of(engine, {}), parts_of(fork(engine), {})
    assert {type(mine[one]).__name__ for one in mine.keys() & copied.keys()} == set()
