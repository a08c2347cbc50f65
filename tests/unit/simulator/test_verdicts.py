"""What a simulation says in a sentence, by size of jobs: ratios, ties and small samples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kueuelib.api.meta import Obj
from kueuelib.simulator.report.comparison import FEW, comparison, verdicts
from kueuelib.simulator.trace import Sizes, TraceJob, pods, sizes_of

Group = tuple[int, int, float | None]
"""Jobs, those that started, and their mean wait in seconds."""


def figures(*, interrupted: bool = False, **sizes: Group) -> Obj:
    groups = {
        name: {"jobs": jobs, "started": started, "wait_seconds": spread(mean)}
        for name, (jobs, started, mean) in sizes.items()
    }
    return {
        "total": {"wait_seconds": spread(7200.0)},
        "cluster_queues": {},
        "sizes": groups,
        "simulation": {"interrupted": interrupted},
    }


def spread(mean: float | None) -> Mapping[str, Any]:
    return dict.fromkeys(("p50", "p90", "p99", "max", "mean"), mean)


def said(before: Group, after: Group, size: str = "small") -> str:
    (sentence,) = verdicts({"A": figures(**{size: before}), "B": figures(**{size: after})})
    return sentence


HOUR = 3600.0


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        (3, 1, "starts small jobs 3 times sooner (mean wait 1 h instead of 3 h)"),
        (100, 1, "starts small jobs 100 times sooner (mean wait 1 h instead of 100 h)"),
        (1, 0.72, "starts small jobs 28 % sooner (mean wait 0.72 h instead of 1 h)"),
        (1, 1.12, "delays small jobs by 12 % (mean wait 1.12 h instead of 1 h)"),
        (1, 2.5, "lets small jobs wait 2.5 times as long (mean wait 2.5 h instead of 1 h)"),
        (1, 1.05, "starts small jobs after about the same wait (mean wait 1.05 h instead of 1 h)"),
        (1, 0.95, "starts small jobs after about the same wait (mean wait 0.95 h instead of 1 h)"),
        (1, 0, "starts small jobs at once (mean wait 0 h instead of 1 h)"),
        (
            *(0, 1),
            "delays small jobs, which otherwise start at once (mean wait 1 h instead of 0 h)",
        ),
        (0, 0.0001, "starts small jobs at once (as before)"),
    ],
)
def test_the_ratio_of_mean_waits_is_said(before: float, after: float, text: str) -> None:
    sentence = said((50, 50, before * HOUR), (50, 50, after * HOUR))
    assert sentence == f"Compared with A, B {text}."


def test_the_classes_are_listed_from_small_to_large() -> None:
    many = 50, 50
    before = figures(large=(*many, 2 * HOUR), medium=(*many, HOUR), small=(*many, 3 * HOUR))
    after = figures(large=(*many, 2.24 * HOUR), medium=(*many, HOUR), small=(*many, HOUR))
    first, second = verdicts({"A": before, "B": after, "C": before})
    assert first == (
        "Compared with A, B starts small jobs 3 times sooner (mean wait 1 h instead of 3 h), "
        "starts medium jobs after about the same wait (mean wait 1 h instead of 1 h) and "
        "delays large jobs by 12 % (mean wait 2.24 h instead of 2 h)."
    )
    assert second == (
        "Compared with A, C starts small jobs after about the same wait (mean wait 3 h instead of "
        "3 h), starts medium jobs after about the same wait (mean wait 1 h instead of 1 h) and "
        "starts large jobs after about the same wait (mean wait 2 h instead of 2 h)."
    )


def test_jobs_of_one_size_are_just_jobs() -> None:
    sentence = said((50, 50, 3 * HOUR), (50, 50, HOUR), "all")
    assert sentence.startswith("Compared with A, B starts jobs 3 times sooner (")


@pytest.mark.parametrize(("jobs", "note"), [(1, "; only 1 job)"), (FEW - 1, "; only 29 jobs)")])
def test_a_small_sample_is_said(jobs: int, note: str) -> None:
    assert note in said((jobs, jobs, HOUR), (jobs, jobs, 2 * HOUR))


def test_enough_jobs_need_no_word() -> None:
    assert "only" not in said((FEW, FEW, HOUR), (FEW, FEW, 2 * HOUR))


def test_jobs_that_never_start_are_not_hidden_behind_the_waits_of_those_that_do() -> None:
    """A policy that starves large jobs would seem to start them sooner."""
    assert said((100, 100, 9 * HOUR), (100, 60, HOUR)) == (
        "Compared with A, B starts 60 small jobs instead of 100."
    )
    assert said((14, 14, HOUR), (14, 0, None)) == (
        "Compared with A, B starts 0 small jobs instead of 14 (only 14 jobs)."
    )
    assert said((14, 0, None), (14, 14, HOUR)) == (
        "Compared with A, B starts 14 small jobs instead of 0 (only 14 jobs)."
    )
    assert said((100, 100, 3 * HOUR), (100, 98, HOUR)) == (
        "Compared with A, B starts small jobs 3 times sooner "
        "(mean wait 1 h instead of 3 h; 2 fewer of them start)."
    )
    assert "; 1 more of them start)" in said((100, 99, 3 * HOUR), (100, 100, HOUR))


def test_what_cannot_be_compared_is_said() -> None:
    assert verdicts({"A": figures(small=(5, 5, 1.0))}) == []
    assert verdicts({}) == []
    assert said((5, 0, None), (5, 0, None)) == (
        "B cannot be compared with A: no job starts in both."
    )
    stopped = figures(interrupted=True, small=(5, 2, 1.0))
    assert verdicts({"A": figures(small=(5, 5, 1.0)), "B": stopped}) == [
        "B cannot be compared with A: B was interrupted."
    ]


def job(cpu: str, memory: str = "0", count: int = 1) -> TraceJob:
    return TraceJob("j", 0.0, 1.0, (pods({"cpu": cpu, "memory": memory}, count),))


def test_classes_are_thirds_of_the_range_of_dominant_shares() -> None:
    quota = {"cpu": 100_000, "memory": 1000 * 2**30}
    jobs = [job("1"), job("1", "80Gi"), job("2"), job("3"), job("1", count=8)]
    sizes = sizes_of(jobs, quota)
    assert (sizes.small, sizes.medium) == (pytest.approx(0.02), pytest.approx(0.04))
    assert [sizes.of(one) for one in jobs] == ["small", "large", "small", "medium", "large"]


@pytest.mark.parametrize(
    ("jobs", "quota"),
    [([job("2"), job("2")], {"cpu": 8000}), ([job("1"), job("2")], {"gpu": 1}), ([], {})],
)
def test_without_a_range_all_jobs_have_one_size(
    jobs: list[TraceJob], quota: dict[str, int]
) -> None:
    assert sizes_of(jobs, quota).of(job("2")) == "all"


def test_what_asks_for_nothing_is_small() -> None:
    assert Sizes({"cpu": 1000}, 0.1, 0.3).of(job("0")) == "small"


def test_all_rows_of_the_comparison_have_one_unit() -> None:
    run = {
        **figures(small=(5, 5, 1.0)),
        "makespan_seconds": 36_000.0,
        "jain_index": 0.5,
    }
    run["total"] |= {
        "bounded_slowdown": {"p50": 1.0, "mean": 2.0},
        "preemptions": 3,
        "work_lost_seconds": 1800.0,
    }
    run["simulation"] |= {"unfinished": 0}
    rows = dict(comparison({"A": run, "B": run}, 0))
    assert rows["wait mean h"] == ["2", "2"]
    assert rows["work lost h"] == ["0.5", "0.5"]
    assert rows["makespan h"] == ["10", "10"]
    assert rows["preemptions"] == ["3", "3"]
