"""The naive models decide what Kueue's scheduler was seen to decide, and so may judge ours.

Only the first cycle is modelled: later ones depend on what requeues a workload.
"""

from __future__ import annotations

import gzip
import math
from pathlib import Path
from typing import Any

import orjson
import pytest
from cycle_model import Cycle
from quota_model import World

DATA = Path(__file__).parents[1] / "scenarios" / "data"
SIZES = {"cohorts": 400, "fair": 400, "fair-tree": 200}


def records(name: str) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in gzip.open(DATA / f"{name}.jsonl.gz")]


@pytest.mark.parametrize("name", SIZES)
def test_the_first_cycle_is_as_recorded(name: str) -> None:
    found = records(name)
    assert len(found) == SIZES[name]
    for record in found:
        cycle = Cycle(record["in"])
        got = {
            "admitted": cycle.admitted,
            "preempted": cycle.preempted,
            "waits": cycle.waits,
            "order": cycle.order,
        }
        want = record["out"]["cycles"][0]
        assert got == {key: want[key] for key in got}, record["in"]["id"]


@pytest.mark.parametrize("name", ["fair", "fair-tree"])
def test_shares_at_the_end_are_as_recorded(name: str) -> None:
    found = records(name)
    for record in found:
        world = World(at_the_end(record))
        names = {f"cohort/{name}": node for name, node in world.cohorts.items()}
        nodes = {**world.queues, **names}
        want = record["out"]["shares"]
        got = {name: text_of(nodes[name].weighted_share()) for name in want}
        assert got == want, record["in"]["id"]
    positive = [share for one in found for share in one["out"]["shares"].values() if share != "0"]
    assert len(positive) > len(found)


@pytest.mark.parametrize("name", SIZES)
def test_usage_of_a_cohort_is_the_sum_of_what_its_children_take(name: str) -> None:
    for record in records(name):
        world = World(record["in"])
        for work in list(world.holders.values())[::2]:
            if not world.queues[work.queue].cyclic:
                world.take(work)
        for node in world.cohorts.values():
            if node.cyclic:
                continue
            for x in node.pairs():
                taken = [max(0, child.used(x) - child.guaranteed(x)) for child in node.children]
                assert node.used(x) == sum(taken), (record["in"]["id"], node.name, x)


def at_the_end(record: dict[str, Any]) -> dict[str, Any]:
    """The scenario with those as admitted who hold quota after the last cycle."""
    scenario, cycles = record["in"], record["out"]["cycles"]
    waiting = {one["name"]: one for one in (*scenario["admitted"], *scenario["pending"])}
    holders = {one["name"]: one for one in scenario["admitted"]}
    for cycle in cycles:
        for name, choices in cycle["admitted"].items():
            sets = [
                {**pod_set, "flv": choices[key]["flavors"], "assigned": choices[key]["count"]}
                for pod_set in waiting[name]["podsets"]
                for key in [pod_set.get("name", "main")]
            ]
            holders[name] = {**waiting[name], "podsets": sets}
    return {**scenario, "admitted": [holders[name] for name in record["out"]["holding"]]}


def text_of(share: float) -> str:
    return str(2**63 - 1) if math.isinf(share) else str(math.ceil(share))
