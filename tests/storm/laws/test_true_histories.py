"""What real processes do breaks no law: scenarios played against a manager, some times as fast."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from dice import Dice, Family
from recorder import HttpApi, Recorder, Rest, play, recorded

from kueuelib.testing.storm.laws import Laws, Tolerance, Violation
from kueuelib.testing.storm.users import scenario

FASTER = 12.0
QUIET = 4.0
LAG = Tolerance(lag=60.0)
"""A busy machine holds requests back, too."""


def judge(recorder: Recorder) -> tuple[Laws, list[Violation]]:
    laws = Laws(LAG)
    return laws, [one for commit in recorder.commits for one in laws.commit(commit)]


def at_rest(laws: Laws) -> list[Violation]:
    stored = laws.memory.objects
    return laws.at_rest(lambda resource: list(stored[resource].values()), time.time())


def settle(recorder: Recorder, reached: set[str], seconds: float) -> tuple[Laws, list[Violation]]:
    """Waits for situations, and until nothing is written and all is right; what was ever wrong."""
    deadline = time.monotonic() + seconds
    while True:
        count = len(recorder.commits)
        time.sleep(QUIET)
        laws, found = judge(recorder)
        wrong = at_rest(laws)
        rests = len(recorder.commits) == count and not wrong and reached <= set(laws.sometimes)
        if rests or time.monotonic() > deadline:
            return laws, found + wrong


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("seed", "reached"),
    [
        (4, {"reserved in two phases", "admitted"}),
        (82, {"admitted a group"}),
    ],
)
def test_no_law_speaks_of_what_real_processes_do(
    seed: int, reached: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What each was chosen for is reached however slow the machine is: a queue with a check, and a
    group that fits and that nobody touches.
    """
    played = scenario(Dice(seed), Family())
    frameworks = ("batch/job", "pod")
    with recorded(tmp_path, monkeypatch, frameworks=frameworks) as (_server, _cluster, recorder):
        with Rest(tmp_path / "user-kubeconfig") as rest:
            asyncio.run(play(played, HttpApi(rest), FASTER))
        laws, found = settle(recorder, reached, 120.0)
    assert found == []
    assert reached <= set(laws.sometimes), "the scenario does not reach what it was chosen for"
