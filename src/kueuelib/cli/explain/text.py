"""The answers of `kueuelib explain` for people."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kueuelib.api.phrases import some
from kueuelib.api.quantity import MAX_AMOUNT, format_amount
from kueuelib.app.explaining.asking import LastMessage, ObjectAnswer
from kueuelib.cli.explain.changes import changes_by_end, preempts, said, then_checks, what_decides
from kueuelib.cli.terminal import print_table, terminal
from kueuelib.scheduler.decide.second_pass import waits_for_nodes
from kueuelib.scheduler.explain.answer import Explanation
from kueuelib.scheduler.explain.pairs import PAIRS
from kueuelib.scheduler.explain.places import room_texts
from kueuelib.scheduler.explain.rows import Fit, Row, TreeRow
from kueuelib.scheduler.explain.trial import TrialOutcome, TrialResult
from kueuelib.scheduler.flavor_reasons import (
    AffinityMismatch,
    ExceedsCapacity,
    FlavorReason,
    QuotaInUse,
    ResourceUncovered,
    TopologyMismatch,
)
from kueuelib.scheduler.object_reasons import LocalQueueMissing
from kueuelib.scheduler.reasons import NoFlavors, condition_reason, render

# ---- the table of the tree of cohorts in the answers of `kueuelib explain` -----------------------

_AMOUNTS = ("Own", "Nominal", "Used", "May borrow", "May lend", "Room")


def tree_table(rows: Sequence[TreeRow]) -> Table:
    """The table of what the ClusterQueue and the cohorts above it own, lend and use, from the
    bottom up.
    """
    weighted = any(row.weight is not None for row in rows)
    table = Table(show_edge=True)
    table.add_column("Tree", overflow="fold")
    if weighted:
        for title in ("Weight", "Share"):
            table.add_column(title, justify="right")
    for title in ("Resource", "Flavor"):
        table.add_column(title, overflow="fold")
    for title in _AMOUNTS:
        table.add_column(title, justify="right", overflow="fold")
    before = ""
    for row in rows:
        label = f"{row.kind} {row.name}"
        first = label != before
        weight = [_weight(row), _share(row)] if first else ["", ""]
        amounts = (
            row.own,
            row.nominal,
            row.used,
            row.borrowing_limit,
            row.lending_limit,
            row.room,
        )
        table.add_row(
            label if first else "",
            *(weight if weighted else ()),
            row.resource,
            row.flavor,
            *("-" if amount is None else format_amount(row.resource, amount) for amount in amounts),
        )
        before = label
    return table


def _weight(row: TreeRow) -> str:
    return "-" if row.weight is None else f"{row.weight:g}"


def _share(row: TreeRow) -> str:
    if row.weighted_share is None:
        return "-"
    return "most" if row.weighted_share == MAX_AMOUNT else str(row.weighted_share)


# --------------------------------------------------------------------------------------------------


def show(answers: Sequence[ObjectAnswer]) -> None:
    """Prints the answers to standard output."""
    console = terminal()
    for number, answer in enumerate(answers):
        if number:
            console.print()
        _show(console, answer)


def _show(console: Console, answer: ObjectAnswer) -> None:
    explanation = answer.explanation
    for line in _head(answer):
        _line(console, line)
    if explanation is not None and explanation.rows:
        print_table(console, _table(explanation.rows))
    if explanation is not None and explanation.tree:
        print_table(console, tree_table(explanation.tree))
    problems = (*answer.problems, *(explanation.problems if explanation is not None else ()))
    if problems:
        _line(console, "What is wrong:", bold=True)
        for problem in problems:
            _line(console, f"  {problem.subject}: {problem.problem}; {problem.fix}")
    if explanation is not None and explanation.verdict in (TrialResult.WAITS, TrialResult.PREEMPTS):
        _changes(console, explanation)
        tried = [kind for kind in explanation.tried if kind != PAIRS]
        if tried:
            _line(console, f"Tried, one change at a time: {', '.join(tried)}.")
        for limit in explanation.limits:
            _line(console, f"The search was limited: {limit}.")
    if answer.unhonoured:
        _line(console, "Not done by this version:", bold=True)
        for one in answer.unhonoured:
            _line(console, f"  {one.text}")
    for note in (*(explanation.notes if explanation is not None else ()), *answer.notes):
        _line(console, f"Note: {note}")


def _line(console: Console, text: str, *, bold: bool = False, colour: str = "") -> None:
    style = " ".join(part for part in ("bold" if bold else "", colour) if part)
    console.print(Text(text, style=style), soft_wrap=True)


def _head(answer: ObjectAnswer) -> Iterator[str]:
    explanation = answer.explanation
    if answer.unmanaged is not None:
        yield f"{answer.title} {answer.unmanaged.problem}"
        yield f"To have it queued, {answer.unmanaged.fix}"
        return
    if answer.state is not None:
        yield f"{answer.title}: {answer.state.text}"
        return
    if explanation is None:
        yield f"{answer.title}: has no Workload"
        return
    yield _subject(answer, explanation)
    if explanation.cluster_queue:
        place = f"LocalQueue {explanation.local_queue} -> ClusterQueue {explanation.cluster_queue}"
        if explanation.position is not None:
            total = explanation.position + explanation.behind
            place += f", place {explanation.position} of {total}"
        yield place
    if explanation.ahead:
        yield f"Ahead of it: {some(explanation.ahead)}"
    yield from _past_usage(explanation)
    yield from _verdict(explanation)
    if answer.last_message is not None and not _same(explanation, answer.last_message):
        yield f"The manager said: {answer.last_message.reason}: {answer.last_message.message}"


def _past_usage(explanation: Explanation) -> Iterator[str]:
    """Which LocalQueues come first because they used less."""
    if explanation.usage is None or not explanation.used_less:
        return
    less = [f"{key} ({_amount(usage)})" for key, usage in explanation.used_less]
    yield (
        f"Behind LocalQueues that used less: {some(less)}; "
        f"{explanation.local_queue} has {_amount(explanation.usage)}"
    )


def _amount(usage: float) -> str:
    return "infinite usage" if math.isinf(usage) else f"{usage:.4g}"


def _subject(answer: ObjectAnswer, explanation: Explanation) -> str:
    priority = explanation.workload.spec.priority or 0
    name = f"Workload {explanation.key}"
    if answer.title == f"Workload {explanation.key.name}":
        if answer.submitted:
            return f"{name}, priority {priority}"
        return f"{name}: not submitted; its priority would be {priority}"
    if answer.submitted:
        return f"{answer.title}: {name}, priority {priority}"
    return (
        f"{answer.title}: not submitted; its Workload would be {explanation.key}, "
        f"priority {priority}"
    )


def _same(explanation: Explanation, last: LastMessage) -> bool:
    """Whether the manager came to the same verdict, which is then not repeated."""
    return explanation.reason is not None and render(explanation.reason) == last.message


def _verdict(explanation: Explanation) -> Iterator[str]:
    match explanation.verdict:
        case TrialResult.HOLDS_QUOTA | TrialResult.ADMITTED:
            if explanation.verdict is TrialResult.HOLDS_QUOTA:
                yield "It holds quota" + _flavors(explanation) + "."
            else:
                yield "Nothing stands in its way: it gets quota in the next cycle" + (
                    _flavors(explanation) + "." + then_checks(explanation.checks)
                )
            yield from (one.text for one in explanation.placed)
            awaited = {one.name: one for one in explanation.awaited}
            for check in explanation.workload.status.admission_checks:
                message = f": {check.message}" if check.message else ""
                one = awaited.get(check.name)
                yield (
                    f"Admission {one.text}"
                    if one
                    else (f"Admission check {check.name} is {check.state}{message}")
                )
                if one is not None:
                    yield f"  Next step: {one.next_step}"
            if waits_for_nodes(explanation.workload):
                yield "Its pods have no places on nodes yet: events SecondPassFailed say why."
        case TrialResult.FINISHED:
            yield ": ".join(("It is finished", *filter(None, explanation.ending or ())))
        case TrialResult.PREEMPTS:
            victims = ", ".join(str(key) for key in explanation.outcome.victims)
            text = f"It gets quota as soon as these preempted Workloads have left: {victims}"
            yield text + (f".{then_checks(explanation.checks)}" if explanation.checks else "")
        case TrialResult.WAITS:
            yield _why(explanation)
            if explanation.when_first is not None:
                yield "If it were first in its ClusterQueue: " + _then(explanation.when_first)
            outcome = explanation.when_first or explanation.outcome
            yield from _mismatches(outcome)
            yield from room_texts(explanation.places)
            yield from _victims(outcome)
        case TrialResult.UNKNOWN:
            yield "It is being deleted."


def _flavors(explanation: Explanation) -> str:
    if explanation.admission is None:
        return ""
    parts = [
        f"{name} from {flavor}"
        for one in explanation.admission.pod_set_assignments
        for name, flavor in sorted(one.flavors.items())
    ]
    return f" ({', '.join(dict.fromkeys(parts))})" if parts else ""


def _why(explanation: Explanation) -> str:
    outcome = explanation.outcome
    if outcome.reason is None:
        return "It waits."
    if isinstance(outcome.reason, LocalQueueMissing) and not outcome.reason.name:
        return f"It waits: {condition_reason(outcome.reason)}: it names no LocalQueue"
    if not outcome.evaluated:
        return "It waits behind others: its ClusterQueue does not try it before them."
    return f"It waits: {condition_reason(outcome.reason)}: {render(outcome.reason)}"


def _flavor_reasons(outcome: TrialOutcome) -> Iterator[tuple[str, FlavorReason]]:
    """Why pod sets cannot use flavors, with the name of the pod set."""
    reason = outcome.reason
    yield from reason.flavor_reasons if isinstance(reason, NoFlavors) else ()


def _mismatches(outcome: TrialOutcome) -> Iterator[str]:
    """Which labels and levels of nodes differ from what pods ask for, and what has no quota."""
    for pod_set, one in _flavor_reasons(outcome):
        if isinstance(one, AffinityMismatch | TopologyMismatch | ResourceUncovered) and one.detail:
            yield f"Pod set {pod_set}: {one.detail}"


def _victims(outcome: TrialOutcome) -> Iterator[str]:
    """Why preemption does not help, if that was examined."""
    reason = outcome.reason
    if isinstance(reason, NoFlavors) and reason.together is not None:
        yield f"No victims suffice: {reason.together.text}"
        return
    for pod_set, one in _flavor_reasons(outcome):
        if isinstance(one, QuotaInUse) and one.in_vain is not None:
            yield f"No victims suffice for pod set {pod_set}: {one.in_vain.text}"


def _then(outcome: TrialOutcome) -> str:
    if outcome.admits:
        return "it would get quota."
    if outcome.helps:
        return f"it would preempt {', '.join(str(key) for key in outcome.victims)}."
    if outcome.reason is None:
        return "it would wait."
    return f"{condition_reason(outcome.reason)}: {render(outcome.reason)}"


def _table(rows: Sequence[Row]) -> Table:
    table = Table(show_edge=True)
    for title in ("Pod set", "Resource", "Flavor"):
        table.add_column(title, overflow="fold")
    for title in ("Requested", "Used", "Nominal", "Borrowable", "Available"):
        table.add_column(title, justify="right", overflow="fold")
    table.add_column("Verdict", overflow="fold")
    before = ""
    for row in rows:
        colour = "green" if row.fit is Fit.FITS else "red"
        least = "" if row.min_count in (None, row.count) else f"{row.min_count}-"
        label = f"{row.pod_set} x {least}{row.count}"
        table.add_row(
            "" if label == before else label,
            row.resource,
            row.flavor or "-",
            *(
                format_amount(row.resource, amount)
                for amount in (row.requested, row.used, row.nominal)
            ),
            _borrowable(row),
            format_amount(row.resource, row.available),
            Text(_fit(row), style=colour),
        )
        before = label
    return table


def _borrowable(row: Row) -> str:
    if row.borrowing_limit is not None:
        return format_amount(row.resource, row.borrowing_limit)
    return format_amount(row.resource, max(0, row.capacity - row.nominal))


def _fit(row: Row) -> str:
    lacks = [
        f"{format_amount(row.resource, one.lack)} more needed"
        for one in row.reasons
        if isinstance(one, QuotaInUse)
    ]
    lacks += [
        f"at most {format_amount(row.resource, one.capacity)} ever"
        for one in row.reasons
        if isinstance(one, ExceedsCapacity)
    ]
    if not lacks and row.fit is Fit.EXCEEDS:
        lacks = [f"at most {format_amount(row.resource, row.capacity)} ever"]
    if not lacks and row.fit is Fit.NO_MATCH:
        lacks = [one.text.replace(f" in flavor {row.flavor}", "") for one in row.reasons]
    return ": ".join([row.fit.value, *lacks[:1]])


def _changes(console: Console, explanation: Explanation) -> None:
    if not explanation.changes:
        if explanation.verdict is TrialResult.WAITS:
            _pairs(console, explanation)
        return
    for heading, texts in changes_by_end(explanation.changes):
        _line(console, heading, bold=True)
        for text in texts:
            _line(console, f"  {text}", colour="green")


def _pairs(console: Console, explanation: Explanation) -> None:
    """What is said without a single change: two that are enough together, if they were found."""
    none_alone = "No single change was found that would admit it now"
    if not explanation.pairs:
        nor = ", and no two" if PAIRS in explanation.tried else ""
        _line(console, f"{none_alone}{nor}.", bold=True)
    for number, pair in enumerate(explanation.pairs):
        which = "Or these two" if number else f"{none_alone}, but these two together would"
        if pair.checks:
            which += f" reserve quota{what_decides(pair.checks)}"
        _line(console, f"{which}{preempts(pair)}:", bold=True)
        for change in pair.changes:
            _line(console, f"  {said(change, change.text)}", colour="green")
