"""Laws of `explain` over random worlds: what it proposes helps, and one unit less does not."""

from __future__ import annotations

from typing import Any

import attrs
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from kueuelib.api.codec import encode
from kueuelib.api.kueue import ClusterQueue, Workload
from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.scheduler.explain.answer import explain
from kueuelib.scheduler.explain.rows import Fit
from kueuelib.scheduler.explain.trial import Verdict, outcome
from kueuelib.scheduler.explain.world import World
from kueuelib.testing.builders import (
    make_assignment,
    make_check,
    make_cluster_queue,
    make_condition,
    make_flavor,
    make_local_queue,
    make_pod_set,
    make_workload,
)

NOW = 1000.0
QUEUES = ("a", "b")
FLAVORS = ("one", "two")
SUBJECT = ObjectKey("ns", "subject")
TAINT = {"key": "spot", "value": "yes", "effect": "NoSchedule"}


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
    """Mostly the usual, so that several obstacles seldom meet."""
    return st.integers(0, 19).flatmap(
        lambda number: st.sampled_from(others) if number == 13 else st.just(usual)
    )


@st.composite
def cluster_queues(draw: st.DrawFn, name: str) -> ClusterQueue:
    cohort = draw(st.sampled_from(("", "x", "x")))
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
        flavorFungibility={
            "whenCanBorrow": draw(st.sampled_from(["MayStopSearch", "TryNextFlavor"])),
            "whenCanPreempt": draw(st.sampled_from(["MayStopSearch", "TryNextFlavor"])),
        },
    )


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
    return make_workload(
        name,
        draw(st.sampled_from(QUEUES).flatmap(lambda name: rarely(name, "absent"))),
        priority=draw(st.integers(-1, 2)),
        created=draw(st.integers(0, 9)),
        pod_sets=pod_sets,
        active=draw(rarely(True, False)),
    )


@st.composite
def holding(draw: st.DrawFn, name: str) -> Workload:
    queue, flavor = draw(st.sampled_from(QUEUES)), draw(rarely("one", "two"))
    requests = {"cpu": draw(st.integers(0, 4)), "memory": draw(st.integers(0, 2))}
    admission = {
        "clusterQueue": queue,
        "podSetAssignments": [make_assignment(requests, flavor)],
    }
    return make_workload(
        name,
        queue,
        requests,
        priority=draw(st.integers(-1, 2)),
        conditions=[make_condition("QuotaReserved"), make_condition("Admitted")],
        status={"admission": admission},
    )


@st.composite
def worlds(draw: st.DrawFn) -> World:
    found = World().with_namespace("ns", {"team": draw(st.sampled_from(["red", "blue"]))})
    for flavor in FLAVORS:
        if draw(rarely(True, False)):
            taints = draw(rarely((), (TAINT,)))
            found = found.with_flavor(make_flavor(flavor, {"kind": flavor}, taints))
    if draw(st.booleans()):
        found = found.with_check(make_check("check", active=draw(st.booleans())))
    for name in QUEUES:
        found = found.with_cluster_queue(draw(cluster_queues(name)))
        policy = draw(rarely("None", "Hold"))
        found = found.with_local_queue(make_local_queue(name, name, stopPolicy=policy))
    for number in range(draw(st.integers(0, 4))):
        found = found.with_workload(draw(holding(f"h{number}")))
    for number in range(draw(st.integers(0, 3))):
        found = found.with_workload(draw(waiting(f"w{number}")))
    return found.with_workload(draw(waiting(SUBJECT.name)))


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


LAW = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


@settings(LAW, max_examples=250)
@given(world=worlds())
def test_every_change_helps_and_one_unit_less_does_not(world: World) -> None:
    found = explain(world, SUBJECT, NOW)
    event(found.verdict.value)
    for one in found.changes:
        event(one.change.kind)
        after = outcome(one.change.apply(world), SUBJECT, NOW)
        assert after == one.outcome
        assert after.helps, one.change
        assert after.admits or found.verdict is Verdict.WAITS
        for smaller in one.change.smaller():
            less = outcome(smaller.apply(world), SUBJECT, NOW)
            assert not less.admits, smaller
            if one.change.kind == "priority":
                assert not less.helps, smaller


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
    narrow = outcome(world, SUBJECT, NOW)
    whole = outcome(Whole(**attrs.asdict(world, recurse=False)), SUBJECT, NOW)
    assert (narrow.verdict, narrow.reason) == (whole.verdict, whole.reason)


@LAW
@given(world=worlds())
def test_the_table_agrees_with_the_verdict(world: World) -> None:
    found = explain(world, SUBJECT, NOW, changes=False)
    pod_sets = {row.pod_set for row in found.rows}
    assert pod_sets <= {pod_set.name for pod_set in found.workload.spec.pod_sets}
    for row in found.rows:
        assert row.fit is not Fit.FITS or row.requested <= row.available
        assert row.fit is not Fit.EXCEEDS or row.requested > row.capacity
        assert row.available <= max(row.capacity, row.nominal)
