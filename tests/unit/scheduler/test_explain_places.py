"""Which domains lack room for the pods of a workload, and what would help."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from places_world import (
    BLOCK,
    KEY,
    NOW,
    RACK,
    TAINT,
    node,
    placed,
    pod_on,
    pods,
    topology,
    world,
)

from kueuelib.api.kueue import Workload
from kueuelib.api.workload import HOST
from kueuelib.scheduler.explain.answer import Explanation, explain
from kueuelib.scheduler.explain.level_changes import NameLevels
from kueuelib.scheduler.explain.places import room_texts
from kueuelib.scheduler.explain.rows import Fit
from kueuelib.scheduler.explain.trial import PAIR_STEPS, SearchBudget, TrialResult, outcome
from kueuelib.scheduler.explain.world import World
from kueuelib.scheduler.flavor_reasons import TopologyMismatch
from kueuelib.scheduler.reasons import NoFlavors, condition_reason, render
from kueuelib.testing.builders import make_cluster_queue, make_flavor
from kueuelib.workload.short_reasons import shorten


def said(world: World) -> tuple[Explanation, list[str], list[str]]:
    answer = explain(world, KEY, NOW)
    return answer, list(room_texts(answer.places)), [one.change.text for one in answer.changes]


def two_racks(job: Workload, *others: Workload) -> World:
    nodes = [
        node("h11", "r1"),
        node("h12", "r1", taints=[TAINT]),
        node("h21", "r2"),
        node("h22", "r2"),
    ]
    return world(nodes, job, *others, foreign=(pod_on("agent", "h11", 1),))


def test_the_domain_that_lacks_least_is_named_first_with_the_causes() -> None:
    other = placed(pods("x", 2, queue="b"), ("h22", 2), queue="b")
    answer, texts, _ = said(two_racks(pods("job", 8, required=RACK), other))
    assert answer.verdict is TrialResult.WAITS
    assert answer.reason is not None
    assert condition_reason(answer.reason) == "WaitingForQuota", "empty nodes would do"
    assert render(answer.reason) == (
        "couldn't assign flavors to pod set main: "
        'topology "t" allows to fit only 6 out of 8 pod(s). '
        'Total nodes: 4; excluded: taint "broken=yes:NoSchedule": 1. '
        "At best, rack r2 has room for 6 of 8 pods"
    )
    assert texts == [
        "Pod set main: rack r2 has room for 6 of 8 pods: node h22 is used by ns/x",
        (
            "Pod set main: rack r1 has room for 3 of 8 pods: node h11 is used by pod other/agent, "
            "node h12 is tainted (broken=yes:NoSchedule)"
        ),
    ]
    assert {row.fit for row in answer.rows} == {Fit.NO_PLACES}


def test_a_workload_of_an_unrelated_queue_is_asked_to_end() -> None:
    other = placed(pods("x", 2, queue="b"), ("h22", 2), queue="b")
    _, _, changes = said(two_racks(pods("job", 8, required=RACK), other))
    assert changes == [
        "6 instead of 8 pods in pod set main",
        (
            f"podset-required-topology: {BLOCK} instead of podset-required-topology: {RACK} "
            "in pod set main"
        ),
        (
            f"podset-preferred-topology: {RACK} instead of podset-required-topology: {RACK} "
            "in pod set main"
        ),
        "Workload ns/x finishes or is deleted",
    ]


def test_several_workloads_that_have_to_end_and_nodes_to_be_uncordoned_come_together() -> None:
    x = placed(pods("x", 4, queue="b"), ("h21", 4), queue="b")
    nodes = [node("h11", "r1"), node("h21", "r2"), node("h22", "r2", unschedulable=True)]
    answer, texts, changes = said(world(nodes, pods("job", 8, required=RACK), x))
    assert texts == [
        "Pod set main: rack r1 has room for 4 of 8 pods",
        (
            "Pod set main: rack r2 has room for 0 of 8 pods: node h21 is used by ns/x, "
            "node h22 is cordoned"
        ),
    ]
    assert "uncordon Node h22" not in changes
    assert "all of these: Workload ns/x finishes or is deleted; uncordon Node h22" in changes
    assert "nodes" in answer.tried


def test_one_node_that_is_cordoned_and_one_that_is_not_ready() -> None:
    nodes = [
        node("h11", "r1"),
        node("h12", "r1", unschedulable=True),
        node("h21", "r2", ready=False),
    ]
    _, texts, changes = said(world(nodes, pods("job", 8, preferred=RACK)))
    assert texts == [
        (
            "Pod set main: flavor f has room for 4 of 8 pods: node h12 is cordoned, "
            "node h21 is not ready"
        )
    ]
    assert changes == ["4 instead of 8 pods in pod set main", "uncordon Node h12"]


def test_to_uncordon_a_node_takes_away_the_taint_of_its_cordon_but_no_other() -> None:
    cordon = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    for taints, offered in (([cordon], True), ([cordon, TAINT], False)):
        nodes = [node("h11", "r1"), node("h12", "r1", unschedulable=True, taints=taints)]
        _, texts, changes = said(world(nodes, pods("job", 8, required=RACK)))
        assert texts == ["Pod set main: rack r1 has room for 4 of 8 pods: node h12 is cordoned"]
        assert ("uncordon Node h12" in changes) is offered


def message_of(world: World) -> tuple[str, str]:
    """The reason and the message of the condition."""
    reason = explain(world, KEY, NOW).reason
    assert reason is not None
    return condition_reason(reason), render(reason)


def test_without_enough_nodes_the_message_names_the_best_domain_without_other_workloads() -> None:
    other = placed(pods("x", 2, queue="b"), ("h22", 2), queue="b")
    reason, message = message_of(two_racks(pods("job", 9, required=RACK), other))
    assert reason == "TopologyPlacementFailed"
    assert "allows to fit only 6 out of 9 pod(s). Total nodes: 4" in message, "with ns/x"
    assert message.endswith(". Even without other Workloads, rack r2 has room for 8 of 9 pods")


def test_if_quota_and_nodes_are_short_the_message_names_both() -> None:
    nodes = [node("h11", "r1"), node("h21", "r2", 2)]
    other, quota = pods("x", 8, queue="a"), {"f": {"cpu": 12}}
    holder = placed(other, ("h11", 4), ("h12", 4))
    found = world(nodes, pods("job", 6, required=RACK), holder)
    found = found.with_cluster_queue(make_cluster_queue("a", quota))
    reason, message = message_of(found)
    assert reason == "TopologyPlacementFailed"
    assert message == (
        "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor f, "
        "2 more needed. Even without other Workloads, rack r1 has room for 4 of 6 pods"
    )
    assert shorten(message) == (
        "cpu on f: 2 more needed; even without others, rack r1 has room for 4 of 6 pods"
    )
    _, message = message_of(found.with_workload(pods("job", 7, unconstrained=True)))
    assert message.endswith(
        '. Even without other Workloads, topology "t" allows to fit only 6 out of 7 pod(s)'
    )


def test_a_pod_set_that_has_others_beside_it_is_named() -> None:
    found = world([node("h11", "r1", 8)], pods("job", 6, required=RACK))
    (first,) = found.workloads[KEY].spec.pod_sets
    others = tuple(attrs.evolve(first, name=name) for name in ("a", "b"))
    job = found.workloads[KEY]
    job = attrs.evolve(job, spec=attrs.evolve(job.spec, pod_sets=others))
    _, message = message_of(found.with_workload(job))
    assert message.endswith("rack r1 has room for 2 of 6 pods of pod set b")
    short = "even without others, rack r1 has room for 2 of 6 pods of pod set b"
    assert shorten(message) == short


def test_pods_lack_room_although_quota_suffices_and_nobody_may_be_preempted() -> None:
    other = placed(pods("x", 2, queue="b"), ("h11", 2), queue="b")
    base = world([node("h11", "r1", 8)], pods("job", 8, required=RACK), other)
    preemption = {"withinClusterQueue": "LowerPriority"}
    queue = make_cluster_queue("a", {"f": {"cpu": 100}}, preemption=preemption)
    answer, _, _ = said(base.with_cluster_queue(queue))
    assert isinstance(answer.reason, NoFlavors)
    assert answer.reason.together is not None
    lack = "it would still lack room on nodes for its pods"
    assert answer.reason.together.text == f"no Workload may be preempted, and {lack}"
    with_victim = attrs.evolve(
        answer.reason.together, candidates=1, named=(KEY,), borrowing=False, spared=2
    )
    assert with_victim.text == f"With ns/job gone {lack}; fair sharing protects 2 more"


def test_a_toleration_of_the_taint_of_nodes_is_offered_if_it_is_enough() -> None:
    nodes = [node("h11", "r1"), *(node(f"h1{at}", "r1", taints=[TAINT]) for at in (2, 3))]
    nodes += [node("h21", "r2", 1, taints=[{"key": "other", "effect": "NoExecute"}])]
    _, _, changes = said(world(nodes, pods("job", 12, required=RACK)))
    offered = [text for text in changes if "tolerate" in text]
    assert offered == ["let its pods tolerate the taint broken=yes:NoSchedule of nodes h12, h13"]
    _, _, changes = said(world(nodes, pods("job", 13, required=RACK)))
    assert not any("tolerate" in text for text in changes)
    spread = [one for one in nodes if one["metadata"]["name"] != "h13"]
    _, _, changes = said(world(spread, pods("job", 8, unconstrained=True)))
    offered = [text for text in changes if "tolerate" in text]
    assert offered == ["let its pods tolerate the taint broken=yes:NoSchedule of node h12"]


def test_fewer_pods_stay_whole_slices() -> None:
    asked = {"podSetSliceRequiredTopology": RACK, "podSetSliceSize": 3}
    nodes = [node("h11", "r1"), node("h21", "r2")]
    _, texts, changes = said(world(nodes, pods("job", 9, **asked)))
    assert texts == ["Pod set main: flavor f has room for 2 of 3 slices of 3 pods"]
    assert changes == ["6 instead of 9 pods in pod set main"]


def test_pods_that_are_larger_than_any_node() -> None:
    _, texts, changes = said(world([node("h11", "r1")], pods("job", 1, 5, unconstrained=True)))
    assert texts == [
        (
            "Pod set main: flavor f has room for 0 of 1 pods: node h11 is too small: 4 of cpu, "
            "but a pod needs 5"
        )
    ]
    assert changes == []


def test_racks_of_one_name_in_several_blocks_are_told_apart() -> None:
    nodes = [node(f"{block}{at}", "r", block=block) for block in "bc" for at in range(2)]
    _, texts, _ = said(world(nodes, pods("job", 9, required=RACK)))
    assert [text.partition(" has ")[0] for text in texts] == [
        "Pod set main: rack b/r",
        "Pod set main: rack c/r",
    ]


def test_what_other_nodes_hold_is_counted_not_listed() -> None:
    nodes = [node(f"h{at}", "r", 1) for at in range(6)]
    _, texts, _ = said(world(nodes, pods("job", 2, required=HOST)))
    assert len(texts) == 4
    assert texts[-1] == "Pod set main: 3 more nodes have room for 1 or fewer"


def test_who_would_take_the_room_first_from_another_tree_counts_in_every_trial() -> None:
    x = placed(pods("x", 4, queue="b"), ("h11", 4), queue="b")
    y = pods("y", 4, queue="b", unconstrained=True)
    job, nodes, ends = pods("job", 4, required=RACK), [node("h11", "r1")], "Workload ns/x finishes"
    _, _, changes = said(world(nodes, job, x, y))
    assert any(text.startswith(ends) for text in changes)
    first = attrs.evolve(y, spec=attrs.evolve(y.spec, priority=1))
    _, _, changes = said(world(nodes, job, x, first))
    assert not any(text.startswith(ends) for text in changes)


def test_without_mixed_profile_pods_go_where_most_room_is() -> None:
    nodes = [node(f"h{cpu}", "r", cpu) for cpu in (1, 2, 3)]
    base, where = world(nodes, pods("job", 4, unconstrained=True)), {}
    for mixed in (True, False):
        settings = attrs.evolve(base.settings, mixed_profile=mixed)
        admit = outcome(attrs.evolve(base, settings=settings), KEY, NOW).admit
        assert admit is not None
        placed = admit.admission.pod_set_assignments[0].topology_assignment
        assert placed is not None
        where[mixed] = {host: count for (host,), count in placed.domains}
    assert where == {True: {"h1": 1, "h2": 2, "h3": 1}, False: {"h1": 1, "h3": 3}}


def test_a_level_that_the_topology_lacks_comes_with_those_that_it_has() -> None:
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        ({"required": "example.com/typo"}, "but not example.com/typo"),
        (
            {"unconstrained": False},
            'and podset-unconstrained-topology: "false" asks for none; leave it out',
        ),
        ({"podSetSliceSize": 2}, "and the pods ask for none of them"),
    )
    for request, end in cases:
        reason = explain(world([node("h11", "r1")], pods("job", 1, **request)), KEY, NOW).reason
        assert isinstance(reason, NoFlavors)
        ((_, mismatch),) = reason.flavor_reasons
        assert isinstance(mismatch, TopologyMismatch)
        known = f"Topology t of flavor f has the levels {BLOCK}, {RACK}, {HOST}"
        assert mismatch.detail == f"{known}, {end}"


SLICE, SIZE = "podSetSliceRequiredTopology", "podSetSliceSize"
LAYERS = "podsetSliceRequiredTopologyConstraints"


@pytest.mark.parametrize(
    ("request_", "offered"),
    [
        (
            {"required": "example.com/topology-rak"},
            f"podset-required-topology: {RACK} instead of example.com/topology-rak",
        ),
        ({"preferred": "rack"}, f"podset-preferred-topology: {RACK} instead of rack"),
        (
            {"preferred": RACK, SLICE: "hostname", SIZE: 2},
            f"podset-slice-required-topology: {HOST} instead of hostname",
        ),
        (
            {"preferred": HOST, SLICE: RACK, SIZE: 2},
            (
                f"podset-preferred-topology: {RACK} instead of {HOST}, "
                f"podset-slice-required-topology: {HOST} instead of {RACK}"
            ),
        ),
        (
            {LAYERS: [{"topology": RACK, "size": 4}, {"topology": "blok", "size": 2}]},
            (
                f"podset-slice-required-topology-constraints[0].topology: {BLOCK} instead of "
                f"{RACK}, podset-slice-required-topology-constraints[1].topology: {RACK} instead "
                "of blok"
            ),
        ),
    ],
)
def test_levels_that_may_be_meant_are_offered(request_: dict[str, Any], offered: str) -> None:
    found = world([node("h11", "r1"), node("h12", "r1")], pods("job", 4, **request_))
    assert [one.change.text for one in explain(found, KEY, NOW).changes][:1] == [
        f"{offered} in pod set main"
    ]


def test_a_level_that_is_meant_is_offered_only_if_that_helps() -> None:
    full = world([node("h11", "r1", 2), node("h21", "r2", 2)], pods("job", 4, required="rak"))
    offered = [one.change.text for one in explain(full, KEY, NOW).changes]
    assert offered == [f"podset-required-topology: {BLOCK} instead of rak in pod set main"]
    two_flavors = full.with_flavor(make_flavor("g", {"tas": "yes"}, topologyName="u"))
    known = {"t": topology(), "u": topology("rak", HOST)}
    quota = {"f": {"cpu": 9}, "g": {"cpu": 1}}
    two_flavors = attrs.evolve(two_flavors, topologies=known)
    two_flavors = two_flavors.with_cluster_queue(make_cluster_queue("a", quota))
    changes = [one.change for one in explain(two_flavors, KEY, NOW).changes]
    assert not any(isinstance(one, NameLevels) for one in changes), "a level that one of them has"


def test_without_a_topology_no_levels_are_offered() -> None:
    found = world([node("h11", "r1")], pods("job", 1, required=RACK))
    off = attrs.evolve(found, settings=attrs.evolve(found.settings, places_pods=False))
    for each in (attrs.evolve(found, topologies={}), off):
        answer = explain(each, KEY, NOW, pairs=lambda: SearchBudget(PAIR_STEPS))
        assert answer.verdict is TrialResult.WAITS
        assert not any(isinstance(one.change, NameLevels) for one in answer.changes)
        assert not [note for note in answer.notes if "in the wrong order" in note]


def test_pod_sets_with_the_same_mistake_are_corrected_together() -> None:
    job = pods("job", 1, required="rak")
    (first,) = job.spec.pod_sets
    both = (first, attrs.evolve(first, name="workers"))
    job = attrs.evolve(job, spec=attrs.evolve(job.spec, pod_sets=both))
    found = explain(world([node("h11", "r1")], job), KEY, NOW)
    (change, *_) = [one.change.text for one in found.changes]
    assert change.endswith(f": {RACK} instead of rak in pod sets main, workers")


def test_the_order_of_the_levels_is_named_to_a_request_in_another_one() -> None:
    asked = {"required": HOST, SLICE: RACK, SIZE: 2}
    (note,) = explain(world([node("h11", "r1")], pods("job", 99, **asked)), KEY, NOW).notes
    assert note == (
        f"levels are in the wrong order in pod set main (podset-required-topology: {HOST}, "
        f"podset-slice-required-topology: {RACK}); the order of the topology, widest first, is "
        f"{BLOCK}, {RACK}, {HOST}"
    )


def test_a_missing_topology_is_named_in_the_table() -> None:
    found = world([node("h11", "r1")], pods("job", 1, required=RACK))
    assert {row.fit for row in explain(found, KEY, NOW).rows} == {Fit.FITS}
    missing = attrs.evolve(found, topologies={})
    assert {row.fit for row in explain(missing, KEY, NOW).rows} == {Fit.NO_TOPOLOGY}
    off = attrs.evolve(missing, settings=attrs.evolve(found.settings, places_pods=False))
    assert Fit.NO_TOPOLOGY not in {row.fit for row in explain(off, KEY, NOW).rows}


def places_of(world: World) -> list[str]:
    return [one.text for one in explain(world, KEY, NOW).placed]


def test_the_nodes_of_an_admitted_workload_are_named_with_their_rack() -> None:
    nodes = [node("h11", "r1"), node("h12", "r1"), node("h21", "r2"), node("h22", "r2")]
    job = placed(pods("job", 6, preferred=RACK), ("h11", 4), ("h12", 1), ("h21", 1))
    assert places_of(world(nodes, job)) == [
        "Pod set main: 4 pods on node h11, 1 on h12 (rack r1), 1 on h21 (rack r2)"
    ]
    gone = [one for one in nodes if one["metadata"]["name"] != "h21"]
    assert places_of(world(gone, job)) == [
        "Pod set main: 4 pods on node h11, 1 on h12 (rack r1), 1 on h21"
    ], "a node that no longer exists"


def test_the_wider_domain_is_that_of_the_level_that_was_asked_for() -> None:
    nodes = [node("h1", "r1", block="b1"), node("h2", "r1", block="b2")]
    wide = placed(pods("job", 1, required=BLOCK), ("h1", 1))
    assert places_of(world(nodes, wide)) == ["Pod set main: 1 pod on node h1 (block b1)"]
    narrow = placed(pods("job", 1, required=RACK), ("h1", 1))
    assert places_of(world(nodes, narrow)) == ["Pod set main: 1 pod on node h1 (rack b1/r1)"]
    slices = {"podSetSliceRequiredTopology": RACK, "podSetSliceSize": 1}
    sliced = placed(pods("job", 1, **slices), ("h1", 1))
    assert places_of(world(nodes, sliced)) == ["Pod set main: 1 pod on node h1 (rack b1/r1)"]


def test_of_many_nodes_the_first_are_named_and_the_others_counted() -> None:
    nodes = [node(f"h{number}", "r1") for number in range(8)]
    job = placed(pods("job", 16, required=RACK), *((f"h{number}", 2) for number in range(8)))
    assert places_of(world(nodes, job)) == [
        (
            "Pod set main: 2 pods on node h0, 2 on h1, 2 on h2, 2 on h3, 2 on h4 (rack r1), "
            "6 on 3 more nodes"
        )
    ]
    assert len(explain(world(nodes, job), KEY, NOW).placed[0].domains) == 8


def test_domains_without_host_names_are_named_by_all_their_values() -> None:
    flat = world([node("h1", "r1")], pods("job", 3, required=RACK))
    flat = attrs.evolve(flat, topologies={"t": topology(BLOCK, RACK)})
    answer = explain(flat, KEY, NOW)
    assert answer.verdict is TrialResult.ADMITTED
    assert [one.text for one in answer.placed] == ["Pod set main: 3 pods in rack b/r1"]
