"""Every job runs in a copy of the process, and what becomes of it is told."""

from __future__ import annotations

import os
import time

from kueuelib.testing.storm.fork import run_all


def _play(state, job):
    state.append(job)
    if job == "fails":
        raise ValueError("as it should")
    if job == "dies":
        os._exit(7)
    if job == "hangs":
        time.sleep(60)
    if job == "is large":
        return b"x" * 1_000_000
    return len(state)


def test_outcomes_of_all_jobs():
    state = []
    jobs = ["one", "two", "fails", "dies", "hangs", "is large"]
    found = {each.job: each for each in run_all(state, jobs, _play, workers=3, limit=4.0)}
    assert state == []
    assert set(found) == set(jobs)
    assert (found["one"].value, found["two"].value) == (1, 1)
    assert found["one"].error == ""
    assert "ValueError: as it should" in found["fails"].error
    assert found["dies"].error == "the process ended with 7"
    assert found["hangs"].error == "took longer than 4 s"
    assert len(found["is large"].value) == 1_000_000
    assert all(each.cpu >= 0 for each in found.values())


def test_who_stops_listening_leaves_no_process():
    outcomes = run_all([], ["one", "hangs"], _play, workers=2, limit=50.0)
    assert next(outcomes).job == "one"
    outcomes.close()
