"""The simulator and a cluster, given the same work."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections import defaultdict
from itertools import combinations, islice, pairwise
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).with_name("baseline_for_real.py")
TOLERANCE = 0.05
"""Of the mean waits. What a cluster does between an event and its admissions takes some hundredths
of a second, against waits of minutes. What counts is who wins a race."""
CYCLE = 0.001
"""Seconds. A cluster may decide in one cycle what the simulator decides in two that close."""
RACE_SECONDS = 60.0
"""Victims that leave at one instant of the simulation leave milliseconds after each other in a
cluster, so another job may be admitted in between. The loser preempts once more: it waits for one
grace period of pods longer, or two when the others do the same."""


@pytest.fixture(scope="module")
def played() -> Any:
    """Upstream's benchmark in a cluster and in the simulator.

    It lives on a clock of its own, so that a busy machine changes nothing; a process cannot have
    another world after it.
    """
    command = [sys.executable, str(PROGRAM)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_jobs_are_admitted_in_the_same_order(played: Any) -> None:
    simulated, real = (played[which]["first"] for which in ("simulated", "real"))
    assert set(simulated) == set(real) == set(played["arrivals"])
    apart = [
        (one, other)
        for one, other in combinations(sorted(simulated, key=simulated.__getitem__), 2)
        if simulated[other] - simulated[one] > RACE_SECONDS
    ]
    assert len(apart) > 0.8 * math.comb(len(simulated), 2)
    assert [(one, other) for one, other in apart if real[one] > real[other]] == []


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_with_the_real_instants_all_admissions_have_the_same_order(played: Any) -> None:
    """What one cycle decides is written in any order."""
    real = iter([job for _, job in played["real"]["admissions"]])
    again = played["again"]["admissions"]
    ends = [one for one, then in enumerate(again[1:], 1) if then[0] - again[one - 1][0] > CYCLE]
    for start, end in pairwise([0, *ends, len(again)]):
        jobs = {job for _, job in again[start:end]}
        assert set(islice(real, end - start)) == jobs, again[start]
    assert [*real] == []


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_jobs_are_preempted_about_as_often(played: Any) -> None:
    """Each time that a job gets quota again is a preemption."""
    simulated, real = (len(played[which]["admissions"]) for which in ("simulated", "real"))
    assert real > 1.4 * len(played["arrivals"])
    assert simulated == pytest.approx(real, rel=TOLERANCE)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_classes_of_jobs_wait_equally_long(played: Any) -> None:
    means = {which: waits(played, which) for which in ("simulated", "real")}
    assert set(means["real"]) == {"small", "medium", "large"}
    assert means["simulated"] == pytest.approx(means["real"], rel=TOLERANCE)


def waits(played: Any, which: str) -> dict[str, float]:
    """The mean wait until the first admission, by class."""
    found = defaultdict(list)
    for job, at in played[which]["first"].items():
        class_ = job.partition("/")[2].partition("-")[0]
        found[class_].append(at - played["arrivals"][job])
    return {class_: sum(each) / len(each) for class_, each in found.items()}
