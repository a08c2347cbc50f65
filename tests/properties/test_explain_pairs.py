"""Where no single change helps, `explain` finds the smallest pair of them.

A search by hand judges it: every pair of every change in every size, each decided by a fresh engine
that nothing was left out for. It shares no code with the search of `explain` but for the changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from random import Random
from typing import Any

import attrs
from hypothesis import given, settings
from hypothesis import strategies as st
from smaller_changes import one_unit_less

from kueuelib.api.core import Taint
from kueuelib.api.kueue import ClusterQueue
from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler.explain.answer import explain
from kueuelib.scheduler.explain.changes import (
    BORROWING,
    LENDING,
    NOMINAL,
    CandidateChange,
    CreateFlavor,
    Ends,
    LabelNamespace,
    More,
    RaiseQuota,
    ServeCheck,
    SetPolicy,
    StartLocalQueue,
    Withdraws,
    amount_in,
)
from kueuelib.scheduler.explain.own_changes import (
    Activate,
    AnyNode,
    FewerPods,
    MoveTo,
    SetPriority,
    Tolerate,
)
from kueuelib.scheduler.explain.pairs import PAIRS
from kueuelib.scheduler.explain.trial import (
    SearchBudget,
    TrialOutcome,
    TrialResult,
    TriedPair,
    outcome,
)
from kueuelib.scheduler.explain.world import CLUSTER_QUEUE, QuotaOwner, World
from kueuelib.testing.builders import (
    make_assignment,
    make_cluster_queue,
    make_condition,
    make_flavor,
    make_local_queue,
    make_pod_set,
    make_workload,
)

NOW = 1000.0
KEY = ObjectKey("ns", "subject")
UNIT = 1000
MOST_UNITS = 3
WORLDS = 30
SELECTOR = {"matchLabels": {"team": "red"}}
TAINT = {"key": "spot", "value": "yes", "effect": "NoSchedule"}
PROBLEMS = (
    "selector",
    "taint",
    "node",
    "local queue",
    "queue",
    "flavor",
    "check",
    "inactive",
    "quota",
    "quota",
    "quota",
    "lent",
)


def small_world(random: Random) -> World:
    """A Workload that two problems keep from its quota, and perhaps others who want or hold it."""
    wrong = set(random.sample(PROBLEMS, 2))
    cohort = "x" if "lent" in wrong or random.random() < 0.4 else ""
    preemption = {
        "withinClusterQueue": random.choice(["Never", "Never", "LowerPriority"]),
        "reclaimWithinCohort": random.choice(["Never", "Never", "Any"]),
    }
    world = World().with_namespace("ns", {"team": "blue" if "selector" in wrong else "red"})
    if "flavor" not in wrong:
        taints = (TAINT,) if "taint" in wrong else ()
        world = world.with_flavor(make_flavor("f", {"kind": "f"}, taints))
    requests, count = random.randint(1, 2), random.choice([1, 1, 2])
    needed = requests * count
    held = random.randint(1, 2) if random.random() < 0.5 else 0
    short = random.randint(1, 2) if wrong & {"quota", "lent"} else 0
    own: dict[str, int] = {"nominal": max(0, needed + held - short)}
    others: dict[str, int] = {"nominal": random.randint(0, 2)}
    if cohort and "lent" in wrong:
        own["borrowing"], others["lending"] = 0, 0
    hold = "Hold" if "queue" in wrong else "None"
    checks = ("check",) if "check" in wrong else ()
    groups: dict[str, Any] = {"f": {"cpu": own}}
    world = world.with_cluster_queue(
        make_cluster_queue(
            "a",
            groups,
            cohort=cohort,
            selector=SELECTOR,
            checks=checks,
            stopPolicy=hold,
            preemption=preemption,
            queueingStrategy=random.choice(["StrictFIFO", "BestEffortFIFO"]),
        )
    )
    policy = "Hold" if "local queue" in wrong else "None"
    world = world.with_local_queue(make_local_queue("a", "a", stopPolicy=policy))
    if cohort:
        world = world.with_cluster_queue(
            make_cluster_queue("b", {"f": {"cpu": others}}, cohort=cohort, selector=SELECTOR)
        )
        if random.random() < 0.4:
            world = world.with_local_queue(make_local_queue("b", "b"))
    if held:
        assignments = [make_assignment({"cpu": held}, "f")]
        holder = make_workload(
            "holder",
            "a",
            {"cpu": held},
            priority=random.randint(-1, 1),
            conditions=[make_condition("QuotaReserved"), make_condition("Admitted")],
            status={"admission": {"clusterQueue": "a", "podSetAssignments": assignments}},
        )
        world = world.with_workload(holder)
    if random.random() < 0.4:
        rival = make_workload("rival", "a", {"cpu": random.randint(1, 3)}, created=0)
        world = world.with_workload(rival)
    selector = {"kind": "other"} if "node" in wrong else {}
    pods = make_pod_set({"cpu": requests}, count=count, nodeSelector=selector)
    subject = make_workload(KEY.name, "a", pod_sets=[pods], created=5)
    if "inactive" in wrong:
        subject = attrs.evolve(subject, spec=attrs.evolve(subject.spec, active=False))
    return world.with_workload(subject)


def changes(world: World) -> Iterator[tuple[int, CandidateChange]]:
    """Every change in every size, with the place of its kind in the order of `explain`."""
    subject, queue = world.workloads[KEY], world.cluster_queues["a"]
    if not subject.spec.active:
        yield 0, Activate(KEY)
    if world.local_queues[ObjectKey("ns", "a")].spec.stop_policy != "None":
        yield 0, StartLocalQueue(ObjectKey("ns", "a"), "Hold")
    if queue.spec.stop_policy != "None":
        yield 0, SetPolicy("a", "stopPolicy", "Hold", "None")
    if not world.flavors:
        yield 0, CreateFlavor("f")
    if queue.spec.admission_checks_strategy is not None:
        yield 0, ServeCheck("check", exists=False)
    if world.namespaces["ns"] != {"team": "red"}:
        yield 0, LabelNamespace("ns", (("team", "red"),))
    for priority in (1, 2):
        yield 1, SetPriority(KEY, 0, priority)
    (pods,) = subject.spec.pod_sets
    for count in range(1, pods.count):
        yield 1, FewerPods(KEY, pods.name, pods.count, count)
    if any(flavor.spec.node_taints for flavor in world.flavors.values()):
        taint = Taint(key="spot", value="yes", effect="NoSchedule")
        yield 1, Tolerate(KEY, "f", taint)
    if pods.template.spec.node_selector:
        yield 1, AnyNode(KEY, ("nodeSelector kind=other",))
    yield from policies(queue)
    for key in world.workloads.keys() - {KEY}:
        yield 5, (Ends(key) if key.name == "holder" else Withdraws(key))
    if ObjectKey("ns", "b") in world.local_queues:
        yield 6, MoveTo(KEY, "a", "b", "b")
    for name in world.cluster_queues:
        for raised in quotas(world, QuotaOwner(CLUSTER_QUEUE, name)):
            yield 2 if name == "a" else 9, raised


def policies(queue: ClusterQueue) -> Iterator[tuple[int, CandidateChange]]:
    now = queue.spec.preemption
    if queue.spec.queueing_strategy == "StrictFIFO":
        yield 3, SetPolicy("a", "queueingStrategy", "StrictFIFO", "BestEffortFIFO")
    for path, before, values in (
        (
            "withinClusterQueue",
            now.within_cluster_queue,
            ("LowerPriority", "LowerOrNewerEqualPriority"),
        ),
        ("reclaimWithinCohort", now.reclaim_within_cohort, ("LowerPriority", "Any")),
    ):
        for to in values:
            if to != before:
                yield 3, SetPolicy("a", f"preemption.{path}", before, to)


def quotas(world: World, place: QuotaOwner) -> Iterator[RaiseQuota]:
    for quota in place.quotas(world).values():
        for field in (NOMINAL, BORROWING, LENDING):
            before = amount_in(quota, field)
            for units in range(1, MOST_UNITS + 1) if before is not None else ():
                assert before is not None
                yield RaiseQuota(place, "f", field, (More("cpu", before, units * UNIT),))


class Whole(World):
    """A world that leaves nothing out."""

    def narrowed(self, key: ObjectKey) -> World:
        del key
        return self


def decided(world: World, *made: CandidateChange) -> TrialOutcome:
    for change in made:
        world = change.apply(world)
    return outcome(Whole(**attrs.asdict(world, recurse=False)), KEY, NOW)


def is_valid(world: World, *made: CandidateChange) -> bool:
    """Whether the API server would take it: nobody lends more than it owns."""
    for change in made:
        world = change.apply(world)
    return not any(
        (amount_in(quota, LENDING) or 0) > (amount_in(quota, NOMINAL) or 0)
        for name in world.cluster_queues
        for quota in QuotaOwner(CLUSTER_QUEUE, name).quotas(world).values()
    )


Size = tuple[bool, int, list[int]]
"""Whether checks decide afterwards, the number of victims, the kinds in the order of `explain`."""


def smallest_by_hand(world: World) -> Size | None:
    """The size of the smallest pair; None if a single change is enough, or no pair."""
    every = list(changes(world))
    if any(is_valid(world, one) and decided(world, one).helps for _, one in every):
        return None
    best: Size | None = None
    for (kind, one), (other, two) in combinations(every, 2):
        size = False, 0, sorted((kind, other))
        if (best is not None and size >= best) or not is_valid(world, one, two):
            continue
        after = decided(world, one, two)
        if after.helps:
            waits = after.admit is None or not after.admit.admitted
            size = waits and bool(checks_of(world)), len(after.victims), sorted((kind, other))
            best = size if best is None else min(best, size)
    return best


def checks_of(world: World) -> bool:
    return world.cluster_queues["a"].spec.admission_checks_strategy is not None


def size_of(pair: TriedPair, world: World) -> Size:
    kinds = {type(one): kind for kind, one in changes(world)}
    ranks = []
    for change in pair.changes:
        if isinstance(change, RaiseQuota):
            ranks.append(2 if change.place.name == "a" else 9)
        elif isinstance(change, SetPolicy):
            ranks.append(0 if change.path == "stopPolicy" else 3)
        else:
            ranks.append(kinds.get(type(change), 8))
    return bool(pair.checks), len(pair.victims), sorted(ranks)


@settings(max_examples=30, deadline=None)
@given(random=st.integers(0, 2**32).map(Random))
def test_no_pair_is_wrong(random: Random) -> None:
    world = small_world(random)
    for pair in explain(world, KEY, NOW, pairs=SearchBudget).pairs:
        assert decided(world, *pair.changes).helps
        assert is_valid(world, *pair.changes)
        first, second = pair.changes
        for less in one_unit_less(first):
            assert not decided(world, less, second).admits
        for less in one_unit_less(second):
            assert not decided(world, first, less).admits


def test_the_smallest_pair_is_found_in_nineteen_of_twenty_worlds() -> None:
    judged = found = 0
    for seed in range(WORLDS):
        world = small_world(Random(seed))
        best = smallest_by_hand(world)
        if best is None:
            continue
        answer = explain(world, KEY, NOW, pairs=SearchBudget)
        assert answer.verdict is TrialResult.WAITS
        assert PAIRS in answer.tried
        judged += 1
        found += bool(answer.pairs) and size_of(answer.pairs[0], world) <= best
    assert judged >= WORLDS // 3
    assert found >= 0.95 * judged
