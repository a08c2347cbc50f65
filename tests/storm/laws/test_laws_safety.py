"""Every law about stored states is silent about what is right, and speaks of what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from histories import (
    ADMITTED,
    CHECKS,
    CLUSTER_QUEUES,
    COHORTS,
    EVENTS,
    JOBS,
    LEADER,
    LEASES,
    LOCAL_QUEUES,
    PODS,
    TIME,
    WORKLOADS,
    Story,
    cluster_queue,
    cohort,
    conditions,
    job,
    lease,
    leaving,
    local_queue,
    owner,
    pod,
    quota,
    thing,
    with_status,
    workload,
)

from kueuelib.testing.storm.history import Obj
from kueuelib.testing.storm.laws import LAWS
from kueuelib.testing.storm.laws.law import COMMIT
from kueuelib.testing.storm.laws.safety import SAFETY

Tale = Callable[[Story], None]
BROKEN: list[tuple[str, Tale]] = []


def breaks(law: str) -> Callable[[Tale], Tale]:
    def add(tale: Tale) -> Tale:
        BROKEN.append((law, tale))
        return tale

    return add


def run_once(story: Story) -> None:
    """A job from its submission to its end."""
    story.put(CLUSTER_QUEUES, cluster_queue(), "user")
    mine = story.submit(job())
    story.put(WORKLOADS, workload(mine))
    story.put(WORKLOADS, workload(mine, **ADMITTED))
    story.put(JOBS, job(suspend=False))
    story.put(JOBS, with_status(job(suspend=False), conditions=conditions(Complete=True)), "server")
    done = workload(mine, **ADMITTED, Finished=True)
    done["status"]["conditions"][-1]["reason"] = "Succeeded"
    story.put(WORKLOADS, done)


def test_a_job_that_runs_once_breaks_nothing() -> None:
    story = Story()
    run_once(story)
    assert story.broken == []
    assert story.laws.sometimes["finished"] == story.laws.sometimes["job started"] == 1


def test_a_job_that_is_evicted_and_admitted_again_breaks_nothing() -> None:
    story = Story()
    mine = story.submit(job())
    story.put(WORKLOADS, workload(mine, **ADMITTED))
    story.put(JOBS, job(suspend=False))
    story.put(WORKLOADS, workload(mine, **ADMITTED, Evicted=True))
    story.put(JOBS, job())
    story.put(WORKLOADS, workload(mine, QuotaReserved=False, Admitted=False, Evicted=True))
    story.put(WORKLOADS, workload(mine, **ADMITTED, Evicted=False))
    story.put(JOBS, job(suspend=False))
    assert story.broken == []


@breaks("one-workload-per-job")
def two_workloads(story: Story) -> None:
    mine = story.submit(job())
    story.put(WORKLOADS, workload(mine))
    story.put(WORKLOADS, workload(mine, name="other"))


@breaks("owners-are-real")
def an_owner_that_never_was(story: Story) -> None:
    story.put(WORKLOADS, workload(owner(thing("nobody"))))


@breaks("owners-are-real")
def a_pod_of_another_group(story: Story) -> None:
    story.submit(pod(group="other"), PODS)
    story.put(WORKLOADS, workload(owner(pod(), "Pod", controller=False), name="grp", group=True))


@breaks("owners-are-real")
def a_workload_that_changes_hands(story: Story) -> None:
    story.put(WORKLOADS, workload(story.submit(job())))
    story.put(WORKLOADS, workload(story.submit(job(uid="uid-two"))))


@breaks("finished-with-cause")
def finished_although_another_job_of_the_name_ended(story: Story) -> None:
    ended = with_status(job(uid="uid-old"), conditions=conditions(Complete=True))
    story.put(JOBS, ended, "server")
    story.drop(JOBS, ended, "user")
    mine = story.submit(job())
    done = workload(mine, Finished=True)
    done["status"]["conditions"][0]["reason"] = "Succeeded"
    story.put(WORKLOADS, workload(mine))
    story.put(WORKLOADS, done)


@breaks("finished-with-cause")
def a_group_that_finished_before_any_pod_did(story: Story) -> None:
    story.submit(pod(group="grp"), PODS)
    done = workload(owner(pod(), "Pod", controller=False), name="grp", group=True, Finished=True)
    done["status"]["conditions"][0]["reason"] = "Failed"
    story.put(WORKLOADS, done)


@breaks("finished-for-ever")
def finished_is_taken_back(story: Story) -> None:
    run_once(story)
    story.put(WORKLOADS, workload(owner(job()), **ADMITTED))


@breaks("finished-for-ever")
def quota_after_the_end(story: Story) -> None:
    mine = story.submit(job())
    story.put(WORKLOADS, workload(mine, Finished=True), "user")
    story.put(WORKLOADS, workload(mine, **ADMITTED, Finished=True))


@breaks("consistent-conditions")
def admitted_without_quota(story: Story) -> None:
    story.put(WORKLOADS, workload(story.submit(job()), Admitted=True))


@breaks("consistent-conditions")
def quota_without_an_admission(story: Story) -> None:
    found = workload(story.submit(job()), QuotaReserved=True)
    del found["status"]["admission"]
    story.put(WORKLOADS, found)


@breaks("consistent-conditions")
def an_admission_without_quota(story: Story) -> None:
    found = workload(story.submit(job()), QuotaReserved=True)
    found["status"]["conditions"] = conditions(QuotaReserved=False)
    story.put(WORKLOADS, found)


@breaks("consistent-conditions")
def a_condition_that_is_there_twice(story: Story) -> None:
    found = workload(story.submit(job()))
    found["status"]["conditions"] = 2 * conditions(QuotaReserved=False)
    story.put(WORKLOADS, found)


@breaks("consistent-conditions")
def reserved_while_evicted(story: Story) -> None:
    mine = story.submit(job())
    story.put(WORKLOADS, workload(mine, QuotaReserved=False, Evicted=True))
    story.put(WORKLOADS, workload(mine, QuotaReserved=True, Evicted=True))


@breaks("admission-not-edited")
def another_flavor_while_quota_is_held(story: Story) -> None:
    mine = story.submit(job())
    story.put(WORKLOADS, workload(mine, **ADMITTED))
    story.put(WORKLOADS, workload(mine, **ADMITTED, flavor="spot"))


@breaks("checks-before-admission")
def admitted_while_a_check_is_pending(story: Story) -> None:
    mine = story.submit(job())
    story.put(WORKLOADS, workload(mine, checks={"budget": "Pending"}, QuotaReserved=True))
    story.put(WORKLOADS, workload(mine, checks={"budget": "Pending"}, **ADMITTED))


@breaks("checks-before-admission")
def admitted_without_a_check(story: Story) -> None:
    strategy = {"admissionChecks": [{"name": "budget"}]}
    story.put(CLUSTER_QUEUES, cluster_queue(admissionChecksStrategy=strategy), "user")
    story.put(WORKLOADS, workload(story.submit(job()), **ADMITTED))


@breaks("answers-end-with-quota")
def quota_is_taken_but_the_request_to_preempt_stays(story: Story) -> None:
    mine = story.submit(job())
    asking = {"name": "budget", "state": "Pending", "reason": "PreemptionRequired"}
    for holds in (True, False):
        one = workload(mine, QuotaReserved=holds)
        one["status"]["admissionChecks"] = [asking]
        story.put(WORKLOADS, one)


@breaks("answers-end-with-quota")
def quota_is_taken_but_the_approval_stays(story: Story) -> None:
    mine = story.submit(job())
    story.put(WORKLOADS, workload(mine, checks={"budget": "Ready"}, **ADMITTED))
    story.put(WORKLOADS, workload(mine, checks={"budget": "Ready"}, QuotaReserved=False))


def edited(selector: Obj, *, noted: bool = False, **fields: Any) -> Obj:
    """A Job whose pods have a node selector."""
    one = job(**fields)
    one["spec"]["template"] = {"spec": {"nodeSelector": selector}}
    if noted:
        one["metadata"]["annotations"] = {"kueuelib.dev/added-at-start": "{}"}
    return one


@breaks("edits-are-kept")
def a_stop_that_loses_an_edit(story: Story) -> None:
    mine = story.submit(edited({"zone": "a"}))
    story.put(WORKLOADS, workload(mine, **ADMITTED, selector={"zone": "a"}))
    story.put(JOBS, edited({"zone": "a", "pool": "x"}, noted=True, suspend=False))
    story.put(JOBS, edited({"zone": "b", "pool": "x"}, noted=True), "user")
    story.put(JOBS, edited({"zone": "a"}))


@breaks("edits-are-kept")
def a_stop_that_leaves_what_the_start_added(story: Story) -> None:
    mine = story.submit(edited({"zone": "a"}))
    story.put(WORKLOADS, workload(mine, **ADMITTED, selector={"zone": "a"}))
    story.put(JOBS, edited({"zone": "a", "pool": "x"}, noted=True, suspend=False))
    story.put(JOBS, edited({"zone": "a", "pool": "x"}))


@breaks("starts-are-of-present-templates")
def a_start_that_was_decided_for_an_older_template(story: Story) -> None:
    mine = story.submit(edited({"zone": "a"}))
    story.put(WORKLOADS, workload(mine, **ADMITTED, selector={"zone": "a"}))
    story.put(JOBS, edited({"zone": "b"}), "user")
    story.put(JOBS, edited({"zone": "b"}, suspend=False, noted=True))


@breaks("started-by-admission")
def a_job_that_was_never_admitted(story: Story) -> None:
    story.put(WORKLOADS, workload(story.submit(job())))
    story.put(JOBS, job(suspend=False))


@breaks("started-by-admission")
def a_new_job_on_the_admission_of_the_old_one(story: Story) -> None:
    mine = story.submit(job())
    story.put(WORKLOADS, workload(mine, **ADMITTED))
    story.drop(JOBS, job(), "user")
    story.submit(job(uid="uid-new"))
    story.put(JOBS, job(uid="uid-new", suspend=False))


@breaks("started-by-admission")
def a_pod_that_was_never_admitted(story: Story) -> None:
    story.submit(pod(), PODS)
    story.put(PODS, pod(gated=False))


@breaks("started-by-admission")
def a_pod_of_a_group_that_was_not_admitted(story: Story) -> None:
    story.submit(pod(group="grp"), PODS)
    story.put(WORKLOADS, workload(owner(pod(), "Pod", controller=False), name="grp", group=True))
    story.put(PODS, pod(group="grp", gated=False))


@breaks("started-by-admission")
def a_start_long_after_the_admission_ended(story: Story) -> None:
    mine = story.submit(job())
    story.put(WORKLOADS, workload(mine, **ADMITTED))
    story.put(WORKLOADS, workload(mine, QuotaReserved=False, Admitted=False))
    story.put(JOBS, job(suspend=False))


@breaks("one-start-per-admission")
def stopped_and_started_by_a_manager(story: Story) -> None:
    story.put(WORKLOADS, workload(story.submit(job()), **ADMITTED))
    for suspend in (False, True, False):
        story.put(JOBS, job(suspend=suspend))


@breaks("quota-not-exceeded")
def more_than_the_own_quota(story: Story) -> None:
    story.put(CLUSTER_QUEUES, cluster_queue(nominal=3), "user")
    for name in ("one", "two"):
        mine = story.submit(job(name))
        story.put(WORKLOADS, workload(mine, name=name, cpu=2, QuotaReserved=True))


@breaks("quota-not-exceeded")
def more_than_the_cohort_lends(story: Story) -> None:
    story.put(CLUSTER_QUEUES, cluster_queue(nominal=3, cohort="all"), "user")
    lender = cluster_queue("lender", quota(3, lendingLimit=1), cohort="all")
    story.put(CLUSTER_QUEUES, lender, "user")
    story.put(WORKLOADS, workload(story.submit(job()), cpu=5, QuotaReserved=True))


@breaks("quota-not-exceeded")
def more_than_may_be_borrowed(story: Story) -> None:
    borrower = cluster_queue("cq", quota(1, borrowingLimit=1), cohort="all")
    story.put(CLUSTER_QUEUES, borrower, "user")
    story.put(CLUSTER_QUEUES, cluster_queue("lender", nominal=9, cohort="all"), "user")
    story.put(WORKLOADS, workload(story.submit(job()), cpu=3, QuotaReserved=True))


@breaks("quota-not-exceeded")
def admitted_before_the_victims_have_left(story: Story) -> None:
    late = thing("budget", "", spec={"preemptionPolicy": "AfterCheckPassedOrOnDemand"})
    story.put(CHECKS, late, "user")
    strategy = {"admissionChecks": [{"name": "budget"}]}
    story.put(CLUSTER_QUEUES, cluster_queue(nominal=2, admissionChecksStrategy=strategy), "user")
    for name in ("one", "two"):
        mine = story.submit(job(name))
        ready = workload(mine, name=name, cpu=2, checks={"budget": "Ready"}, QuotaReserved=True)
        story.put(WORKLOADS, ready)
        assert story.broken == []
    for name in ("one", "two"):
        ready = workload(owner(job(name)), name=name, cpu=2, checks={"budget": "Ready"}, **ADMITTED)
        story.put(WORKLOADS, ready)


CYCLE = (cohort("left", parent="right"), cohort("right", parent="left"))


@breaks("no-quota-in-a-cycle")
def quota_below_a_cycle(story: Story) -> None:
    mine = story.submit(job())
    story.put(CLUSTER_QUEUES, cluster_queue(cohort="left"), "user")
    for one in CYCLE:
        story.put(COHORTS, one, "user")
    story.put(WORKLOADS, workload(mine, QuotaReserved=True))


@breaks("usage-is-what-pods-request")
def quota_for_one_pod_of_two(story: Story) -> None:
    found = workload(story.submit(job()), cpu=2, QuotaReserved=True)
    found["status"]["admission"]["podSetAssignments"][0]["resourceUsage"] = {"cpu": "1"}
    story.put(WORKLOADS, found)


@breaks("usage-is-what-pods-request")
def more_pods_than_there_are(story: Story) -> None:
    found = workload(story.submit(job()), cpu=2, QuotaReserved=True)
    assignment = found["status"]["admission"]["podSetAssignments"][0]
    story.put(WORKLOADS, workload(owner(job())))
    assignment |= {"count": 3, "resourceUsage": {"cpu": "3"}}
    story.put(WORKLOADS, found)


@breaks("usage-is-what-pods-request")
def a_pod_set_that_does_not_exist(story: Story) -> None:
    found = workload(story.submit(job()), QuotaReserved=True)
    found["status"]["admission"]["podSetAssignments"][0]["name"] = "other"
    story.put(WORKLOADS, found)


@breaks("reserved-from-its-queue")
def quota_of_another_queue(story: Story) -> None:
    story.put(LOCAL_QUEUES, local_queue(queue="mine"), "user")
    story.put(WORKLOADS, workload(story.submit(job()), queue="yours", QuotaReserved=True))


@breaks("reserved-from-its-queue")
def quota_without_a_local_queue(story: Story) -> None:
    story.put(WORKLOADS, workload(story.submit(job()), QuotaReserved=True, local="missing"))


@breaks("reserved-only-if-allowed")
def quota_for_the_inactive(story: Story) -> None:
    story.put(WORKLOADS, workload(story.submit(job()), active=False, QuotaReserved=True))


@breaks("reserved-only-if-allowed")
def quota_of_a_stopped_queue(story: Story) -> None:
    story.put(CLUSTER_QUEUES, cluster_queue(stopPolicy="Hold"), "user")
    story.put(WORKLOADS, workload(story.submit(job()), QuotaReserved=True))


@breaks("reserved-only-if-allowed")
def quota_of_a_queue_that_was_deleted(story: Story) -> None:
    story.put(CLUSTER_QUEUES, leaving(cluster_queue()), "user")
    story.put(WORKLOADS, workload(story.submit(job()), QuotaReserved=True))


@breaks("reserved-only-if-allowed")
def quota_for_a_workload_that_was_deleted(story: Story) -> None:
    mine = story.submit(job())
    story.put(WORKLOADS, workload(mine))
    story.put(WORKLOADS, leaving(workload(mine)), "user")
    story.put(WORKLOADS, leaving(workload(mine, QuotaReserved=True)))


@breaks("events-are-about-real-objects")
def an_event_about_nobody(story: Story) -> None:
    about = {"kind": "Job", "namespace": "ns", "name": "one", "uid": "uid-of-nobody"}
    story.put(EVENTS, thing("event", involvedObject=about))


@breaks("events-are-about-real-objects")
def an_event_about_the_wrong_job(story: Story) -> None:
    story.submit(job("other"))
    about = {"kind": "Job", "namespace": "ns", "name": "one", "uid": "uid-other"}
    story.put(EVENTS, thing("event", involvedObject=about))


def told(mine: Obj, number: int = 1) -> Obj:
    about = {"kind": "Job", "namespace": "ns", "name": "one", "uid": mine["uid"]}
    text = "Waiting for quota: cpu on f: 1 more needed"
    return thing(f"event{number}", involvedObject=about, message=text, count=1)


@breaks("waiting-is-explained-once")
def a_job_that_is_told_twice_for_one_reason(story: Story) -> None:
    mine = story.submit(job())
    story.put(WORKLOADS, workload(mine, QuotaReserved=False))
    for number in range(2):
        story.put(EVENTS, told(mine, number), after=70)


@breaks("waiting-is-explained-once")
def a_job_that_is_told_again_in_an_event_that_counts(story: Story) -> None:
    mine = story.submit(job())
    story.put(WORKLOADS, workload(mine, QuotaReserved=False))
    for count in range(2):
        story.put(EVENTS, {**told(mine), "count": count}, after=70)


@breaks("waiting-is-explained-once")
def a_job_that_is_told_of_each_change_at_once(story: Story) -> None:
    mine = story.submit(job())
    for number in range(2):
        story.put(WORKLOADS, workload(mine, QuotaReserved=False, Evicted=bool(number)))
        story.put(EVENTS, told(mine, number), after=5)


@breaks("waiting-is-explained-once")
def a_job_that_is_told_why_it_waits_and_did_not(story: Story) -> None:
    mine = story.submit(job())
    story.put(WORKLOADS, workload(mine, QuotaReserved=True))
    story.put(WORKLOADS, workload(mine, **ADMITTED))
    story.put(EVENTS, told(mine))


def test_a_job_may_be_told_each_reason_once_a_minute() -> None:
    story = Story()
    mine = story.submit(job())
    for number in range(3):
        story.put(WORKLOADS, workload(mine, QuotaReserved=False, Evicted=bool(number % 2)))
        story.put(EVENTS, told(mine, number), after=60)
    assert "waiting-is-explained-once" not in story.names, story.broken


@breaks("no-job-is-deleted")
def a_manager_that_deletes_a_job(story: Story) -> None:
    story.submit(job())
    story.drop(JOBS, job())


@breaks("only-the-leader-writes")
def the_leader_of_yesterday(story: Story) -> None:
    mine = story.submit(job())
    story.put(LEASES, lease("one"))
    story.put(LEASES, lease("two"), "manager-2")
    story.put(WORKLOADS, workload(mine))


@breaks("only-the-leader-writes")
def a_leader_that_gave_up_its_lease(story: Story) -> None:
    mine = story.submit(job())
    story.put(LEASES, lease("one"))
    story.put(LEASES, lease(""))
    story.put(WORKLOADS, workload(mine))


@breaks("lease-is-taken-when-free")
def a_lease_that_was_renewed_a_moment_ago(story: Story) -> None:
    mine, yours = lease("one"), lease("two")
    mine["spec"]["leaseDurationSeconds"] = 15
    story.put(LEASES, mine)
    story.put(LEASES, mine, after=14)
    story.put(LEASES, yours, "manager-2", after=5)


@breaks("quota-is-kept-while-pods-run")
def quota_that_is_taken_from_running_pods(story: Story) -> None:
    mine = story.submit(job())
    story.put(WORKLOADS, workload(mine, **ADMITTED))
    story.put(JOBS, with_status(job(suspend=False, kind="Job"), active=1), "server")
    story.put(WORKLOADS, workload(mine, **ADMITTED, Evicted=True))
    story.put(WORKLOADS, workload(mine, QuotaReserved=False, Evicted=True), after=9)


@breaks("quota-is-kept-while-pods-run")
def quota_that_is_taken_before_the_job_controller_looks(story: Story) -> None:
    mine = story.submit(job())
    story.put(WORKLOADS, workload(mine, **ADMITTED))
    story.put(JOBS, job(suspend=False))
    story.put(PODS, pod_of(mine), "server")
    story.put(JOBS, job())
    story.put(WORKLOADS, workload(mine, **ADMITTED, Evicted=True))
    story.put(WORKLOADS, workload(mine, QuotaReserved=False, Evicted=True))


@breaks("pods-start-on-quota")
def a_pod_that_comes_after_its_quota_has_gone(story: Story) -> None:
    mine = story.submit(job())
    story.put(WORKLOADS, workload(mine, **ADMITTED))
    story.put(JOBS, job(suspend=False))
    story.put(JOBS, job())
    story.put(WORKLOADS, workload(mine, QuotaReserved=False, Evicted=True))
    story.put(PODS, pod_of(mine), "server")


@breaks("ending-jobs-go-on")
def a_job_that_has_done_its_work_and_is_stopped(story: Story) -> None:
    mine = story.submit(job())
    story.put(WORKLOADS, workload(mine, **ADMITTED))
    met = {"startTime": TIME, "conditions": conditions(SuccessCriteriaMet=True)}
    story.put(JOBS, with_status(job(suspend=False), **met), "server")
    story.put(JOBS, with_status(job(), **met))


@breaks("ending-jobs-go-on")
def a_job_that_has_failed_and_loses_its_start(story: Story) -> None:
    story.submit(job())
    failed = {"conditions": conditions(FailureTarget=True)}
    story.put(JOBS, with_status(job(), startTime=TIME, **failed), "server")
    story.put(JOBS, with_status(job(), startTime=None, **failed))


def pod_of(mine: Obj) -> Obj:
    one = pod("its-pod", gated=False, phase="Running")
    one["metadata"]["ownerReferences"] = [mine]
    return one


@breaks("bounded-steps")
def evicted_again_and_again(story: Story) -> None:
    mine = story.submit(job())
    story.put(WORKLOADS, workload(mine, **ADMITTED))
    for _ in range(20):
        story.put(WORKLOADS, workload(mine, **ADMITTED, Evicted=True), after=100)
        story.put(WORKLOADS, workload(mine, **ADMITTED, Evicted=False), after=100)


@breaks("no-burst")
def a_status_that_is_written_all_the_time(story: Story) -> None:
    for count in range(60):
        story.put(CLUSTER_QUEUES, cluster_queue(status={"pendingWorkloads": count}), after=0.1)


@pytest.mark.parametrize(("law", "tale"), BROKEN, ids=[tale.__name__ for _law, tale in BROKEN])
def test_a_broken_law_is_reported(law: str, tale: Tale) -> None:
    story = Story()
    tale(story)
    assert law in story.names, story.broken
    assert {"consistent-conditions"} >= story.names - {law}, story.broken


def test_every_law_has_a_tale_that_breaks_it() -> None:
    assert {one.law.name for one in SAFETY} == {law for law, _tale in BROKEN}
    assert {one.law.when for one in SAFETY} == {COMMIT}


def test_every_law_says_what_has_to_hold() -> None:
    assert all(law.sentence.endswith(".") for law in LAWS)
    assert len({law.name for law in LAWS}) == len(LAWS)


# ---- what the adversary makes legal


@pytest.mark.parametrize(
    "tale",
    [a_start_long_after_the_admission_ended, the_leader_of_yesterday],
    ids=lambda tale: tale.__name__,
)
def test_a_request_that_was_held_back_may_be_committed_late(tale: Tale) -> None:
    story = Story(lag=30)
    tale(story)
    assert story.broken == []


@pytest.mark.parametrize(("seconds", "broken"), [(20, False), (40, True)])
def test_a_quota_cut_excuses_what_was_decided_before(seconds: float, broken: bool) -> None:
    story = Story(lag=30)
    mine = story.submit(job())
    story.put(CLUSTER_QUEUES, cluster_queue(nominal=3), "user", after=100)
    story.put(CLUSTER_QUEUES, cluster_queue(nominal=1), "user", after=100)
    story.put(WORKLOADS, workload(mine, cpu=2, **ADMITTED), after=seconds)
    assert ("quota-not-exceeded" in story.names) is broken


@pytest.mark.parametrize(("seconds", "broken"), [(20, False), (40, True)])
def test_a_cycle_excuses_what_was_decided_before(seconds: float, broken: bool) -> None:
    story = Story(lag=30)
    mine = story.submit(job())
    story.put(CLUSTER_QUEUES, cluster_queue(cohort="left"), "user")
    for one in CYCLE:
        story.put(COHORTS, one, "user", after=100)
    story.put(WORKLOADS, workload(mine, **ADMITTED), after=seconds)
    assert ("no-quota-in-a-cycle" in story.names) is broken


@pytest.mark.parametrize("change", [quota(1), None])
def test_a_change_of_a_cohort_excuses_what_was_decided_before(change: Obj | None) -> None:
    story = Story(lag=30)
    mine = story.submit(job())
    story.put(CLUSTER_QUEUES, cluster_queue(nominal=0, cohort="all"), "user")
    story.put(COHORTS, cohort("all", quota(4)), "user", after=100)
    if change is None:
        story.drop(COHORTS, cohort("all"), "user", after=100)
    else:
        story.put(COHORTS, cohort("all", change), "user", after=100)
    story.put(WORKLOADS, workload(mine, cpu=2, **ADMITTED), after=20)
    assert story.broken == []
    story.put(WORKLOADS, workload(mine, name="wl2", cpu=2, **ADMITTED), after=40)
    assert "quota-not-exceeded" in story.names


@pytest.mark.parametrize(
    ("middle", "sibling", "most"),
    [
        (quota(0), {}, 6),
        (quota(0, borrowingLimit=2), {}, 3),
        (quota(1, borrowingLimit=2), {}, 4),
        (quota(0), {"lendingLimit": 1}, 4),
        (quota(0), {"lendingLimit": 0}, 3),
    ],
)
def test_a_node_takes_no_more_from_its_parent_than_limits_permit(
    middle: Obj, sibling: dict[str, int], most: int
) -> None:
    """A queue of 1 CPU below a Cohort, whose parent owns 2 and has a Cohort of 3 beside it."""
    for cpu in (most, most + 1):
        story = Story()
        story.put(COHORTS, cohort("top", quota(2)), "user")
        story.put(COHORTS, cohort("middle", middle, parent="top"), "user")
        story.put(COHORTS, cohort("sibling", quota(3, **sibling), parent="top"), "user")
        story.put(CLUSTER_QUEUES, cluster_queue(nominal=1, cohort="middle"), "user")
        story.put(WORKLOADS, workload(story.submit(job()), cpu=cpu, **ADMITTED))
        assert ("quota-not-exceeded" in story.names) is (cpu > most), story.broken


def test_the_job_of_another_uid_is_no_excuse_however_late() -> None:
    story = Story(lag=1000)
    a_new_job_on_the_admission_of_the_old_one(story)
    assert story.names == {"started-by-admission"}


def test_what_was_reserved_before_a_takeover_is_known_to_the_new_leader() -> None:
    story = Story(lag=30)
    story.put(CLUSTER_QUEUES, cluster_queue(nominal=3), "user")
    one, two = story.submit(job("one")), story.submit(job("two"))
    story.put(LEASES, lease("one"), after=100)
    story.put(WORKLOADS, workload(one, name="one", cpu=2, **ADMITTED))
    story.put(LEASES, lease("two"), "manager-2")
    story.put(WORKLOADS, workload(two, name="two", cpu=2, **ADMITTED), "manager-2")
    assert story.names == {"quota-not-exceeded"}


@pytest.mark.parametrize(
    ("between", "broken"), [((), False), ((("three", 1.0),), True), ((("three", 40.0),), True)]
)
def test_two_leaders_exceed_quota_by_no_more_than_the_other_one_gave_away(
    between: tuple[tuple[str, float], ...], broken: bool
) -> None:
    story = Story(lag=30)
    story.put(CLUSTER_QUEUES, cluster_queue(nominal=3), "user")
    jobs = {name: story.submit(job(name)) for name in ("one", "two", "three")}
    story.put(LEASES, lease("one"), after=100)
    story.put(LEASES, lease("two"), "manager-2")
    story.put(WORKLOADS, workload(jobs["one"], name="one", cpu=2, **ADMITTED))
    story.put(WORKLOADS, workload(jobs["two"], name="two", cpu=2, **ADMITTED), "manager-2")
    for name, after in between:
        one = workload(jobs[name], name=name, cpu=2, **ADMITTED)
        story.put(WORKLOADS, one, "manager-2", after=after)
    assert ("quota-not-exceeded" in story.names) is broken


def test_what_another_one_reserved_long_ago_is_no_excuse() -> None:
    story = Story(lag=30)
    story.put(CLUSTER_QUEUES, cluster_queue(nominal=3), "user")
    one, two = story.submit(job("one")), story.submit(job("two"))
    story.put(LEASES, lease("two"), "manager-2", after=100)
    story.put(WORKLOADS, workload(one, name="one", cpu=2, **ADMITTED))
    story.put(WORKLOADS, workload(two, name="two", cpu=2, **ADMITTED), "manager-2", after=40)
    assert "quota-not-exceeded" in story.names


def test_what_the_old_leader_writes_after_a_takeover_excuses_the_new_one() -> None:
    story = Story(lag=30)
    story.put(CLUSTER_QUEUES, cluster_queue(nominal=3), "user")
    one, two = story.submit(job("one")), story.submit(job("two"))
    story.put(LEASES, lease("one"), after=100)
    story.put(LEASES, lease("two"), "manager-2")
    story.put(WORKLOADS, workload(one, name="one", cpu=2, **ADMITTED))
    story.put(WORKLOADS, workload(two, name="two", cpu=2, **ADMITTED), "manager-2")
    assert story.broken == []


def test_a_user_may_suspend_a_job_that_is_started_again() -> None:
    story = Story()
    story.put(WORKLOADS, workload(story.submit(job()), **ADMITTED))
    for actor in ("manager-1", "user", "manager-1"):
        story.put(JOBS, job(suspend=actor == "user"), actor)
    assert story.broken == []


def test_a_lease_that_has_expired_may_be_taken() -> None:
    story = Story()
    mine, yours = lease("one"), lease("two")
    mine["spec"]["leaseDurationSeconds"] = 15
    story.put(LEASES, mine)
    story.put(LEASES, yours, "manager-2", after=15)
    assert story.broken == []


def test_quota_is_released_when_the_pods_have_stopped() -> None:
    story = Story()
    mine = story.submit(job())
    story.put(WORKLOADS, workload(mine, **ADMITTED))
    for active in (1, 0):
        story.put(JOBS, with_status(job(suspend=active == 0, kind="Job"), active=active), "server")
    story.put(WORKLOADS, workload(mine, **ADMITTED, Evicted=True))
    story.put(WORKLOADS, workload(mine, QuotaReserved=False, Evicted=True))
    assert story.broken == []


def test_a_late_decision_is_not_written_on_a_workload_that_became_inactive() -> None:
    story = Story(lag=60.0)
    mine = story.submit(job())
    story.put(WORKLOADS, workload(mine))
    story.put(WORKLOADS, workload(mine, active=False), "user")
    story.put(WORKLOADS, workload(mine, active=False, QuotaReserved=True))
    assert "reserved-only-if-allowed" in story.names


@pytest.mark.parametrize("by", ["user", LEADER])
def test_only_a_user_who_removes_a_workload_excuses_pods_of_a_late_job_controller(by: str) -> None:
    story = Story(lag=30)
    mine = story.submit(job())
    admitted = workload(mine, **ADMITTED)
    story.put(WORKLOADS, admitted)
    story.put(JOBS, job(suspend=False))
    story.drop(WORKLOADS, admitted, by)
    story.put(JOBS, job())
    story.put(PODS, pod_of(mine), "server")
    assert ("pods-start-on-quota" in story.names) is (by == LEADER)
