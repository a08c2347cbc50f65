"""Decides which gated pods may start, and in which domains, after their Workload was placed.

Pods with ranks get the domain of their rank, so that neighbours in rank are neighbours in the
topology. If any pod of a pod set has none, its pods fill the domains in the order of their names
(KEP-2724, "Rank-based ordering").
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from kueuelib.api.struct import frozen
from kueuelib.api.workload import HOST, Domain, TopologyRequest


@frozen
class PlacedPodSet:
    """A pod set whose pods have domains.

    Attributes:
        name: of the pod set.
        count: how many pods were admitted.
        request: its topology request, which names the labels with ranks.
        levels: the label keys of its domains.
        domains: the domains with their numbers of pods.
    """

    name: str
    count: int
    request: TopologyRequest
    levels: tuple[str, ...]
    domains: tuple[Domain, ...]


@frozen
class PodOfSet:
    """A pod that has not ended.

    Attributes:
        name: of the pod.
        labels: of the pod.
        offset: the annotation `pod-index-offset`; empty if absent.
        gated: whether it has the gate that the ungater removes.
        node_selector: of the pod.
    """

    name: str
    labels: Mapping[str, str]
    offset: str
    gated: bool
    node_selector: Mapping[str, str]


def ungated(
    pod_sets: Sequence[PlacedPodSet],
    pods: Mapping[str, Sequence[PodOfSet]],
    unhealthy: Iterable[str] = (),
) -> dict[str, Mapping[str, str]]:
    """What is added to the node selectors of the pods that lose their gate, by name.

    Args:
        pod_sets: all pod sets with an assignment, in the order of the Workload.
        pods: those of each pod set that have not ended.
        unhealthy: hosts whose pods get another one; nothing starts there.
    """
    ill = frozenset(unhealthy)
    selectors: dict[str, Mapping[str, str]] = {}
    for pod_set in pod_sets:
        before = _pods_before(pod_set, pod_sets)
        own = sorted(pods.get(pod_set.name, ()), key=lambda pod: pod.name)
        ranked = _by_rank(pod_set, own, before)
        for pod, values in _in_order(pod_set, own) if ranked is None else ranked:
            if not (pod_set.levels[-1] == HOST and values[-1] in ill):
                selectors[pod.name] = dict(zip(pod_set.levels, values, strict=True))
    return selectors


_Places = Sequence[tuple[PodOfSet, tuple[str, ...]]]


def _pods_before(pod_set: PlacedPodSet, pod_sets: Sequence[PlacedPodSet]) -> int:
    """How many ranks of its group come before those of a pod set: the smaller one is first."""
    group = pod_set.request.pod_set_group_name
    if group is None:
        return 0
    members = [one for one in pod_sets if one.request.pod_set_group_name == group]
    first, *rest = sorted(members, key=lambda one: one.count)
    return first.count if rest and pod_set is not first else 0


def _by_rank(pod_set: PlacedPodSet, pods: Sequence[PodOfSet], before: int) -> _Places | None:
    """The gated pods with the domains of their ranks; None if ranks cannot be used."""
    request, count = pod_set.request, pod_set.count
    groups = 1
    if request.sub_group_index_label is not None:
        groups = request.sub_group_count or 0
    if request.pod_index_label is None or groups < 1:
        return None
    offset = before
    if pods and pods[0].offset:
        own = _integer(pods[0].offset)
        if own is None:
            return None
        offset += own
    domains = [values for values, number in pod_set.domains for _ in range(number)]
    taken: set[int] = set()
    places = []
    for pod in pods:
        index = _number(pod.labels.get(request.pod_index_label), count + offset)
        rank = None if index is None else index - offset
        if rank is not None and request.sub_group_index_label is not None:
            group = _number(pod.labels.get(request.sub_group_index_label), groups)
            size = count // groups
            in_group = group is not None and index is not None and index < size
            rank = rank + group * size if in_group and group is not None else None
        if rank is None or not 0 <= rank < min(count, len(domains)) or rank in taken:
            return None
        taken.add(rank)
        if pod.gated:
            places.append((pod, domains[rank]))
        elif _selected(pod, pod_set.levels) != domains[rank]:
            return None
    return places


def _in_order(pod_set: PlacedPodSet, pods: Sequence[PodOfSet]) -> _Places:
    """The gated pods with domains that have room, each in its order."""
    present = Counter(_selected(pod, pod_set.levels) for pod in pods if not pod.gated)
    room = [values for values, number in pod_set.domains for _ in range(number - present[values])]
    return [*zip([pod for pod in pods if pod.gated], room, strict=False)]


def _selected(pod: PodOfSet, levels: Sequence[str]) -> tuple[str, ...]:
    return tuple([pod.node_selector.get(level, "") for level in levels])


def _number(text: str | None, bound: int) -> int | None:
    """A label's value as a number below a bound, or None."""
    if not text or not text.isascii() or not text.isdigit():
        return None
    number = int(text)
    return number if number < bound else None


def _integer(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None
