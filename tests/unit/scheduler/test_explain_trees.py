"""What `explain` finds in trees of cohorts and where shares decide."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import attrs
import pytest
from smaller_changes import one_unit_less

from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler.explain.answer import Explanation, explain
from kueuelib.scheduler.explain.changes import RaiseWeight
from kueuelib.scheduler.explain.quota_search import Guess, GuessedTree
from kueuelib.scheduler.explain.rows import Fit
from kueuelib.scheduler.explain.search import COHORT_QUOTAS, PARENTS, WEIGHTS
from kueuelib.scheduler.explain.sizes import MOST
from kueuelib.scheduler.explain.trial import TrialResult, outcome
from kueuelib.scheduler.explain.world import CLUSTER_QUEUE, COHORT, QuotaOwner, World
from kueuelib.scheduler.quota.amounts import FlavorResource
from kueuelib.scheduler.settings import FairSharingRules, Settings
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

NOW = 1000.0
KEY = ObjectKey("ns", "job")
FAIR = Settings(fair_sharing=FairSharingRules())


def start(settings: Settings | None = None) -> World:
    found = World() if settings is None else World(settings=settings)
    return found.with_namespace("ns", {}).with_flavor(make_flavor("f"))


def queue(found: World, name: str, cpu: Any, **rest: Any) -> World:
    found = found.with_cluster_queue(make_cluster_queue(name, {"f": {"cpu": cpu}}, **rest))
    return found.with_local_queue(make_local_queue(name, name))


def cohort(found: World, name: str, parent: str = "", cpu: Any = None, **rest: Any) -> World:
    groups = () if cpu is None else ({"f": {"cpu": cpu}},)
    return found.with_cohort(make_cohort(name, *groups, parent=parent, **rest))


def holds(found: World, name: str, queue: str, cpu: int, priority: int = 0) -> World:
    admission = {
        "clusterQueue": queue,
        "podSetAssignments": [make_assignment({"cpu": cpu}, "f")],
    }
    workload = make_workload(
        name,
        queue,
        {"cpu": cpu},
        priority=priority,
        conditions=[make_condition("QuotaReserved"), make_condition("Admitted")],
        status={"admission": admission},
    )
    return found.with_workload(workload)


def waits(found: World, queue: str, cpu: int, name: str = "job", **rest: Any) -> World:
    return found.with_workload(make_workload(name, queue, {"cpu": cpu}, **rest))


def lines(found: Explanation) -> list[str]:
    return [f"{one.change.subject}: {one.change.text}" for one in found.changes]


def check(world: World, found: Explanation, line: str) -> None:
    """A change is proposed, helps, and no smaller one does."""
    (one,) = (
        each for each in found.changes if f"{each.change.subject}: {each.change.text}" == line
    )
    assert outcome(one.change.apply(world), KEY, NOW) == one.outcome
    assert one.outcome.helps
    for smaller in one_unit_less(one.change):
        assert not outcome(smaller.apply(world), KEY, NOW).admits


def two_sides(**left: Any) -> World:
    """Queue `mine` below Cohort `left`, queue `theirs` below Cohort `right`; `top` above both."""
    found = cohort(start(), "top", cpu=0)
    found = cohort(found, "left", "top", **left)
    found = cohort(found, "right", "top", cpu={"nominal": 1, "lending": 0})
    found = queue(found, "mine", 1, cohort="left")
    return queue(found, "theirs", 4, cohort="right")


def test_quota_of_a_cohort_above_and_a_lending_limit_beside_it_are_found() -> None:
    world = waits(two_sides(cpu=0), "mine", 3)
    found = explain(world, KEY, NOW)
    assert [line for line in lines(found) if not line.startswith("Workload")] == [
        "ClusterQueue mine: raise nominalQuota of flavor f: cpu by 2 (to 3)",
        "Cohort left: raise nominalQuota of flavor f: cpu by 2 (to 2)",
        "Cohort top: raise nominalQuota of flavor f: cpu by 2 (to 2)",
        "Cohort right: raise lendingLimit of flavor f: cpu by 2 (to 2)",
        "ClusterQueue mine: set spec.cohortName: right instead of left",
        "Cohort left: set spec.parentName: right instead of top",
    ]
    for line in lines(found):
        check(world, found, line)
    assert {COHORT_QUOTAS, PARENTS} <= set(found.tried)


def test_a_borrowing_limit_of_a_cohort_above_is_raised() -> None:
    world = waits(two_sides(cpu={"nominal": 0, "borrowing": 1}), "mine", 4)
    world = cohort(world, "right", "top", cpu=1)
    found = explain(world, KEY, NOW)
    check(world, found, "Cohort left: raise borrowingLimit of flavor f: cpu by 2 (to 3)")
    rooms = [(row.kind, row.name, row.nominal, row.room) for row in found.tree]
    assert rooms == [
        ("ClusterQueue", "mine", 1000, None),
        ("Cohort", "left", 1000, 2000),
        ("Cohort", "top", 6000, 6000),
    ]
    assert found.rows[0].available == 2000


def test_the_tree_is_left_out_where_one_name_says_it_all() -> None:
    world = queue(queue(start(), "mine", 1, cohort="x"), "theirs", 1, cohort="x")
    found = explain(waits(world, "mine", 3), KEY, NOW)
    assert found.tree == ()
    assert not {COHORT_QUOTAS, WEIGHTS} & set(found.tried)
    found = explain(attrs.evolve(waits(world, "mine", 3), settings=FAIR), KEY, NOW)
    assert [(row.name, row.weight, row.weighted_share) for row in found.tree] == [
        ("mine", 1.0, 0),
        ("x", None, None),
    ]
    assert WEIGHTS in found.tried


@pytest.mark.parametrize("ahead", [0, 21], ids=["few", "many"])
def test_a_queue_of_another_tree_is_proposed_but_not_to_join_that_tree(ahead: int) -> None:
    """What is lent there counts, although the own queue shares nothing with it."""
    world = queue(start(), "mine", 0)
    world = queue(queue(world, "theirs", 0, cohort="rich"), "lender", 3, cohort="rich")
    world = waits(world, "mine", 3)
    for number in range(ahead):
        world = waits(world, "mine", 9, f"w{number}", priority=1)
    found = explain(world, KEY, NOW)
    moves = [each for each in found.changes if each.change.kind == "queue"]
    assert [each.change.text.split(" (")[0] for each in moves] == [
        "submit it to LocalQueue lender",
        "submit it to LocalQueue theirs",
    ]
    assert not any("spec.cohortName" in line for line in lines(found))


def test_who_leaves_a_cohort_has_what_it_lent() -> None:
    world = cohort(start(), "x", "y", cpu={"nominal": 0, "borrowing": 0})
    world = queue(queue(world, "mine", 2, cohort="x"), "theirs", 0, cohort="x")
    world = waits(holds(world, "h", "theirs", 2), "mine", 2)
    found = explain(world, KEY, NOW)
    check(world, found, "ClusterQueue mine: remove spec.cohortName: x")
    assert not any("parentName" in line for line in lines(found))  # it has limits
    world = queue(world, "mine", {"nominal": 2, "borrowing": 1}, cohort="x")
    assert not any("remove" in line for line in lines(explain(world, KEY, NOW)))


def reader(nominal: Any) -> World:
    """Both sides use all that there is; `nlp` may have back what it is owed."""
    world = cohort(start(), "company", cpu=2)
    world = cohort(world, "research", "company", cpu={"nominal": 1, "borrowing": 4, "lending": 3})
    world = cohort(world, "product", "company", cpu={"nominal": 1, "borrowing": 3})
    policy = {"reclaimWithinCohort": "Any"}
    world = queue(world, "nlp", nominal, cohort="research", preemption=policy)
    world = queue(world, "web", 2, cohort="product")
    return holds(holds(holds(world, "w1", "web", 3), "w2", "web", 3), "n1", "nlp", 2)


def test_less_quota_is_enough_if_others_leave_for_it_and_both_are_said() -> None:
    found = explain(waits(reader(2), "nlp", 2), KEY, NOW)
    quotas = [one for one in found.changes if one.change.subject == "ClusterQueue nlp"]
    assert [(one.change.text, one.victims) for one in quotas if one.change.kind == "quota"] == [
        ("raise nominalQuota of flavor f: cpu by 2 (to 4)", ()),
        ("raise nominalQuota of flavor f: cpu by 1 (to 3)", (ObjectKey("ns", "w1"),)),
    ]


def test_a_size_is_found_below_others_that_do_not_help() -> None:
    """`soft` may be reclaimed while `theirs` borrows, and with two CPUs more it does not."""
    policy = {"reclaimWithinCohort": "LowerPriority"}
    world = queue(start(), "mine", 2, cohort="x", preemption=policy)
    world = queue(queue(world, "theirs", 0, cohort="x"), "third", 0, cohort="x")
    world = holds(holds(world, "soft", "theirs", 2, -1), "hard", "third", 1, 9)
    found = explain(waits(world, "mine", 2), KEY, NOW)
    quotas = [one for one in found.changes if one.change.subject == "ClusterQueue theirs"]
    assert [(one.change.text, one.victims) for one in quotas] == [
        ("raise nominalQuota of flavor f: cpu by 3 (to 3)", ()),
        ("raise nominalQuota of flavor f: cpu by 1 (to 1)", (ObjectKey("ns", "soft"),)),
    ]


@pytest.mark.parametrize("rivals", [20, 0], ids=["few", "many"])
def test_a_size_is_found_where_any_more_is_too_much(rivals: int) -> None:
    """With two CPUs more `other` leaves one; with three `first` takes what `mine` may borrow."""
    world = queue(start(), "mine", {"nominal": 0, "borrowing": 2}, cohort="x")
    world = queue(world, "theirs", 2, cohort="x")
    world = waits(waits(world, "mine", 2, "first", priority=1), "theirs", 3, "other")
    world = waits(world, "mine", 1)
    with patch("kueuelib.scheduler.explain.search.MOST_TRIED", rivals):
        found = explain(world, KEY, NOW)
    check(world, found, "ClusterQueue theirs: raise nominalQuota of flavor f: cpu by 2 (to 4)")


@pytest.mark.parametrize("policy", ["Never", "Any"])
def test_fewer_pods_may_be_enough_if_others_leave_for_them(policy: str) -> None:
    pods = [make_pod_set({"cpu": 1}, count=2)]
    world = reader(3).with_workload(make_workload("job", "nlp", pod_sets=pods))
    world = cohort(world, "research", "company", cpu={"nominal": 0, "borrowing": 4})
    world = queue(world, "nlp", 3, cohort="research", preemption={"reclaimWithinCohort": policy})
    found = explain(world, KEY, NOW)
    fewer = [one for one in found.changes if one.change.kind == "pods"]
    if policy == "Never":
        assert not fewer
        return
    check(world, found, "Workload ns/job: 1 instead of 2 pods in pod set main")
    assert [one.victims for one in fewer] == [(ObjectKey("ns", "w1"),)]


def test_a_limit_that_is_raised_may_only_help_by_preemption() -> None:
    """However much it may borrow, there is nothing to borrow but what others have to give back."""
    policy = {"reclaimWithinCohort": "Any"}
    world = queue(
        start(FAIR), "mine", {"nominal": 0, "borrowing": 1}, cohort="x", preemption=policy
    )
    world = queue(queue(world, "theirs", 0, cohort="x"), "lender", 4, cohort="x")
    world = waits(holds(holds(world, "t1", "theirs", 2), "t2", "theirs", 2), "mine", 2)
    found = explain(world, KEY, NOW)
    line = "ClusterQueue mine: raise borrowingLimit of flavor f: cpu by 1 (to 2)"
    check(world, found, line)
    (one,) = (each for each in found.changes if each.change.text in line and each.victims)
    assert len(one.victims) == 1


@pytest.mark.parametrize("rivals", [20, 0], ids=["few", "many"])
def test_a_little_is_enough_where_others_would_take_more(rivals: int) -> None:
    """`other` fits only with four CPUs more, and takes all of them then."""
    world = queue(queue(start(), "mine", 0, cohort="x"), "theirs", 0, cohort="x")
    world = queue(queue(world, "lender", 3, cohort="x"), "third", 0, cohort="x")
    world = waits(waits(world, "theirs", 2, "first", priority=2), "third", 5, "other", priority=1)
    world = waits(world, "mine", 3)
    with patch("kueuelib.scheduler.explain.search.MOST_TRIED", rivals):
        found = explain(world, KEY, NOW)
    for name, to in (("mine", 2), ("theirs", 2), ("lender", 5)):
        line = f"ClusterQueue {name}: raise nominalQuota of flavor f: cpu by 2 (to {to})"
        check(world, found, line)


def test_a_weight_makes_others_leave() -> None:
    """Both borrow; the larger weight makes the share of the own queue the smaller one."""
    world = start(FAIR)
    policy = {"reclaimWithinCohort": "Any"}
    world = queue(world, "mine", 0, cohort="x", preemption=policy, fairSharing={"weight": "0.5"})
    world = queue(world, "theirs", 0, cohort="x")
    world = queue(world, "lender", 9, cohort="x")
    world = holds(holds(world, "m", "mine", 3), "t1", "theirs", 3)
    world = waits(holds(world, "t2", "theirs", 3), "mine", 3)
    found = explain(world, KEY, NOW)
    assert found.verdict is TrialResult.WAITS
    (one,) = (each for each in found.changes if each.change.kind == "weight")
    assert one.change.text == "set spec.fairSharing.weight: 1.1 instead of 0.5"
    assert one.victims in ((ObjectKey("ns", "t1"),), (ObjectKey("ns", "t2"),))
    assert outcome(one.change.apply(world), KEY, NOW).helps
    (less,) = one_unit_less(one.change)
    assert not outcome(less.apply(world), KEY, NOW).helps
    (_, row, *_) = found.tree[::-1]
    assert (row.name, row.weight, row.weighted_share) == ("mine", 0.5, 667)


def test_a_weight_of_a_cohort_above_decides_whose_turn_it_is() -> None:
    world = cohort(cohort(start(FAIR), "left", "top"), "right", "top")
    world = queue(world, "mine", 0, cohort="left")
    world = queue(world, "theirs", 0, cohort="right")
    world = queue(world, "lender", 3, cohort="top")
    world = waits(waits(world, "mine", 3), "theirs", 2, "other", created=1)
    found = explain(world, KEY, NOW)
    assert found.verdict is TrialResult.WAITS
    check(world, found, "Cohort left: set spec.fairSharing.weight: 2 instead of 1")


def test_the_admission_of_another_may_make_room_by_its_share() -> None:
    """`theirs` borrows 3, then 4: only then is its share above the one that `mine` would have."""
    world = start(FAIR)
    policy = {"reclaimWithinCohort": "LowerPriority"}
    world = queue(world, "mine", 0, cohort="x", preemption=policy, fairSharing={"weight": "0.66"})
    world = queue(queue(world, "theirs", 0, cohort="x"), "lender", 4, cohort="x")
    world = waits(holds(world, "h", "theirs", 3, priority=-1), "mine", 2)
    assert explain(world, KEY, NOW).verdict is TrialResult.WAITS
    found = explain(waits(world, "theirs", 1, "other"), KEY, NOW)
    assert found.verdict is TrialResult.PREEMPTS
    assert found.outcome.victims == (ObjectKey("ns", "h"),)


@pytest.mark.parametrize(
    ("before", "steps", "text"),
    [("1", 1, "2 instead of 1"), ("0", 3, "3 instead of 0"), ("0.25", 2, "0.27 instead of 0.25")],
)
def test_a_weight_grows_by_its_last_decimal_place(before: str, steps: int, text: str) -> None:
    world = cohort(start(), "x", "y", weight=before)
    change = RaiseWeight(QuotaOwner(COHORT, "x"), weight_of(world), steps)
    assert change.text == f"set spec.fairSharing.weight: {text}"
    assert weight_of(change.apply(world)) > weight_of(world)


def weight_of(world: World) -> int:
    sharing = world.cohorts["x"].spec.fair_sharing
    assert sharing is not None
    return sharing.weight.nanos


def test_a_cycle_is_named_and_opened_where_that_is_allowed() -> None:
    world = cohort(start(), "a", "b", cpu={"nominal": 1, "borrowing": 1})
    world = cohort(cohort(world, "b", "c"), "c", "a")
    world = queue(world, "mine", 4, cohort="b")
    world = waits(cohort(world, "free"), "mine", 1)
    found = explain(world, KEY, NOW)
    (problem,) = found.problems
    assert "a -> b -> c -> a" in problem.problem
    assert problem.fix == "change spec.parentName of one of these Cohorts"
    assert [row.fit for row in found.rows] == [Fit.CUT_OFF]
    told = lines(found)
    assert told[:2] == [
        "Cohort b: remove spec.parentName: c",
        "Cohort c: remove spec.parentName: a",
    ]
    assert not any("free" in line for line in told)  # it belongs to others
    for line in told:
        check(world, found, line)


@pytest.mark.parametrize(
    ("cpu", "parent", "notes"),
    [
        (9, "owner", ("Cohort owner has no object: it owns no quota",)),
        (9, "company", ()),
        (2, "owner", ()),
    ],
    ids=["too much", "all exist", "only in use"],
)
def test_a_cohort_without_an_object_is_named_where_more_is_asked_than_its_tree_has(
    cpu: int, parent: str, notes: tuple[str, ...]
) -> None:
    world = cohort(cohort(start(), "company", cpu=1), "left", parent, cpu=1)
    world = holds(queue(world, "mine", 1, cohort="left"), "h", "mine", 2)
    found = explain(waits(world, "mine", cpu), KEY, NOW)
    assert found.notes == notes


def test_nobody_is_told_to_make_a_cycle() -> None:
    world = cohort(cohort(start(), "top"), "left", "top")
    world = waits(queue(world, "mine", 1, cohort="left"), "mine", 3)
    world = cohort(world, "rich", "top", cpu={"nominal": 9, "lending": 0})
    world = cohort(world, "foreign", cpu=9)
    moves = [line for line in lines(explain(world, KEY, NOW)) if "set spec." in line]
    assert moves == [
        "ClusterQueue mine: set spec.cohortName: rich instead of left",
        "Cohort left: set spec.parentName: rich instead of top",
    ]


def test_a_change_only_reserves_quota_while_a_check_still_decides() -> None:
    checks = [{"name": "budget"}, {"name": "other", "onFlavors": ["g"]}]
    world = queue(start(), "mine", 1, checks=checks)
    for name in ("budget", "other"):
        world = world.with_check(make_check(name))
    world = world.with_flavor(make_flavor("g"))
    found = explain(waits(world, "mine", 2), KEY, NOW)
    assert [(one.change.kind, one.checks) for one in found.changes] == [("quota", ("budget",))]
    soon = explain(waits(world, "mine", 1), KEY, NOW)
    assert (soon.verdict, soon.checks) == (TrialResult.ADMITTED, ("budget",))


def test_checks_decide_after_preemptions_as_well() -> None:
    policy = {"withinClusterQueue": "LowerPriority"}
    world = queue(start(), "mine", 1, checks=["budget"], preemption=policy)
    world = holds(world.with_check(make_check("budget")), "h", "mine", 1)
    found = explain(waits(world, "mine", 1, priority=1), KEY, NOW)
    assert (found.verdict, found.checks) == (TrialResult.PREEMPTS, ("budget",))
    ready = {"name": "budget", "state": "Ready", "lastTransitionTime": "1970-01-01T00:00:01Z"}
    status = {"admissionChecks": [{**ready, "message": ""}]}
    found = explain(waits(world, "mine", 1, priority=1, status=status), KEY, NOW)
    assert (found.verdict, found.checks) == (TrialResult.PREEMPTS, ())


@pytest.mark.parametrize(
    ("place", "field", "mine", "theirs", "size"),
    [
        (QuotaOwner(CLUSTER_QUEUE, "mine"), "nominal", 4, 0, 2),
        (QuotaOwner(COHORT, "left"), "borrowing", 4, 0, 2),
        (QuotaOwner(COHORT, "left"), "nominal", 4, 0, 2),
        (QuotaOwner(COHORT, "left"), "nominal", 7, 4, 5),
        (QuotaOwner(CLUSTER_QUEUE, "theirs"), "nominal", 2, 7, 3),
        (QuotaOwner(COHORT, "top"), "nominal", 2, 7, 3),
        (QuotaOwner(COHORT, "right"), "lending", 3, 0, 1),
    ],
)
def test_what_may_be_enough_is_computed_along_the_path(
    place: QuotaOwner, field: str, mine: int, theirs: int, size: int
) -> None:
    """Cohort `left` may borrow 1 and has 1 below; `right` has 5, and lends all or just 1."""
    world = two_sides(cpu={"nominal": 0, "borrowing": 1 if field != "lending" else 9})
    lent = {"nominal": 1, "lending": 1} if field == "lending" else 1
    world = cohort(world, "right", "top", cpu=lent)
    tree = GuessedTree(world, frozenset(world.cluster_queues))
    pair = FlavorResource("f", "cpu")
    used = {"mine": {pair: mine * 1000}, "theirs": {pair: theirs * 1000}}
    assert Guess(tree, place, "f", field)("cpu", used, MOST) == size * 1000
