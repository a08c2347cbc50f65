"""Which domains lack room for the pods of a workload, by how much, and why (KEP-2724)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kueuelib.api.meta import ObjectKey
from kueuelib.api.phrases import counted, some
from kueuelib.api.quantity import format_amount
from kueuelib.api.struct import frozen
from kueuelib.api.workload import HOST
from kueuelib.scheduler.engine import Engine
from kueuelib.scheduler.explain.world import World
from kueuelib.scheduler.flavor_reasons import NoPlaces, QuotaInUse
from kueuelib.scheduler.quota.amounts import leaves_of
from kueuelib.scheduler.quota.snapshot import Snapshot
from kueuelib.scheduler.reasons import NoFlavors, Preempting, Reason
from kueuelib.scheduler.topology.demand import POD_SLOTS, PodsToPlace, Unplaceable
from kueuelib.scheduler.topology.leaf_room import FlavorNodes
from kueuelib.scheduler.topology.nodes import NodeFacts, TopologyOfFlavor
from kueuelib.scheduler.topology.placement import RoomByDomain, room_by_domain, room_text
from kueuelib.scheduler.topology.pod_sets import Member, asked_after
from kueuelib.scheduler.topology.tree import LeafKey, leaf_key, name_of, noun_of

MOST_DOMAINS = 3
"""The number of domains of a pod set whose nodes are named."""


@frozen
class NodeShortage:
    """Why a node, or another domain of the last level, holds fewer pods than it could.

    Attributes:
        name: the host name of the node, or the values of the domain.
        why: the cause; the name and a verb come before it.
        workloads: those that use it, the largest users first.
        cordoned: the node, if it takes no pods because of that.
    """

    name: str
    why: str
    workloads: tuple[ObjectKey, ...] = ()
    cordoned: str = ""


@frozen
class DomainRoom:
    """How many of the pods of a pod set have room in a domain.

    Attributes:
        pod_set: the pod set.
        flavor: its flavor.
        level: the label key of the level that must hold all pods; empty if any domains will do.
        values: the label values of the domain; none if any domains will do.
        fitting: how many have room.
        wanted: how many need it.
        size: the pods of a slice, if slices are counted; otherwise 1.
        shortages: the causes, by node.
    """

    pod_set: str
    flavor: str
    level: str
    values: tuple[str, ...]
    fitting: int
    wanted: int
    size: int
    shortages: tuple[NodeShortage, ...]

    @property
    def text(self) -> str:
        """One sentence for people."""
        name = name_of(self.level, self.values) if self.values else f"flavor {self.flavor}"
        text = room_text(name, self.fitting, self.wanted, self.size)
        causes: dict[str, list[str]] = {}
        for one in self.shortages:
            causes.setdefault(one.why, []).append(one.name)
        said = [
            f"{'nodes' if len(names) > 1 else 'node'} {some(names)} "
            f"{'are' if len(names) > 1 else 'is'} {why}"
            for why, names in causes.items()
        ]
        return ": ".join([text, *([", ".join(said)] if said else [])])


def room_texts(rooms: tuple[DomainRoom, ...]) -> Iterator[str]:
    """The sentences about the domains with most room of each pod set, and how many more there are.

    Args:
        rooms: the best first.
    """
    by_pod_set: dict[tuple[str, str], list[DomainRoom]] = {}
    for one in rooms:
        by_pod_set.setdefault((one.pod_set, one.flavor), []).append(one)
    for domains in by_pod_set.values():
        for one in domains[:MOST_DOMAINS]:
            yield f"Pod set {one.pod_set}: {one.text}"
        rest = domains[MOST_DOMAINS:]
        if rest:
            one = rest[0]
            more = counted(len(rest), f"more {noun_of(one.level)}")
            has = "has" if len(rest) == 1 else "have"
            yield f"Pod set {one.pod_set}: {more} {has} room for {one.fitting} or fewer"


def rooms_of(
    engine: Engine, world: World, key: ObjectKey, reason: Reason | None
) -> tuple[DomainRoom, ...]:
    """The domains that could hold the pods of a workload if they had more room, the best first.

    Args:
        engine: has the facts of the world, but has run no cycle.
        world: the facts.
        key: the workload.
        reason: why it waits. If quota is in use, domains may lack room as well.
    """
    if isinstance(reason, Preempting):
        reason = reason.blocked
    info = engine.info(key)
    if not isinstance(reason, NoFlavors) or info is None:
        return ()
    blocked = dict.fromkeys(
        (pod_set, one.flavor)
        for pod_set, one in reason.flavor_reasons
        if isinstance(one, NoPlaces | QuotaInUse)
    )
    if not blocked:
        return ()
    snapshot = Snapshot(engine.cache.freeze([engine.standing(key).cluster_queue]))
    rooms: list[DomainRoom] = []
    for pod_set, flavor in blocked:
        spec, nodes = engine.cache.nodes.spec(flavor), snapshot.leaves.nodes.get(flavor)
        if spec is None or nodes is None:
            continue
        members = [
            Member(one.name, flavor, one.count, one.on_node, one.spec.template.spec, one.topology)
            for one in info.pod_sets
        ]
        asked = asked_after(snapshot.leaves, members, flavor, pod_set)
        if asked is None:
            continue
        pods, left = asked
        room = room_by_domain(nodes, pods, left[flavor].free)
        if not isinstance(room, Unplaceable):
            leaves = _Leaves(engine, world, flavor, spec, nodes, pods, room)
            rooms += sorted(leaves.rooms(pod_set), key=lambda one: -one.fitting)
    return tuple(rooms)


class _Leaves:
    """The leaves of a flavor, and what keeps the pods of a pod set away from them."""

    def __init__(
        self,
        engine: Engine,
        world: World,
        flavor: str,
        spec: TopologyOfFlavor,
        nodes: FlavorNodes,
        asked: PodsToPlace,
        room: RoomByDomain,
    ) -> None:
        self._flavor, self._spec, self._nodes = flavor, spec, nodes
        self._asked, self._room = asked, room
        self._request = {**asked.per_pod, POD_SLOTS: 1}
        self._inside: dict[tuple[str, ...], list[int]] = {}
        self._without: dict[tuple[str, ...], list[NodeFacts]] = {}
        self._users: dict[LeafKey, list[tuple[int, ObjectKey]]] = {}
        for key, holder in engine.cache.holders.items():
            for leaf, amounts in leaves_of(holder.usage).items():
                self._users.setdefault(leaf, []).append((-amounts.get(POD_SLOTS, 0), key))
        self._members: dict[LeafKey, list[NodeFacts]] = {}
        self._unusable: list[NodeFacts] = []
        for node in world.nodes.values():
            if spec.counts(node):
                self._members.setdefault(self._key(node), []).append(node)
            elif spec.fits(node):
                self._unusable.append(node)
        self._pods: dict[str, list[ObjectKey]] = {}
        for key, pod in world.foreign_pods.items():
            if pod.request is not None:
                self._pods.setdefault(pod.node, []).append(key)

    def _values(self, node: NodeFacts) -> tuple[str, ...]:
        return tuple(node.labels[level] for level in self._spec.levels)

    def _key(self, node: NodeFacts) -> LeafKey:
        return leaf_key(self._flavor, self._spec.levels, self._values(node))

    def rooms(self, pod_set: str) -> Iterator[DomainRoom]:
        """The domains of the level that must hold all pods, if none of them has room for them."""
        tree, room = self._nodes.tree, self._room
        wanted = self._asked.count // room.size
        if room.level is None:
            if sum(room.slices) < wanted:
                yield self._domain(pod_set, "", (), sum(room.slices), wanted)
            return
        if any(fitting >= wanted for fitting in room.slices):
            return
        level = tree.levels[room.level]
        domains = dict(zip(tree.paths[room.level], room.slices, strict=True))
        for node in self._unusable:
            domains.setdefault(self._values(node)[: room.level + 1], 0)
        for path, fitting in domains.items():
            yield self._domain(pod_set, level, path, fitting, wanted)

    def _domain(
        self, pod_set: str, level: str, path: tuple[str, ...], fitting: int, wanted: int
    ) -> DomainRoom:
        tree, depth = self._nodes.tree, len(path)
        if not self._inside:
            for position, each in enumerate(tree.paths[-1]):
                self._inside.setdefault(each[:depth], []).append(position)
            for node in self._unusable:
                self._without.setdefault(self._values(node)[:depth], []).append(node)
        shortages = list(filter(None, map(self._shortage, self._inside.get(path, ()))))
        for node in self._without.get(path, ()):
            why = "cordoned" if node.ready else "not ready"
            cordoned = node.name if node.ready else ""
            users = tuple(key for _, key in sorted(self._users.get(self._key(node), ())))
            shortages.append(NodeShortage(self._name(self._values(node)), why, users, cordoned))
        values = tree.distinct(path) if path else ()
        flavor, size = self._flavor, self._room.size
        return DomainRoom(
            pod_set, flavor, level, values, max(0, fitting), wanted, size, tuple(shortages)
        )

    def _name(self, path: tuple[str, ...]) -> str:
        return path[-1] if self._spec.levels[-1] == HOST else "/".join(path)

    def _shortage(self, position: int) -> NodeShortage | None:
        """Why a leaf holds fewer pods than it could; None if it holds as many as it could."""
        leaf, barred = self._nodes.tree.leaves[position], self._room.barred
        name = self._name(leaf.path)
        if position in barred:
            return NodeShortage(name, _bar(barred[position]))
        members = self._members[leaf.key]
        total: dict[str, int] = {}
        for node in members:
            for resource, amount in node.capacity.items():
                total[resource] = total.get(resource, 0) + amount
        most = _fitting(total, self._request)
        if self._room.pods[position] < most:
            users = tuple(key for _, key in sorted(self._users.get(leaf.key, ())))
            pods = [
                f"pod {key}" for node in members for key in sorted(self._pods.get(node.name, ()))
            ]
            if not users and not pods:
                return None  # other pod sets of the same workload take it
            return NodeShortage(name, f"used by {some([*users, *pods])}", users)
        if most:
            return None
        resource = min(
            name for name, amount in self._request.items() if amount > total.get(name, 0)
        )
        has = format_amount(resource, total.get(resource, 0))
        needs = format_amount(resource, self._request[resource])
        return NodeShortage(name, f"too small: {has} of {resource}, but a pod needs {needs}")


def _bar(why: str) -> str:
    if why.startswith("taint"):
        return f"tainted ({why.split(maxsplit=1)[1].strip(chr(34))})"
    return "excluded by node selector or affinity"


def _fitting(total: Mapping[str, int], request: Mapping[str, int]) -> int:
    return min(
        max(0, total.get(name, 0)) // amount for name, amount in request.items() if amount > 0
    )
