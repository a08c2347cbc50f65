"""Who borrows in a snapshot that changes, against a look at every ClusterQueue."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from preemption_worlds import PAIRS

from kueuelib.scheduler import events
from kueuelib.scheduler.engine import Engine
from kueuelib.scheduler.quota.amounts import FlavorResource
from kueuelib.scheduler.quota.node import Bracket, QuotaNode, borrowed
from kueuelib.scheduler.quota.snapshot import Snapshot
from kueuelib.testing.builders import (
    make_assignment,
    make_cluster_queue,
    make_cohort,
    make_condition,
    make_flavor,
    make_local_queue,
    make_workload,
)

QUEUES = "abcdef"
Pairs = frozenset[FlavorResource]


def tree_with_holders(rng: random.Random) -> Snapshot:
    """Six ClusterQueues in three cohorts below each other, and what runs there."""
    facts: list[events.Event] = [events.NamespaceSet("ns", {})]
    facts += [events.FlavorSet(make_flavor(pair.flavor)) for pair in PAIRS]
    facts += [
        events.CohortChanged(make_cohort("middle", parent="x")),
        events.CohortChanged(make_cohort("low", parent=rng.choice(["middle", "x"]))),
    ]
    for name in QUEUES:
        cohort = rng.choice(["x", "middle", "low"]) if name != "a" else "x"
        quota: dict[str, Any] = {}
        for pair in PAIRS:
            nominal = rng.randrange(4)
            quota[pair.flavor] = {"gpu": {"nominal": nominal, "lending": rng.randint(0, nominal)}}
        facts.append(events.ClusterQueueSet(make_cluster_queue(name, quota, cohort=cohort)))
        facts.append(events.LocalQueueSet(make_local_queue(name, name)))
    for number in range(rng.randrange(12)):
        queue, gpu = rng.choice(QUEUES), {"gpu": rng.randint(1, 3)}
        admission = {
            "clusterQueue": queue,
            "podSetAssignments": [make_assignment(gpu, rng.choice(PAIRS).flavor)],
        }
        facts.append(
            events.WorkloadSet(
                make_workload(
                    f"r{number}",
                    queue,
                    gpu,
                    conditions=[make_condition("QuotaReserved")],
                    status={"admission": admission},
                )
            )
        )
    engine = Engine()
    engine.observe_all(facts, 0)
    frozen = engine.cache.freeze_tree("x")
    assert frozen is not None
    return Snapshot(frozen)


def change(snapshot: Snapshot, rng: random.Random, marks: list[Any]) -> None:
    """Somebody leaves, gets something, or what happened since a mark is undone."""
    queue = snapshot.queue(rng.choice(QUEUES))
    assert queue is not None
    holders = [one for _, one in queue.ranked if one.key not in snapshot.gone]
    act = rng.randrange(4)
    if act == 0 and holders:
        snapshot.take_out(rng.choice(holders))
    elif act == 1 and marks:
        snapshot.undo(marks.pop())
    elif act == 2:
        marks.append(snapshot.mark())
    else:
        snapshot.add(queue, {rng.choice(PAIRS): rng.randint(1, 3)})


def ranks(snapshot: Snapshot, pairs: Pairs, sign: int) -> Callable[[QuotaNode, QuotaNode], Any]:
    """Nodes by what they use of the pairs; left out are those whose Workloads borrow none."""

    def rank(node: QuotaNode, sent: QuotaNode) -> int | None:
        if node.parent is not None and pairs.isdisjoint(borrowed(node, snapshot.held.used)):
            return None
        return sign * sum(snapshot.used[pair][node.key] for pair in pairs)

    return rank


@given(st.integers(0, 10**6))
def test_who_borrows_is_known_after_any_changes(seed: int) -> None:
    rng = random.Random(seed)
    snapshot = tree_with_holders(rng)
    queue = snapshot.queue("a")
    assert queue is not None
    others = [snapshot.nodes[name] for name in QUEUES]
    marks: list[Any] = []
    for _ in range(12):
        change(snapshot, rng, marks)
        for pairs in map(frozenset, (PAIRS[:1], PAIRS[1:], PAIRS)):
            expected = [
                node.name
                for node in others[1:]
                if not pairs.isdisjoint(borrowed(node, snapshot.used))
            ]
            assert [one.spec.name for one in snapshot.borrowers(queue, pairs)] == expected
            for name, sign in (("most", -1), ("least", 1)):
                rank = ranks(snapshot, pairs, sign)
                kept = snapshot.bracket(queue, pairs, name, rank)
                assert kept.best is Bracket(others, rank).best
