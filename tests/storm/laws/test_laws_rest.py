"""Every law about a state at rest is silent about what is right, and speaks of what is wrong."""

from __future__ import annotations

from typing import Any

import pytest
from histories import (
    ADMITTED,
    cluster_queue,
    cohort,
    conditions,
    job,
    leaving,
    local_queue,
    owner,
    pod,
    quota,
    thing,
    usage,
    with_status,
    workload,
)

from kueuelib.testing.storm.history import Obj
from kueuelib.testing.storm.laws import LAWS, Violation
from kueuelib.testing.storm.laws.law import REST

IN_USE = "kueue.x-k8s.io/resource-in-use"
POD_FINALIZER = "kueue.x-k8s.io/managed"
WAITS = {"QuotaReserved": False}


def world(**changes: Any) -> dict[str, list[Obj]]:
    """Nothing runs: one queue with 4 CPUs, and nothing waits."""
    stored = {
        "queues": [cluster_queue(status=counts())],
        "local_queues": [local_queue(**counts())],
        "flavors": [thing("default", "", spec={})],
    }
    return {**stored, **changes}


def counts(reserving: int = 0, admitted: int = 0, pending: int = 0, **status: Any) -> Obj:
    return {
        "reservingWorkloads": reserving,
        "admittedWorkloads": admitted,
        "pendingWorkloads": pending,
        "conditions": conditions(Active=True),
        **status,
    }


def labelled(label: str, text: str) -> Obj:
    one = job()
    one["metadata"]["labels"][f"kueue.x-k8s.io/{label}"] = text
    return one


def running(**changes: Any) -> dict[str, list[Obj]]:
    """One job of one CPU runs."""
    one = job(suspend=False)
    state = counts(1, 1, **usage(1, 1))
    return world(
        jobs=[one],
        workloads=[workload(owner(one), **ADMITTED)],
        queues=[cluster_queue(status=state)],
        local_queues=[local_queue(**state)],
        **changes,
    )


def waiting(
    cpu: int = 9, *, queues: list[Obj] | None = None, others: tuple[Obj, ...] = (), **more: Any
) -> dict[str, list[Obj]]:
    """One job waits; what is wrong with statuses does not matter here."""
    one = job()
    mine = workload(owner(one), cpu=cpu, **{**WAITS, **more})
    return world(
        jobs=[one],
        workloads=[mine, *others],
        queues=queues or [cluster_queue()],
        local_queues=[
            local_queue(**counts(pending=1)),
            local_queue("others", "other"),
        ],
    )


def kept_out(reason: str) -> dict[str, list[Obj]]:
    """One job waits, but its Workload was not queued again after an eviction."""
    stored = waiting(Requeued=False)
    *_, requeued = stored["workloads"][0]["status"]["conditions"]
    requeued["reason"] = reason
    return stored


def held(name: str, cpu: int, queue: str = "cq", priority: int = 0) -> Obj:
    """A Workload that holds quota, of a job that the other laws know nothing about."""
    local = "team" if queue == "cq" else "others"
    return workload(name=name, cpu=cpu, queue=queue, priority=priority, local=local, **ADMITTED)


def judged(stored: dict[str, list[Obj]]) -> list[Violation]:
    from histories import judged as judge

    return judge(**stored)


def names(stored: dict[str, list[Obj]]) -> set[str]:
    return {violation.law for violation in judged(stored)}


def about_admission(stored: dict[str, list[Obj]]) -> bool:
    """Whether the oracle says that something waits without need."""
    return "admissible-runs" in names(stored)


def test_a_quiet_cluster_breaks_nothing() -> None:
    assert judged(world()) == []
    assert judged(running()) == []


def test_pods_that_are_missing_keep_a_workload_out() -> None:
    assert "no-unfinished-eviction" not in names(kept_out("WaitingForReplacementPods"))


FINISHED = workload(owner(job()), **ADMITTED, Finished=True)
COMPLETE = with_status(job(suspend=False), conditions=conditions(Complete=True))
GROUPED = {"name": "grp", "group": True, "cpu": 2}

INACTIVE = counts() | {"conditions": conditions(Active=False)}


def shared(share: int) -> Obj:
    return {"fairSharing": {"weightedShare": share}}


def borrowing(shown: int, **weight: Any) -> dict[str, list[Obj]]:
    """A queue without quota uses 2 CPUs of the 8 of its tree, whose middle lends 3 of its 5."""
    used = usage(2, 2, borrowed=2)
    return running() | {
        "jobs": [job(suspend=False)],
        "workloads": [workload(owner(job()), cpu=2, **ADMITTED)],
        "queues": [
            cluster_queue(
                nominal=0, cohort="low", status=counts(1, 1, **used, **shared(shown)), **weight
            )
        ],
        "local_queues": [local_queue(**counts(1, 1, **used))],
        "cohorts": [
            cohort("low", parent="top", status=shared(250)),
            cohort("middle", quota(5, lendingLimit=3), parent="top", status=shared(0)),
            cohort("top", quota(5), status=shared(0)),
        ],
    }


COMPLETABLE = job()
COMPLETABLE["spec"]["completions"] = 1

WRONG: list[tuple[str, dict[str, list[Obj]]]] = [
    ("admitted-runs", running() | {"jobs": [job()]}),
    (
        "admitted-runs",
        running()
        | {"jobs": [], "pods": [pod()], "workloads": [workload(owner(pod(), "Pod"), **ADMITTED)]},
    ),
    (
        "done-jobs-end",
        waiting() | {"jobs": [with_status(COMPLETABLE, succeeded=1)]},
    ),
    ("nothing-runs-unadmitted", waiting() | {"jobs": [job(suspend=False)]}),
    ("nothing-runs-unadmitted", world(pods=[pod(gated=False, phase="Running")])),
    ("every-job-has-a-workload", world(jobs=[job()])),
    ("every-job-has-a-workload", world(pods=[pod()])),
    ("finished-jobs-have-finished-workloads", running() | {"jobs": [COMPLETE]}),
    (
        "finished-jobs-have-finished-workloads",
        running()
        | {
            "jobs": [],
            "pods": [pod(gated=False, phase="Failed")],
            "workloads": [workload(owner(pod(), "Pod"), **ADMITTED)],
        },
    ),
    ("workloads-follow-their-jobs", waiting() | {"jobs": [job(queue="another")]}),
    ("workloads-follow-their-jobs", waiting() | {"jobs": [labelled("priority-class", "high")]}),
    ("workloads-follow-their-jobs", waiting() | {"jobs": [labelled("max-exec-time-seconds", "5")]}),
    ("no-orphans", world(workloads=[FINISHED])),
    ("no-orphans", world(jobs=[COMPLETE], workloads=[leaving(FINISHED, IN_USE)])),
    (
        "no-leaked-finalizers",
        world(
            jobs=[COMPLETE],
            workloads=[{**FINISHED, "metadata": FINISHED["metadata"] | {"finalizers": [IN_USE]}}],
        ),
    ),
    ("no-leaked-finalizers", world(pods=[leaving(pod(), POD_FINALIZER)])),
    ("no-leaked-finalizers", world(pods=[leaving(pod(group="grp"), POD_FINALIZER)])),
    ("no-leaked-finalizers", world(queues=[leaving(cluster_queue(), IN_USE)])),
    (
        "no-leaked-finalizers",
        world(flavors=[thing("default", ""), leaving(thing("spot", ""), IN_USE)]),
    ),
    ("no-leaked-finalizers", world(checks=[leaving(thing("budget", ""), IN_USE)])),
    (
        "groups-all-or-none",
        world(
            pods=[pod("a", group="grp", gated=False), pod("b", group="grp")],
            workloads=[workload(owner(pod("a"), "Pod", controller=False), **GROUPED, **ADMITTED)],
        ),
    ),
    (
        "groups-all-or-none",
        world(
            pods=[pod("a", group="grp", gated=False), pod("b", group="grp")],
            workloads=[workload(owner(pod("a"), "Pod", controller=False), **GROUPED, **WAITS)],
        ),
    ),
    ("waiting-says-why", world(jobs=[job()], workloads=[workload(owner(job()), cpu=9)])),
    (
        "no-unfinished-eviction",
        running() | {"workloads": [workload(owner(job()), **ADMITTED, Evicted=True)]},
    ),
    (
        "no-unfinished-eviction",
        running() | {"workloads": [workload(owner(job()), active=False, **ADMITTED)]},
    ),
    ("no-unfinished-eviction", kept_out("Preempted")),
    ("no-unfinished-eviction", kept_out("DeactivatedDueToAdmissionCheck")),
    (
        "no-reservation-in-vain",
        world(
            jobs=[job()],
            workloads=[workload(owner(job()), checks={"budget": "Ready"}, QuotaReserved=True)],
        ),
    ),
    (
        "no-reservation-in-vain",
        running()
        | {"workloads": [workload(owner(job()), checks={"budget": "Rejected"}, **ADMITTED)]},
    ),
    (
        "stopped-queues-are-respected",
        running() | {"queues": [cluster_queue(stopPolicy="HoldAndDrain")]},
    ),
    (
        "stopped-queues-are-respected",
        world(
            jobs=[job()],
            queues=[cluster_queue(stopPolicy="Hold")],
            workloads=[workload(owner(job()), checks={"budget": "Pending"}, QuotaReserved=True)],
        ),
    ),
    ("cluster-queue-status", running() | {"queues": [cluster_queue(status=counts(1, 1, 1))]}),
    ("cluster-queue-status", running() | {"queues": [cluster_queue(status=counts(1, 0))]}),
    ("cluster-queue-status", running() | {"queues": [cluster_queue(status=counts(0, 1))]}),
    (
        "cluster-queue-status",
        running() | {"queues": [cluster_queue(status=counts(1, 1, **usage(2, 1)))]},
    ),
    (
        "cluster-queue-status",
        running() | {"queues": [cluster_queue(status=counts(1, 1, **usage(1, 0)))]},
    ),
    (
        "cluster-queue-status",
        running()
        | {"queues": [cluster_queue(nominal=0, cohort="all", status=counts(1, 1, **usage(1, 1)))]},
    ),
    ("local-queue-status", running() | {"local_queues": [local_queue(**counts(1, 1, 1))]}),
    (
        "local-queue-status",
        running() | {"local_queues": [local_queue(**counts(1, 1, **usage(0, 1)))]},
    ),
    ("admissible-runs", waiting(cpu=4)),
    ("queues-say-if-they-admit", world() | {"flavors": []}),
    ("queues-say-if-they-admit", world(queues=[cluster_queue(status=INACTIVE)])),
    (
        "queues-say-if-they-admit",
        world(
            queues=[cluster_queue(cohort="left", status=counts())],
            cohorts=[cohort("left", parent="right"), cohort("right", parent="left")],
        ),
    ),
    ("shares-are-right", borrowing(shown=99)),
]


@pytest.mark.parametrize(("law", "stored"), WRONG)
def test_a_broken_law_is_reported(law: str, stored: dict[str, list[Obj]]) -> None:
    assert law in names(stored)


def test_every_law_is_broken_somewhere() -> None:
    assert {law.name for law in LAWS if law.when == REST} == {law for law, _stored in WRONG}


def test_a_pod_that_never_met_the_webhook_may_run() -> None:
    stranger = pod(gated=False, phase="Running")
    del stranger["metadata"]["labels"]["kueue.x-k8s.io/managed"]
    assert judged(world(pods=[stranger])) == []


def test_an_evicted_pod_of_a_group_may_stay_until_it_is_replaced() -> None:
    members = [leaving(pod("a", group="grp"), POD_FINALIZER), pod("b", group="grp")]
    parent = workload(owner(pod("a"), "Pod", controller=False), cpu=9, **WAITS)
    parent["metadata"] |= {
        "name": "grp",
        "annotations": {"kueue.x-k8s.io/is-group-workload": "true"},
    }
    assert "no-leaked-finalizers" not in names(world(pods=members, workloads=[parent]))


@pytest.mark.parametrize(
    ("weight", "shown"), [("1", 250), ("0.3", 834), ("2", 125), (0, 2**63 - 1)]
)
def test_a_share_is_what_is_borrowed_by_weight(weight: Any, shown: int) -> None:
    assert judged(borrowing(shown, fairSharing={"weight": weight})) == []
    assert names(borrowing(shown + 2, fairSharing={"weight": weight})) == {"shares-are-right"}


def test_shares_are_shown_everywhere_or_nowhere() -> None:
    stored = borrowing(250)
    del stored["cohorts"][0]["status"]["fairSharing"]
    assert names(stored) == {"shares-are-right"}
    for obj in (*stored["queues"], *stored["cohorts"]):
        obj["status"].pop("fairSharing", None)
    assert judged(stored) == []


# ---- the oracle


@pytest.mark.parametrize(("cpu", "waits"), [(4, True), (5, False)])
def test_what_fits_does_not_wait(cpu: int, waits: bool) -> None:
    assert about_admission(waiting(cpu)) is waits


@pytest.mark.parametrize(("used", "waits"), [(2, True), (3, False)])
def test_what_others_use_is_not_free(used: int, waits: bool) -> None:
    assert about_admission(waiting(2, others=(held("h", used),))) is waits


def test_a_second_flavor_may_fit() -> None:
    flavors = [thing("default", ""), thing("spot", "")]
    both = cluster_queue("cq", quota(1), quota(4, "spot"))
    assert about_admission(waiting(3, queues=[both]) | {"flavors": flavors})
    assert not about_admission(waiting(5, queues=[both]) | {"flavors": flavors})


@pytest.mark.parametrize(
    "queue",
    [
        cluster_queue(stopPolicy="Hold"),
        cluster_queue("cq", quota(9, "missing")),
        cluster_queue(namespaceSelector={"matchLabels": {"team": "other"}}),
        cluster_queue(admissionChecksStrategy={"admissionChecks": [{"name": "missing"}]}),
        leaving(cluster_queue()),
    ],
)
def test_nothing_is_said_about_a_queue_that_cannot_admit(queue: Obj) -> None:
    assert not about_admission(waiting(1, queues=[queue]))


@pytest.mark.parametrize("states", [{"Requeued": False}, {"Finished": True}])
def test_nothing_is_said_about_what_must_not_be_admitted(states: dict[str, bool]) -> None:
    assert not about_admission(waiting(1, **states))


def test_a_workload_that_is_kept_out_of_its_queue_says_why_there() -> None:
    def laws(requeued: dict[str, bool]) -> set[str]:
        return names(world(jobs=[job()], workloads=[workload(owner(job()), cpu=9, **requeued)]))

    assert "waiting-says-why" in laws({"Requeued": True})
    assert "waiting-says-why" not in laws({"Requeued": False})


def test_nothing_is_said_about_a_pod_that_picks_its_node() -> None:
    stored = waiting(1)
    template = stored["workloads"][0]["spec"]["podSets"][0]["template"]
    template["spec"]["nodeSelector"] = {"disk": "fast"}
    assert not about_admission(stored)


def test_limits_of_a_namespace_silence_the_oracle() -> None:
    assert not about_admission(waiting(1) | {"limitranges": [thing("limits")]})


def strict(first: int, second: int) -> dict[str, list[Obj]]:
    """A StrictFIFO queue of 4 CPUs with a Workload of each priority, the second one lower."""
    one, two = job("one"), job("two")
    return world(
        jobs=[one, two],
        queues=[cluster_queue(queueingStrategy="StrictFIFO")],
        workloads=[
            workload(owner(one), name="one", cpu=first, priority=5, **WAITS),
            workload(owner(two), name="two", cpu=second, **WAITS),
        ],
    )


def test_only_the_head_of_a_strict_queue_has_to_be_admitted() -> None:
    assert not about_admission(strict(9, 1))
    found = [one for one in judged(strict(1, 1)) if one.law == "admissible-runs"]
    assert [one.object for one in found] == ["workloads.kueue.x-k8s.io ns/one"]


def members(*, nominal: int = 2, **own: Any) -> list[Obj]:
    return [
        cluster_queue("cq", quota(nominal, **own.pop("limits", {})), cohort="all", **own),
        cluster_queue("other", quota(4), cohort="all"),
    ]


@pytest.mark.parametrize(
    ("cpu", "limits", "waits"),
    [
        (6, {}, True),
        (7, {}, False),
        (3, {"borrowingLimit": 1}, True),
        (4, {"borrowingLimit": 1}, False),
    ],
)
def test_what_is_borrowed_counts_as_free_if_nobody_else_waits(
    cpu: int, limits: dict[str, int], waits: bool
) -> None:
    assert about_admission(waiting(cpu, queues=members(limits=limits))) is waits


def test_a_head_of_another_queue_may_hold_back_what_could_be_borrowed() -> None:
    blocked = workload(name="blocked", cpu=9, local="others", **WAITS)
    assert not about_admission(waiting(6, queues=members(), others=(blocked,)))
    assert about_admission(waiting(2, queues=members(), others=(blocked,)))


@pytest.mark.parametrize(
    ("priority", "within", "waits"),
    [(0, "LowerPriority", True), (9, "LowerPriority", False), (0, "Never", False)],
)
def test_a_lower_priority_does_not_keep_a_higher_one_waiting(
    priority: int, within: str, waits: bool
) -> None:
    queues = [cluster_queue(preemption={"withinClusterQueue": within})]
    stored = waiting(3, queues=queues, others=(held("h", 3, priority=priority),))
    stored["workloads"][0]["spec"]["priority"] = 5
    assert about_admission(stored) is waits


@pytest.mark.parametrize(
    ("cpu", "reclaim", "waits"),
    [(2, "Any", True), (3, "Any", False), (2, "LowerPriority", False), (2, "Never", False)],
)
def test_the_own_quota_can_be_reclaimed(cpu: int, reclaim: str, waits: bool) -> None:
    queues = members(preemption={"reclaimWithinCohort": reclaim})
    stored = waiting(cpu, queues=queues, others=(held("h", 6, "other"),))
    assert about_admission(stored) is waits
