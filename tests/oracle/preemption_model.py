"""Naive preemption in a tree (KEP-83, KEP-1714)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from quota_model import Node, Pair, Work, World

FINAL, INITIAL = "LessThanOrEqualToFinalShare", "LessThanInitialShare"

Found = list[tuple[Work, str]]
"""Victims, each with the reason."""

Place = tuple[int, float]
"""The priority and the age of a Workload."""


def grants(policy: str, mine: Place, theirs: Place) -> bool:
    """Whether a policy lets a Workload take another one; the only naive model of the policies."""
    lower, equal, newer = theirs[0] < mine[0], theirs[0] == mine[0], mine[1] < theirs[1]
    match policy:
        case "Never":
            return False
        case "LowerPriority":
            return lower
        case "LowerOrNewerEqualPriority":
            return lower or (equal and newer)
        case "Any":
            return True
    raise AssertionError(f"no model of {policy}")


@dataclass(eq=False)
class Preemptor:
    """Who wants quota: `need` is short, `req` is everything it asks for."""

    queue: Node
    priority: int
    created: float
    need: frozenset[Pair]
    req: Mapping[Pair, int]

    def may_take(self, work: Work, policy: str) -> bool:
        if not self.need & set(work.usage):
            return False
        return grants(policy, (self.priority, self.created), (work.priority, work.created))

    def policy(self, name: str) -> str:
        policies: Mapping[str, str] = self.queue.spec.get("preemption", {})
        return policies.get(name, "Never")

    def rank(self, work: Work) -> tuple[bool, bool, int, float, str]:
        own = work.queue == self.queue.name
        return not work.evicted, own, work.priority, -work.reserved, work.name


def victims_of(world: World, preemptor: Preemptor, strategies: tuple[str, ...]) -> Found:
    """Whom a preemptor takes; empty when it does not fit whoever leaves.

    The world is as before afterwards. Without strategies, fair sharing is off.
    """
    victims = fair(world, preemptor, strategies) if strategies else classical(world, preemptor)
    for work, _ in victims:
        world.give(work)
    return victims


def _put_back(world: World, preemptor: Preemptor, taken: Found, *, borrow: bool) -> Found:
    """Brings back, from the last but one to the first, who need not leave."""
    kept = taken[-1:]
    for work, reason in reversed(taken[:-1]):
        world.give(work)
        if not _fits(preemptor, borrow=borrow):
            world.take(work)
            kept.append((work, reason))
    return kept


def _fits(preemptor: Preemptor, *, borrow: bool) -> bool:
    queue, req = preemptor.queue, preemptor.req
    if not queue.fits(req):
        return False
    return borrow or all(queue.used(x) + v <= queue.nominal.get(x, 0) for x, v in req.items())


# --- fair sharing off


def classical(world: World, preemptor: Preemptor) -> Found:
    """The victims, taken out of the world."""
    queue, policies = preemptor.queue, preemptor.queue.spec.get("preemption", {})
    while_borrowing = "bwc" in policies
    threshold = (policies.get("bwc") or {}).get("max")
    ancestors: dict[str, Node] = {}
    kinds: dict[str, str] = {}
    classes: dict[str, int] = {}
    if preemptor.policy("reclaim") != "Never" and queue.parent is not None:
        advantage = all(queue.used(x) + v <= queue.subtree(x) for x, v in preemptor.req.items())
        rest = {x: max(0, v - queue.free(x)) for x, v in preemptor.req.items()}
        below = queue
        for ancestor in queue.parent.path():
            for work in _collected(world, preemptor, ancestor, below):
                ancestors[work.name] = ancestor
                over = work.priority >= preemptor.priority
                over = over or (threshold is not None and work.priority > threshold)
                if advantage:
                    kinds[work.name] = "hierarchical"
                elif not while_borrowing or over:
                    kinds[work.name] = "without borrowing"
                else:
                    kinds[work.name] = "while borrowing"
                classes[work.name] = 0 if advantage else 1
            fitting = [ancestor.used(x) + v <= ancestor.subtree(x) for x, v in rest.items()]
            advantage = advantage or all(fitting)
            rest = {x: max(0, v - ancestor.free(x)) for x, v in rest.items()}
            below = ancestor
    for work in world.running(queue):
        if preemptor.may_take(work, preemptor.policy("within")):
            kinds[work.name] = "own"
            classes[work.name] = 2
    order = sorted(
        (world.holders[name] for name in kinds),
        key=lambda work: (not work.evicted, classes[work.name], preemptor.rank(work)),
    )
    under = all(queue.used(x) < queue.nominal.get(x, 0) for x in preemptor.need)
    if set(kinds.values()) <= {"own"} or (not while_borrowing and not under):
        attempts = [True]
    elif not while_borrowing and "hierarchical" not in kinds.values():
        attempts = [False, True]
    else:
        attempts = [True, False]
    reasons = {
        "own": "InClusterQueue",
        "hierarchical": "InCohortReclamation",
        "without borrowing": "InCohortReclamation",
        "while borrowing": "InCohortReclaimWhileBorrowing",
    }
    for borrow in attempts:
        taken: Found = []
        for work in order:
            kind = kinds[work.name]
            if borrow and kind == "without borrowing":
                continue
            if kind != "own" and _protected(world, preemptor, work, ancestors[work.name]):
                continue
            world.take(work)
            taken.append((work, reasons[kind]))
            if _fits(preemptor, borrow=borrow):
                return _put_back(world, preemptor, taken, borrow=borrow)
        for work, _ in taken:
            world.give(work)
    return []


def _protected(world: World, preemptor: Preemptor, work: Work, ancestor: Node) -> bool:
    """Whether a node on the way to the common ancestor is within nominal quota by now."""
    for node in world.queues[work.queue].path():
        if node is ancestor:
            return False
        if node.within(preemptor.need):
            return True
    raise AssertionError(work.name)


def _collected(world: World, preemptor: Preemptor, top: Node, below: Node) -> list[Work]:
    """The candidates under a cohort, without the part `below` that was visited before."""
    works: list[Work] = []
    for child in top.children:
        if child is below or child is preemptor.queue or child.within(preemptor.need):
            continue
        if not child.is_queue:
            works += _collected(world, preemptor, child, below)
        elif child.active:
            policy = preemptor.policy("reclaim")
            works += [w for w in world.running(child) if preemptor.may_take(w, policy)]
    return works


# --- fair sharing on


class Fair:
    """One search under fair sharing; the preemptor's request counts as its usage meanwhile."""

    def __init__(self, world: World, preemptor: Preemptor) -> None:
        self.world = world
        self.preemptor = preemptor
        self.queue = preemptor.queue
        self.taken: Found = []
        self.candidates = {self.queue.name: self._allowed(self.queue, "within")}
        for other in self.queue.root.queues():
            if other is not self.queue and not other.within(preemptor.need):
                self.candidates[other.name] = self._allowed(other, "reclaim")
        self.queue.add(preemptor.req)
        self.within_nominal = self.queue.within(preemptor.need)

    def _allowed(self, queue: Node, policy: str) -> list[Work]:
        chosen = self.preemptor.policy(policy)
        works = [w for w in self.world.running(queue) if self.preemptor.may_take(w, chosen)]
        return sorted(works, key=self.preemptor.rank)

    def fits(self) -> bool:
        self.queue.remove(self.preemptor.req)
        fits = _fits(self.preemptor, borrow=True)
        self.queue.add(self.preemptor.req)
        return fits

    def take(self, work: Work, reason: str) -> bool:
        """Takes a victim; whether that is enough."""
        self.world.take(work)
        self.taken.append((work, reason))
        return self.fits()

    def next_queue(self, waiting: Mapping[str, list[Work]], dropped: set[Node]) -> Node | None:
        """The ClusterQueue to look at next, None when there is none; `dropped` grows."""
        root = self.queue.root
        while root not in dropped:
            node = root
            while not node.is_queue:
                child = self._highest(node, waiting, dropped)
                if child is None:
                    dropped.add(node)
                    break
                node = child
            else:
                return node
        return None

    def _highest(
        self, cohort: Node, waiting: Mapping[str, list[Work]], dropped: set[Node]
    ) -> Node | None:
        for child in cohort.children:
            if child.is_queue:
                idle = child is not self.queue and not child.borrows()
                if idle or not waiting.get(child.name):
                    dropped.add(child)
            elif not child.borrows() and child not in self.queue.path():
                dropped.add(child)
        left = [child for child in cohort.children if child not in dropped]
        if not left:
            return None

        def key(child: Node) -> tuple[object, ...]:
            above, share = child.share()
            rank = self.preemptor.rank(waiting[child.name][0]) if child.is_queue else ()
            return -above, -share, child.is_queue, rank, child.name

        return min(left, key=key)

    def shares(self, victim: Node) -> tuple[Node, Node]:
        """The nodes under the lowest common ancestor, on the preemptor's side and on the other."""
        mine = list(self.queue.path())
        side = victim
        for node in victim.path():
            if node in mine:
                return mine[mine.index(node) - 1], side
            side = node
        raise AssertionError(victim.name)

    def first(self, strategy: str) -> tuple[bool, Found]:
        """Whether it fits, and whom the strategy refused."""
        waiting = {name: list(works) for name, works in self.candidates.items()}
        if self.queue.parent is None:
            for work in waiting[self.queue.name]:
                if self.take(work, "InClusterQueue"):
                    return True, []
            return False, []
        refused: Found = []
        dropped: set[Node] = set()
        while (queue := self.next_queue(waiting, dropped)) is not None:
            left = waiting[queue.name]
            if queue is self.queue or self.within_nominal:
                own = queue is self.queue
                reason = "InClusterQueue" if own else "InCohortReclamation"
                if self.take(left.pop(0), reason):
                    return True, []
                continue
            mine, theirs = self.shares(queue)
            while left:
                work = left.pop(0)
                share, before = mine.share(), theirs.share()
                self.world.take(work)
                after = theirs.share()
                self.world.give(work)
                passed = share <= after if strategy == FINAL else share < before
                if not passed:
                    refused.append((work, ""))
                    continue
                if self.take(work, "InCohortFairSharing"):
                    return True, []
                break
        return False, refused

    def unfair(self) -> list[Work]:
        """The victims taken because of shares whose side has less now than the preemptor's."""
        works = []
        for work, reason in self.taken:
            if reason == "InCohortFairSharing" and work.name not in self.world.holders:
                mine, theirs = self.shares(self.world.queues[work.queue])
                if mine.share() > theirs.share():
                    works.append(work)
        return works

    def second(self, refused: Found) -> bool:
        waiting: dict[str, list[Work]] = {}
        for work, _ in refused:
            waiting.setdefault(work.queue, []).append(work)
        dropped: set[Node] = set()
        while (queue := self.next_queue(waiting, dropped)) is not None:
            mine, theirs = self.shares(queue)
            fair = mine.share() < theirs.share()
            if fair and self.take(waiting[queue.name][0], "InCohortFairSharing"):
                return True
            dropped.add(queue)
        return False


def fair(world: World, preemptor: Preemptor, strategies: tuple[str, ...]) -> Found:
    """The victims, taken out of the world."""
    search = Fair(world, preemptor)
    fits, refused = search.first(strategies[0])
    if not fits and len(strategies) > 1 and refused:
        fits = search.second(refused)
    preemptor.queue.remove(preemptor.req)
    if fits:
        return _put_back(world, preemptor, search.taken, borrow=True)
    for work, _ in search.taken:
        world.give(work)
    return []
