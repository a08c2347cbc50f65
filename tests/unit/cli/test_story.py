"""The demo's verdict: it says yes only when every expected thing was seen on the watches."""

from __future__ import annotations

import copy
from typing import Any

from kueuelib.cli.demo import story
from kueuelib.cli.demo.story import Board

Obj = dict[str, Any]


def stored_job(
    index: int = 0, *, suspend: bool, flavor: str = "", revision: int = 4, **status: Any
) -> Obj:
    obj = copy.deepcopy(story.job(index))
    obj["metadata"]["resourceVersion"] = str(revision)
    obj["spec"]["suspend"] = suspend
    if flavor:
        obj["spec"]["template"]["spec"]["nodeSelector"] = {story.POOL_LABEL: flavor}
    obj["status"] = status
    return obj


def workload(
    index: int = 0,
    *,
    cpus: int = 0,
    flavor: str = "on-demand",
    finished: bool = False,
    revision: int = 3,
) -> Obj:
    name = story.job(index)["metadata"]["name"]
    conditions = []
    status: Obj = {"conditions": conditions}
    if cpus:
        status["admission"] = {
            "clusterQueue": "red",
            "podSetAssignments": [
                {
                    "name": "main",
                    "flavors": {"cpu": flavor},
                    "resourceUsage": {"cpu": str(cpus)},
                    "count": max(cpus, 1),
                }
            ],
        }
        since = "2026-01-01T00:00:05Z"
        conditions += [
            {"type": type_, "status": "True", "lastTransitionTime": since}
            for type_ in ("QuotaReserved", "Admitted")
        ]
    else:
        conditions.append({"type": "QuotaReserved", "status": "False", "message": "too much"})
    if finished:
        conditions.append({"type": "Finished", "status": "True"})
    return {
        "metadata": {
            "name": f"job-{name}-12345",
            "resourceVersion": str(revision),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "ownerReferences": [{"name": name}],
            "finalizers": [] if finished else ["kueue.x-k8s.io/resource-in-use"],
        },
        "status": status,
    }


def complete() -> dict[str, Any]:
    return {"conditions": [{"type": "Complete", "status": "True"}]}


def played() -> Board:
    board = Board(("job-01",))
    board.see_job(stored_job(suspend=True))
    board.see_workload(workload())
    board.see_workload(workload(cpus=2))
    board.see_job(stored_job(suspend=False, flavor="on-demand", active=1))
    board.see_job(stored_job(suspend=False, flavor="on-demand", **complete()))
    board.see_workload(workload(cpus=2, finished=True))
    return board


def test_a_life_as_it_should_be_is_accepted() -> None:
    board = played()
    assert board.done
    assert board.verdict() == []
    row = board.rows["job-01"]
    assert (row.state, row.flavors, row.waited) == ("Finished", "on-demand", 5)
    assert row.had_to_wait
    assert board.peak == {"on-demand": 2}
    assert board.lines == [
        "job-01 queued",
        "job-01 waits: too much",
        "job-01 admitted on on-demand",
        "job-01 running",
        "job-01 finished",
    ]


def test_a_job_that_was_never_seen_is_reported() -> None:
    assert Board(("job-01",)).verdict() == ["job-01 was never seen"]


def test_a_job_that_does_not_finish_is_reported() -> None:
    board = Board(("job-01",))
    board.see_job(stored_job(suspend=True))
    assert "job-01 ended as Created, not Finished" in board.verdict()
    assert not board.done


def test_a_job_that_runs_without_admission_is_reported() -> None:
    board = Board(("job-01",))
    board.see_job(stored_job(suspend=True))
    board.see_job(stored_job(suspend=False, active=1))
    assert "job-01 was never admitted" in board.verdict()


def test_a_job_that_runs_before_its_admission_is_reported() -> None:
    board = Board(("job-01",))
    board.see_job(stored_job(suspend=True))
    board.see_workload(workload(cpus=2, revision=5))
    board.see_job(stored_job(suspend=False, active=1, revision=4))
    assert "job-01 ran before anything had admitted it" in board.verdict()


def test_the_two_watches_may_deliver_in_any_order() -> None:
    """What counts is which write came first, not which watch was faster."""
    board = Board(("job-01",))
    board.see_workload(workload())
    board.see_job(stored_job(suspend=True))
    board.see_job(stored_job(suspend=False, flavor="on-demand", active=1))
    board.see_job(stored_job(suspend=False, flavor="on-demand", **complete()))
    board.see_workload(workload(cpus=2))
    assert not board.done
    board.see_workload(workload(cpus=2, finished=True))
    assert board.done
    assert board.verdict() == []
    assert "job-01 admitted on on-demand" in board.lines


def test_a_board_is_settled_while_both_watches_show_one_moment() -> None:
    board = Board(("job-01",))
    board.see_job(stored_job(suspend=True))
    assert board.settled, "it waits, and holds nothing"
    half = workload(cpus=2)
    half["status"]["reclaimablePods"] = [{"name": "main", "count": 1}]
    board.see_workload(half)
    assert not board.settled, "it has returned a part of what its row asks for"
    board.see_workload(workload(cpus=2))
    assert board.settled
    board.see_job(stored_job(suspend=False, flavor="on-demand", **complete()))
    assert not board.settled, "it has ended, but its Workload still holds quota"
    board.see_workload(workload(cpus=2, finished=True))
    assert board.settled


def test_a_failed_job_is_reported() -> None:
    board = played()
    board.rows["job-01"].state = "Running"
    failed = {"conditions": [{"type": "Failed", "status": "True"}]}
    board.see_job(stored_job(suspend=False, **failed))
    assert "job-01 failed" in board.verdict()


def test_usage_above_the_quota_is_reported() -> None:
    board = Board(("job-01",))
    board.see_job(stored_job(suspend=True))
    board.see_workload(workload(cpus=7))
    assert "on-demand: 7 CPUs in use, the cohort has 6" in board.verdict()


def test_what_a_job_has_given_back_is_not_in_use() -> None:
    board = Board(("job-01", "job-02"))
    first = workload(cpus=4)
    first["status"]["reclaimablePods"] = [{"name": "main", "count": 1}]
    board.see_workload(first)
    board.see_workload(workload(1, cpus=3))
    assert board.peak == {"on-demand": 6}
    assert not board.faults


def test_the_wrong_nodes_are_reported() -> None:
    board = played()
    board.rows["job-01"].selector = {story.POOL_LABEL: "spot"}
    assert "job-01 got on-demand and selected nodes of spot" in board.verdict()


def test_a_workload_that_keeps_its_finalizer_is_reported() -> None:
    board = played()
    board.see_workload(workload(cpus=2))
    assert "the Workload of job-01 was not released" in board.verdict()


def test_many_jobs_of_which_none_waited_are_reported() -> None:
    names = tuple(story.job(index)["metadata"]["name"] for index in range(12))
    assert "no Job had to wait" in Board(names).verdict()


def test_the_jobs_ask_for_more_than_there_is() -> None:
    wanted = 0
    for index in range(12):
        spec = story.job(index)["spec"]
        cpu = spec["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"]
        wanted += spec["parallelism"] * int(cpu)
    assert wanted > sum(sum(flavors.values()) for flavors in story.QUOTA.values())
