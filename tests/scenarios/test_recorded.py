"""Decisions that Kueue's own scheduler was seen to take; data/README.md says where from."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import orjson
import pytest
from outcomes import outcome

from kueuelib.testing.scenario_form import EXCEEDS_QUOTA
from kueuelib.testing.scenarios import Rounds, run

DATA = Path(__file__).parent / "data"
OTHERWISE = {
    # Some pods of the Workload are reclaimable. Recorded: the search for a count that fits starts
    # from all of its pods, and it waits. Here it starts from those that still need quota, because
    # of KEP-78, API, `reclaimablePods`: pods "for which the resource reservation is no longer
    # needed". What fits without them is admitted.
    "R00618": "reclaimable pods need no quota, also in the search for a reduced count",
}
"""Random scenarios in which we decide otherwise on purpose, each with the reason."""

HELD_BACK = {"C00735", "CW00815", "F00353"}
"""Recorded: a Workload is admitted although all quota is in use, because another one of the same
cycle has chosen victims that have yet to leave. Here it waits for them, because of the law "nobody
gets more of the others than these lend" (docs/scheduling.md, "Several at once"), unless the
administrator lets quota be exceeded that long."""


SAMPLE = int(os.environ.get("SCENARIO_SAMPLE", "4"))
"""One of how many scenarios is played again in other ways; `nox -s scenarios` plays all."""


@cache
def records(name: str) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in gzip.open(DATA / f"{name}.jsonl.gz")]


SIZES = {"random": 1000, "cohorts": 400, "fair": 400, "fair-tree": 200}
"""The files that are run, with the number of their scenarios."""

Records = list[dict[str, Any]]


def sample(name: str) -> Records:
    """Every so many scenarios of a file, and those that are decided otherwise on purpose."""
    return [
        record
        for number, record in enumerate(records(name))
        if number % SAMPLE == 0 or record["in"]["id"] in HELD_BACK | OTHERWISE.keys()
    ]


def differing(played: Records, results: list[dict[str, Any]]) -> dict[str, str]:
    """The scenarios that came out otherwise, with the first difference."""
    found = {}
    for record, result in zip(played, results, strict=True):
        want, got = compared(record["out"]), decisions(result, record["out"])
        parts = [
            f"cycle {number} {what}: {a[what]} was recorded, {b[what]} decided"
            for number, (a, b) in enumerate(zip(want["cycles"], got["cycles"], strict=False), 1)
            for what in a
            if a[what] != b[what]
        ]
        if want != got:
            found[record["in"]["id"]] = parts[0] if parts else "the end or the number of cycles"
    return found


def compared(recorded: dict[str, Any]) -> dict[str, Any]:
    """What was recorded, without what only describes it."""
    cycles = [
        {what: cycle[what] for what in ("admitted", "preempted", "waits")}
        for cycle in recorded["cycles"]
    ]
    return {"cycles": cycles, "holding": recorded["holding"]}


def decisions(result: dict[str, Any], recorded: dict[str, Any]) -> dict[str, Any]:
    """A result, reduced to what was recorded.

    A head that nothing can help need not be tried again, so only those who are told anything are
    compared by the class of what they are told.
    """
    cycles = []
    for number, cycle in enumerate(result["cycles"]):
        told = {name: head["class"] for name, head in cycle["pending"].items()}
        known = recorded["cycles"][number]["waits"] if number < len(recorded["cycles"]) else {}
        waits = {**known, **{name: found for name, found in told.items() if name in known}}
        cycles.append(
            {"admitted": cycle["admitted"], "preempted": cycle["preempted"], "waits": waits}
        )
    return {"cycles": cycles, "holding": sorted(result["final"]["holding"])}


def in_recorded_order(record: dict[str, Any], result: dict[str, Any]) -> bool:
    """Whether the heads of every cycle were decided in the recorded order, where it was recorded.

    Cycles that do not have the same heads are left out. With fair sharing, trees take their turns
    in an order of their own.
    """
    if record["in"]["id"] in HELD_BACK | OTHERWISE.keys():
        return True
    for want, got in zip(record["out"]["cycles"], result["cycles"], strict=False):
        trees = {one["name"]: tree_of(record["in"], one["cq"]) for one in got.get("entries", ())}
        order = [name for name, *_ in want.get("order", ())]
        if sorted(order) == sorted(trees) and sorted(order, key=trees.get) != sorted(
            trees, key=trees.get
        ):
            return False
    return True


def tree_of(scenario: dict[str, Any], queue: str) -> str:
    """The root above a ClusterQueue; without fair sharing all heads are in one order."""
    if "fairSharing" not in scenario:
        return ""
    above = {one["name"]: one.get("parent") for one in scenario.get("cohorts", ())}
    name = scenario["cqs"][queue].get("cohort") or f"alone: {queue}"
    while above.get(name):
        name = above[name]
    return name


def by_seed(played: Records, seed: str) -> list[bytes]:
    """What the command prints for each scenario."""
    done = subprocess.run(
        [sys.executable, "-m", "kueuelib.testing.scenarios"],
        input=b"\n".join(orjson.dumps(record["in"]) for record in played),
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    return done.stdout.splitlines()


def otherwise(name: str) -> set[str]:
    """The scenarios of a file that are decided otherwise on purpose."""
    return {record["in"]["id"] for record in records(name)} & (HELD_BACK | OTHERWISE.keys())


@pytest.mark.parametrize("name", SIZES)
def test_recorded_scenarios_are_decided_as_recorded_under_every_hash_seed(name: str) -> None:
    played = records(name)
    first = by_seed(played, "1")
    again = {record["in"]["id"] for record in sample(name)}
    some = [line for record, line in zip(played, first, strict=True) if record["in"]["id"] in again]
    assert by_seed(sample(name), "2") == some
    results = [orjson.loads(line) for line in first]
    assert differing(played, results).keys() == otherwise(name)
    for record, result in zip(played, results, strict=True):
        assert in_recorded_order(record, result), record["in"]["id"]
        if record["in"]["id"] not in otherwise(name):
            assert record["out"].get("shares") == result.get("shares"), record["in"]["id"]
    recorded = [cycle["waits"].keys() for one in played for cycle in one["out"]["cycles"]]
    told = [cycle["pending"].keys() for one in results for cycle in one["cycles"]]
    both = sum(len(a & b) for a, b in zip(recorded, told, strict=True))
    assert both > 0.9 * sum(map(len, recorded))


@pytest.mark.parametrize("name", SIZES)
def test_several_rounds_per_snapshot_decide_the_same(name: str) -> None:
    """As recorded once more, under the hash seed that this process happens to have."""
    results = [run(record["in"], rounds=Rounds()) for record in records(name)]
    assert differing(records(name), results).keys() == otherwise(name)


@pytest.mark.parametrize("name", SIZES)
def test_where_quota_may_be_exceeded_only_reclaimable_pods_make_a_difference(name: str) -> None:
    """Kueue lets others into the room before the victims left it."""
    played = sample(name)
    results = [run({**record["in"], EXCEEDS_QUOTA: True}) for record in played]
    assert differing(played, results).keys() == otherwise(name) - HELD_BACK


@pytest.mark.parametrize("name", SIZES)
def test_the_records_are_all_there_and_the_exceptions_are_few(name: str) -> None:
    assert len(records(name)) == SIZES[name]
    assert len(otherwise(name)) <= SIZES[name] / 200


def test_every_exception_is_recorded() -> None:
    assert set().union(*map(otherwise, SIZES)) == HELD_BACK | OTHERWISE.keys()


@pytest.mark.parametrize("record", [pytest.param(one, id=one["id"]) for one in records("single")])
@pytest.mark.parametrize("rounds", ["one", "many"])
def test_a_single_cycle_is_decided_as_recorded(record: dict[str, Any], rounds: str) -> None:
    (cycle,) = run(record, rounds=Rounds() if rounds == "many" else None)["cycles"]
    expected = dict(record["expect"])
    order = expected.pop("_order", None)
    assert {name: outcome(cycle, name, want) for name, want in expected.items()} == expected
    if order is not None:
        assert [entry["name"] for entry in cycle["entries"]] == order
