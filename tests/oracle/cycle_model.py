"""A naive first cycle: heads, flavors, order, decisions.

Flavors have neither taints nor labels here, and nothing was tried before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from preemption_model import FINAL, INITIAL, Found, Preemptor, victims_of
from quota_model import Amounts, Node, Pair, World

NO_FIT, NO_CANDIDATES, PREEMPT, RECLAIM, FIT = range(5)
"""What one flavor comes to, the worst first."""


@dataclass(eq=False)
class Choice:
    """What a head would get; `pods` is per pod set its name, count and flavors."""

    mode: int = FIT
    level: int = 0
    usage: Amounts = field(default_factory=dict)
    need: set[Pair] = field(default_factory=set)
    pods: list[tuple[str, int, dict[str, str]]] = field(default_factory=list)
    victims: Found = field(default_factory=list)

    @property
    def possible(self) -> bool:
        return self.mode == FIT or bool(self.victims)


@dataclass(eq=False)
class Head:
    """The first waiting workload of a ClusterQueue."""

    name: str
    queue: Node
    priority: int
    created: float
    sets: list[Mapping[str, Any]]
    choice: Choice = field(default_factory=Choice)


class Cycle:
    """The first cycle of a scenario.

    Args:
        scenario: what is decided.
        careful: admit nobody into room that victims have yet to leave, reserve nothing that is
            negative, and search no victims for a request of zero, as our scheduler does and Kueue's
            does not.
    """

    def __init__(self, scenario: Mapping[str, Any], *, careful: bool = False) -> None:
        self.world = World(scenario)
        self.careful = careful
        self.held = World(scenario)
        """What holds quota, with those that were admitted so far."""
        fair = scenario.get("fairSharing", {})
        self.fair = bool(fair.get("enable"))
        strategies = tuple(fair.get("preemptionStrategies", (FINAL, INITIAL)))
        self.strategies = strategies if self.fair else ()
        self.admitted: dict[str, Any] = {}
        self.preempted: dict[str, Any] = {}
        self.waits: dict[str, str] = {}
        self.order: list[list[Any]] = []
        self.gone: Found = []
        self._run()

    def _run(self) -> None:
        heads = []
        for head in self._heads():
            if head.queue.cyclic:
                self.waits[head.name] = "inactive"
                continue
            head.choice = self._nominate(head)
            heads.append(head)
        for head in self._ordered(heads):
            mode = {FIT: "Fit", NO_FIT: "NoFit"}.get(head.choice.mode, "Preempt")
            self.order.append([head.name, mode, head.choice.level])
            self._decide(head)

    def _heads(self) -> Iterator[Head]:
        first: dict[str, Mapping[str, Any]] = {}
        for workload in self.world.scenario.get("pending", ()):
            if "arrive" not in workload and self.world.queues[workload["cq"]].active:
                best = first.setdefault(workload["cq"], workload)
                if _turn(workload) < _turn(best):
                    first[workload["cq"]] = workload
        for name in sorted(first):
            workload = first[name]
            queue = self.world.queues[name]
            sets = workload.get("podsets") or [{"req": workload["req"]}]
            yield Head(
                workload["name"],
                queue,
                workload.get("prio", 0),
                workload.get("created", 0),
                list(sets),
            )

    # --- nomination

    def _nominate(self, head: Head, only: Mapping[str, Mapping[str, str]] | None = None) -> Choice:
        full = [pod_set.get("count", 1) for pod_set in head.sets]
        slack = [
            count - min(count, pod_set["min"]) if "min" in pod_set else 0
            for count, pod_set in zip(full, head.sets, strict=True)
        ]
        choice = self._try(head, full, only)
        if choice.possible or not sum(slack):
            return choice
        low, high = 0, sum(slack) + 1
        best: tuple[int, Choice] | None = None
        while low < high:
            middle = (low + high) // 2
            counts = [n - s * middle // sum(slack) for n, s in zip(full, slack, strict=True)]
            shrunk = self._try(head, counts, only)
            if shrunk.possible:
                best, high = (middle, shrunk), middle
            else:
                low = middle + 1
        return best[1] if best is not None and best[0] == low else choice

    def _try(
        self, head: Head, counts: list[int], only: Mapping[str, Mapping[str, str]] | None
    ) -> Choice:
        choice = Choice()
        for pod_set, count in zip(head.sets, counts, strict=True):
            name = pod_set.get("name", "main")
            pinned = None if only is None else only[name]
            if not self._pod_set(head, choice, name, pod_set["req"], count, pinned):
                choice.mode = NO_FIT
                return choice
        if choice.mode not in (NO_FIT, FIT):
            choice.victims = self._victims(head, frozenset(choice.need), choice.usage)
        return choice

    def _victims(self, head: Head, need: frozenset[Pair], req: Amounts) -> Found:
        if self.careful:
            req = {x: amount for x, amount in req.items() if amount}
        preemptor = Preemptor(head.queue, head.priority, head.created, need, req)
        return victims_of(self.world, preemptor, self.strategies)

    def _pod_set(
        self,
        head: Head,
        choice: Choice,
        name: str,
        req: Mapping[str, int],
        count: int,
        pinned: Mapping[str, str] | None,
    ) -> bool:
        """Chooses flavors for one pod set; False when one of its groups has none."""
        flavors: dict[str, str] = {}
        need: set[Pair] = set()
        mode, level = FIT, 0
        groups = head.queue.spec["groups"]
        for resource in sorted(req):
            matching = [group for group in groups if any(resource in q for q in group.values())]
            if not matching:
                if req[resource]:
                    return False
                continue
            if resource in flavors:
                continue
            covered = {r for quotas in matching[0].values() for r in quotas}
            asked = {r: amount * count for r, amount in req.items() if r in covered}
            names = [f for f in matching[0] if pinned is None or f == pinned.get(resource)]
            best = self._flavor(head, choice, names, asked)
            if best is None:
                return False
            flavor, (worst, _), verdicts = best
            mode = min(mode, worst)
            for r, (one, borrowed) in verdicts.items():
                flavors[r] = flavor
                level = max(level, borrowed)
                if one != FIT:
                    need.add((flavor, r))
        choice.mode, choice.level = min(choice.mode, mode), max(choice.level, level)
        choice.need |= need
        choice.pods.append((name, count, flavors))
        for r, flavor in flavors.items():
            choice.usage[flavor, r] = choice.usage.get((flavor, r), 0) + req[r] * count
        return True

    def _flavor(
        self, head: Head, choice: Choice, names: list[str], asked: Mapping[str, int]
    ) -> tuple[str, tuple[int, int], dict[str, tuple[int, int]]] | None:
        fung = head.queue.spec.get("fung", {})
        by_level = fung.get("preference") == "PreemptionOverBorrowing"

        def merit(verdict: tuple[int, int]) -> tuple[int, ...]:
            mode, level = verdict
            if mode == NO_FIT:
                return (0,)
            some = int(mode != NO_CANDIDATES)
            return (1, some, -level, mode) if by_level else (1, some, mode, -level)

        best = None
        for flavor in names:
            verdicts = {
                r: self._verdict(head, (flavor, r), choice.usage.get((flavor, r), 0) + amount)
                for r, amount in asked.items()
            }
            worst = min(verdicts.values(), key=merit, default=(FIT, 0))
            if merit(worst) > (merit(best[1]) if best else (0,)):
                best = flavor, worst, verdicts
            mode, level = worst
            stops = mode not in (NO_FIT, NO_CANDIDATES)
            if mode != FIT and fung.get("preempt", "TryNextFlavor") == "TryNextFlavor":
                stops = False
            if level and fung.get("borrow") == "TryNextFlavor":
                stops = False
            if stops:
                return flavor, worst, verdicts
        return best

    def _verdict(self, head: Head, x: Pair, amount: int) -> tuple[int, int]:
        queue = head.queue
        if amount > queue.potential(x):
            return NO_FIT, 0
        level, smaller = queue.level(x, amount)
        if amount <= max(0, queue.available(x)):
            return FIT, level
        policies = queue.spec.get("preemption", {})
        reclaims = self.fair and policies.get("reclaim", "Never") != "Never"
        if not (amount <= queue.nominal.get(x, 0) or smaller or "bwc" in policies or reclaims):
            return NO_FIT, level
        victims = self._victims(head, frozenset({x}), {x: amount})
        if not victims:
            return NO_CANDIDATES, level
        for work, _ in victims:
            self.world.take(work)
        level, _ = queue.level(x, amount)
        for work, _ in victims:
            self.world.give(work)
        own = any(work.queue == queue.name for work, _ in victims)
        return (PREEMPT if own else RECLAIM), level

    # --- order

    def _ordered(self, heads: list[Head]) -> Iterator[Head]:
        if not self.fair:
            key = lambda head: (head.choice.level, *_age(head))  # noqa: E731
            yield from sorted(heads, key=key)
            return
        left = {head.queue: head for head in heads}
        while left:
            first = min(left, key=lambda queue: queue.name)
            head = left[first] if first.parent is None else self._winner(first.root, left)
            assert head is not None
            del left[head.queue]
            yield head

    def _winner(self, root: Node, left: Mapping[Node, Head]) -> Head | None:
        marks: dict[tuple[Node, Node], tuple[bool, tuple[int, float]]] = {}
        for head in [left[queue] for queue in root.queues() if queue in left]:
            head.queue.add(head.choice.usage)
            for node in head.queue.path():
                if node.parent is not None:
                    asked = [x for x in node.borrows() if head.choice.usage.get(x, 0) > 0]
                    marks[node.parent, head.queue] = (bool(asked), node.share())
            head.queue.remove(head.choice.usage)
        return self._best(root, left, marks)

    def _best(
        self,
        cohort: Node,
        left: Mapping[Node, Head],
        marks: Mapping[tuple[Node, Node], tuple[bool, tuple[int, float]]],
    ) -> Head | None:
        candidates = [
            left.get(child) if child.is_queue else self._best(child, left, marks)
            for child in cohort.children
        ]
        heads = [head for head in candidates if head is not None]
        return min(heads, key=lambda h: (*marks[cohort, h.queue], *_age(h)), default=None)

    # --- decisions

    def _decide(self, head: Head) -> None:
        deferred = False
        if {work.name for work, _ in head.choice.victims} & {work.name for work, _ in self.gone}:
            for work, _ in self.gone:
                self.world.take(work)
            only = {name: flavors for name, _, flavors in head.choice.pods}
            head.choice = self._nominate(head, only)
            for work, _ in self.gone:
                self.world.give(work)
            deferred = head.choice.mode == FIT
        choice = head.choice
        if choice.mode == NO_FIT:
            self.waits[head.name] = "no-fit"
        elif choice.mode != FIT and not choice.victims:
            self.waits[head.name] = "needs-preemption-no-targets"
            if head.queue.spec.get("preemption", {}).get("reclaim") != "Any":
                head.queue.add(self._reserved(head))
        elif deferred:
            head.queue.add(choice.usage)
            self.waits[head.name] = "deferred-fit"
        elif not self._fits(head):
            self.waits[head.name] = "skipped-cohort"
        elif choice.victims:
            head.queue.add(choice.usage)
            self.gone += choice.victims
            for work, reason in choice.victims:
                self.preempted[work.name] = {"by": head.name, "reason": reason}
            self.waits[head.name] = "preempting"
        elif self.careful and not self.held.queues[head.queue.name].fits(choice.usage):
            head.queue.add(choice.usage)
            self.waits[head.name] = "deferred-fit"
        else:
            head.queue.add(choice.usage)
            self.held.queues[head.queue.name].add(choice.usage)
            self.admitted[head.name] = {
                name: {"flavors": flavors, "count": count} for name, count, flavors in choice.pods
            }

    def _fits(self, head: Head) -> bool:
        """Whether a head fits when all victims of this cycle and its own are gone."""
        leaving = [work for work, _ in [*self.gone, *head.choice.victims]]
        for work in leaving:
            self.world.queues[work.queue].remove(work.usage)
        fits = head.queue.fits(head.choice.usage)
        for work in leaving:
            self.world.queues[work.queue].add(work.usage)
        return fits

    def _reserved(self, head: Head) -> Amounts:
        queue, amounts = head.queue, {}
        for x, amount in head.choice.usage.items():
            free = queue.nominal.get(x, 0) - queue.used(x)
            limit = queue.borrowing.get(x)
            if not head.choice.level:
                amounts[x] = max(0, min(amount, free))
            elif limit is None:
                amounts[x] = amount
            else:
                amounts[x] = min(amount, max(0, free + limit) if self.careful else free + limit)
        return amounts


def _turn(workload: Mapping[str, Any]) -> tuple[int, float, str]:
    return -workload.get("prio", 0), workload.get("created", 0), workload["name"]


def _age(head: Head) -> tuple[int, float, str]:
    return -head.priority, head.created, head.queue.name
