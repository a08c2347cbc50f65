"""Laws of `explain` on random worlds with nodes: what it proposes helps, nothing less does."""

from __future__ import annotations

from itertools import combinations
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from places_world import BLOCK, KEY, NOW, RACK, TAINT, node, placed, pod_on, pods, world
from smaller_changes import one_unit_less

from kueuelib.api.kueue import Workload
from kueuelib.api.workload import HOST
from kueuelib.scheduler.explain.answer import explain
from kueuelib.scheduler.explain.changes import Ends
from kueuelib.scheduler.explain.place_changes import AllOf, Part, Uncordon
from kueuelib.scheduler.explain.trial import TrialResult, outcome
from kueuelib.scheduler.explain.world import World

WORLDS = 150


def small_world(random: Random) -> World:
    nodes, room = [], {}
    for at in range(random.randint(2, 5)):
        name, cpu, more = f"h{at}", random.randint(1, 4), {}
        if random.random() < 0.25:
            more["unschedulable"] = True
        if random.random() < 0.1:
            more["taints"] = [TAINT]
        block = random.choice("bc")
        rack = f"r{random.randint(0, 1)}"
        nodes.append(node(name, rack, cpu, block=block, ready=random.random() < 0.95, **more))
        room[name] = cpu
    others = []
    for at in range(random.randint(1, 5)):
        where = []
        for name in random.sample(sorted(room), min(len(room), random.randint(1, 2))):
            if room[name]:
                count = random.randint(1, room[name])
                room[name] -= count
                where.append((name, count))
        if where:
            total, queue = sum(count for _, count in where), random.choice("ab")
            others.append(placed(pods(f"w{at}", total, queue=queue), *where, queue=queue))
    foreign = [pod_on("p", name, 1) for name in room if room[name] and random.random() < 0.1]
    waiting = [pods("v", 1, unconstrained=True, queue="b")] if random.random() < 0.2 else []
    quota = random.choice([100, 100, 100, 6])
    return world(nodes, subject(random), *others, *waiting, foreign=tuple(foreign[:1]), cpu=quota)


def subject(random: Random) -> Workload:
    count = random.choice([2, 3, 4, 4, 6])
    asked = random.choice(
        [{"required": level} for level in (BLOCK, RACK, HOST)]
        + [{"preferred": RACK}, {"unconstrained": True}]
        + [{"required": BLOCK, "podSetSliceRequiredTopology": HOST, "podSetSliceSize": 2}]
    )
    return pods("job", count - count % 2 if len(asked) > 1 else count, **asked)


def helps(world: World, *parts: Part) -> bool:
    for part in parts:
        world = part.apply(world)
    return outcome(world, KEY, NOW).helps


def all_parts(world: World) -> list[Part]:
    ends = [Ends(key) for key, each in world.workloads.items() if each.status.admission is not None]
    return [*ends, *(Uncordon(each.name) for each in world.nodes.values() if each.cordoned)]


def smallest_by_hand(world: World) -> int:
    """The number of Workloads and nodes in the smallest set that is enough; 0 for none."""
    parts = all_parts(world)
    for size in range(1, len(parts) + 1):
        if any(helps(world, *some) for some in combinations(parts, size)):
            return size
    return 0


@settings(max_examples=40, deadline=None)
@given(random=st.integers(0, 2**32).map(Random))
def test_every_change_helps_and_nothing_less_does(random: Random) -> None:
    world = small_world(random)
    answer = explain(world, KEY, NOW)
    for one in answer.changes:
        assert outcome(one.change.apply(world), KEY, NOW).helps
        for less in one_unit_less(one.change):
            assert not outcome(less.apply(world), KEY, NOW).admits
        if isinstance(one.change, AllOf):
            assert len(one.change.parts) > 1
            for left_out in one.change.parts:
                rest = [part for part in one.change.parts if part != left_out]
                assert not helps(world, *rest)


def test_the_fewest_workloads_and_nodes_are_found_in_nineteen_of_twenty_worlds() -> None:
    judged = found = several = 0
    for seed in range(WORLDS):
        world = small_world(Random(seed))
        answer = explain(world, KEY, NOW)
        if answer.verdict is not TrialResult.WAITS:
            continue
        best = smallest_by_hand(world)
        if not best:
            assert not [one for one in answer.changes if isinstance(one.change, Part | AllOf)]
            continue
        sizes = [
            len(one.change.parts) if isinstance(one.change, AllOf) else 1
            for one in answer.changes
            if isinstance(one.change, Part | AllOf)
        ]
        judged += 1
        several += best > 1
        found += bool(sizes) and min(sizes) == best
    assert judged >= WORLDS // 4
    assert several >= WORLDS // 20
    assert found >= 0.95 * judged, (found, judged)
