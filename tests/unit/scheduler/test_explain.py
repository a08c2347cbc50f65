"""What `explain` finds in small worlds: one per problem."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from kueuelib.api.kueue import Workload
from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler.explain.answer import Explanation, explain
from kueuelib.scheduler.explain.rows import Fit
from kueuelib.scheduler.explain.trial import TrialResult, outcome
from kueuelib.scheduler.explain.world import World
from kueuelib.scheduler.object_reasons import AdmissionGated, PodsMissing
from kueuelib.scheduler.settings import Settings
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
KEY = ObjectKey("ns", "job")


def world(quota: dict[str, Any] | None = None, **queue: Any) -> World:
    """One flavor, one queue."""
    found = World().with_namespace("ns", {}).with_flavor(make_flavor("f"))
    found = found.with_cluster_queue(make_cluster_queue("cq", {"f": quota or {"cpu": 4}}, **queue))
    return found.with_local_queue(make_local_queue("lq", "cq"))


def waits(name: str = "job", cpu: str | int = 1, **rest: Any) -> Workload:
    return make_workload(name, rest.pop("queue", "lq"), {"cpu": cpu}, **rest)


def holds(name: str, cpu: int, queue: str = "cq", priority: int = 0, flavor: str = "f") -> Workload:
    admission = {
        "clusterQueue": queue,
        "podSetAssignments": [make_assignment({"cpu": cpu}, flavor)],
    }
    return make_workload(
        name,
        "lq",
        {"cpu": cpu},
        priority=priority,
        conditions=[make_condition("QuotaReserved"), make_condition("Admitted")],
        status={"admission": admission},
    )


def test_whose_room_counts_as_used_is_named() -> None:
    """The other one was decided before; of two Workloads that could leave, one does."""
    found = world({"cpu": 2}, preemption={"withinClusterQueue": "LowerPriority"})
    found = attrs.evolve(found, settings=Settings(parallel_preemptors=True))
    for one in (holds("low", 1), holds("peer", 1, priority=2)):
        found = found.with_workload(one)
    for one in (waits("high", priority=2), waits(priority=1)):
        found = found.with_workload(one)
    answer = ask(found)
    assert answer.verdict is TrialResult.WAITS
    assert answer.notes == (
        "the quota of preempted Workloads is kept for ns/high and counts as used",
    )


@pytest.mark.parametrize("protected", [False, True])
def test_who_borrows_from_a_waiting_owner_is_named_with_the_setting(protected: bool) -> None:
    found = world({"cpu": 4}, cohort="c")
    found = found.with_cluster_queue(make_cluster_queue("other", {"f": {"cpu": 0}}, cohort="c"))
    found = attrs.evolve(found, settings=Settings(protects_nominal=protected))
    found = found.with_workload(holds("borrows", 3, "other")).with_workload(waits(cpu=2))
    says = "ClusterQueue cq owns enough for it, but others borrow that quota: ns/borrows"
    assert ask(found).notes == (
        f"{says}; borrowing.protectNominalQuota stops further borrowers"
        if protected
        else f"{says}; more may borrow it, unless borrowing.protectNominalQuota is set",
    )


def ask(found: World) -> Explanation:
    return explain(found, KEY, NOW)


def texts(found: Explanation) -> list[str]:
    return [one.change.text for one in found.changes]


def test_the_missing_quota_is_found_to_the_unit() -> None:
    found = ask(world().with_workload(holds("h", 4)).with_workload(waits(cpu="1500m")))
    assert found.verdict is TrialResult.WAITS
    assert "raise nominalQuota of flavor f: cpu by 1500m (to 5500m)" in texts(found)
    assert "Workload ns/h finishes or is deleted" in texts(found)
    (row,) = found.rows
    assert (row.requested, row.used, row.nominal, row.available) == (1500, 4000, 4000, 0)
    assert row.fit is Fit.IN_USE


def test_two_resources_of_one_flavor_are_raised_together() -> None:
    pod = make_workload("job", "lq", {"cpu": 5, "memory": "3Gi"})
    found = ask(world({"cpu": 4, "memory": "1Gi"}).with_workload(pod))
    assert texts(found) == [
        "raise nominalQuota of flavor f: cpu by 1 (to 5) and memory by 2Gi (to 3Gi)"
    ]
    assert {row.fit for row in found.rows} == {Fit.EXCEEDS}


def test_borrowing_and_lending_limits_are_found() -> None:
    start = world({"cpu": {"nominal": 1, "borrowing": 1}}, cohort="c")
    start = start.with_cluster_queue(
        make_cluster_queue("other", {"f": {"cpu": {"nominal": 5}}}, cohort="c")
    )
    assert "raise borrowingLimit of flavor f: cpu by 1 (to 2)" in texts(
        ask(start.with_workload(waits(cpu=3)))
    )
    lender = make_cluster_queue("other", {"f": {"cpu": {"nominal": 5, "lending": 0}}}, cohort="c")
    found = ask(start.with_cluster_queue(lender).with_workload(waits(cpu=2)))
    assert "raise lendingLimit of flavor f: cpu by 1 (to 1)" in texts(found)


def test_others_that_wait_ahead_count() -> None:
    start = world().with_workload(holds("h", 4))
    start = start.with_workload(waits("first", 2, created=1)).with_workload(waits(created=2))
    found = ask(start)
    assert (found.position, found.ahead, found.behind) == (2, (ObjectKey("ns", "first"),), 0)
    assert "raise nominalQuota of flavor f: cpu by 1 (to 5)" in texts(found)
    strict = make_cluster_queue("cq", {"f": {"cpu": 4}}, queueingStrategy="StrictFIFO")
    found = ask(start.with_cluster_queue(strict))
    assert "raise nominalQuota of flavor f: cpu by 3 (to 7)" in texts(found)


def test_a_strict_queue_that_is_blocked_by_its_head_says_so() -> None:
    start = world(queueingStrategy="StrictFIFO").with_workload(waits("huge", 9, created=1))
    found = ask(start.with_workload(waits(created=2)))
    assert not found.outcome.evaluated
    assert found.when_first is not None
    assert found.when_first.verdict is TrialResult.ADMITTED
    assert "set spec.queueingStrategy: BestEffortFIFO instead of StrictFIFO" in texts(found)
    assert "Workload ns/huge, which waits too, is deleted or deactivated" in texts(found)
    assert "priority 1 or higher, instead of 0" in texts(found)


def test_a_priority_or_a_policy_that_would_preempt_names_the_victims() -> None:
    start = world(preemption={"withinClusterQueue": "LowerPriority"})
    start = start.with_workload(holds("h", 4, priority=7)).with_workload(waits(priority=2))
    (one,) = (each for each in ask(start).changes if each.change.kind == "priority")
    assert one.change.text == "priority 8 or higher, instead of 2"
    assert one.victims == (ObjectKey("ns", "h"),)
    never = world().with_workload(holds("h", 4)).with_workload(waits(priority=2))
    (one,) = (each for each in ask(never).changes if each.change.kind == "policy")
    assert one.change.text == (
        "set spec.preemption.withinClusterQueue: LowerPriority instead of Never"
    )
    assert one.victims == (ObjectKey("ns", "h"),)


def test_a_preemptor_waits_for_its_victims_and_is_told_who_they_are() -> None:
    start = world(preemption={"withinClusterQueue": "LowerPriority"})
    found = ask(start.with_workload(holds("h", 4)).with_workload(waits(priority=1)))
    assert found.verdict is TrialResult.PREEMPTS
    assert found.outcome.victims == (ObjectKey("ns", "h"),)
    assert "raise nominalQuota of flavor f: cpu by 1 (to 5)" in texts(found)


def test_fewer_pods_are_counted_from_what_fits() -> None:
    found = ask(world().with_workload(waits(count=7)))
    assert "4 instead of 7 pods in pod set main" in texts(found)


@pytest.mark.parametrize(
    ("start", "subject", "text"),
    [
        (
            World()
            .with_namespace("ns", {})
            .with_cluster_queue(make_cluster_queue("cq", {"f": {"cpu": 4}}))
            .with_local_queue(make_local_queue("lq", "cq")),
            "ResourceFlavor f",
            "create ResourceFlavor f",
        ),
        (
            world(checks=["c"]),
            "AdmissionCheck c",
            "create AdmissionCheck c, and run its controller",
        ),
        (
            world(checks=["c"]).with_check(make_check("c", active=False)),
            "AdmissionCheck c",
            "run the controller of AdmissionCheck c, so that it becomes Active",
        ),
        (
            world(stopPolicy="Hold"),
            "ClusterQueue cq",
            "set spec.stopPolicy: None instead of Hold",
        ),
        (
            world().with_local_queue(make_local_queue("lq", "cq", stopPolicy="Hold")),
            "LocalQueue ns/lq",
            "set spec.stopPolicy: None instead of Hold",
        ),
        (
            world(selector={"matchLabels": {"team": "red"}}),
            "ClusterQueue cq",
            "label namespace ns with team=red",
        ),
    ],
)
def test_what_is_wrong_with_the_set_up_is_named_and_mended(
    start: World, subject: str, text: str
) -> None:
    found = ask(start.with_workload(waits()))
    assert [problem.subject for problem in found.problems] == [subject]
    (one,) = (each for each in found.changes if each.change.text == text)
    assert one.outcome.admits
    mended = one.change.apply(start.with_workload(waits()))
    assert outcome(mended, KEY, NOW).admits


def test_a_missing_local_queue_is_created_or_another_one_taken() -> None:
    start = world().with_workload(waits(queue="typo"))
    found = ask(start)
    assert found.problems[0].subject == "LocalQueue ns/typo"
    assert "lq" in found.problems[0].fix
    assert "create LocalQueue ns/typo with spec.clusterQueue: cq" in texts(found)
    assert any("submit it to LocalQueue lq" in text for text in texts(found))


def test_nobody_is_told_to_create_a_queue_that_no_server_takes() -> None:
    found = ask(world().with_workload(waits(queue="Bad_Queue")))
    (problem,) = found.problems
    assert "Bad_Queue" in problem.problem
    assert "no LocalQueue can have the name" in problem.problem
    assert problem.fix == "set the label kueue.x-k8s.io/queue-name to one of lq"
    assert any("submit it to LocalQueue lq" in text for text in texts(found))
    assert not any("create LocalQueue" in text for text in texts(found))


def test_a_workload_without_a_queue_and_one_without_a_cluster_queue_say_what_to_do() -> None:
    (problem,) = ask(world().with_workload(waits(queue=""))).problems
    assert problem.problem == "names no queue"
    lost = world().with_local_queue(make_local_queue("lq", "gone"))
    (problem,) = ask(lost.with_workload(waits())).problems
    assert problem.problem == "names ClusterQueue gone, which does not exist"
    assert problem.fix == (
        "create ClusterQueue gone, or make another LocalQueue, for a ClusterQueue that exists: cq"
    )


def test_two_problems_have_no_single_change_but_are_both_listed() -> None:
    start = world(stopPolicy="Hold", checks=["c"])
    found = ask(start.with_workload(waits()))
    assert found.changes == ()
    subjects = [problem.subject for problem in found.problems]
    assert subjects == ["ClusterQueue cq", "AdmissionCheck c"]


def test_what_is_not_covered_is_named() -> None:
    found = ask(world().with_workload(make_workload("job", "lq", {"gpu": 1})))
    assert any("cover no gpu" in problem.problem for problem in found.problems)
    assert [row.fit for row in found.rows] == [Fit.UNCOVERED]


def test_a_taint_asks_for_a_toleration() -> None:
    taint = {"key": "spot", "value": "yes", "effect": "NoSchedule"}
    start = world().with_flavor(make_flavor("f", taints=[taint]))
    found = ask(start.with_workload(waits()))
    assert texts(found) == ["let its pods tolerate the taint spot=yes:NoSchedule of flavor f"]
    assert found.rows[0].fit is Fit.NO_MATCH


def test_a_deactivated_workload_is_activated() -> None:
    found = ask(world().with_workload(waits(active=False)))
    assert texts(found) == ["set spec.active: true"]


def test_who_ran_too_long_is_given_more_time_before_it_is_activated() -> None:
    reason = "DeactivatedDueToMaximumExecutionTimeExceeded"
    evicted = make_condition("Evicted", reason=reason)
    workload = waits(active=False, conditions=[evicted], maximumExecutionTimeSeconds=60)
    found = ask(world().with_workload(workload))
    (text,) = texts(found)
    assert text.startswith("raise or remove spec.maximumExecutionTimeSeconds, and set spec.active")
    (problem,) = found.problems
    assert problem.problem == "spec.active is false: it ran longer than its maximum of 60 s"
    assert "maximumExecutionTimeSeconds" in problem.fix


def lacks_pods(cpu: int = 1, *, group: bool = True) -> Workload:
    text = "The group waits for 2 pods to be replaced"
    lacks = make_condition("Requeued", False, "WaitingForReplacementPods") | {"message": text}
    workload = waits(cpu=cpu, conditions=[lacks])
    annotations = {"kueue.x-k8s.io/is-group-workload": "true"} if group else {}
    return attrs.evolve(workload, metadata=attrs.evolve(workload.metadata, annotations=annotations))


def test_a_group_that_lacks_pods_is_told_so_and_nothing_else() -> None:
    found = ask(world().with_workload(lacks_pods()))
    assert (found.verdict, found.position, found.rows) == (TrialResult.WAITS, None, ())
    assert found.reason == PodsMissing("The group waits for 2 pods to be replaced")
    assert texts(found) == ["create the missing pods of the group"]
    assert found.notes == ()


def test_a_group_that_lacks_pods_and_quota_is_told_both() -> None:
    """Nothing that is done alone would admit it."""
    found = ask(world().with_workload(lacks_pods(2)).with_workload(holds("winner", 3)))
    assert found.changes == ()
    (note,) = found.notes
    assert note.startswith("with its pods it would still wait: couldn't assign flavors")


def gated(cpu: int = 1, **rest: Any) -> Workload:
    workload = waits(cpu=cpu, **rest)
    notes = {"kueue.x-k8s.io/admission-gated-by": "example.com/a, example.com/b"}
    return attrs.evolve(workload, metadata=attrs.evolve(workload.metadata, annotations=notes))


def test_a_gated_workload_is_told_its_gates() -> None:
    found = ask(world().with_workload(gated()))
    assert (found.verdict, found.position, found.rows) == (TrialResult.WAITS, None, ())
    assert found.reason == AdmissionGated(("example.com/a", "example.com/b"))
    (problem,) = found.problems
    assert problem.subject == "Workload ns/job"
    assert problem.problem.endswith("admission-gated-by names example.com/a, example.com/b")
    assert texts(found) == ["remove its gates, the annotation kueue.x-k8s.io/admission-gated-by"]
    assert (found.notes, found.unhonoured) == ((), ())


def test_a_gated_workload_that_lacks_quota_is_told_both() -> None:
    found = ask(world().with_workload(gated(2)).with_workload(holds("winner", 3)))
    assert found.changes == ()
    (note,) = found.notes
    assert note.startswith("without its gates it would still wait: couldn't assign flavors")


def test_a_gated_workload_is_ahead_of_nobody() -> None:
    found = world().with_workload(gated(created=1)).with_workload(waits("other", created=2))
    assert explain(found, ObjectKey("ns", "other"), NOW).ahead == ()


def test_a_single_pod_that_was_stopped_never_returns() -> None:
    found = ask(world().with_workload(lacks_pods(group=False)))
    assert (found.verdict, found.changes, found.notes) == (TrialResult.WAITS, (), ())


def test_who_lacks_pods_is_not_ahead_of_anybody() -> None:
    start = world(queueingStrategy="StrictFIFO").with_workload(waits(created=5))
    other = attrs.evolve(lacks_pods(9), metadata=waits("early").metadata)
    found = ask(start.with_workload(other))
    assert (found.verdict, found.ahead) == (TrialResult.ADMITTED, ())


def test_a_back_off_ends_by_itself() -> None:
    evicted = waits(
        conditions=[make_condition("Evicted", True, "PodsReadyTimeout", NOW - 1)],
        status={"requeueState": {"count": 1, "requeueAt": "1970-01-01T01:00:00Z"}},
    )
    found = ask(world().with_workload(evicted))
    assert texts(found) == ["only time helps: its back-off ends at 1970-01-01T01:00:00Z"]


def test_what_has_quota_or_would_get_it_needs_no_change() -> None:
    held = ask(world().with_workload(holds("job", 1)))
    assert (held.verdict, held.changes, held.problems) == (TrialResult.HOLDS_QUOTA, (), ())
    assert held.admission is not None
    soon = ask(world().with_workload(waits()))
    assert (soon.verdict, soon.changes) == (TrialResult.ADMITTED, ())
    assert soon.admission is not None
    done = ask(world().with_workload(waits(conditions=[make_condition("Finished")])))
    assert done.verdict is TrialResult.FINISHED


def test_zero_of_a_resource_is_never_lacking() -> None:
    """The second pod set is blocked by what the first one lacks, and asks nothing itself."""
    found = world().with_workload(holds("h", 5))
    pod_sets = [
        make_pod_set({"cpu": 1}, name="a"),
        make_pod_set({"cpu": 0, "gpu": 0}, name="b"),
    ]
    answer = ask(found.with_workload(make_workload("job", "lq", pod_sets=pod_sets)))
    rows = [(row.pod_set, row.resource, row.fit, bool(row.reasons)) for row in answer.rows]
    assert rows == [("a", "cpu", Fit.IN_USE, True), ("b", "cpu", Fit.FITS, False)]
    assert answer.problems == ()
    assert texts(answer) == [
        "raise nominalQuota of flavor f: cpu by 2 (to 6)",
        "Workload ns/h finishes or is deleted",
    ]


@pytest.mark.parametrize("requests", [{"cpu": 0}, {"gpu": 0}, {"cpu": 0, "gpu": 0}])
def test_who_asks_for_zero_is_admitted_and_charged_zero_of_what_is_offered(
    requests: dict[str, int],
) -> None:
    found = world().with_workload(holds("h", 5))
    answer = ask(found.with_workload(make_workload("job", "lq", requests)))
    assert answer.verdict is TrialResult.ADMITTED
    assert answer.admission is not None
    (assignment,) = answer.admission.pod_set_assignments
    charged = {name: found.nanos for name, found in assignment.resource_usage.items()}
    assert charged == {name: 0 for name in requests if name == "cpu"}
    assert assignment.flavors == dict.fromkeys(charged, "f")
