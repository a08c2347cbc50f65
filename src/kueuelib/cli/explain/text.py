"""The answers of `kueuelib explain` for people."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kueuelib.api.quantity import format_amount
from kueuelib.app.explaining.asking import Answer, Told
from kueuelib.cli.explain.tree import tree_table
from kueuelib.scheduler.blockers import ExceedsCapacity, QuotaInUse
from kueuelib.scheduler.explain.answer import Explanation
from kueuelib.scheduler.explain.found import Found
from kueuelib.scheduler.explain.own_changes import MoveTo
from kueuelib.scheduler.explain.rows import Fit, Row
from kueuelib.scheduler.explain.tree_changes import SetParent
from kueuelib.scheduler.explain.trial import Outcome, Verdict
from kueuelib.scheduler.object_reasons import LocalQueueMissing
from kueuelib.scheduler.reasons import NoFlavors, condition_reason, render

WIDTH = 120
"""Columns where the output is not a terminal."""
MOST_NAMES = 5


def show(answers: Sequence[Answer]) -> None:
    """Prints the answers to standard output."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH)
    for number, answer in enumerate(answers):
        if number:
            console.print()
        _show(console, answer)


def _show(console: Console, answer: Answer) -> None:
    found = answer.explanation
    for line in _head(answer):
        _line(console, line)
    if found is not None and found.rows:
        console.print(_table(found.rows))
    if found is not None and found.tree:
        console.print(tree_table(found.tree))
    problems = (*answer.problems, *(found.problems if found is not None else ()))
    if problems:
        _line(console, "What is wrong:", bold=True)
        for problem in problems:
            _line(console, f"  {problem.subject}: {problem.problem}; {problem.fix}")
    if found is not None and found.verdict in (Verdict.WAITS, Verdict.PREEMPTS):
        _changes(console, found)
        if found.tried:
            _line(console, f"Tried, one change at a time: {', '.join(found.tried)}.")
        for limit in found.limits:
            _line(console, f"The search was limited: {limit}.")
    if answer.unhonoured:
        _line(console, "Not done by this version:", bold=True)
        for one in answer.unhonoured:
            _line(console, f"  {one.text}")
    for note in (*(found.notes if found is not None else ()), *answer.notes):
        _line(console, f"Note: {note}")


def _line(console: Console, text: str, *, bold: bool = False, colour: str = "") -> None:
    style = " ".join(part for part in ("bold" if bold else "", colour) if part)
    console.print(Text(text, style=style), soft_wrap=True)


def _head(answer: Answer) -> Iterator[str]:
    found = answer.explanation
    if answer.unmanaged is not None:
        yield f"{answer.title} {answer.unmanaged.problem}"
        yield f"To have it queued, {answer.unmanaged.fix}"
        return
    if found is None:
        yield f"{answer.title}: has no Workload"
        return
    yield _subject(answer, found)
    if found.cluster_queue:
        place = f"LocalQueue {found.local_queue} -> ClusterQueue {found.cluster_queue}"
        if found.position is not None:
            total = found.position + found.behind
            place += f", place {found.position} of {total}"
        yield place
    if found.ahead:
        names = ", ".join(str(key) for key in found.ahead[:MOST_NAMES])
        more = len(found.ahead) - MOST_NAMES
        yield f"Ahead of it: {names}" + (f" and {more} more" if more > 0 else "")
    yield from _past_usage(found)
    yield from _verdict(found)
    if answer.told is not None and not _same(found, answer.told):
        yield f"The manager said: {answer.told.reason}: {answer.told.message}"


def _past_usage(found: Explanation) -> Iterator[str]:
    """Which LocalQueues come first because they used less."""
    if found.usage is None or not found.used_less:
        return
    names = [f"{key} ({_amount(usage)})" for key, usage in found.used_less[:MOST_NAMES]]
    more = len(found.used_less) - MOST_NAMES
    yield (
        f"Behind LocalQueues that used less: {', '.join(names)}"
        + (f" and {more} more" if more > 0 else "")
        + f"; {found.local_queue} has {_amount(found.usage)}"
    )


def _amount(usage: float) -> str:
    return "infinite usage" if math.isinf(usage) else f"{usage:.4g}"


def _subject(answer: Answer, found: Explanation) -> str:
    priority = found.workload.spec.priority or 0
    name = f"Workload {found.key}"
    if answer.title == f"Workload {found.key.name}":
        if answer.submitted:
            return f"{name}, priority {priority}"
        return f"{name}: not submitted; its priority would be {priority}"
    if answer.submitted:
        return f"{answer.title}: {name}, priority {priority}"
    return f"{answer.title}: not submitted; its Workload would be {found.key}, priority {priority}"


def _same(found: Explanation, told: Told) -> bool:
    """Whether the manager came to the same verdict, which need not be said twice."""
    return found.reason is not None and render(found.reason) == told.message


def _verdict(found: Explanation) -> Iterator[str]:
    match found.verdict:
        case Verdict.HOLDS_QUOTA | Verdict.ADMITTED:
            if found.verdict is Verdict.HOLDS_QUOTA:
                yield "It holds quota" + _flavors(found) + "."
            else:
                yield "Nothing stands in its way: it gets quota in the next cycle" + (
                    _flavors(found) + "." + then_checks(found.checks)
                )
            awaited = {one.name: one for one in found.awaited}
            for check in found.workload.status.admission_checks:
                told = f": {check.message}" if check.message else ""
                one = awaited.get(check.name)
                yield (
                    f"Admission {one.text}"
                    if one
                    else (f"Admission check {check.name} is {check.state}{told}")
                )
                if one is not None:
                    yield f"  Next step: {one.next_step}"
        case Verdict.FINISHED:
            yield "It is finished."
        case Verdict.PREEMPTS:
            victims = ", ".join(str(key) for key in found.outcome.victims)
            text = f"It gets quota as soon as these have left, which are preempted: {victims}"
            yield text + (f".{then_checks(found.checks)}" if found.checks else "")
        case Verdict.WAITS:
            yield _why(found)
            if found.when_first is not None:
                yield "If it were first in its ClusterQueue: " + _then(found.when_first)
            yield from _victims(found.when_first or found.outcome)
        case Verdict.UNKNOWN:
            yield "It is being deleted."


def _flavors(found: Explanation) -> str:
    if found.admission is None:
        return ""
    parts = [
        f"{name} from {flavor}"
        for one in found.admission.pod_set_assignments
        for name, flavor in sorted(one.flavors.items())
    ]
    return f" ({', '.join(dict.fromkeys(parts))})" if parts else ""


def _why(found: Explanation) -> str:
    outcome = found.outcome
    if outcome.reason is None:
        return "It waits."
    if isinstance(outcome.reason, LocalQueueMissing) and not outcome.reason.name:
        return f"It waits: {condition_reason(outcome.reason)}: it names no LocalQueue"
    if not outcome.evaluated:
        return "It waits behind others: its ClusterQueue does not try it before them."
    return f"It waits: {condition_reason(outcome.reason)}: {render(outcome.reason)}"


def _victims(outcome: Outcome) -> Iterator[str]:
    """Why preemption does not help, where that was looked into."""
    reason = outcome.reason
    if not isinstance(reason, NoFlavors):
        return
    if reason.together is not None:
        yield f"No victims suffice: {reason.together.text}"
        return
    for blocked in reason.pod_sets:
        for one in (
            blocker
            for group in blocked.groups
            for attempt in group.attempts
            for blocker in attempt.blockers
        ):
            if isinstance(one, QuotaInUse) and one.in_vain is not None:
                yield f"No victims suffice for pod set {blocked.pod_set}: {one.in_vain.text}"


def _then(outcome: Outcome) -> str:
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
        for one in row.blockers
        if isinstance(one, QuotaInUse)
    ]
    lacks += [
        f"at most {format_amount(row.resource, one.capacity)} ever"
        for one in row.blockers
        if isinstance(one, ExceedsCapacity)
    ]
    if not lacks and row.fit is Fit.EXCEEDS:
        lacks = [f"at most {format_amount(row.resource, row.capacity)} ever"]
    if not lacks and row.fit is Fit.NO_MATCH:
        lacks = [one.text.replace(f" in flavor {row.flavor}", "") for one in row.blockers]
    return ": ".join([row.fit.value, *lacks[:1]])


def _changes(console: Console, found: Explanation) -> None:
    if not found.changes:
        if found.verdict is Verdict.WAITS:
            _line(console, "No single change was found that would admit it now.", bold=True)
        return
    for heading, texts in changes_by_end(found.changes):
        _line(console, heading, bold=True)
        for text in texts:
            _line(console, f"  {text}", colour="green")


def changes_by_end(changes: Sequence[Found]) -> Iterator[tuple[str, list[str]]]:
    """Changes as lists of lines under a heading that says what they lead to, admission first.

    Args:
        changes: each of them alone is enough for that.
    """
    ends = dict.fromkeys(one.checks for one in changes)
    for checks in sorted(ends, key=bool):
        yield _heading(checks), _texts(one for one in changes if one.checks == checks)


def _heading(checks: Sequence[str]) -> str:
    if not checks:
        return (
            "Any one of these would admit it now; one unit less of it would not, "
            "or only by preempting others:"
        )
    return (
        f"Any one of these would reserve quota{_decide(checks)} "
        "(one unit less would not reserve quota, or only by preempting others):"
    )


def then_checks(checks: Sequence[str]) -> str:
    """A sentence about what happens after quota is reserved; empty without checks."""
    return f" That reserves quota{_decide(checks)}." if checks else ""


def _decide(checks: Sequence[str]) -> str:
    """What happens after quota is reserved."""
    if len(checks) == 1:
        return f"; check {checks[0]} then decides"
    return f"; checks {', '.join(checks)} then decide"


def _texts(changes: Iterable[Found]) -> list[str]:
    """A line for each change; those that differ only in where something goes to share one."""
    choices: dict[tuple[object, ...], list[str]] = {}
    firsts: dict[tuple[object, ...], Found] = {}
    for number, one in enumerate(changes):
        change = one.change
        key: tuple[object, ...] = (number,)
        if isinstance(change, MoveTo | SetParent) and change.to:
            key = (change.subject, change.kind, one.victims)
            choices.setdefault(key, []).append(change.choice)
        firsts.setdefault(key, one)
    return [change_text(one, choices.get(key, ())) for key, one in firsts.items()]


def smallest_text(found: Found) -> str:
    """A change in one line where no heading says what it leads to.

    Args:
        found: the change.
    """
    return change_text(found) + (_decide(found.checks) if found.checks else "")


def change_text(found: Found, choices: Sequence[str] = ()) -> str:
    """A change in one line, with the object it is about.

    Args:
        found: the change.
        choices: where else something may go that this change moves.
    """
    change = found.change
    text = change.text
    if isinstance(change, MoveTo | SetParent) and len(choices) > 1:
        text = change.said_of(f"{', '.join(choices[:-1])} or {choices[-1]}")
    if change.subject not in text:
        text = f"{change.subject}: {text}"
    if not found.victims:
        return text
    return f"{text} (preempts {', '.join(str(key) for key in found.victims)})"
