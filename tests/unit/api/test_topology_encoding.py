"""Domains become slices as Kueue makes them, and come back; what is neither is left alone."""

from __future__ import annotations

import copy
import gzip
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kueuelib.api.codec import encode
from kueuelib.api.conversion import convert, domains_of, slices_of, topology_assignment
from kueuelib.api.workload import (
    DOMAIN_LIMIT,
    HOST,
    MOST_DOMAINS,
    SLICE_LIMIT,
    LevelValues,
    PodCounts,
    TopologyAssignment,
    TopologyAssignmentSlice,
)

from .queue_objects import PLACED, queue_object

Obj = dict[str, Any]
DATA = Path(__file__).parents[2] / "scenarios" / "data" / "tas-encoding.jsonl.gz"
RECORDED = [orjson.loads(line) for line in gzip.decompress(DATA.read_bytes()).splitlines()]


def raw(domains: Any) -> list[Obj]:
    return [{"values": [*values], "count": count} for values, count in domains]


def test_slices_are_those_that_kueue_was_seen_to_make() -> None:
    for one in RECORDED:
        levels, domains = one["in"]["levels"], raw(one["in"]["domains"])
        slices = one["out"]["encoded"].get("slices", [])
        assert slices_of(levels, domains) == slices, one["in"]["id"]
        assert domains_of(levels, slices) == domains
    assert len(RECORDED) == 300


values = st.text("ab-", max_size=4)
forms = st.lists(st.tuples(st.tuples(values, values), st.integers(1, 2)), max_size=6)


@given(domains=forms, host=st.booleans())
def test_any_domains_come_back(domains: Any, host: bool) -> None:
    levels = ["rack", HOST if host else "block"]
    slices = slices_of(levels, raw(domains))
    assert domains_of(levels, slices) == raw(domains)


def test_no_more_slices_than_the_definition_allows() -> None:
    hosts = [f"{pool}-{number}" for number in range(SLICE_LIMIT) for pool in "ab"]
    slices = slices_of([HOST], raw([([host], 1) for host in hosts]))
    assert slices is not None
    assert [one["domainCount"] for one in slices] == [2 * SLICE_LIMIT]


def test_a_long_assignment_has_several_slices() -> None:
    count = DOMAIN_LIMIT + 1
    domains = raw([([f"n{number}"], 1) for number in range(count)])
    slices = slices_of(["node"], domains)
    assert slices is not None
    assert [one["domainCount"] for one in slices] == [DOMAIN_LIMIT, 1]
    assert domains_of(["node"], slices) == domains


GOOD = {
    "domainCount": 2,
    "valuesPerLevel": [{"individual": {"roots": ["a", "b"]}}],
    "podCounts": {"universal": 1},
}


@pytest.mark.parametrize(
    "wrong",
    [
        {"domainCount": 3},
        {"domainCount": "2"},
        {"domainCount": 2**31 - 1, "valuesPerLevel": [{"universal": "a"}]},
        {"valuesPerLevel": []},
        {"valuesPerLevel": [{"universal": "a", "individual": {"roots": ["a", "b"]}}]},
        {"valuesPerLevel": [{"individual": {"prefix": "a"}}]},
        {"valuesPerLevel": [{"individual": {"roots": ["a", 2]}}]},
        {"valuesPerLevel": [{"individual": {"roots": ["a", "b"], "later": 1}}]},
        {"podCounts": {"individual": [1]}},
        {"podCounts": {"universal": "1"}},
        {"podCounts": {}},
        {"later": 1},
    ],
)
def test_what_is_no_slice_is_kept_as_it_is(wrong: Obj) -> None:
    assert domains_of(["node"], [GOOD]) == raw([("a", 1), ("b", 1)])
    assert domains_of(["node"], [{**GOOD, **wrong}]) is None


@pytest.mark.parametrize(
    "wrong", [{"values": ["a"]}, {"values": ["a", 1]}, {"count": "1"}, {"later": 1}]
)
def test_what_is_no_domain_is_kept_as_it_is(wrong: Obj) -> None:
    levels, domain = ["rack", "node"], {"values": ["a", "b"], "count": 1}
    assert slices_of(levels, [domain]) is not None
    assert slices_of(levels, [{**domain, **wrong}]) is None
    workload = queue_object("Workload")
    placed = {"levels": levels, "domains": [{**domain, **wrong}]}
    workload["apiVersion"] = "kueue.x-k8s.io/v1beta1"
    workload["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"] = placed
    new = convert(workload, "v1beta2")
    assert new["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"] == placed


def test_a_workload_with_all_its_places_comes_back() -> None:
    given = queue_object("Workload")
    before = copy.deepcopy(given)
    old = convert(given, "v1beta1")
    assert given == before
    places = [one["topologyAssignment"] for one in old["status"]["admission"]["podSetAssignments"]]
    assert places == 2 * [
        {
            "levels": PLACED["levels"],
            "domains": raw([(["r1", "node-1"], 1), (["r1", "node-2"], 1), (["r2", "node-3"], 1)]),
        }
    ]
    assert old["spec"]["podSets"] == given["spec"]["podSets"]
    again = convert(old, "v1beta2")
    assert convert(again, "v1beta1") == old
    assert again["spec"] == given["spec"]


def test_typed_assignments_have_the_same_slices() -> None:
    for one in RECORDED:
        levels, domains = one["in"]["levels"], raw(one["in"]["domains"])
        placed = topology_assignment(
            levels, [(tuple(each["values"]), each["count"]) for each in domains]
        )
        assert encode(placed)["slices"] == slices_of(levels, domains)
        assert raw(placed.domains) == domains


def test_no_more_domains_are_read_than_could_be_written() -> None:
    values = (LevelValues("a"),)
    endless = TopologyAssignmentSlice(2**31 - 1, values, PodCounts(1))
    placed = TopologyAssignment(("rack",), (endless,))
    assert len(placed.domains) == MOST_DOMAINS
