"""Runs scheduling scenarios: small worlds as data, decisions as data.

The input has the form of the scenario tables: ClusterQueues, flavors, workloads with quota and
waiting ones, over one or more cycles. The output lists, for each cycle, the workloads that were
admitted or preempted (and for which others), those that wait and why, and those with quota at the
end. It uses the manager's own engine, with one head per ClusterQueue and cycle. Because the tables
expect every waiting preemptor in every cycle, all heads are tried in each one, even if nothing has
changed.

    python -m kueuelib.testing.scenarios < in.jsonl > out.jsonl

With `--rounds many`, cycles without events in between are rounds on one snapshot, so that a
ClusterQueue has several heads per snapshot; the decisions are the same.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import orjson

from kueuelib.api.codec import decode, encode
from kueuelib.api.kueue import Admission, Cohort, PodSetAssignment, Workload
from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.api.names import (
    ADMITTED,
    EVICTED,
    FINISHED,
    PREEMPTED,
    QUOTA_RESERVED,
    REASON_PREEMPTED,
    REQUEUED,
)
from kueuelib.errors import InvalidObject
from kueuelib.scheduler import events
from kueuelib.scheduler.decide.cycle import CycleInput, Head, Plan, Wait, decide, decide_on
from kueuelib.scheduler.engine import Engine, Settled
from kueuelib.scheduler.object_reasons import (
    ClusterQueueInactive,
    InvalidResources,
    LimitRangeViolated,
    NamespaceMismatch,
)
from kueuelib.scheduler.pending.queue import PendingPlace
from kueuelib.scheduler.quota.cache import share_of_cohort, share_of_queue
from kueuelib.scheduler.quota.snapshot import Snapshot
from kueuelib.scheduler.reasons import FitsAfterPreemptions, NoFlavors, NoLongerFits, Preempting
from kueuelib.scheduler.settings import BOTH_STRATEGIES, FairSharingRules, Settings
from kueuelib.scheduler.values import changed
from kueuelib.testing import topology_scenarios
from kueuelib.testing.builders import (
    make_assignment,
    make_cluster_queue,
    make_cohort,
    make_condition,
    make_flavor,
    make_local_queue,
    make_pod_set,
    make_workload,
)
from kueuelib.testing.scenario_form import EXCEEDS_QUOTA, PARALLEL, check


class Rounds:
    """Decides cycles, and keeps the snapshot from one to the next while it is valid.

    A round is a cycle that reuses the snapshot of earlier rounds, on which their admissions are
    charged. The state is the same as long as nothing else happened and no victims are searched for,
    because a snapshot does not contain workloads that were admitted after it was taken. So heads
    that may preempt get a new one, as does a cycle beside Workloads that leave.

    Attributes:
        snapshots: how many snapshots were taken.
    """

    def __init__(self) -> None:
        self._snapshot: Snapshot | None = None
        self.snapshots = 0

    def decide(self, cycle: CycleInput, now: float) -> Plan:
        """Decides one round, like `kueuelib.scheduler.decide.cycle.decide`.

        Args:
            cycle: the heads, and the state for the case that a snapshot is needed.
            now: seconds since the epoch.
        """
        snapshot = self._snapshot
        if snapshot is None or not _serves(snapshot, cycle):
            snapshot = self._snapshot = Snapshot(cycle.frozen)
            self.snapshots += 1
        mark = snapshot.mark()
        plan = decide_on(snapshot, cycle, now)
        snapshot.undo(mark)
        if plan.preemptions:
            self._snapshot = None
        return plan

    def settled(self, settled: Settled, engine: Engine) -> None:
        """Charges the admissions of a round; call it after `Engine.settle`."""
        if self._snapshot is None:
            return
        for admit in settled.admissions:
            queue, holder = (
                self._snapshot.queue(admit.cluster_queue),
                engine.cache.holder(admit.key),
            )
            if queue is None or holder is None:
                self._snapshot = None
                return
            self._snapshot.add(queue, holder.usage)

    def forget(self) -> None:
        """Drops the snapshot after an outside change."""
        self._snapshot = None


def _serves(snapshot: Snapshot, cycle: CycleInput) -> bool:
    if cycle.promised or cycle.leaving:
        return False
    queues = [snapshot.queue(head.cluster_queue) for head in cycle.heads]
    return all(queue is not None and queue.spec.preemption.never_preempts for queue in queues)


# ---- the initial facts of a scenario, in the form that an engine observes ------------------------

_POLICIES = {"within": "withinClusterQueue", "reclaim": "reclaimWithinCohort"}
_FUNGIBILITY = {"borrow": "whenCanBorrow", "preempt": "whenCanPreempt", "preference": "preference"}
_MAY_STOP = ("Borrow", "Preempt")


def settings_of(scenario: Mapping[str, Any]) -> Settings:
    """The administrator's choices in a scenario; Kueue, whose decisions these are, lets those
    behind a preemptor wait.
    """
    gates = scenario.get("gates", {})
    return Settings(
        parallel_preemptors=scenario.get(PARALLEL, False),
        places_pods=bool(scenario.get("topologies")),
        flavor_fungibility=gates.get("FlavorFungibility", True),
        partial_admission=gates.get("PartialAdmission", True),
        priority_sorting=gates.get("PrioritySortingWithinCohort", True),
        exceeds_quota=scenario.get(EXCEEDS_QUOTA, False),
        fair_sharing=_fair_sharing(scenario.get("fairSharing", {})),
    )


def facts(scenario: Mapping[str, Any]) -> Iterator[events.Event]:
    """The facts of a scenario before its first cycle.

    Args:
        scenario: its description, which `check` has accepted.
    """
    for name, labels in {"default": {}, **scenario.get("namespaces", {})}.items():
        yield events.NamespaceSet(name, labels)
    flavors: dict[str, Any] = {
        name: {}
        for queue in scenario["cqs"].values()
        for group in queue["groups"]
        for name in group
    }
    flavors.update(scenario.get("flavors", {}))
    for name, description in flavors.items():
        if name not in scenario.get("missing_flavors", ()):
            taints = [_taint(taint) for taint in description.get("taints", ())]
            named = {key: description[key] for key in ("topologyName",) if key in description}
            flavor = make_flavor(
                name, description.get("labels"), taints, description.get("tol", ()), **named
            )
            yield events.FlavorSet(flavor)
    yield from topology_scenarios.facts(scenario)
    for name, queue in scenario["cqs"].items():
        yield events.ClusterQueueSet(_cluster_queue(name, queue))
    for cohort in scenario.get("cohorts", ()):
        yield events.CohortChanged(_cohort(cohort))
    workloads = [*scenario.get("admitted", ()), *scenario.get("pending", ())]
    for namespace, name in sorted({(namespace_of(one), one["cq"]) for one in workloads}):
        yield events.LocalQueueSet(make_local_queue(name, name, namespace))
    for one in scenario.get("admitted", ()):
        yield events.WorkloadSet(_admitted(one))
    for one in scenario.get("pending", ()):
        if "arrive" not in one:
            yield events.WorkloadSet(pending(one))


def namespace_of(workload: Mapping[str, Any]) -> str:
    """The namespace of a described workload."""
    namespace: str = workload.get("ns", "default")
    return namespace


def _fair_sharing(sharing: Mapping[str, Any]) -> FairSharingRules | None:
    if not sharing.get("enable"):
        return None
    return FairSharingRules(tuple(sharing.get("preemptionStrategies", BOTH_STRATEGIES)))


def _taint(taint: str | Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(taint, str):
        key, value, effect, _ = taint.strip("{}").split(" ")
        return {"key": key, "value": value, "effect": effect}
    return taint


def _cluster_queue(name: str, queue: Mapping[str, Any]) -> Any:
    spec: Obj = {"queueingStrategy": queue.get("strategy", "BestEffortFIFO")}
    policies = queue.get("preemption", {})
    preemption: Obj = {_POLICIES[key]: policies[key] for key in _POLICIES if key in policies}
    if "bwc" in policies:
        preemption["borrowWithinCohort"] = {"policy": "LowerPriority"}
        if (policies["bwc"] or {}).get("max") is not None:
            preemption["borrowWithinCohort"]["maxPriorityThreshold"] = policies["bwc"]["max"]
    spec["preemption"] = preemption
    spec["flavorFungibility"] = {
        _FUNGIBILITY[key]: "MayStopSearch" if value in _MAY_STOP else value
        for key, value in queue.get("fung", {}).items()
    }
    spec["stopPolicy"] = queue.get("stopPolicy", "None" if queue.get("active", True) else "Hold")
    if "fairSharing" in queue:
        spec["fairSharing"] = {key: str(value) for key, value in queue["fairSharing"].items()}
    spec |= topology_scenarios.checks_of(queue)
    selector = queue.get("nsSelector")
    return make_cluster_queue(
        name,
        *_groups(queue),
        cohort=queue.get("cohort", ""),
        selector=None if selector is None else {"matchLabels": selector},
        **spec,
    )


def _cohort(cohort: Mapping[str, Any]) -> Cohort:
    weight = cohort.get("fairSharing", {}).get("weight")
    groups = _groups(cohort)
    return make_cohort(cohort["name"], *groups, parent=cohort.get("parent", ""), weight=weight)


def _groups(owner: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The resource groups of a ClusterQueue or cohort, in the form of the builders."""
    for group in owner.get("groups", ()):
        yield {
            flavor: {resource: _quota(quota) for resource, quota in quotas.items()}
            for flavor, quotas in group.items()
        }


def _quota(quota: int | str) -> Mapping[str, str]:
    parts = zip(("nominal", "borrowing", "lending"), str(quota).split("/"), strict=False)
    return {key: text for key, text in parts if text != "-"}


def pod_sets(workload: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The descriptions of the pod sets of a described workload."""
    return list(
        workload.get("podsets") or [{"req": workload["req"], "flv": workload.get("flv", {})}]
    )


def _workload(workload: Mapping[str, Any], conditions: list[Obj], **status: Any) -> Workload:
    sets, reclaimable = [], []
    for one in pod_sets(workload):
        name = one.get("name", "main")
        pod: Obj = {"nodeSelector": one.get("sel", {}), "tolerations": list(one.get("tol", ()))}
        made = make_pod_set(one["req"], name, one.get("count", 1), one.get("min"), **pod)
        asked = topology_scenarios.topology_request(one.get("topology"))
        sets.append(made if asked is None else {**made, "topologyRequest": asked})
        if one.get("reclaimed"):
            reclaimable.append({"name": name, "count": one["reclaimed"]})
    return make_workload(
        workload["name"],
        workload["cq"],
        namespace=namespace_of(workload),
        priority=workload.get("prio", 0),
        created=workload.get("created", 0),
        pod_sets=sets,
        conditions=conditions,
        status={"reclaimablePods": reclaimable, **status},
    )


def pending(workload: Mapping[str, Any]) -> Workload:
    """A described waiting workload."""
    return _workload(workload, [])


def _admitted(workload: Mapping[str, Any]) -> Workload:
    at = workload.get("t", 0)
    conditions = [make_condition(QUOTA_RESERVED, reason="QuotaReserved", at=at)]
    if not workload.get("reserved_only"):
        conditions.append(make_condition(ADMITTED, reason="Admitted", at=at))
    if workload.get("evicted"):
        conditions.append(make_condition(EVICTED, reason="Preempted", at=at))
    assignments = []
    for one in pod_sets(workload):
        count = one.get("assigned", one.get("count", 1))
        usage = {resource: amount * count for resource, amount in one["req"].items()}
        flavors = one.get("flv") or workload.get("flv", {})
        if not isinstance(flavors, str) and "pods" in flavors:
            usage["pods"] = count
        made = make_assignment(usage, flavors, one.get("name", "main"), count)
        assignments.append({**made, **topology_scenarios.assignment_of(one)})
    status = topology_scenarios.unhealthy(workload.get("unhealthy", ()))
    admission = {"clusterQueue": workload["cq"], "podSetAssignments": assignments}
    return _workload(workload, conditions, admission=admission, **status)


# --------------------------------------------------------------------------------------------------

_FIRST_CYCLE = 1_000_000
_CYCLE = 1_000
_RELEASE_AT = 100
_FINISH_AT = 200
_LARGEST = 2**63 - 1

Watch = Callable[[Engine, Settled], None]
"""Looks at an engine after a cycle, and at what was settled."""


def run(
    scenario: Mapping[str, Any], *, rounds: Rounds | None = None, watch: Watch | None = None
) -> Obj:
    """Runs one scenario.

    Args:
        scenario: its description.
        rounds: decides several cycles per snapshot; None takes a snapshot for each.
        watch: is called after each cycle with the engine and what was settled.

    Raises:
        InvalidObject: a field is not valid, or a key is not known.

    Returns:
        `cycles`, each with `entries`, `admitted`, `pending`, `heap` and `inadmissible`; `final`
        with `holding`; with fair sharing, `shares` at the end.
    """
    check(scenario)
    return _ScenarioRun(scenario, rounds, watch).result()


class _ScenarioRun:
    def __init__(
        self, scenario: Mapping[str, Any], rounds: Rounds | None, watch: Watch | None
    ) -> None:
        self._watch = watch
        self._scenario = scenario
        self._rounds = rounds
        self._engine = Engine(settings_of(scenario))
        self._now: float = _FIRST_CYCLE
        self._raw: dict[str, Obj] = {}
        self._last: dict[ObjectKey, Any] = {}
        self._arrivals: dict[int, list[Obj]] = {}
        self._releases: dict[str, int] = {}
        self._set_up()

    def _observe(self, event: events.Event) -> None:
        self._engine.observe(event, self._now)

    # --- the world

    def _set_up(self) -> None:
        for fact in facts(self._scenario):
            if isinstance(fact, events.WorkloadSet):
                self._put(fact.workload)
            else:
                self._observe(fact)
        for workload in self._scenario.get("pending", ()):
            if "arrive" in workload:
                self._arrivals.setdefault(workload["arrive"], []).append(workload)
            else:
                self._note_progress(workload)

    def _create(self, workload: Mapping[str, Any]) -> None:
        self._put(pending(workload))
        self._note_progress(workload)

    def _note_progress(self, workload: Mapping[str, Any]) -> None:
        if "last" in workload:
            sets = zip(pod_sets(workload), workload["last"], strict=True)
            self._last[ObjectKey(namespace_of(workload), workload["name"])] = tuple(
                (pod_set.get("name", "main"), tuple(sorted(tried.items())))
                for pod_set, tried in sets
            )

    def _put(self, workload: Workload) -> None:
        self._raw[workload.name] = encode(workload)
        self._observe(events.WorkloadSet(workload))

    def _patch(self, name: str, *conditions: Obj, **status: Any) -> None:
        raw = self._raw[name]
        old = raw.get("status", {})
        types = {condition["type"] for condition in conditions}
        kept = [
            condition for condition in old.get("conditions", ()) if condition["type"] not in types
        ]
        merged = {**old, **status, "conditions": [*kept, *conditions]}
        merged = {key: value for key, value in merged.items() if value is not None}
        self._put(decode(Workload, {**raw, "status": merged}))

    # --- the cycles

    def result(self) -> Obj:
        cycles = []
        for number in range(1, self._scenario.get("cycles", 1) + 1):
            self._now = _FIRST_CYCLE + _CYCLE * number
            cycles.append(self._cycle(number))
            self._between(number)
        holding = {key.name: self._holding(key) for key in sorted(self._engine.cache.holders)}
        report: Obj = {"id": self._scenario.get("id"), "cycles": cycles}
        report["final"] = {"holding": holding}
        if self._scenario.get("fairSharing", {}).get("enable"):
            report["shares"] = self._shares()
        return report

    def _shares(self) -> dict[str, str]:
        """The shares as statuses show them."""
        cache = self._engine.cache
        shares = {name: share_of_queue(cache, name) for name in self._scenario["cqs"]}
        names = [cohort["name"] for cohort in self._scenario.get("cohorts", ())]
        shares |= {f"cohort/{name}": share_of_cohort(cache, name) for name in names}
        return {name: str(_shown(share)) for name, share in shares.items()}

    def _resuming(self, head: Head) -> Head:
        """A head that continues its search of flavors where the scenario says."""
        progress = self._last.pop(head.info.key, head.progress)
        return Head(
            head.info,
            head.cluster_queue,
            head.namespace_labels,
            progress,
            head.promise,
            head.preempted,
        )

    def _cycle(self, number: int) -> Obj:
        self._engine.reconsider()
        cycle = self._engine.next_cycle(self._now)
        if cycle is None:
            return {"cycle": number, "idle": True, "admitted": {}, "preempted": {}, "pending": {}}
        if self._last:
            heads = tuple(map(self._resuming, cycle.heads))
            cycle = changed(cycle, heads=heads)
        rounds = self._rounds
        decided = decide if rounds is None else rounds.decide
        plan = decided(cycle, self._now)
        settled = self._engine.settle(plan, self._now)
        if rounds is not None:
            rounds.settled(settled, self._engine)
        if self._watch is not None:
            self._watch(self._engine, settled)
        report = {"cycle": number, **_report(cycle, plan), **self._content()}
        leaving = {victim.key for one in settled.preemptions for victim in one.victims}
        for preemption in plan.preemptions:
            for victim in preemption.victims:
                name = victim.key.name
                self._releases.setdefault(name, number + self._delay(name))
                if victim.key in leaving:
                    self._patch(
                        name,
                        make_condition(EVICTED, reason=REASON_PREEMPTED, at=self._now),
                        make_condition(PREEMPTED, reason=victim.path.value, at=self._now),
                    )
        for eviction in settled.evictions:
            name = eviction.key.name
            self._releases.setdefault(name, number + self._delay(name))
            self._patch(name, make_condition(EVICTED, reason="NodeFailures", at=self._now))
        for place in settled.placed:
            admitted = make_condition(ADMITTED, reason="Admitted", at=self._now)
            self._patch(
                place.key.name, admitted, admission=encode(place.admission), unhealthyNodes=None
            )
        for admit in settled.admissions:
            conditions = [make_condition(QUOTA_RESERVED, reason="QuotaReserved", at=self._now)]
            if admit.admitted:
                conditions.append(make_condition(ADMITTED, reason="Admitted", at=self._now))
            past = self._raw[admit.key.name].get("status", {}).get("conditions", ())
            over = [
                make_condition(condition["type"], False, condition["reason"], self._now)
                for condition in past
                if condition["type"] in (EVICTED, PREEMPTED)
            ]
            self._patch(admit.key.name, *conditions, *over, admission=encode(admit.admission))
        for wait in settled.waits:
            waiting = make_condition(QUOTA_RESERVED, False, wait.condition_reason, self._now)
            self._patch(wait.key.name, waiting)
        return report

    def _content(self) -> Obj:
        places: Obj = {"heap": {}, "inadmissible": {}}
        for name in self._engine.cache.names:
            for key, place in self._engine.places(name).items():
                table = "heap" if place is PendingPlace.HEAP else "inadmissible"
                places[table].setdefault(name, []).append(key.name)
        return {
            table: {name: sorted(names) for name, names in content.items()}
            for table, content in places.items()
        }

    def _delay(self, name: str) -> int:
        delay = self._scenario.get("release_delay", 0)
        cycles: int = delay.get(name, 0) if isinstance(delay, dict) else delay
        return cycles

    def _release(self, number: int) -> None:
        for name in sorted(name for name, due in self._releases.items() if due <= number):
            del self._releases[name]
            self._something_happened()
            conditions = (
                make_condition(QUOTA_RESERVED, False, "Pending", self._now),
                make_condition(ADMITTED, False, "NoReservation", self._now),
                make_condition(REQUEUED, reason=REASON_PREEMPTED, at=self._now),
            )
            nothing = {"admission": None, "unhealthyNodes": None, "admissionChecks": None}
            self._patch(name, *conditions, **nothing)

    def _between(self, number: int) -> None:
        self._now += _RELEASE_AT
        self._release(number)
        self._now += _FINISH_AT - _RELEASE_AT
        for name in self._scenario.get("finish", {}).get(str(number), ()):
            raw = self._raw.get(name)
            if raw is not None and raw.get("status", {}).get("admission"):
                self._something_happened()
                self._patch(name, make_condition(FINISHED, reason="Succeeded", at=self._now))
        for event in topology_scenarios.events_after(self._scenario, number):
            self._something_happened()
            self._observe(event)
        marks = topology_scenarios.marks_after(self._scenario, number, self._raw)
        for name, status in marks.items():
            self._patch(name, **status)
        for arrival in self._arrivals.pop(number, ()):
            self._something_happened()
            self._create(arrival)

    def _something_happened(self) -> None:
        if self._rounds is not None:
            self._rounds.forget()

    def _holding(self, key: ObjectKey) -> Obj:
        admission = self._raw[key.name]["status"]["admission"]
        pod_sets = {
            assignment["name"]: _choice(decode(PodSetAssignment, assignment))
            for assignment in admission["podSetAssignments"]
        }
        return {"cq": admission["clusterQueue"], "podsets": pod_sets}


# --- output


def _report(cycle: CycleInput, plan: Plan) -> Obj:
    names = {head.info.key: head.cluster_queue for head in cycle.heads}
    names |= {one.info.key: one.holder.cluster_queue for one in cycle.second}
    evicted = {one.key.name: "NodeFailures" for one in plan.evictions}
    return {
        "entries": [{"name": key.name, "cq": names[key]} for key in plan.order],
        "admitted": {one.key.name: _choices(one.admission) for one in plan.placed}
        | {one.key.name: _choices(one.admission) for one in plan.admissions},
        **({"evicted": evicted} if evicted else {}),
        "preempted": {
            victim.key.name: {"by": one.key.name, "reason": victim.path.value}
            for one in plan.preemptions
            for victim in one.victims
        },
        "pending": {
            wait.key.name: {
                "cq": wait.cluster_queue,
                "class": _class_of(wait),
                "message": wait.reason.text,
                "qr_reason": wait.condition_reason,
            }
            for wait in plan.waits
        }
        | {one.key.name: {"class": "evicted", "message": one.why} for one in plan.evictions},
    }


def _shown(share: float) -> int:
    return _LARGEST if math.isinf(share) else math.ceil(share)


def _choices(admission: Admission) -> Obj:
    return {one.name: _choice(one) for one in admission.pod_set_assignments}


def _choice(assignment: PodSetAssignment) -> Obj:
    chosen: Obj = {"flavors": dict(assignment.flavors), "count": assignment.count}
    placed, delayed = assignment.topology_assignment, assignment.delayed_topology_request
    if placed is not None:
        chosen["assignment"] = topology_scenarios.shown_domains(placed)
    if delayed:
        chosen["delayed"] = delayed
    return chosen


def _class_of(wait: Wait) -> str:
    match wait.reason:
        case NoFlavors(needs_preemption=True):
            return "needs-preemption-no-targets"
        case NoFlavors():
            return "no-fit"
        case Preempting():
            return "preempting"
        case FitsAfterPreemptions():
            return "deferred-fit"
        case NoLongerFits():
            return "skipped-cohort"
        case NamespaceMismatch():
            return "namespace-mismatch"
        case ClusterQueueInactive():
            return "inactive"
        case InvalidResources() | LimitRangeViolated():
            return "invalid"
    return "other"


def _answer(given: Mapping[str, Any], rounds: Rounds | None) -> Obj:
    if topology_scenarios.is_encoding(given):
        return topology_scenarios.encoding_of(given)
    if topology_scenarios.is_ungating(given):
        return topology_scenarios.ungating_of(given)
    if topology_scenarios.is_placement(given):
        return topology_scenarios.placement_of(given)
    return run(given, rounds=rounds)


def main() -> int:
    """Reads one scenario per line and prints one result per line.

    Recorded cases of `kueuelib.testing.topology_scenarios` are recognized by their keys.

    A line that cannot be run gets a result with `error`; the error is also on stderr, and the exit
    code is then 1.
    """
    parser = argparse.ArgumentParser(prog="python -m kueuelib.testing.scenarios")
    parser.add_argument(
        "--rounds",
        choices=("one", "many"),
        default="one",
        help="cycles per snapshot: one, or as many as nothing happens between",
    )
    many = parser.parse_args().rounds == "many"
    code = 0
    for number, line in enumerate(sys.stdin.buffer, 1):
        if not line.strip():
            continue
        answer: Obj
        try:
            answer = _answer(orjson.loads(line), Rounds() if many else None)
        except (orjson.JSONDecodeError, InvalidObject) as error:
            answer, code = {"error": f"line {number}: {error}"}, 1
            sys.stderr.write(f"{answer['error']}\n")
        sys.stdout.buffer.write(orjson.dumps(answer) + b"\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
