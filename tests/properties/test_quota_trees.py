"""Laws of quota in trees: what the cache keeps equals what the formulas give from scratch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from random import Random

import attrs
from hypothesis import given, settings
from hypothesis import strategies as st
from quota_model import Node

from kueuelib.scheduler.quota import amounts
from kueuelib.scheduler.quota.amounts import FlavorResource, Limits
from kueuelib.scheduler.quota.forest import Forest
from kueuelib.scheduler.quota.node import cohort_key
from kueuelib.scheduler.quota.queue_spec import CohortQuotas, QueueSpec
from kueuelib.scheduler.quota.snapshot import Frozen, FrozenQueue, FrozenTree, Snapshot

CPU, GPU = PAIRS = (FlavorResource("f", "cpu"), FlavorResource("f", "gpu"))
QUEUES = ("a", "b", "c", "d", "e")
COHORTS = ("k", "l", "m", "n", "o", "p")

Usage = dict[FlavorResource, int]


@attrs.define
class History:
    """A forest, and the facts that it was told in the form in which they hold now."""

    random: Random
    forest: Forest = attrs.field(factory=Forest)
    queues: dict[str, QueueSpec] = attrs.field(factory=dict)
    cohorts: dict[str, CohortQuotas] = attrs.field(factory=dict)
    usage: dict[str, Usage] = attrs.field(factory=dict)
    stopped: set[str] = attrs.field(factory=set)

    def step(self) -> None:
        """One random fact."""
        random = self.random
        name, cohort = random.choice(QUEUES), random.choice(COHORTS)
        match random.choice(("queue", "cohort", "cohort", "charge", "charge", "stop", "drop")):
            case "queue":
                above = random.choice(("", *COHORTS, *COHORTS))
                self.queues[name] = QueueSpec(name, above, limits=self.limits(3))
                self.usage.setdefault(name, {})
                used, active = dict(self.usage[name]), name not in self.stopped
                self.forest.put_queue(self.queues[name], used, active=active)
            case "cohort":
                above = random.choice(("", *COHORTS))
                self.cohorts[cohort] = CohortQuotas(cohort, above, limits=self.limits(2))
                self.forest.put_cohort(self.cohorts[cohort])
            case "charge" if name in self.queues:
                used = self.usage[name]
                more = {pair: random.randint(-used.get(pair, 0), 4) for pair in PAIRS}
                self.usage[name] = {pair: used.get(pair, 0) + more[pair] for pair in PAIRS}
                self.forest.charge(name, more, 1)
            case "stop" if name in self.queues:
                self.stopped ^= {name}
                self.forest.set_active(name, active=name not in self.stopped)
            case "drop" if random.random() < 0.4:
                self.queues.pop(name, None)
                self.usage.pop(name, None)
                self.stopped.discard(name)
                self.forest.drop_queue(name)
            case "drop":
                self.cohorts.pop(cohort, None)
                self.forest.drop_cohort(cohort)

    def limits(self, chance: int) -> dict[FlavorResource, Limits]:
        random = self.random
        return {
            pair: Limits(
                random.randint(0, 6),
                random.choice((None, random.randint(0, 4))),
                random.choice((None, random.randint(0, 7))),
            )
            for pair in PAIRS
            if random.randint(0, chance)
        }

    def part(self, name: str) -> FrozenQueue:
        inactive = "Stopped" if name in self.stopped else ""
        return FrozenQueue(self.queues[name], inactive, self.usage[name], [], None)

    def trees(self, forest: Forest) -> dict[str, FrozenTree]:
        """The frozen tree of every cohort that somebody names or that has an object."""
        used = {spec.cohort for spec in self.queues.values()}
        used |= {spec.parent for spec in self.cohorts.values()} | set(self.cohorts)
        return {name: forest.freeze(name, self.part) for name in sorted(used - {""})}

    def rebuilt(self) -> Forest:
        """A forest that was told what holds now, in any order."""
        forest = Forest()
        facts = [*self.queues.values(), *self.cohorts.values()]
        self.random.shuffle(facts)
        for fact in facts:
            if isinstance(fact, CohortQuotas):
                forest.put_cohort(fact)
            else:
                active = fact.name not in self.stopped
                forest.put_queue(fact, {}, active=active)
                forest.charge(fact.name, self.usage[fact.name], 1)
        return forest

    def model(self, usage: dict[str, Usage]) -> dict[str, Node]:
        """The same from scratch, by the formulas; cohorts whose parents never end are cut off."""
        nodes: dict[str, Node] = {}
        for name, spec in self.cohorts.items():
            nodes[cohort_key(name)] = node(name, spec.limits, is_queue=False)
        for name, queue in self.queues.items():
            nodes[name] = node(name, queue.limits, is_queue=True)
            nodes[name].active = name not in self.stopped
        above = {name: spec.cohort for name, spec in self.queues.items()}
        above |= {cohort_key(name): spec.parent for name, spec in self.cohorts.items()}
        for key, parent in above.items():
            if parent:
                nodes.setdefault(cohort_key(parent), node(parent, {}, is_queue=False))
                nodes[key].parent = nodes[cohort_key(parent)]
        for cut in [one for one in nodes.values() if not one.is_queue and one.cyclic]:
            cut.parent = None
        for one in nodes.values():
            if one.parent is not None:
                one.parent.children.append(one)
        for name, used in usage.items():
            nodes[name].add({(pair.flavor, pair.resource): used[pair] for pair in used})
        return nodes


def node(name: str, limits: Mapping[FlavorResource, Limits], *, is_queue: bool) -> Node:
    found = Node(name, is_queue=is_queue)
    for pair, quota in limits.items():
        found.nominal[tuple(pair)] = quota.nominal
        if quota.borrowing is not None:
            found.borrowing[tuple(pair)] = quota.borrowing
        if quota.lending is not None:
            found.lending[tuple(pair)] = quota.lending
    return found


def overlay(history: History) -> Snapshot:
    """What a cycle would see of everything."""
    queues = {name: history.part(name) for name in history.queues}
    return Snapshot(Frozen(queues, history.trees(history.forest), {}))


def compare(history: History, snapshot: Snapshot, usage: dict[str, Usage]) -> None:
    """Every number of every node, and who borrows from whom."""
    model = history.model(usage)
    trees = history.trees(history.forest)
    for key, expected in model.items():
        if expected.is_queue:
            found = snapshot.nodes[key]
        else:
            found = trees[expected.name].quota.cohort(expected.name)
            assert trees[expected.name].quota.root == expected.root.name
            assert set(map(tuple, found.quota)) == expected.pairs()
        assert [above.name for above in found.path] == [above.name for above in expected.path()]
        assert found.height == expected.height()
        for pair in PAIRS:
            x, used = tuple(pair), snapshot.used[pair]
            quota = amounts.quota_of(found, pair)
            assert quota.nominal == expected.subtree(x)
            assert quota.guaranteed == expected.guaranteed(x)
            assert used[key] == expected.used(x)
            assert amounts.available(found, pair, used) == expected.available(x)
            assert amounts.potential(found, pair) == expected.potential(x)
            if expected.is_queue:
                for amount in range(0, 9, 2):
                    level = amounts.level(found, pair, amount, used)
                    assert tuple(level) == expected.level(x, amount)
    for name in history.queues:
        for pairs in ((CPU,), (GPU,), PAIRS):
            found_pairs = [
                (one.cohort.name, queue.spec.name)
                for one in snapshot.reclaimable(history.part(name), pairs)
                for queue in one.queues
            ]
            assert sorted(found_pairs) == sorted(borrowers(model, model[name], pairs))


def borrowers(
    model: dict[str, Node], queue: Node, pairs: Iterable[FlavorResource]
) -> Iterator[tuple[str, str]]:
    """The active ClusterQueues that use what others own, with the lowest cohort above both.

    Each of their nodes below that cohort borrows some of the pairs.
    """
    mine = list(queue.path())
    for other in model.values():
        path = list(other.path())
        shared = [one for one in path if one in mine]
        if not other.is_queue or other is queue or not shared or not other.active:
            continue
        below = path[: path.index(shared[0])]
        if not any(one.within(tuple(pair) for pair in pairs) for one in below):
            yield shared[0].name, other.name


@given(random=st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None)
def test_a_tree_has_the_quota_and_usage_that_the_formulas_give(random: Random) -> None:
    """After every fact, and whatever parents are named: cycles as well."""
    history = History(random)
    for _ in range(25):
        history.step()
        compare(history, overlay(history), history.usage)


@given(random=st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None)
def test_a_forest_is_that_of_one_built_anew(random: Random) -> None:
    history = History(random)
    for _ in range(random.randint(1, 60)):
        history.step()
        if not random.randint(0, 9):
            history.trees(history.forest)
    mine, other = history.trees(history.forest), history.trees(history.rebuilt())
    assert mine.keys() == other.keys()
    for name, tree in mine.items():
        anew = other[name]
        assert tree.quota.root == anew.quota.root
        assert tree.quota.rows == anew.quota.rows
        assert list(tree.members) == list(anew.members)
        assert tree.used == anew.used
        assert tree.borrowers == anew.borrowers
    snapshot = overlay(history)
    for name in history.queues:
        for pair in PAIRS:
            free = snapshot.available(history.part(name), pair)
            assert history.forest.available(name, pair) == free
    forget_all(history)


def forget_all(history: History) -> None:
    """Nothing is left when the last ClusterQueue and the last Cohort have gone."""
    for name in history.queues:
        history.forest.drop_queue(name)
    for name in history.cohorts:
        history.forest.drop_cohort(name)
    ledger = history.forest._ledger
    assert not ledger.spots
    assert not ledger._used
    assert not ledger._steps


@given(random=st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None)
def test_changes_of_a_cycle_follow_the_formulas_and_are_undone_exactly(random: Random) -> None:
    """Also where more is used than there is, and in any order of the changes."""
    history = History(random)
    for _ in range(random.randint(5, 40)):
        history.step()
    if not history.queues:
        return
    snapshot = overlay(history)
    usage = {name: dict(used) for name, used in history.usage.items()}
    mark = snapshot.mark()
    for _ in range(random.randint(1, 8)):
        name = random.choice(sorted(usage))
        used = usage[name]
        queue = history.part(name)
        if random.randint(0, 1):
            more = {pair: random.randint(0, 5) for pair in PAIRS}
            snapshot.add(queue, more)
        else:
            more = {pair: -random.randint(0, used.get(pair, 0)) for pair in PAIRS}
            snapshot.remove(queue, {pair: -amount for pair, amount in more.items()})
        usage[name] = {pair: used.get(pair, 0) + more[pair] for pair in PAIRS}
    compare(history, snapshot, usage)
    snapshot.undo(mark)
    compare(history, snapshot, history.usage)
