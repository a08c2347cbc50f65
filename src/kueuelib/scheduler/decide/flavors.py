"""Assigns flavors to pod sets (spec/scheduling 5).

`assign` tries the flavors of every resource group in order and keeps the best; the obstacles of the
others become the reason. It reads a snapshot and changes nothing.

A flavor whose quota is in use is ranked by a simulated preemption for each single request: no
workload could be preempted, workloads of the own ClusterQueue would have to leave, or only
borrowing ones.
"""

from __future__ import annotations

from collections.abc import Mapping

from kueuelib.api.affinity import required_node_affinity, requirement_matches
from kueuelib.api.core import PodSpec
from kueuelib.api.tolerations import untolerated
from kueuelib.scheduler.blockers import (
    FIT,
    NO_CANDIDATES,
    NO_FIT,
    AffinityMismatch,
    Blocker,
    ExceedsCapacity,
    FlavorAttempt,
    FlavorMissing,
    GroupBlocked,
    Mode,
    PodSetBlocked,
    QuotaInUse,
    ResourceUncovered,
    UntoleratedTaint,
)
from kueuelib.scheduler.decide.preemption.outlook import Simulation, simulate
from kueuelib.scheduler.decide.preemption.search import Searches
from kueuelib.scheduler.pending.item import Progress
from kueuelib.scheduler.pending.workload_info import WorkloadInfo
from kueuelib.scheduler.quota import arithmetic
from kueuelib.scheduler.quota.amounts import NO_LIMITS, FlavorResource, added
from kueuelib.scheduler.quota.queue_spec import FIRST_FIT, Flavor, FlavorGroup, Fungibility
from kueuelib.scheduler.values import value


@value
class PodSetChoice:
    """The assignment of one pod set.

    Attributes:
        name: the pod set.
        count: the number of pods.
        flavors: resource name to flavor, sorted by resource.
        requests: the amounts for all pods together.
        mode: the worst verdict among its flavors.
    """

    name: str
    count: int
    flavors: Mapping[str, str]
    requests: Mapping[str, int]
    mode: Mode


@value
class Assignment:
    """The assignment of a workload.

    Attributes:
        mode: the verdict; the other attributes are only valid from `NO_CANDIDATES` on.
        choices: the pod sets up to and including the first that does not fit at all.
        usage: its charge.
        borrowing: how far up the tree it has to borrow; 0 within nominal quota.
        contested: the part of `usage` that does not fit now.
        blocked: why it does not fit now.
        progress: which flavors were tried.
    """

    mode: Mode
    choices: tuple[PodSetChoice, ...]
    usage: Mapping[FlavorResource, int]
    contested: frozenset[FlavorResource]
    borrowing: int
    blocked: tuple[PodSetBlocked, ...]
    progress: Progress


@value
class _Verdict:
    """The result for one request in one flavor."""

    mode: Mode
    borrowing: int = 0
    blocker: Blocker | None = None


_FITS = _Verdict(FIT)
_MISMATCH = _Verdict(NO_FIT)


@value
class _Option:
    """One flavor for one resource group.

    Attributes:
        flavor: the flavor.
        worst: its worst verdict.
        borrowing: the level of the resource that borrows most.
        contested: the pairs that do not fit now.
        blockers: the obstacles.
    """

    flavor: str
    worst: _Verdict
    borrowing: int
    contested: tuple[FlavorResource, ...]
    blockers: tuple[Blocker, ...]


def assign(
    searches: Searches,
    info: WorkloadInfo,
    counts: tuple[int, ...] | None = None,
    progress: Progress = (),
    *,
    fungible: bool = True,
    only: Mapping[str, Mapping[str, str]] | None = None,
) -> Assignment:
    """Assign flavors to all pod sets of a workload.

    Args:
        searches: the searches of the workload, with the state, which is not changed.
        info: the workload.
        counts: pods per pod set, if fewer than all are tried (spec/scheduling 1.8).
        progress: the flavors that earlier attempts tried already.
        fungible: False takes the first flavor that fits and ignores the ClusterQueue's preferences.
        only: per pod set, the allowed flavor of each resource; None for all.
    """
    spec = searches.preemptor.queue.spec
    policy = spec.fungibility if fungible else FIRST_FIT
    resume = {name: dict(indices) for name, indices in progress} if progress else {}
    usage: dict[FlavorResource, int] = {}
    choices: list[PodSetChoice] = []
    blocked: list[PodSetBlocked] = []
    tried: list[tuple[str, tuple[tuple[str, int], ...]]] = []
    contested: list[FlavorResource] = []
    borrowing = 0
    worst = FIT if info.pod_sets else NO_FIT
    for index, pod_set in enumerate(info.pod_sets):
        name, count = pod_set.name, pod_set.count if counts is None else counts[index]
        requests = pod_set.requests(count, count_pods=spec.counts_pods)
        pinned = None if only is None else only.get(name, {})
        search = _PodSetSearch(
            searches, policy, pod_set.spec.template.spec, requests, usage, pinned
        )
        mode = search.run(resume.get(name, {}))
        borrowing = max(borrowing, search.borrowing)
        if search.blocked:
            blocked.append(PodSetBlocked(name, tuple(search.blocked)))
        flavors, covered, indices = {}, {}, []
        for resource in sorted(search.chosen):
            flavors[resource], last = search.chosen[resource]
            covered[resource] = requests[resource]
            indices.append((resource, last))
        choices.append(PodSetChoice(name, count, flavors, covered, mode))
        if indices:
            tried.append((name, tuple(indices)))
        if mode is not FIT:
            worst = min(worst, mode)
            if mode is NO_FIT:
                break
        usage = added(usage, search.usage) if usage else search.usage
        contested += search.contested
    return Assignment(
        worst,
        tuple(choices),
        usage,
        frozenset(contested),
        borrowing,
        tuple(blocked),
        tuple(tried),
    )


class _PodSetSearch:
    """The search for one pod set: resource group by resource group."""

    def __init__(
        self,
        searches: Searches,
        policy: Fungibility,
        pods: PodSpec,
        requests: Mapping[str, int],
        earlier: Mapping[FlavorResource, int],
        only: Mapping[str, str] | None,
    ) -> None:
        self._searches = searches
        self._policy = policy
        self._pods = pods
        self._requests = requests
        self._earlier = earlier
        self._only = only
        self.chosen: dict[str, tuple[str, int]] = {}
        self.usage: dict[FlavorResource, int] = {}
        self.blocked: list[GroupBlocked] = []
        self.contested: list[FlavorResource] = []
        self.borrowing = 0

    def run(self, resume: Mapping[str, int]) -> Mode:
        """Chooses flavors for all resources; the first group without any ends it."""
        mode, requests, chosen = FIT, self._requests, self.chosen
        spec = self._searches.preemptor.queue.spec
        for resource in sorted(requests, reverse=True):
            if resource in chosen:
                continue
            group = spec.group_of(resource)
            if group is None:
                if spec.ignores_undeclared or not requests[resource]:
                    continue
                return self._fail([FlavorAttempt("", NO_FIT, (ResourceUncovered(resource),))])
            pinned = None if self._only is None else self._only.get(resource, "")
            best, tried, blocked = self._group(group, resume.get(resource, -1), pinned)
            if best is None:
                return self._fail(blocked)
            choice = best.flavor, tried
            for name, pair in group.pairs[best.flavor].items():
                if name in requests:
                    chosen[name], self.usage[pair] = choice, requests[name]
            if best.worst is _FITS:
                continue
            self.borrowing = max(self.borrowing, best.borrowing)
            self.contested += best.contested
            if best.worst.mode is not FIT:
                mode = min(mode, best.worst.mode)
                self.blocked.append(GroupBlocked(tuple(blocked)))
        return mode

    def _fail(self, blocked: list[FlavorAttempt]) -> Mode:
        self.chosen, self.usage = {}, {}
        self.contested, self.borrowing = [], 0
        self.blocked = [GroupBlocked(tuple(blocked))]
        return NO_FIT

    def _group(
        self, group: FlavorGroup, last: int, only: str | None
    ) -> tuple[_Option | None, int, list[FlavorAttempt]]:
        """The best flavor of one group, or None; the index of the last one tried, or -1 if none is
        left; and the flavors that do not fit now.
        """
        policy, flavors = self._policy, group.flavors
        blocked: list[FlavorAttempt] = []
        best: _Option | None = None
        tried, end = -1, len(flavors) - 1
        if last >= end:
            last = -1  # the group has lost flavors since
        for index, name in enumerate(flavors):
            if index <= last:
                continue
            tried = index
            if only is not None and name != only:
                continue
            option = self._try(name, group)
            worst = option.worst
            if option.blockers:
                blocked.append(FlavorAttempt(name, worst.mode, option.blockers))
            if worst.mode is NO_FIT:
                continue
            if worst is _FITS or not _try_next(worst, policy):
                best = option
                break
            if best is None or _is_better(worst, best.worst, policy):
                best = option
        return best, -1 if tried == end else tried, blocked

    def _try(self, name: str, group: FlavorGroup) -> _Option:
        flavor = self._searches.snapshot.flavors.get(name)
        mismatch = FlavorMissing(name) if flavor is None else mismatch_of(flavor, self._pods)
        if mismatch is not None:
            return _Option(name, _MISMATCH, 0, (), (mismatch,))
        requests, policy = self._requests, self._policy
        worst, borrowing = _FITS, 0
        contested: list[FlavorResource] = []
        blockers: list[Blocker] = []
        for resource, pair in group.pairs[name].items():
            if resource not in requests:
                continue
            verdict = self._verdict(pair, requests[resource])
            if verdict is _FITS:
                continue
            borrowing = max(borrowing, verdict.borrowing)
            if verdict.blocker is not None:
                blockers.append(verdict.blocker)
            if verdict.mode is not FIT:
                contested.append(pair)
            if _is_better(worst, verdict, policy):
                worst = verdict
        return _Option(name, worst, borrowing, tuple(contested), tuple(blockers))

    def _verdict(self, pair: FlavorResource, amount: int) -> _Verdict:
        """Whether one request fits one flavor, whether it borrows, and the obstacles (5.3)."""
        searches = self._searches
        snapshot, spec = searches.snapshot, searches.preemptor.queue.spec
        node, used = snapshot.nodes[spec.name], snapshot.used[pair]
        earlier = self._earlier.get(pair, 0) if self._earlier else 0
        wanted = earlier + amount
        capacity = node.capacity[pair]
        if wanted > capacity:
            exceeded = ExceedsCapacity(pair.flavor, pair.resource, earlier, amount, capacity)
            return _Verdict(NO_FIT, 0, exceeded)
        available = max(0, arithmetic.available_along(node.steps[pair], used))
        borrowing, in_part = arithmetic.level(node, pair, wanted, used)
        if wanted <= available:
            return _Verdict(FIT, borrowing) if borrowing else _FITS
        limits = spec.limits.get(pair, NO_LIMITS)
        simulation: Simulation | None = None
        if wanted <= limits.nominal or in_part or searches.preemptor.may_borrow:
            simulation = simulate(searches, pair, wanted)
        borrowable = limits.borrowing if spec.cohort else 0
        blocker = QuotaInUse(
            pair.flavor,
            pair.resource,
            earlier,
            amount,
            used[node.key],
            limits.nominal,
            borrowable,
            available,
            simulation is not None,
            simulation.outlook if simulation is not None else None,
        )
        if simulation is None:
            return _Verdict(NO_FIT, borrowing, blocker)
        return _Verdict(simulation.mode, simulation.borrowing, blocker)


def _try_next(verdict: _Verdict, policy: Fungibility) -> bool:
    """Whether to try later flavors (5.4); one without victims never ends the search."""
    if verdict.mode is NO_CANDIDATES:
        return True
    if verdict.mode is not FIT and policy.next_rather_than_preempt:
        return True
    return verdict.borrowing > 0 and policy.next_rather_than_borrow


def _is_better(one: _Verdict, other: _Verdict, policy: Fungibility) -> bool:
    """Whether one flavor or request is preferred to another; among equals the earlier is kept
    (5.4).

    One that is not available now loses to all that are, whatever the policy prefers.
    """
    for hopeless in (NO_FIT, NO_CANDIDATES):
        if (one.mode is hopeless) is not (other.mode is hopeless):
            return other.mode is hopeless
    if one.mode is NO_FIT:
        return False
    if policy.preempt_rather_than_borrow and one.borrowing != other.borrowing:
        return one.borrowing < other.borrowing
    if one.mode is not other.mode:
        return one.mode > other.mode
    return one.borrowing < other.borrowing


def mismatch_of(flavor: Flavor, spec: PodSpec) -> Blocker | None:
    """Why pods cannot run on the nodes of a flavor, apart from quota; None if they can (5.5).

    Taints may be tolerated by the pods or by the flavor itself. Node selector and required affinity
    count only for labels that this flavor declares; an affinity term without any of them is left to
    the kube-scheduler.
    """
    if flavor.taints:
        taint = untolerated(flavor.taints, (*spec.tolerations, *flavor.tolerations))
        if taint is not None:
            return UntoleratedTaint(flavor.name, taint.key, taint.value, taint.effect)
    labels = flavor.labels
    if not labels:
        return None
    for key, wanted in spec.node_selector.items():
        offered = labels.get(key, wanted)
        if offered != wanted:
            return AffinityMismatch(flavor.name, key, wanted, offered)
    affinity = required_node_affinity(spec)
    if affinity is None:
        return None
    terms = [
        [one for one in term.match_expressions if one.key in labels]
        for term in affinity.node_selector_terms
    ]
    if not all(terms):
        return None
    unmet = [[one for one in term if not requirement_matches(one, labels)] for term in terms]
    if not unmet or not all(unmet):
        return None
    first = unmet[0][0]
    wanted = " ".join((first.operator, ", ".join(first.values))).strip()
    return AffinityMismatch(flavor.name, first.key, wanted, labels[first.key])
