"""The answers of `kueuelib explain` as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

import attrs

from kueuelib.api.codec import encode
from kueuelib.api.meta import Obj, format_time
from kueuelib.api.quantity import format_amount
from kueuelib.app.explaining.asking import Answer
from kueuelib.cli.explain.changes import change_data, pair_data, plain
from kueuelib.scheduler.explain.answer import Explanation
from kueuelib.scheduler.explain.obstacles import Problem
from kueuelib.scheduler.explain.rows import Row
from kueuelib.scheduler.explain.tree_rows import TreeRow
from kueuelib.scheduler.reasons import Reason, condition_reason, render


def to_json(answers: Sequence[Answer], *, many: bool) -> str:
    """The JSON text: one object, or a list if the question allows several."""
    data = [answer_data(answer) for answer in answers]
    text = json.dumps(data if many else data[0], indent=2, ensure_ascii=False)
    return text + "\n"  # amounts may be beyond 64 bits


def answer_data(answer: Answer) -> Obj:
    """One answer."""
    explanation = answer.explanation
    alone = () if answer.unmanaged is None else (answer.unmanaged,)
    data: Obj = {
        "object": answer.title,
        "submitted": answer.submitted,
        "verdict": _verdict(answer),
        "notes": [*(() if answer.explanation is None else answer.explanation.notes), *answer.notes],
        "notHonoured": [attrs.asdict(one) for one in answer.unhonoured],
        "problems": [
            _problem(one)
            for one in (
                *alone,
                *answer.problems,
                *(explanation.problems if explanation is not None else ()),
            )
        ],
    }
    if answer.told is not None:
        data["told"] = attrs.asdict(answer.told)
    return data if explanation is None else {**data, **_explanation(explanation)}


def _verdict(answer: Answer) -> str:
    if answer.explanation is not None:
        return answer.explanation.verdict.value
    return "no workload" if answer.unmanaged is None else "not managed"


def _number(usage: float | None) -> float | str | None:
    """Past usage; JSON has no infinity."""
    return "infinite" if usage is not None and math.isinf(usage) else usage


def _explanation(explanation: Explanation) -> Obj:
    data: Obj = {
        "workload": str(explanation.key),
        "priority": explanation.workload.spec.priority or 0,
        "localQueue": explanation.local_queue,
        "clusterQueue": explanation.cluster_queue,
        "position": explanation.position,
        "ahead": [str(key) for key in explanation.ahead],
        "behind": explanation.behind,
        "pastUsage": _number(explanation.usage),
        "usedLess": [
            {"localQueue": str(key), "pastUsage": _number(usage)}
            for key, usage in explanation.used_less
        ],
        "evaluated": explanation.outcome.evaluated,
        "reason": None if explanation.reason is None else reason_data(explanation.reason),
        "victims": [str(key) for key in explanation.outcome.victims],
        "table": [row_data(row) for row in explanation.rows],
        "cohortTree": [tree_row_data(row) for row in explanation.tree],
        "checksAfterQuota": list(explanation.checks),
        "changes": [change_data(one) for one in explanation.changes],
        "pairs": [pair_data(one) for one in explanation.pairs],
        "tried": list(explanation.tried),
        "limits": list(explanation.limits),
    }
    if explanation.when_first is not None:
        first = explanation.when_first
        data["whenFirst"] = {
            "verdict": first.verdict.value,
            "reason": None if first.reason is None else reason_data(first.reason),
        }
    if explanation.admission is not None:
        data["admission"] = encode(explanation.admission)
    if explanation.ending is not None:
        data["finished"] = dict(zip(("reason", "message"), explanation.ending, strict=True))
    checks = explanation.workload.status.admission_checks
    if checks:
        data["checks"] = [
            {"name": one.name, "state": one.state, "message": one.message} for one in checks
        ]
    if explanation.awaited:
        data["awaited"] = [
            {
                "name": one.name,
                "controllerName": one.controller,
                "since": None if one.since is None else format_time(one.since),
                "nextStep": one.next_step,
            }
            for one in explanation.awaited
        ]
    return data


def reason_data(reason: Reason) -> Obj:
    """A reason: its kind, its condition reason, its message, and the tree with all numbers."""
    return {
        "kind": type(reason).__name__,
        "reason": condition_reason(reason),
        "message": render(reason),
        "tree": plain(reason),
    }


def row_data(row: Row) -> Obj:
    """One line of the table; amounts as quantities."""
    amounts = ("requested", "used", "nominal", "available", "capacity")
    data: Obj = {
        "podSet": row.pod_set,
        "count": row.count,
        "minCount": row.min_count,
        "resource": row.resource,
        "flavor": row.flavor,
        **{name: format_amount(row.resource, getattr(row, name)) for name in amounts},
        "borrowingLimit": None,
        "verdict": row.fit.value,
        "blockers": [{"kind": type(one).__name__, "message": one.text} for one in row.blockers],
    }
    if row.borrowing_limit is not None:
        data["borrowingLimit"] = format_amount(row.resource, row.borrowing_limit)
    return data


def tree_row_data(row: TreeRow) -> Obj:
    """One resource and flavor of a place in the tree; amounts as quantities, null for no limit."""
    amounts = {
        "own": row.own,
        "nominal": row.nominal,
        "used": row.used,
        "borrowingLimit": row.borrowing_limit,
        "lendingLimit": row.lending_limit,
        "room": row.room,
    }
    return {
        "kind": row.kind,
        "name": row.name,
        "flavor": row.flavor,
        "resource": row.resource,
        **{
            name: None if amount is None else format_amount(row.resource, amount)
            for name, amount in amounts.items()
        },
        "weight": row.weight,
        "weightedShare": row.weighted_share,
    }


def _problem(problem: Problem) -> Obj:
    return attrs.asdict(problem)
