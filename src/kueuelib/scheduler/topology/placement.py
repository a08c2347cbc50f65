"""Where the pods of a pod set go: domains of a topology, with a number of pods each (KEP-2724).

First, bottom up, how many pods each domain could hold. Then a level is chosen whose domains hold
all of them, with as few domains as the request demands, and from there the pods go down to the
leaves level by level. `BestFit` prefers the domain that is left with the least; a request that is
content with any domains fills those with the least room first (`LeastFreeCapacity`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final

import attrs

from kueuelib.api.core import PodSpec
from kueuelib.api.struct import frozen
from kueuelib.api.workload import TopologyConstraint, TopologyRequest
from kueuelib.scheduler.topology.tree import Columns, DomainTree, FlavorNodes, Path
from kueuelib.scheduler.values import record, value

POD_SLOTS: Final = "pods"
"""The resource of which every pod takes 1."""


@value
class PodsToPlace:
    """Pods that are placed together: those of a pod set, or of a group with a leader.

    Attributes:
        count: how many, without the leader.
        per_pod: the request of one of them, without its slot.
        pods: their selectors, affinity and tolerations, which count for the leader as well.
        request: what they ask of a topology; None for none, so that any leaves will do.
        leader: the request of the leader; None without one.
    """

    count: int
    per_pod: Mapping[str, int]
    pods: PodSpec
    request: TopologyRequest | None = None
    leader: Mapping[str, int] | None = None


@record
class Placement:
    """The leaves that pods get.

    Attributes:
        pods: for each leaf that gets any, by position and in order, how many.
        leader: the leaf of the leader; None without one.
    """

    pods: tuple[tuple[int, int], ...]
    leader: int | None = None


@record
class Unplaceable:
    """A request that no nodes of the flavor can meet, because of its levels, sizes or places."""

    text: str


@record
class NoDomain:
    """No domains have room for all pods.

    Attributes:
        topology: the Topology.
        wanted: how many pods, or slices of them, need room.
        fitting: how many would have it.
        sliced: whether these are slices.
        layers: with slices in slices, for each level how many fit, and how many are wanted.
        leaves: how many leaves there are.
        excluded: how many of them are left out, by reason.
    """

    topology: str
    wanted: int
    fitting: int
    sliced: bool
    layers: tuple[tuple[str, int, int], ...]
    leaves: int
    excluded: Mapping[str, int] = attrs.field(hash=False)

    @property
    def text(self) -> str:
        """The words of the condition message."""
        unit = "slice(s)" if self.sliced else "pod(s)"
        start = f'topology "{self.topology}"'
        if self.layers:
            text = f"{start} doesn't allow to fit"
            for level, fitting, wanted in self.layers:
                text += f"; {fitting}/{wanted} slice(s) fit on level {level}"
        elif self.fitting:
            text = f"{start} allows to fit only {self.fitting} out of {self.wanted} {unit}"
        else:
            text = f"{start} doesn't allow to fit any of {self.wanted} {unit}"
        if self.excluded:
            items = ", ".join(sorted(f"{why}: {n}" for why, n in self.excluded.items()))
            text += f". Total nodes: {self.leaves}; excluded: {items}"
        return text


Misfit = Unplaceable | NoDomain
"""Why pods are not placed."""


# ---- the parameters of a request -----------------------------------------------------------------


@frozen
class _Plan:
    """A request in terms of the levels of a tree.

    Attributes:
        level: where the search begins.
        required: whether it ends there.
        loose: whether any domains of that level will do; usually selects `LeastFreeCapacity`.
        size: the pods of a slice; 1 if there are none.
        slice_level: the level whose domains hold whole slices.
        inner: the sizes of slices in slices, by level.
        layers: the slices as requested.
    """

    level: int
    required: bool
    loose: bool
    size: int
    slice_level: int
    inner: Mapping[int, int]
    layers: tuple[TopologyConstraint, ...]


NO_LEVEL: Final = Unplaceable("topology level not specified")


def layers_of(request: TopologyRequest | None) -> tuple[TopologyConstraint, ...]:
    """The slices of a request, from coarse to fine; a missing size is 0."""
    if request is None:
        return ()
    if request.podset_slice_required_topology_constraints:
        return request.podset_slice_required_topology_constraints
    level = request.pod_set_slice_required_topology
    if level is None:
        return ()
    return (TopologyConstraint(level, request.pod_set_slice_size or 0),)


def asks_explicitly(request: TopologyRequest | None) -> bool:
    """Whether a pod set asks for a placement itself; labels with indices alone do not."""
    return request is not None and (
        request.unconstrained is not None
        or request.required is not None
        or request.preferred is not None
        or request.pod_set_slice_required_topology is not None
        or request.pod_set_slice_size is not None
        or bool(request.podset_slice_required_topology_constraints)
    )


def missing_level(request: TopologyRequest, levels: Sequence[str]) -> bool:
    """Whether a topology lacks a level that an explicit request names, or the request names none.

    Args:
        request: what the pods ask.
        levels: of the topology.
    """
    layers = layers_of(request)
    level = request.required or request.preferred
    if level is None and not layers and not request.unconstrained:
        return True
    named = [layer.topology for layer in layers] + ([level] if level else [])
    return any(each not in levels for each in named)


def _planned(tree: DomainTree, asked: PodsToPlace) -> _Plan | Unplaceable:
    request, levels = asked.request, tree.levels
    last = len(levels) - 1
    layers = layers_of(request)
    size, slice_level = 1, last
    if layers:
        size = layers[0].size
        if size <= 0:
            return Unplaceable("slice topology requested, but slice size not provided")
    key: str | None = None
    required = preferred = None
    implied = not asks_explicitly(request)
    if request is not None:
        required, preferred = request.required, request.preferred
    if required is not None or preferred is not None:
        key = required if required is not None else preferred
    elif layers:
        key = levels[0]
    elif implied or (request is not None and request.unconstrained):
        key = levels[last]
    if key is None:
        return NO_LEVEL
    if key not in levels:
        return Unplaceable(f"no requested topology level: {key}")
    level = levels.index(key)
    if layers:
        if layers[0].topology not in levels:
            name = layers[0].topology
            return Unplaceable(f"no requested topology level for slices: {name}")
        slice_level = levels.index(layers[0].topology)
    if level > slice_level:
        text = f"podset slice topology {levels[slice_level]} is above the podset topology {key}"
        return Unplaceable(text)
    inner = _inner_sizes(levels, layers)
    if isinstance(inner, Unplaceable):
        return inner
    loose = required is None and preferred is None
    return _Plan(level, required is not None, loose, size, slice_level, inner, layers)


def _inner_sizes(
    levels: Sequence[str], layers: tuple[TopologyConstraint, ...]
) -> dict[int, int] | Unplaceable:
    inner: dict[int, int] = {}
    for outer, layer in pairwise(layers):
        name = layer.topology
        if name not in levels:
            text = f"no requested topology level for additional slice layer: {name}"
            return Unplaceable(text)
        above, here = levels.index(outer.topology), levels.index(name)
        if here <= above:
            return Unplaceable(
                f"additional slice layer topology {name} must be at a lower level than "
                f"{outer.topology}"
            )
        if layer.size <= 0 or outer.size % layer.size:
            return Unplaceable(
                f"additional slice layer size {layer.size} must evenly divide parent layer size "
                f"{outer.size}"
            )
        inner.update(dict.fromkeys(range(above + 1, here + 1), layer.size))
    return inner


# ---- how many pods each domain could hold, from the leaves up ------------------------------------

Numbers = list[int]


@value
class _Counts:
    """What the domains of one level could hold, by position.

    Without a leader the numbers with one are the same lists.

    Attributes:
        pods: pods.
        slices: whole slices; 0 below their level.
        pods_l: pods beside a leader.
        slices_l: whole slices beside a leader.
        leader: 1 if it can hold the leader, otherwise 0.
    """

    pods: Numbers
    slices: Numbers
    pods_l: Numbers
    slices_l: Numbers
    leader: Numbers


def _fitting(free: Columns, request: Mapping[str, int], size: int) -> Numbers:
    """How many pods fit in each leaf."""
    least: Sequence[int] | None = None
    for resource, amount in (*request.items(), (POD_SLOTS, 1)):
        if amount <= 0:
            continue
        column = free.get(resource)
        if column is None:
            return [0] * size
        fits = column if amount == 1 else [room // amount for room in column]
        least = fits if least is None else _smaller(least, fits)
    assert least is not None, "there are slots"
    return [room if room > 0 else 0 for room in least]  # noqa: FURB136 - as in `_smaller`


def _smaller(some: Iterable[int], others: Iterable[int]) -> Numbers:
    """The smaller number of each pair; calls of `min` would be most of the time of a placement."""
    return [a if a < b else b for a, b in zip(some, others, strict=True)]  # noqa: FURB136


def _leaf_counts(
    nodes: FlavorNodes, free: Columns, asked: PodsToPlace, barred: Iterable[int]
) -> tuple[Numbers, Numbers, Numbers]:
    """The pods that fit in each leaf, those beside a leader, and whether the leader does."""
    size = len(nodes.tree.leaves)
    pods = _fitting(free, asked.per_pod, size)
    for index in barred:
        pods[index] = 0
    if asked.leader is None:
        return pods, pods, pods
    leader = [min(1, fits) for fits in _fitting(free, asked.leader, size)]
    for index in barred:
        leader[index] = 0
    rest = {}
    for resource in asked.per_pod.keys() | {POD_SLOTS}:
        taken = 1 if resource == POD_SLOTS else asked.leader.get(resource, 0)
        column = free.get(resource)
        if column is not None:
            rest[resource] = [room - taken for room in column] if taken else column
    beside = _fitting(rest, asked.per_pod, size)
    both = zip(pods, beside, leader, strict=True)
    return pods, [left if has else all_ for all_, left, has in both], leader


def _count(
    nodes: FlavorNodes, free: Columns, asked: PodsToPlace, plan: _Plan, barred: Iterable[int]
) -> list[_Counts]:
    """The counts of all levels."""
    pods, pods_l, leader = _leaf_counts(nodes, free, asked, barred)
    last = len(nodes.tree.levels) - 1
    led, size, inner = asked.leader is not None, plan.size, plan.inner
    below = _with_slices(pods, pods_l, leader, size if last == plan.slice_level else 0, led=led)
    counts = [below]
    for level in range(last - 1, -1, -1):
        step = inner.get(level + 1, 1)
        children = below
        if step > 1:
            whole = [n - n % step for n in children.pods]
            whole_l = [n - n % step for n in children.pods_l] if led else whole
            children = _Counts(whole, children.slices, whole_l, children.slices_l, children.leader)
        spans = nodes.tree.children[level]
        pods = [sum(children.pods[a:b]) for a, b in spans]
        if led:
            leader = [max(children.leader[a:b]) for a, b in spans]
            pods_l = _beside(pods, children.pods, children.pods_l, children.leader, spans)
        else:
            pods_l = leader = pods
        if level >= plan.slice_level:
            own = size if level == plan.slice_level else 0
            below = _with_slices(pods, pods_l, leader, own, led=led)
        else:
            slices = [sum(children.slices[a:b]) for a, b in spans]
            slices_l = slices
            if led:
                slices_l = _beside(
                    slices, children.slices, children.slices_l, children.leader, spans
                )
            below = _Counts(pods, slices, pods_l, slices_l, leader)
        counts.insert(0, below)
    return counts


def _with_slices(
    pods: Numbers, pods_l: Numbers, leader: Numbers, size: int, *, led: bool
) -> _Counts:
    """The counts of a level whose domains hold slices of this size; 0: none."""
    slices = pods if size == 1 else [n // size for n in pods] if size else [0] * len(pods)
    slices_l = slices
    if led and size:
        slices_l = pods_l if size == 1 else [n // size for n in pods_l]
    return _Counts(pods, slices, pods_l, slices_l, leader)


def _beside(
    sums: Numbers,
    parts: Numbers,
    parts_l: Numbers,
    leader: Numbers,
    spans: Sequence[tuple[int, int]],
) -> Numbers:
    """What domains hold beside a leader in the child where it costs least; 0 if it fits in none."""
    return [
        max((total - parts[i] + parts_l[i] for i in range(a, b) if leader[i]), default=0)
        for total, (a, b) in zip(sums, spans, strict=True)
    ]


# ---- the choice of domains, from the level of the request down to the leaves ---------------------

Share = tuple[int, int, int]
"""A domain, by position, with its pods and its leaders."""


class _Search:
    def __init__(
        self, nodes: FlavorNodes, plan: _Plan, counts: list[_Counts], *, led: bool
    ) -> None:
        self._tree = nodes.tree
        self._plan = plan
        self._counts = counts
        self._leaders = int(led)
        self._best_fit = not (plan.loose and nodes.mixed)

    # --- orders

    def _by_leader(self, level: int) -> list[int]:
        at, sign = self._counts[level], -1 if self._best_fit else 1
        domains = range(len(at.pods))
        if not self._leaders:
            return self._plain(level, domains)
        return sorted(
            domains,
            key=lambda i: (-at.leader[i], sign * at.slices_l[i], at.pods_l[i], i),
        )

    def _plain(self, level: int, domains: Iterable[int]) -> list[int]:
        at = self._counts[level]
        slices, pods = at.slices, at.pods
        if slices is pods:
            return sorted(domains, key=pods.__getitem__, reverse=self._best_fit)
        if self._best_fit:
            return sorted(domains, key=lambda i: (-slices[i], pods[i]))
        return sorted(domains, key=lambda i: (slices[i], pods[i]))

    @staticmethod
    def _best(
        order: Sequence[int], need: int, amounts: Numbers, leader: Numbers | None = None
    ) -> int:
        """The domain that is left with the least; the first if none has enough."""
        best, least = order[0], -1
        for i in order:
            amount = amounts[i]
            if amount >= need and (least < 0 or amount < least) and (leader is None or leader[i]):
                best, least = i, amount
        return best

    def _front(
        self, order: list[int], need: int, leaders: int, unit: Numbers, unit_l: Numbers, level: int
    ) -> list[int]:
        """Moves a domain to the front that takes the leader without costing too much."""
        if not leaders or len(order) < 2:
            return order
        leader, total = self._counts[level].leader, sum(unit[i] for i in order)
        for at, i in enumerate(order):
            if leader[i] and total - (unit[i] - unit_l[i]) >= need:
                return [i, *order[:at], *order[at + 1 :]]
        return order

    # --- the level

    def choose(self, wanted: int) -> tuple[int, list[int] | int]:
        """The first level from that of the request upwards whose domains have room, and these;
        otherwise the last level that was tried, and how much has room there.
        """
        plan, level = self._plan, self._plan.level
        while True:
            at = self._counts[level]
            order = self._by_leader(level)
            led = at.leader if self._leaders else None
            first = order[0]
            if self._best_fit:
                if at.slices_l[first] >= wanted and (led is None or led[first]):
                    return level, [self._best(order, wanted, at.slices_l, led)]
            else:
                for i in order:
                    if at.slices_l[i] >= wanted and (led is None or led[i]):
                        return level, [i]
            if plan.required:
                return level, at.slices[first]
            if plan.loose or not level:
                break
            level -= 1
        return level, self._collect(level, order, wanted)

    def _collect(self, level: int, order: list[int], wanted: int) -> list[int] | int:
        """Several domains of a level with room for everything together."""
        at, rest = self._counts[level], wanted
        order = self._front(order, wanted, self._leaders, at.slices, at.slices_l, level)
        taken: list[int] = []
        if self._leaders:
            first = order[0]
            if not at.leader[first]:
                return 0
            if self._best_fit and at.slices_l[first] >= rest:
                first = self._best(order, rest, at.slices_l, at.leader)
            taken.append(first)
            rest -= at.slices_l[first]
            order = self._plain(level, sorted(i for i in order if i != first))
        for position, each in enumerate(order):
            if rest <= 0:
                break
            chosen = each
            if self._best_fit and at.slices[each] >= rest:
                chosen = self._best(order[position:], rest, at.slices)
            taken.append(chosen)
            rest -= at.slices[chosen]
        return taken if rest <= 0 else wanted - rest

    # --- the way down

    def _trim(
        self,
        order: list[int],
        level: int,
        amount: int,
        leaders: int,
        size: int,
        unit: Numbers,
        unit_l: Numbers,
    ) -> list[Share]:
        """Spreads pods over as few of the domains as possible."""
        rest, leader = amount // size, self._counts[level].leader
        order = self._front(order, rest, leaders, unit, unit_l, level)
        shares: list[Share] = []
        for position, each in enumerate(order):
            chosen = each
            if leaders:
                enough = unit_l[each] >= rest and leader[each]
                if enough:
                    if self._best_fit:
                        chosen = self._best(order[position:], rest, unit_l, leader)
                    shares.append((chosen, rest * size, 1))
                    return shares
                part = min(unit_l[each], rest)
                shares.append((each, part * size, leader[each]))
                leaders -= leader[each]
            else:
                if unit[each] >= rest:
                    if self._best_fit:
                        chosen = self._best(order[position:], rest, unit)
                    shares.append((chosen, rest * size, 0))
                    return shares
                part = unit[each]
                shares.append((each, part * size, 0))
            rest -= part
        return []

    def descend(self, level: int, domains: list[int], count: int) -> list[Share]:
        """The shares of the leaves; fewer than all pods if what was counted cannot be combined."""
        plan, leaders = self._plan, self._leaders
        at = self._counts[level]
        shares = self._trim(domains, level, count, leaders, plan.size, at.slices, at.slices_l)
        last = len(self._tree.levels) - 1
        while level < last:
            below = self._counts[level + 1]
            spans = self._tree.children[level]
            if level < plan.slice_level:
                children = (i for domain, *_ in shares for i in range(*spans[domain]))
                pool = self._plain(level + 1, sorted(children))
                shares = self._trim(
                    pool, level + 1, count, leaders, plan.size, below.slices, below.slices_l
                )
            else:
                size = plan.inner.get(level + 1, 1)
                unit, unit_l = below.pods, below.pods_l
                if size > 1:
                    unit = [n // size for n in unit]
                    unit_l = [n // size for n in unit_l]
                shares = [
                    share
                    for domain, pods, leader in shares
                    if pods or leader
                    for share in self._trim(
                        self._plain(level + 1, range(*spans[domain])),
                        level + 1,
                        pods,
                        leader,
                        size,
                        unit,
                        unit_l,
                    )
                ]
            level += 1
        return shares


def place(
    nodes: FlavorNodes, asked: PodsToPlace, free: Columns | None = None, within: Path = ()
) -> Placement | Misfit:
    """Places pods.

    The figures of a `Placement` never exceed the room in a leaf, and add up to all pods. Only if
    the size of slices does not divide their number, the rest is left out.

    Args:
        nodes: the nodes of the flavor.
        asked: the pods.
        free: the room in the leaves; None for what is free now.
        within: the domain in which all of them must be; empty for anywhere.
    """
    tree = nodes.tree
    plan = _planned(tree, asked)
    if isinstance(plan, Unplaceable):
        return plan
    if not tree.leaves:
        return Unplaceable(f"no topology domains at level: {tree.levels[plan.level]}")
    barred = tree.barred(asked.pods, nodes.tolerations)
    outside: tuple[int, ...] = ()
    if within:
        depth = len(within)
        outside = tuple(
            i for i, path in enumerate(tree.paths[-1]) if path[:depth] != within and i not in barred
        )
    room = nodes.free if free is None else free
    counts = _count(nodes, room, asked, plan, (*barred, *outside))
    search = _Search(nodes, plan, counts, led=asked.leader is not None)
    level, chosen = search.choose(asked.count // plan.size)
    if isinstance(chosen, int):
        fitting = chosen
    else:
        shares = search.descend(level, chosen, asked.count)
        led = sum(leader for *_, leader in shares)
        pods = sum(count for _, count, _ in shares)
        if pods == asked.count - asked.count % plan.size and led == int(asked.leader is not None):
            given = tuple(sorted((leaf, count) for leaf, count, _ in shares if count))
            leader = next((leaf for leaf, _, leader in shares if leader), None)
            return Placement(given, leader)
        fitting = pods // plan.size
    excluded = Counter(barred.values())
    if outside:
        excluded["topologyDomain"] = len(outside)
    _note_full(excluded, counts[-1].pods, room, asked, {*barred, *outside})
    return NoDomain(
        tree.topology,
        asked.count // plan.size,
        fitting,
        plan.size != 1,
        _layers(tree, plan, counts, level, asked.count),
        len(tree.leaves),
        excluded,
    )


@value
class RoomByDomain:
    """How many pods there is room for, by domain.

    Attributes:
        level: the position of the level whose domains must hold all pods; None if any will do.
        size: the pods of a slice; 1 if there are none.
        slices: how many of these each domain of that level holds, or of the first level.
        pods: how many pods each leaf holds.
        barred: the leaves that the pods may not use, and why.
    """

    level: int | None
    size: int
    slices: Sequence[int]
    pods: Sequence[int]
    barred: Mapping[int, str]


def room_by_domain(
    nodes: FlavorNodes, asked: PodsToPlace, free: Columns
) -> RoomByDomain | Unplaceable:
    """How many pods there is room for in each domain, for people; arguments as in `place`."""
    plan = _planned(nodes.tree, asked)
    if isinstance(plan, Unplaceable):
        return plan
    barred = nodes.tree.barred(asked.pods, nodes.tolerations)
    counts = _count(nodes, free, asked, plan, barred)
    level = plan.level if plan.required else None
    at = counts[level or 0]
    slices = at.slices_l if level is not None and asked.leader is not None else at.slices
    return RoomByDomain(level, plan.size, slices, counts[-1].pods, barred)


def _note_full(
    excluded: Counter[str],
    pods: Numbers,
    free: Columns,
    asked: PodsToPlace,
    others: set[int],
) -> None:
    """Counts the leaves in which no pod fits, by the resource that is most lacking."""
    request = {**asked.per_pod, POD_SLOTS: 1}
    names = sorted(name for name, amount in request.items() if amount > 0)
    for index, fits in enumerate(pods):
        if not fits and index not in others:
            name = next(
                name for name in names if name not in free or free[name][index] < request[name]
            )
            excluded[f'resource "{name}"'] += 1


def _layers(
    tree: DomainTree, plan: _Plan, counts: list[_Counts], level: int, count: int
) -> tuple[tuple[str, int, int], ...]:
    """For each layer of slices in slices, how many fit below the best domain, and are wanted."""
    if len(plan.layers) < 2:
        return ()
    at = counts[level].slices
    named = [",".join(path) for path in tree.paths[level]]
    if level == len(tree.levels) - 1 and tree.ends_with_hosts:
        named = [path[-1] for path in tree.paths[level]]
    best = min(range(len(at)), key=lambda i: (-at[i], named[i]))
    rows = []
    for layer in plan.layers:
        depth = tree.levels.index(layer.topology)
        path = tree.paths[level][best]
        fits = sum(
            counts[depth].pods[i] // layer.size
            for i, each in enumerate(tree.paths[depth])
            if each[: level + 1] == path
        )
        rows.append((layer.topology, fits, count // layer.size))
    return tuple(rows)
