"""Laws of the decision engine over random histories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import attrs
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from naive_trees import naive_trees
from preemption_model import Place, grants
from quota_model import Node

from kueuelib.api.codec import decode, encode
from kueuelib.api.kueue import ClusterQueue, Cohort, LocalQueue, ResourceFlavor, Workload
from kueuelib.api.meta import ObjectKey
from kueuelib.api.preemption_policies import RECLAIM_WITHIN_COHORT, WITHIN_CLUSTER_QUEUE
from kueuelib.scheduler import events
from kueuelib.scheduler.decide.cycle import Plan, decide
from kueuelib.scheduler.engine import Engine, Settled
from kueuelib.scheduler.facts.workloads import Where
from kueuelib.scheduler.pending.queue import PendingPlace
from kueuelib.scheduler.quota.amounts import NO_LIMITS, FlavorResource
from kueuelib.scheduler.quota.holders import rank_of
from kueuelib.scheduler.settings import FairSharingRules, Settings
from kueuelib.testing.builders import (
    make_cluster_queue,
    make_cohort,
    make_condition,
    make_flavor,
    make_local_queue,
    make_pod_set,
    make_workload,
)

QUEUES = ("a", "b", "c")
FLAVORS = ("one", "two")
COHORTS = ("", "x", "y")
PARENTS = ("", "x", "y", "z")
TEAMS = ("red", "blue")


def place(workload: Workload) -> Place:
    """What preemption policies compare."""
    created = workload.metadata.creation_timestamp
    assert created is not None
    return workload.spec.priority or 0, created


@st.composite
def quotas(draw: st.DrawFn, cohort: str) -> dict[str, int]:
    nominal = draw(st.integers(0, 6))
    found = {"nominal": nominal}
    if cohort and draw(st.booleans()):
        found["borrowing"] = draw(st.integers(0, 4))
    if cohort and draw(st.booleans()):
        found["lending"] = draw(st.integers(0, nominal))
    return found


@st.composite
def cluster_queues(draw: st.DrawFn, name: str) -> ClusterQueue:
    cohort = draw(st.sampled_from(COHORTS))
    flavors = draw(st.sampled_from([("one",), ("two",), ("one", "two"), ("two", "one")]))
    group = {
        flavor: {"cpu": draw(quotas(cohort)), "gpu": draw(quotas(cohort))} for flavor in flavors
    }
    selector = draw(st.sampled_from([None, None, {"matchLabels": {"team": "red"}}]))
    next_flavor = st.sampled_from(["MayStopSearch", "TryNextFlavor"])
    preemption: dict[str, Any] = {
        "withinClusterQueue": draw(st.sampled_from(WITHIN_CLUSTER_QUEUE)),
        "reclaimWithinCohort": draw(st.sampled_from(RECLAIM_WITHIN_COHORT)),
    }
    if preemption["reclaimWithinCohort"] != "Never" and draw(st.booleans()):
        preemption["borrowWithinCohort"] = {"policy": "LowerPriority"}
        if draw(st.booleans()):
            preemption["borrowWithinCohort"]["maxPriorityThreshold"] = draw(st.integers(-1, 1))
    return make_cluster_queue(
        name,
        group,
        cohort=cohort,
        selector=selector,
        queueingStrategy=draw(st.sampled_from(["StrictFIFO", "BestEffortFIFO"])),
        stopPolicy=draw(st.sampled_from(["None", "None", "None", "Hold"])),
        preemption=preemption,
        flavorFungibility={
            "whenCanBorrow": draw(next_flavor),
            "whenCanPreempt": draw(next_flavor),
            "preference": draw(st.sampled_from(["", "PreemptionOverBorrowing"])),
        },
    )


@st.composite
def one_pod_set(draw: st.DrawFn, name: str) -> dict[str, object]:
    count = draw(st.integers(1, 3))
    return make_pod_set(
        {"cpu": draw(st.integers(0, 4)), "gpu": draw(st.integers(0, 1))},
        name=name,
        count=count,
        min_count=draw(st.none() | st.integers(1, count)),
        nodeSelector=draw(st.sampled_from([{}, {}, {"kind": "one"}])),
    )


@st.composite
def pod_sets(draw: st.DrawFn) -> list[dict[str, object]]:
    names = draw(st.sampled_from([("main",), ("main",), ("driver", "workers")]))
    return [draw(one_pod_set(name)) for name in names]


@attrs.define
class World:
    """What an API server would hold: the truth that the engine is told."""

    cluster_queues: dict[str, ClusterQueue] = attrs.field(factory=dict)
    cohorts: dict[str, Cohort] = attrs.field(factory=dict)
    local_queues: dict[ObjectKey, LocalQueue] = attrs.field(factory=dict)
    flavors: dict[str, ResourceFlavor] = attrs.field(factory=dict)
    namespaces: dict[str, dict[str, str]] = attrs.field(factory=dict)
    workloads: dict[ObjectKey, Workload] = attrs.field(factory=dict)

    def events(self) -> Iterator[events.Event]:
        for name, labels in self.namespaces.items():
            yield events.NamespaceSet(name, labels)
        for flavor in self.flavors.values():
            yield events.FlavorSet(flavor)
        for cohort in self.cohorts.values():
            yield events.CohortChanged(cohort)
        for cluster_queue in self.cluster_queues.values():
            yield events.ClusterQueueSet(cluster_queue)
        for local_queue in self.local_queues.values():
            yield events.LocalQueueSet(local_queue)
        for workload in self.workloads.values():
            yield events.WorkloadSet(workload)


def holds(workload: Workload) -> bool:
    return workload.status.admission is not None


def with_status(workload: Workload, *conditions: dict[str, str], **status: object) -> Workload:
    raw = encode(workload)
    types = {condition["type"] for condition in conditions}
    old = raw.get("status", {})
    kept = [found for found in old.get("conditions", ()) if found["type"] not in types]
    merged = {**old, **status, "conditions": [*kept, *conditions]}
    merged = {key: value for key, value in merged.items() if value is not None}
    return decode(Workload, {**raw, "status": merged})


class Histories(RuleBasedStateMachine):
    """Everything that can happen to the engine, in any order."""

    chosen = Settings()

    def __init__(self) -> None:
        super().__init__()
        self.engine = Engine(self.chosen)
        self.world = World()
        self.now = 1000.0
        self.serial = 0
        self.assumed: dict[ObjectKey, Workload] = {}
        self.told: dict[ObjectKey, str] = {}

    def observe(self, event: events.Event) -> None:
        self.engine.observe(event, self.now)

    @initialize(data=st.data())
    def found(self, data: st.DataObject) -> None:
        for number, name in enumerate(("ns1", "ns2")):
            self.set_namespace(name, TEAMS[number])
        for flavor in FLAVORS:
            self.set_flavor(flavor)
        for name in QUEUES:
            self.set_cluster_queue(data.draw(cluster_queues(name)))
            for namespace in self.world.namespaces:
                self.set_local_queue(make_local_queue(name, name, namespace))

    # --- facts

    def set_cluster_queue(self, found: ClusterQueue) -> None:
        self.world.cluster_queues[found.name] = found
        self.observe(events.ClusterQueueSet(found))

    def set_local_queue(self, found: LocalQueue) -> None:
        self.world.local_queues[found.key] = found
        self.observe(events.LocalQueueSet(found))

    def set_flavor(self, name: str) -> None:
        found = make_flavor(name, {"kind": name})
        self.world.flavors[name] = found
        self.observe(events.FlavorSet(found))

    def set_namespace(self, name: str, team: str) -> None:
        self.world.namespaces[name] = {"team": team}
        self.observe(events.NamespaceSet(name, {"team": team}))

    def set_workload(self, found: Workload) -> None:
        self.world.workloads[found.key] = found
        self.observe(events.WorkloadSet(found))

    @rule(data=st.data(), name=st.sampled_from(QUEUES))
    def cluster_queue_changes(self, data: st.DataObject, name: str) -> None:
        self.set_cluster_queue(data.draw(cluster_queues(name)))

    @rule(name=st.sampled_from(QUEUES))
    def cluster_queue_goes(self, name: str) -> None:
        self.world.cluster_queues.pop(name, None)
        self.observe(events.ClusterQueueGone(name))

    @rule(
        data=st.data(),
        name=st.sampled_from(["x", "y"]),
        parent=st.sampled_from(["", "x", "y", "z"]),
    )
    def cohort_changes(self, data: st.DataObject, name: str, parent: str) -> None:
        """Also to a parent that is below it, or to itself."""
        one = {"cpu": data.draw(quotas(parent)), "gpu": data.draw(quotas(parent))}
        found = make_cohort(name, *data.draw(st.sampled_from([(), ({"one": one},)])), parent=parent)
        self.world.cohorts[name] = found
        self.observe(events.CohortChanged(found))

    @rule(name=st.sampled_from(["x", "y"]))
    def cohort_goes(self, name: str) -> None:
        self.world.cohorts.pop(name, None)
        self.observe(events.CohortDeleted(name))

    @rule(data=st.data(), to=st.sampled_from(QUEUES), policy=st.sampled_from(["None", "Hold"]))
    def local_queue_changes(self, data: st.DataObject, to: str, policy: str) -> None:
        name = data.draw(st.sampled_from(QUEUES))
        namespace = data.draw(st.sampled_from(sorted(self.world.namespaces)))
        self.set_local_queue(make_local_queue(name, to, namespace, stopPolicy=policy))

    @rule(data=st.data())
    @precondition(lambda self: self.world.local_queues)
    def local_queue_goes(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.world.local_queues)))
        del self.world.local_queues[key]
        self.observe(events.LocalQueueGone(key))

    @rule(name=st.sampled_from(FLAVORS))
    def flavor_goes_or_comes(self, name: str) -> None:
        if name in self.world.flavors:
            del self.world.flavors[name]
            self.observe(events.FlavorGone(name))
        else:
            self.set_flavor(name)

    @rule(name=st.sampled_from(["ns1", "ns2"]), team=st.sampled_from(TEAMS))
    def namespace_changes(self, name: str, team: str) -> None:
        self.set_namespace(name, team)

    # --- workloads

    @rule(
        queue=st.sampled_from(QUEUES),
        namespace=st.sampled_from(["ns1", "ns2"]),
        found=pod_sets(),
        priority=st.integers(-1, 1),
        age=st.sampled_from([0.0, 0.0, 500.0]),
    )
    def workload_comes(
        self,
        queue: str,
        namespace: str,
        found: list[dict[str, object]],
        priority: int,
        age: float,
    ) -> None:
        self.serial += 1
        self.set_workload(
            make_workload(
                f"w{self.serial}",
                queue,
                namespace=namespace,
                priority=priority,
                created=self.now - age,
                pod_sets=found,
            )
        )

    def draw_workload(self, data: st.DataObject) -> Workload:
        return self.world.workloads[data.draw(st.sampled_from(sorted(self.world.workloads)))]

    @rule(data=st.data())
    @precondition(lambda self: self.world.workloads)
    def workload_goes(self, data: st.DataObject) -> None:
        found = self.draw_workload(data)
        del self.world.workloads[found.key]
        self.assumed.pop(found.key, None)
        self.observe(events.WorkloadGone(found.key))

    @rule(data=st.data())
    @precondition(lambda self: self.world.workloads)
    def workload_finishes(self, data: st.DataObject) -> None:
        found = self.draw_workload(data)
        self.assumed.pop(found.key, None)
        del self.world.workloads[found.key]
        self.observe(events.WorkloadSet(with_status(found, make_condition("Finished"))))

    @rule(data=st.data())
    @precondition(lambda self: any(map(holds, self.world.workloads.values())))
    def workload_is_evicted(self, data: st.DataObject) -> None:
        keys = sorted(key for key, found in self.world.workloads.items() if holds(found))
        found = self.world.workloads[data.draw(st.sampled_from(keys))]
        self.set_workload(
            with_status(
                found,
                make_condition("QuotaReserved", False),
                make_condition("Evicted", True, "PodsReadyTimeout", self.now),
                admission=None,
                requeueState=data.draw(
                    st.sampled_from([None, {"count": 1, "requeueAt": "1970-01-01T01:00:00Z"}])
                ),
            )
        )

    @rule(data=st.data(), active=st.booleans(), priority=st.integers(-1, 1))
    @precondition(lambda self: self.world.workloads)
    def workload_changes(self, data: st.DataObject, active: bool, priority: int) -> None:
        found = self.draw_workload(data)
        spec = attrs.evolve(found.spec, active=active, priority=priority)
        self.set_workload(attrs.evolve(found, spec=spec))

    @rule(data=st.data(), state=st.sampled_from(["Pending", "Retry", "Ready"]))
    @precondition(lambda self: self.world.workloads)
    def check_speaks(self, data: st.DataObject, state: str) -> None:
        check = {"name": "k", "state": state, "message": "", "lastTransitionTime": None}
        check["lastTransitionTime"] = "1970-01-01T00:00:00Z"
        self.set_workload(with_status(self.draw_workload(data), admissionChecks=[check]))

    @rule(seconds=st.sampled_from([0.5, 30.0, 4000.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    # --- cycles

    @rule(data=st.data())
    def cycle_runs(self, data: st.DataObject) -> None:
        found = self.engine.next_cycle(self.now)
        if found is None:
            return
        plan = decide(found, self.now)
        self.check_order(plan)
        self.check_victims(plan)
        settled = self.engine.settle(plan, self.now)
        assert settled.admissions == plan.admissions
        self.tell(settled)
        for admit in settled.admissions:
            self.check_limits(admit.key)
            workload = self.world.workloads[admit.key]
            self.assumed[admit.key] = with_status(
                workload,
                make_condition("QuotaReserved"),
                make_condition("Admitted"),
                make_condition("Evicted", False),
                admission=encode(admit.admission),
            )

    @rule(data=st.data(), succeeds=st.booleans())
    @precondition(lambda self: self.assumed)
    def write_ends(self, data: st.DataObject, succeeds: bool) -> None:
        key = data.draw(st.sampled_from(sorted(self.assumed)))
        written = self.assumed.pop(key)
        if not succeeds:
            self.observe(events.Forgotten(key))
            return
        spec = self.world.workloads[key].spec
        self.set_workload(attrs.evolve(written, spec=spec))

    def tell(self, settled: Settled) -> None:
        for preemption in settled.preemptions:
            for victim in preemption.victims:
                assert victim.key not in self.told
                self.told[victim.key] = victim.path.value

    @rule(data=st.data(), succeeds=st.booleans())
    @precondition(lambda self: self.told)
    def victim_hears(self, data: st.DataObject, succeeds: bool) -> None:
        key = data.draw(st.sampled_from(sorted(self.told)))
        path = self.told.pop(key)
        found = self.world.workloads.get(key)
        if found is None or not succeeds:
            self.observe(events.EvictionFailed(key))
        elif key in self.assumed:
            del self.assumed[key]
            self.observe(events.Forgotten(key))
        elif holds(found):
            self.set_workload(evicted(found, path, self.now))

    @rule(data=st.data())
    @precondition(lambda self: any(map(is_leaving, self.world.workloads.values())))
    def victim_leaves(self, data: st.DataObject) -> None:
        keys = sorted(key for key, one in self.world.workloads.items() if is_leaving(one))
        self.set_workload(released(self.world.workloads[data.draw(st.sampled_from(keys))]))

    def check_victims(self, plan: Plan) -> None:
        """Victims are taken once, by a policy of the preemptor, and only where it may reach."""
        seen: set[ObjectKey] = set()
        trees = self.trees() if plan.preemptions else {}
        for preemption in plan.preemptions:
            mine = self.world.cluster_queues[preemption.cluster_queue].spec
            me = self.world.workloads[preemption.key]
            assert preemption.victims
            for victim in preemption.victims:
                assert victim.key not in seen
                seen.add(victim.key)
                holder = self.engine.cache.holder(victim.key)
                assert holder is not None
                assert holder.usage == victim.holder.usage
                other = self.world.workloads[victim.key]
                own = holder.cluster_queue == preemption.cluster_queue
                policies = mine.preemption
                policy = policies.within_cluster_queue if own else policies.reclaim_within_cohort
                assert grants(policy, place(me), place(other))
                if own:
                    assert victim.path.value == "InClusterQueue"
                    continue
                assert trees[preemption.cluster_queue].root is trees[holder.cluster_queue].root
                if victim.path.value == "InCohortReclaimWhileBorrowing":
                    limit = mine.preemption.borrow_within_cohort.max_priority_threshold
                    assert grants(policies.borrow_within_cohort.policy, place(me), place(other))
                    assert limit is None or (other.spec.priority or 0) <= limit

    def check_limits(self, key: ObjectKey) -> None:
        """At admission nobody uses more than nominal plus borrowing, nor more than is lent."""
        holder = self.engine.cache.holder(key)
        assert holder is not None
        queue = self.trees()[holder.cluster_queue]
        for pair, amount in holder.usage.items():
            assert not amount or queue.available(tuple(pair)) >= 0

    def trees(self) -> dict[str, Node]:
        """What every ClusterQueue may use, by the formulas."""
        return naive_trees(self.world.cluster_queues, self.world.cohorts, self.usage())

    def usage(self) -> Counter[tuple[str, FlavorResource]]:
        found: Counter[tuple[str, FlavorResource]] = Counter()
        for holder in self.engine.cache.holders.values():
            for pair, amount in holder.usage.items():
                found[holder.cluster_queue, pair] += amount
        return found

    def check_order(self, plan: Plan) -> None:
        """Nobody of a StrictFIFO queue is passed by one behind, but for reasons of its own."""
        for admit in plan.admissions:
            if (
                self.world.cluster_queues[admit.cluster_queue].spec.queueing_strategy
                != "StrictFIFO"
            ):
                continue
            mine = next(
                info for info in self.engine.pending(admit.cluster_queue) if info.key == admit.key
            )
            for info in self.engine.pending(admit.cluster_queue):
                if info.order < mine.order:
                    item = self.engine._queues.get(info.key)
                    assert item is not None
                    assert item.place is PendingPlace.INADMISSIBLE
                    assert (
                        item.back_off is not None
                        or item.info.failed_checks
                        or not self.is_let_in(info.key, admit.cluster_queue)
                    )

    def is_let_in(self, key: ObjectKey, cluster_queue: str) -> bool:
        selector = self.world.cluster_queues[cluster_queue].spec.namespace_selector
        assert selector is not None
        labels = self.world.namespaces[key.namespace]
        return selector.match_labels.items() <= labels.items()

    # --- invariants

    @invariant()
    def nobody_is_in_two_places_or_in_none(self) -> None:
        queues = self.engine._queues
        seen: Counter[ObjectKey] = Counter()
        for name in QUEUES:
            queue = queues.cluster_queues.get(name)
            if queue is None:
                continue
            places = Counter(item.place for item in queue.items.values())
            for key, item in queue.items.items():
                seen[key] += 1
                assert queues.get(key) is item
                assert item.queue is queue
                assert (queue.in_flight == key) == (item.place is PendingPlace.IN_FLIGHT)
                groups = [group for group in queue.groups.values() if key in group.members]
                assert groups == ([] if item.in_flight else [item.group])
                if item.group and item.group.has_turn:
                    first = item.group.first(None)
                    assert first is not None
                    entries = queue.heap._rankings[None]._entries
                    assert any(entry is first.entry for entry in entries)
            status = self.engine.cluster_queue_status(name)
            assert status is not None
            if queue.active:
                assert status.inadmissible == places[PendingPlace.INADMISSIBLE]
            assert status.active + status.inadmissible == status.pending == len(queue.items)
        for key, workload in self.world.workloads.items():
            standing = self.engine.standing(key)
            assert standing.where is not Where.UNKNOWN
            holder = self.engine.cache.holder(key)
            assert (holder is not None) == (holds(workload) or key in self.assumed)
            assert not (holder and seen[key])
            if holder is None:
                assert seen[key] == int(self.should_queue(workload))
        assert set(seen) <= set(self.world.workloads)
        assert max(seen.values(), default=0) <= 1

    def should_queue(self, workload: Workload) -> bool:
        key = ObjectKey(workload.namespace, workload.spec.queue_name)
        local_queue = self.world.local_queues.get(key)
        return (
            workload.spec.active
            and local_queue is not None
            and local_queue.spec.extra.get("stopPolicy", "None") == "None"
            and getattr(local_queue.spec, "stop_policy", "None") == "None"
            and local_queue.spec.cluster_queue in self.world.cluster_queues
        )

    @invariant()
    def running_sums_equal_a_rebuild(self) -> None:
        cache = self.engine.cache
        fresh = cache.rebuilt()
        assert cache.names == fresh.names
        mine, other = cache.freeze(cache.names), fresh.freeze(fresh.names)
        for name in cache.names:
            a, b = mine.queues[name], other.queues[name]
            assert a.spec == b.spec
            assert a.inactive == b.inactive
            assert a.usage == b.usage
            assert a.ranked == b.ranked
            assert a.lowest_priority == b.lowest_priority
            priorities = [holder.priority for _, holder in a.ranked]
            assert a.lowest_priority == min(priorities, default=None)
            state, rebuilt = cache.state(name), fresh.state(name)
            assert state is not None
            assert rebuilt is not None
            assert state.holders == rebuilt.holders
            assert [rank for rank, _ in a.ranked] == sorted(map(rank_of, state.holders.values()))
            assert state.tally == rebuilt.tally
            assert state.local == rebuilt.local
        assert mine.trees.keys() == other.trees.keys()
        for name, tree in mine.trees.items():
            anew = other.trees[name]
            assert tree.members == {key: mine.queues[key] for key in anew.members}
            assert tree.used == anew.used
            assert tree.borrowers == anew.borrowers
            assert tree.quota.root == anew.quota.root
            assert tree.quota.rows == anew.quota.rows
            borrowers = [
                (pair, key)
                for key, member in tree.members.items()
                for pair, amount in member.usage.items()
                if amount > member.spec.limits.get(pair, NO_LIMITS).nominal
            ]
            assert sorted(borrowers) == sorted(
                (pair, key)
                for children in tree.borrowers.values()
                for pair, keys in children.items()
                for key in keys
                if key in tree.members
            )

    @rule()
    def nothing_admissible_sleeps(self) -> None:
        """When the engine is quiet, one that starts from the same facts admits nobody, and sends
        nobody away.
        """
        for key in sorted(self.assumed):
            written = self.assumed.pop(key)
            self.set_workload(attrs.evolve(written, spec=self.world.workloads[key].spec))
        for _ in range(200):
            found = self.engine.next_cycle(self.now)
            if found is None:
                if not self.all_leave():
                    break
                continue
            plan = decide(found, self.now)
            settled = self.engine.settle(plan, self.now)
            self.tell(settled)
            for admit in settled.admissions:
                workload = self.world.workloads[admit.key]
                conditions = (make_condition("QuotaReserved"), make_condition("Evicted", False))
                admission = encode(admit.admission)
                self.set_workload(with_status(workload, *conditions, admission=admission))
        else:
            raise AssertionError("the engine does not come to rest")
        fresh = Engine(self.chosen)
        fresh.observe_all(self.world.events(), self.now)
        while (found := fresh.next_cycle(self.now)) is not None:
            plan = decide(found, self.now)
            assert plan.admissions == ()
            assert plan.preemptions == ()
            fresh.settle(plan, self.now)

    def all_leave(self) -> bool:
        """Lets everybody leave who has to; whether there was anybody."""
        left = False
        for key, path in sorted(self.told.items()):
            found = self.world.workloads.get(key)
            if found is not None and holds(found) and not is_leaving(found):
                self.set_workload(evicted(found, path, self.now))
        self.told.clear()
        for found in list(self.world.workloads.values()):
            if is_leaving(found):
                self.set_workload(released(found))
                left = True
        return left


def is_leaving(workload: Workload) -> bool:
    return holds(workload) and any(
        found.type == "Evicted" and found.is_true for found in workload.status.conditions
    )


def evicted(workload: Workload, path: str, now: float) -> Workload:
    return with_status(
        workload,
        make_condition("Evicted", True, "Preempted", now),
        make_condition("Preempted", True, path, now),
    )


def released(workload: Workload) -> Workload:
    return with_status(workload, make_condition("QuotaReserved", False), admission=None)


class FairHistories(Histories):
    """The same with fair sharing."""

    chosen = Settings(fair_sharing=FairSharingRules())


TestHistories = Histories.TestCase
TestHistories.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TestFairHistories = FairHistories.TestCase
TestFairHistories.settings = settings(TestHistories.settings, max_examples=30)
