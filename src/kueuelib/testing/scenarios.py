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
from collections.abc import Mapping
from typing import Any

import orjson

from kueuelib.api.codec import decode, encode
from kueuelib.api.kueue import Workload
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
from kueuelib.scheduler.decide.cycle import Admit, CycleInput, Head, Plan, Wait, decide
from kueuelib.scheduler.engine import Engine
from kueuelib.scheduler.object_reasons import (
    ClusterQueueInactive,
    InvalidResources,
    LimitRangeViolated,
    NamespaceMismatch,
)
from kueuelib.scheduler.pending.item import PendingPlace
from kueuelib.scheduler.quota.weighted_share import share_of_cohort, share_of_queue
from kueuelib.scheduler.reasons import FitsAfterPreemptions, NoFlavors, NoLongerFits, Preempting
from kueuelib.scheduler.rounds import Rounds
from kueuelib.scheduler.values import changed
from kueuelib.testing.builders import make_condition
from kueuelib.testing.scenario_facts import facts, namespace_of, pending, pod_sets, settings_of
from kueuelib.testing.scenario_form import check

_FIRST_CYCLE = 1_000_000
_CYCLE = 1_000
_RELEASE_AT = 100
_FINISH_AT = 200
_LARGEST = 2**63 - 1


def run(scenario: Mapping[str, Any], *, rounds: Rounds | None = None) -> Obj:
    """Runs one scenario.

    Args:
        scenario: its description.
        rounds: decides several cycles per snapshot; None takes a snapshot for each.

    Raises:
        InvalidObject: a field is not valid, or a key is not known.

    Returns:
        `cycles`, each with `entries`, `admitted`, `pending`, `heap` and `inadmissible`; `final`
        with `holding`; with fair sharing, `shares` at the end.
    """
    check(scenario)
    return _Run(scenario, rounds).result()


class _Run:
    def __init__(self, scenario: Mapping[str, Any], rounds: Rounds | None) -> None:
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
        report = {"cycle": number, **_report(cycle, plan), **self._content()}
        told = {victim.key for one in settled.preemptions for victim in one.victims}
        for preemption in plan.preemptions:
            for victim in preemption.victims:
                name = victim.key.name
                self._releases.setdefault(name, number + self._delay(name))
                if victim.key in told:
                    self._patch(
                        name,
                        make_condition(EVICTED, reason=REASON_PREEMPTED, at=self._now),
                        make_condition(PREEMPTED, reason=victim.path.value, at=self._now),
                    )
        for admit in settled.admissions:
            conditions = (
                make_condition(QUOTA_RESERVED, reason="QuotaReserved", at=self._now),
                make_condition(ADMITTED, reason="Admitted", at=self._now),
            )
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
            self._patch(name, *conditions, admission=None)

    def _between(self, number: int) -> None:
        self._now += _RELEASE_AT
        self._release(number)
        self._now += _FINISH_AT - _RELEASE_AT
        for name in self._scenario.get("finish", {}).get(str(number), ()):
            raw = self._raw.get(name)
            if raw is not None and raw.get("status", {}).get("admission"):
                self._something_happened()
                self._patch(name, make_condition(FINISHED, reason="Succeeded", at=self._now))
        for arrival in self._arrivals.pop(number, ()):
            self._something_happened()
            self._create(arrival)

    def _something_happened(self) -> None:
        if self._rounds is not None:
            self._rounds.forget()

    def _holding(self, key: ObjectKey) -> Obj:
        admission = self._raw[key.name]["status"]["admission"]
        pod_sets = {
            assignment["name"]: {
                "flavors": assignment.get("flavors", {}),
                "count": assignment["count"],
            }
            for assignment in admission["podSetAssignments"]
        }
        return {"cq": admission["clusterQueue"], "podsets": pod_sets}


# --- output


def _report(cycle: CycleInput, plan: Plan) -> Obj:
    names = {head.info.key: head.cluster_queue for head in cycle.heads}
    return {
        "entries": [{"name": key.name, "cq": names[key]} for key in plan.order],
        "admitted": {admit.key.name: _choices(admit) for admit in plan.admissions},
        "preempted": {
            victim.key.name: {"by": one.key.name, "reason": victim.path.value}
            for one in plan.preemptions
            for victim in one.victims
        },
        "pending": {
            wait.key.name: {
                "cq": wait.cluster_queue,
                "class": _class_of(wait),
                "message": wait.message,
                "qr_reason": wait.condition_reason,
            }
            for wait in plan.waits
        },
    }


def _shown(share: float) -> int:
    return _LARGEST if math.isinf(share) else math.ceil(share)


def _choices(admit: Admit) -> Obj:
    return {
        assignment.name: {"flavors": dict(assignment.flavors), "count": assignment.count}
        for assignment in admit.admission.pod_set_assignments
    }


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


def main() -> int:
    """Reads one scenario per line and prints one result per line.

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
            answer = run(orjson.loads(line), rounds=Rounds() if many else None)
        except (orjson.JSONDecodeError, InvalidObject) as error:
            answer, code = {"error": f"line {number}: {error}"}, 1
            sys.stderr.write(f"{answer['error']}\n")
        sys.stdout.buffer.write(orjson.dumps(answer) + b"\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
