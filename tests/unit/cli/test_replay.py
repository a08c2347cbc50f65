"""The command `kueuelib replay`: what it prints of small recordings, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import orjson
import pytest

from kueuelib.cli.replay import ReplayOptions, run
from kueuelib.errors import ConfigError
from kueuelib.recording.writer import RecordedEngine
from kueuelib.scheduler import events
from kueuelib.scheduler.decide.cycle import decide
from kueuelib.testing.builders import (
    make_cluster_queue,
    make_cohort,
    make_flavor,
    make_local_queue,
    make_workload,
)
from kueuelib.testing.scenarios import run as run_scenario

HEADER = {
    "recording": 1,
    "version": "0.1.0",
    "at": 1000.0,
    "life": "x",
    "part": 1,
    "by": "manager",
    "hash": "",
    "hashed": False,
    "configuration": {},
}


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """Three Workloads for two CPUs."""
    engine = RecordedEngine()
    selector = {"matchExpressions": [{"key": "team", "operator": "Exists"}]}
    queue = make_cluster_queue(
        "cq", {"f": {"cpu": 2}}, cohort="all", selector=selector, checks=("k",)
    )
    for fact in (
        events.NamespaceSet("ns", {"team": "red"}),
        events.FlavorSet(make_flavor("f")),
        events.CohortChanged(make_cohort("all", {"f": {"cpu": 1}})),
        events.ClusterQueueSet(queue),
        events.LocalQueueSet(make_local_queue("q", "cq", stopPolicy="None")),
        events.LocalQueueSet(make_local_queue("stopped", "cq", stopPolicy="Hold")),
        events.WorkloadSet(make_workload("job-train-1a2b3", "q", {"cpu": "500m"}, created=1)),
        events.WorkloadSet(make_workload("other", "stopped", {"cpu": 1})),
    ):
        engine.observe(fact, 1001.0)
    found = engine.next_cycle(1002.0)
    if found is not None:
        engine.settle(decide(found, 1002.0), 1002.0)
    lines = [orjson.dumps(HEADER), *engine.tape.take()]
    path = tmp_path / "recording"
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


def options(path: Path, **chosen: Any) -> ReplayOptions:
    default: dict[str, Any] = {
        "until": None,
        "explain": (),
        "policies": (),
        "output": None,
        "scenario": False,
    }
    return ReplayOptions(path, **{**default, **chosen})


def test_a_question_finds_the_workload_of_a_job(
    recording: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("train@1001.5", "ns/other@1e6", "elsewhere/train@1001.5", "train@5")
    assert run(options(recording, explain=asked)) == 0
    shown = capsys.readouterr().out
    assert "At 1970-01-01T00:16:41Z:\nWorkload ns/job-train-1a2b3" in shown
    assert "At 1970-01-12T13:46:40Z:\nWorkload ns/other" in shown
    assert "elsewhere/train did not exist" in shown
    assert "At 1970-01-01T00:00:05Z:\ntrain did not exist" in shown


def test_a_scenario_names_what_it_has_no_place_for(
    recording: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(options(recording, scenario=True)) == 0
    shown = capsys.readouterr()
    for text in (
        "matchExpressions of the namespaceSelector of ClusterQueue cq",
        "the AdmissionChecks of ClusterQueue cq",
        "Workload ns/other, which is not queued (LocalQueue stopped is stopped)",
        "the stop of LocalQueue ns/stopped: what waits there is left out",
    ):
        assert f"Left out of the scenario: {text}\n" in shown.err
    scenario = json.loads(shown.out)
    assert scenario["cqs"]["cq"]["groups"] == [{"f": {"cpu": "2000/-/-"}}]
    assert [one["podsets"][0]["req"] for one in scenario["pending"]] == [{"cpu": 500}]
    assert run_scenario(scenario) == scenario["expect"]


@pytest.mark.parametrize(
    ("chosen", "problem"),
    [
        (
            {"until": "5"},
            "--until: the recording begins at 1970-01-01T00:16:40.000000Z; give a later time",
        ),
        ({"until": "soon"}, "--until soon: 'soon' is neither a number nor a date and time"),
        ({"explain": ("train",)}, "--explain train: does not name a job and a time"),
        ({"explain": ("train@soon",)}, "--explain train@soon: 'soon' is neither a number"),
        ({"policies": (Path("x"),)}, "--with and --output go together; give both"),
        (
            {"policies": (Path("x"),), "output": Path("y")},
            "--with: at the end of the recording, nothing is left to simulate; give the time",
        ),
    ],
)
def test_what_cannot_work_is_refused(recording: Path, chosen: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError) as raised:
        run(options(recording, **chosen))
    assert problem in str(raised.value)


def test_a_simulation_needs_a_job(recording: Path, tmp_path: Path) -> None:
    chosen = options(recording, until="1000.5", policies=(recording,), output=tmp_path / "out")
    header = recording.read_bytes().splitlines(keepends=True)[0]
    recording.write_bytes(header)
    with pytest.raises(ConfigError, match="there is no job at 1970-01-01T00:16:40Z or later"):
        run(chosen)


def plain(path: Path, *changes: tuple[str, str]) -> Path:
    """One Workload that is admitted, one that waits; with changes of the text."""
    engine = RecordedEngine()
    for fact in (
        events.NamespaceSet("ns", {}),
        events.FlavorSet(make_flavor("f")),
        events.ClusterQueueSet(make_cluster_queue("cq", {"f": {"cpu": 2}})),
        events.LocalQueueSet(make_local_queue("q", "cq")),
        *(events.WorkloadSet(make_workload(name, "q", {"cpu": 2})) for name in ("one", "two")),
    ):
        engine.observe(fact, 1001.0)
    for now in (1002.0, 1003.0):
        found = engine.next_cycle(now)
        assert found is not None
        engine.settle(decide(found, now), now)
    text = "".join(line.decode() + "\n" for line in [orjson.dumps(HEADER), *engine.tape.take()])
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)
    return path


def test_the_same_plans_are_said_to_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(options(plain(tmp_path / "r"))) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("6 facts and 2 cycles, until 1970-01-01T00:16:43.000000Z\n")
    assert "Every plan is the recorded one; hash of all plans: " in shown


@pytest.mark.parametrize(
    ("old", "new", "why", "left"),
    [
        ('"cpu":"f"', '"cpu":"g"', "Cycle 1 at ", "admit ns/one in cq: 1 x main with cpu of g"),
        ("NoFlavors", "NoLongerFits", "Cycle 2 at ", "wait ns/two in cq: NoLongerFits (GENERIC)"),
        ('"heads":1', '"heads":2', "the manager looked at 2 heads, the replay at 1 head", ""),
        ('"heads":1', '"heads":null', "looked at nothing, the replay at 1 head", ""),
        ('"hash":"', '"hash":"0', "the same, but not the hash: lines before are missing", "admit"),
    ],
)
def test_the_first_difference_is_shown_side_by_side(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, why: str, left: str
) -> None:
    begun = '"hash":"","hashed"'
    path = plain(tmp_path / "r", (old, new))
    path.write_text(path.read_text().replace('"hash":"0","hashed"', begun))
    assert run(options(path)) == 1
    shown = capsys.readouterr().out
    assert why in shown
    assert left in shown
    assert "ns/one in cq: 1 x main with cpu of f" in shown or "Cycle 2" in shown
