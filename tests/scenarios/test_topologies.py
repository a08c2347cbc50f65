"""Decisions about places that Kueue's own scheduler was seen to take; data/README.md says where
from."""

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

from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler.engine import Engine, Settled
from kueuelib.scheduler.quota.amounts import leaves_of
from kueuelib.testing.scenario_form import PARALLEL
from kueuelib.testing.scenarios import run

DATA = Path(__file__).parent / "data" / "tas.jsonl.gz"
OTHERWISE = "overbooks"
"""The tag of worlds in which Workloads of one cycle were seen to get more of a node than it has, in
slots of pods, by two pod sets of one Workload, or in flavors that share nodes. Here the second one
waits, or gets other nodes."""


@cache
def records() -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in gzip.open(DATA)]


def decisions(result: dict[str, Any]) -> list[Any]:
    """What was decided in every cycle, and what Workloads hold at the end."""
    cycles = [
        [cycle.get(what) or {} for what in ("admitted", "preempted", "evicted")]
        for cycle in result["cycles"]
    ]
    holding = result["final"]["holding"].items()
    return [cycles, {name: held["podsets"] for name, held in holding}]


def differing(results: list[dict[str, Any]]) -> set[str]:
    found = set()
    for record, result in zip(records(), results, strict=True):
        recorded = [record["out"], *([record["out_woken"]] if "out_woken" in record else [])]
        if decisions(result) not in map(decisions, recorded):
            found.add(record["in"]["id"])
    return found


def test_worlds_with_nodes_are_decided_as_recorded() -> None:
    found = differing([run(record["in"]) for record in records()])
    tagged = {one["in"]["id"] for one in records() if OTHERWISE in one["in"]["tags"]}
    assert found == tagged
    assert len(records()) == 300


def test_places_of_a_preemptor_are_kept_from_heads_in_other_flavors() -> None:
    (world,) = (one["in"] for one in records() if one["in"]["id"] == "TS00465")
    (as_in_kueue,) = run(world)["cycles"]
    (by_default,) = run({**world, PARALLEL: True})["cycles"]
    found = []
    for cycle in (as_in_kueue, by_default):
        assert cycle["pending"]["p5"]["class"] == "preempting"
        domains = cycle["admitted"]["p3"]["main"]["assignment"]["domains"]
        found.append({values[0] for values, _ in domains})
    assert found == [{"n6", "n9"}, {"n0", "n4"}]


def test_no_hash_seed_changes_what_is_decided() -> None:
    given = b"\n".join(orjson.dumps(record["in"]) for record in records()[::4])
    printed = {
        subprocess.run(
            [sys.executable, "-m", "kueuelib.testing.scenarios"],
            input=given,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(printed) == 1


def overbooked(engine: Engine, settled: Settled) -> list[ObjectKey]:
    """The Workloads that got places in a cycle that have no room."""
    nodes = engine.cache.nodes.freeze().values()
    found = []
    for admit in (*settled.admissions, *settled.placed):
        for key in leaves_of(engine.cache.holders[admit.key].usage):
            for flavor in nodes:
                at = flavor.tree.positions.get(key)
                if at is not None and any(column[at] < 0 for column in flavor.free.values()):
                    found.append(admit.key)
    return found


@pytest.mark.parametrize("parallel", [False, True])
def test_no_node_is_overbooked_by_what_is_admitted(parallel: bool) -> None:
    found: list[ObjectKey] = []

    def watch(engine: Engine, settled: Settled) -> None:
        found.extend(overbooked(engine, settled))

    for record in records():
        run({**record["in"], PARALLEL: parallel}, watch=watch)
    assert found == []
