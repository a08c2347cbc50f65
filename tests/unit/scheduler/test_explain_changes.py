"""Single changes that `explain` has to try: worlds in which hardly anything else would admit."""

from __future__ import annotations

from typing import Any

import attrs
from smaller_changes import one_unit_less

from kueuelib.api.kueue import Workload
from kueuelib.api.meta import ObjectKey, OwnerReference
from kueuelib.scheduler.explain.answer import Explanation, explain
from kueuelib.scheduler.explain.trial import TrialResult, outcome
from kueuelib.scheduler.explain.world import World
from kueuelib.scheduler.flavor_reasons import QuotaInUse
from kueuelib.scheduler.reasons import NoFlavors
from kueuelib.testing.builders import (
    make_assignment,
    make_cluster_queue,
    make_condition,
    make_flavor,
    make_local_queue,
    make_pod_set,
    make_workload,
)

NOW = 1000.0
KEY = ObjectKey("ns", "job")


def start(*flavors: str) -> World:
    found = World().with_namespace("ns", {})
    for name in flavors or ("f",):
        found = found.with_flavor(make_flavor(name, {"pool": name}))
    return found


def queue(found: World, name: str, quotas: Any, **rest: Any) -> World:
    found = found.with_cluster_queue(make_cluster_queue(name, quotas, **rest))
    return found.with_local_queue(make_local_queue(name, name))


def holds(name: str, cpu: int, queue: str, priority: int = 0) -> Workload:
    admission = {
        "clusterQueue": queue,
        "podSetAssignments": [make_assignment({"cpu": cpu}, "f")],
    }
    return make_workload(
        name,
        queue,
        {"cpu": cpu},
        priority=priority,
        conditions=[make_condition("QuotaReserved"), make_condition("Admitted")],
        status={"admission": admission},
    )


def texts(found: Explanation) -> list[str]:
    return [one.change.text for one in found.changes]


def check(world: World, found: Explanation, text: str, victims: tuple[str, ...] = ()) -> None:
    """A change is proposed, helps, and no smaller one of its kind does."""
    (one,) = (each for each in found.changes if each.change.text == text)
    assert one.victims == tuple(ObjectKey("ns", name) for name in victims)
    assert outcome(one.change.apply(world), KEY, NOW).helps
    for smaller in one_unit_less(one.change):
        assert not outcome(smaller.apply(world), KEY, NOW).helps


def test_a_threshold_that_protects_a_holder_is_raised_as_far_as_necessary() -> None:
    borrow = {"policy": "LowerPriority", "maxPriorityThreshold": 0}
    preemption = {"reclaimWithinCohort": "LowerPriority", "borrowWithinCohort": borrow}
    world = queue(start(), "ba", {"f": {"cpu": 2}}, cohort="co", preemption=preemption)
    world = queue(world, "bb", {"f": {"cpu": 4}}, cohort="co")
    world = world.with_workload(holds("b5", 5, "bb", priority=5))
    world = world.with_workload(make_workload("job", "ba", {"cpu": 4}, priority=10))
    found = explain(world, KEY, NOW)
    assert found.verdict is TrialResult.WAITS
    path = "spec.preemption.borrowWithinCohort.maxPriorityThreshold"
    check(world, found, f"set {path}: 5 instead of 0", ("b5",))
    # Nobody has a priority above the new one.
    done = next(one for one in found.changes if path in one.change.text).change.apply(world)
    assert not any(path in text for text in texts(explain(done, KEY, NOW)))


def test_what_a_borrower_lacks_is_what_it_lacks_within_its_own_quota() -> None:
    """It may reclaim for what it owns; while it borrows, `b5` is above the threshold."""
    borrow = {"policy": "LowerPriority", "maxPriorityThreshold": 0}
    preemption = {"reclaimWithinCohort": "LowerPriority", "borrowWithinCohort": borrow}
    world = queue(start(), "ba", {"f": {"cpu": 2}}, cohort="co", preemption=preemption)
    world = queue(world, "bb", {"f": {"cpu": 4}}, cohort="co")
    world = world.with_workload(holds("b5", 5, "bb", priority=5))
    world = world.with_workload(make_workload("job", "ba", {"cpu": 4}, priority=10))
    reason = explain(world, KEY, NOW).reason
    assert isinstance(reason, NoFlavors)
    (attempt,) = reason.pod_sets[0].groups[0].attempts
    (quota,) = attempt.reasons
    assert isinstance(quota, QuotaInUse)
    assert quota.in_vain is not None
    text = "With ns/b5 gone it would still lack 2 of cpu in flavor f within nominal quota"
    assert quota.in_vain.text == text


def test_without_a_threshold_none_is_raised() -> None:
    borrow = {"policy": "LowerPriority"}
    preemption = {"reclaimWithinCohort": "LowerPriority", "borrowWithinCohort": borrow}
    world = queue(start(), "ba", {"f": {"cpu": 2}}, cohort="co", preemption=preemption)
    world = queue(world, "bb", {"f": {"cpu": 4}}, cohort="co")
    world = world.with_workload(holds("b5", 5, "bb", priority=50))
    world = world.with_workload(make_workload("job", "ba", {"cpu": 4}, priority=10))
    assert not any("Threshold" in text for text in texts(explain(world, KEY, NOW)))


def test_quota_of_another_member_is_raised_where_the_own_queue_may_only_borrow() -> None:
    world = queue(start(), "mine", {"f": {"cpu": 0}}, cohort="co")
    world = queue(world, "theirs", {"f": {"cpu": 3}}, cohort="co")
    world = world.with_workload(holds("h", 2, "theirs"))
    world = world.with_workload(make_workload("job", "mine", {"cpu": "2500m"}))
    found = explain(world, KEY, NOW)
    (one,) = (each for each in found.changes if each.change.subject == "ClusterQueue theirs")
    text = "raise nominalQuota of flavor f: cpu by 1500m (to 4500m)"
    assert one.change.text == text
    assert outcome(one.change.apply(world), KEY, NOW).admits
    (less,) = one_unit_less(one.change)
    assert not outcome(less.apply(world), KEY, NOW).admits


def test_quota_that_another_member_does_not_lend_is_not_raised() -> None:
    world = queue(start(), "mine", {"f": {"cpu": 0}}, cohort="co")
    world = queue(world, "theirs", {"f": {"cpu": {"nominal": 3, "lending": 1}}}, cohort="co")
    world = world.with_workload(make_workload("job", "mine", {"cpu": 2}))
    found = explain(world, KEY, NOW)
    theirs = [one.change.text for one in found.changes if one.change.subject.endswith("theirs")]
    assert theirs == ["raise lendingLimit of flavor f: cpu by 1 (to 2)"]


def test_a_node_selector_that_no_flavor_has_is_taken_out() -> None:
    world = queue(start(), "lq", {"f": {"cpu": 4}})
    pods = make_pod_set({"cpu": 1}, nodeSelector={"pool": "elsewhere"})
    world = world.with_workload(make_workload("job", "lq", pod_sets=[pods]))
    found = explain(world, KEY, NOW)
    text = "let its pods run on any nodes: without nodeSelector pool=elsewhere"
    assert texts(found) == [text]
    check(world, found, text)


def test_what_a_job_is_made_from_is_changed_in_the_job() -> None:
    """Its Workload follows the Job, and a changed selector does not even reach the Workload."""
    owner = OwnerReference("batch/v1", "Job", "train", "u", controller=True)

    def of_job(pods: Any) -> Workload:
        made = make_workload("job", "lq", pod_sets=[pods])
        meta = attrs.evolve(made.metadata, owner_references=(owner,))
        return attrs.evolve(made, metadata=meta)

    world = queue(start(), "lq", {"f": {"cpu": 2}})
    world = queue(world, "other", {"f": {"cpu": 4}})
    pods = make_pod_set({"cpu": 1}, count=3, nodeSelector={"size": "big"})
    world = world.with_workload(of_job(pods))
    subjects = {one.change.kind: one.change.subject for one in explain(world, KEY, NOW).changes}
    assert subjects.pop("quota") == "ClusterQueue lq"
    assert subjects == dict.fromkeys(("pods", "queue"), "Job ns/train")
    pods = make_pod_set({"cpu": 1}, nodeSelector={"pool": "elsewhere"})
    world = world.with_workload(of_job(pods))
    found = explain(world, KEY, NOW)
    (one,) = found.changes
    assert one.change.subject == "Job ns/train"
    assert one.change.text == "submit it again for any nodes: without nodeSelector pool=elsewhere"


def test_a_required_affinity_that_no_flavor_has_is_taken_out_and_a_selector_that_fits_stays() -> (
    None
):
    wanted = {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["elsewhere"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [wanted]}}
    pods = make_pod_set({"cpu": 1}, affinity={"nodeAffinity": required})
    world = queue(start(), "lq", {"f": {"cpu": 4}})
    found = explain(world.with_workload(make_workload("job", "lq", pod_sets=[pods])), KEY, NOW)
    assert [one.change.kind for one in found.changes] == ["node-selector"]
    fits = make_pod_set({"cpu": 5}, nodeSelector={"pool": "f"})
    found = explain(world.with_workload(make_workload("job", "lq", pod_sets=[fits])), KEY, NOW)
    assert [one.change.kind for one in found.changes] == ["quota"]


def test_others_that_get_in_the_way_are_counted_to_the_unit() -> None:
    """Where nobody else waited less would do; here all that is ahead gets its quota first."""
    world = queue(start(), "mine", {"f": {"cpu": 1}}, cohort="co")
    world = queue(world, "theirs", {"f": {"cpu": 1}}, cohort="co")
    for number in range(9):
        name = "mine" if number % 2 else "theirs"
        world = world.with_workload(make_workload(f"w{number}", name, {"cpu": 2}, created=number))
    world = world.with_workload(make_workload("job", "mine", {"cpu": 3}, created=50))
    found = explain(world, KEY, NOW)
    sizes = [one.change for one in found.changes if one.change.kind == "quota"]
    assert {one.subject for one in sizes} == {"ClusterQueue mine", "ClusterQueue theirs"}
    for one in sizes:
        assert outcome(one.apply(world), KEY, NOW).admits
        for less in one_unit_less(one):
            assert not outcome(less.apply(world), KEY, NOW).admits


def test_what_was_looked_for_is_said() -> None:
    world = queue(start(), "lq", {"f": {"cpu": 4}})
    found = explain(world.with_workload(make_workload("job", "lq", {"cpu": 5})), KEY, NOW)
    assert found.tried == (
        "the set-up",
        "the Workload itself",
        "quotas of its ClusterQueue",
        "policies of its ClusterQueue",
        "other Workloads",
        "other LocalQueues of its namespace",
    )
    assert found.limits == ()


def test_whoever_borrows_in_a_later_cycle_may_lose_more_than_it_got() -> None:
    """`theirs` is within its quota until `other` gets the last CPU, which `job` keeps at first."""
    policy = {"reclaimWithinCohort": "LowerPriority"}
    world = queue(start(), "mine", {"f": {"cpu": 2}}, cohort="co", preemption=policy)
    world = queue(world, "theirs", {"f": {"cpu": 3}}, cohort="co")
    world = queue(world, "third", {"f": {"cpu": 0}}, cohort="co")
    world = world.with_workload(holds("vip", 1, "third", priority=5))
    world = world.with_workload(holds("h", 3, "theirs", priority=-1))
    world = world.with_workload(make_workload("job", "mine", {"cpu": 2}))
    assert explain(world, KEY, NOW).verdict is TrialResult.WAITS
    world = world.with_workload(make_workload("other", "theirs", {"cpu": 1}, created=1))
    found = explain(world, KEY, NOW)
    assert found.verdict is TrialResult.PREEMPTS
    assert found.outcome.victims == (ObjectKey("ns", "h"),)
