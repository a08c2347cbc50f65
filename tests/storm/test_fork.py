"""Every job runs in a copy of the process, and what becomes of it is told."""

from __future__ import annotations

import os
import time

import pytest

from kueuelib.testing.storm.campaign import CopyFailed, apart, run_all


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


def test_one_thing_is_done_apart():
    state = []
    assert apart(lambda: state.append(1) or os.getpid(), limit=60.0) != os.getpid()
    assert state == []


@pytest.mark.parametrize(
    ("work", "why"),
    [
        (lambda: 1 / 0, "ZeroDivisionError"),
        (lambda: os._exit(3), "the process ended with 3"),
    ],
)
def test_what_fails_apart_says_why(work, why):
    with pytest.raises(CopyFailed, match=why):
        apart(work, limit=60.0)


def test_what_takes_too_long_apart_ends_with_its_own_copies(tmp_path):
    note = tmp_path / "pid"

    def hang(_, job):
        note.write_text(str(os.getpid()))
        time.sleep(600)

    with pytest.raises(CopyFailed, match="TimeoutError: took too long"):
        apart(lambda: list(run_all([], ["one"], hang)), limit=1.0)
    with pytest.raises(ProcessLookupError):
        os.kill(int(note.read_text()), 0)
