"""Pods get the domains of their ranks, or fill the domains in order, as Kueue was seen to do."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import attrs
import orjson
import pytest

from kueuelib.api.workload import HOST, TopologyRequest
from kueuelib.scheduler.topology.ungater import PlacedPodSet, PodOfSet, ungated
from kueuelib.testing.topology_scenarios import is_ungating, ungating_of

DATA = Path(__file__).parents[3] / "scenarios" / "data" / "tas-ungater.jsonl.gz"
RECORDED = [orjson.loads(line) for line in gzip.decompress(DATA.read_bytes()).splitlines()]


def test_pods_start_where_kueue_was_seen_to_start_them() -> None:
    for one in RECORDED:
        assert is_ungating(one["in"])
        assert ungating_of(one["in"]) == one["out"], one["in"]["id"]
    assert len(RECORDED) == 300


def test_the_order_of_pods_does_not_matter() -> None:
    for one in RECORDED:
        reversed_pods = {**one["in"], "pods": one["in"]["pods"][::-1]}
        assert ungating_of(reversed_pods) == one["out"], one["in"]["id"]


WORKERS = PlacedPodSet(
    "workers", 2, TopologyRequest(pod_index_label="index"), (HOST,), ((("a",), 1), (("b",), 1))
)


def pod(index: int, **changes: Any) -> PodOfSet:
    given = {"gated": True, "offset": "", "node_selector": {}, **changes}
    return PodOfSet(f"pod-{9 - index}", {"index": str(index)}, **given)


def test_a_pod_that_was_recreated_gets_the_domain_of_its_rank() -> None:
    other = pod(1, gated=False, node_selector={HOST: "b", "disk": "ssd"})
    selectors = ungated([WORKERS], {"workers": [pod(0), other]})
    assert selectors == {"pod-9": {HOST: "a"}}


def test_pods_of_one_rank_fill_the_domains_in_the_order_of_their_names() -> None:
    twin = attrs.evolve(pod(0), name="pod-a")
    selectors = ungated([WORKERS], {"workers": [twin, pod(0)]})
    assert selectors == {"pod-9": {HOST: "a"}, "pod-a": {HOST: "b"}}


def test_nothing_starts_on_a_host_that_is_replaced() -> None:
    selectors = ungated([WORKERS], {"workers": [pod(0), pod(1)]}, ["a"])
    assert selectors == {"pod-8": {HOST: "b"}}


@pytest.mark.parametrize("offset", ["one", "1.0", "-9"])
def test_an_offset_that_makes_no_ranks_leaves_the_order_of_names(offset: str) -> None:
    pods = [pod(index, offset=offset) for index in (0, 1)]
    assert ungated([WORKERS], {"workers": pods}) == {"pod-8": {HOST: "a"}, "pod-9": {HOST: "b"}}


def test_the_leader_of_a_group_takes_its_first_rank() -> None:
    request = TopologyRequest(pod_index_label="index", pod_set_group_name="g")
    workers = attrs.evolve(WORKERS, request=request)
    leader = PlacedPodSet("leader", 1, request, (HOST,), ((("c",), 1),))
    pods = {"workers": [pod(1), pod(2)], "leader": [pod(0)]}
    for order in ([workers, leader], [leader, workers]):
        assert ungated(order, pods) == {
            "pod-9": {HOST: "c"},
            "pod-8": {HOST: "a"},
            "pod-7": {HOST: "b"},
        }
