"""Changes that would admit a Workload, in words and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeGuard

import attrs

from kueuelib.api.meta import Obj, ObjectKey

if TYPE_CHECKING:
    from kueuelib.scheduler.explain.changes import CandidateChange, SetParent
    from kueuelib.scheduler.explain.own_changes import MoveTo
    from kueuelib.scheduler.explain.trial import TriedChange, TriedPair


def changes_by_end(changes: Sequence[TriedChange]) -> Iterator[tuple[str, list[str]]]:
    """Changes as lists of lines under a heading for their result, admission first.

    Args:
        changes: each of them suffices by itself.
    """
    ends = dict.fromkeys(one.checks for one in changes)
    for checks in sorted(ends, key=bool):
        yield _heading(checks), _texts(one for one in changes if one.checks == checks)


def _heading(checks: Sequence[str]) -> str:
    if not checks:
        return (
            "Any one of these would admit it now; a slightly smaller change would not, "
            "unless it preempts others:"
        )
    return (
        f"Any one of these would reserve quota{what_decides(checks)} "
        "(a slightly smaller change would not reserve quota, unless it preempts others):"
    )


def then_checks(checks: Sequence[str]) -> str:
    """A sentence about what happens after quota is reserved; empty without checks."""
    return f" That reserves quota{what_decides(checks)}." if checks else ""


def what_decides(checks: Sequence[str]) -> str:
    """The lines about what happens after quota is reserved."""
    if len(checks) == 1:
        return f"; check {checks[0]} then decides"
    return f"; checks {', '.join(checks)} then decide"


def _texts(changes: Iterable[TriedChange]) -> list[str]:
    """A line for each change; those that differ only in their destination share one."""
    choices: dict[tuple[object, ...], list[str]] = {}
    firsts: dict[tuple[object, ...], TriedChange] = {}
    for number, one in enumerate(changes):
        change = one.change
        key: tuple[object, ...] = (number,)
        if _has_destination(change) and change.to:
            key = (change.subject, change.kind, one.victims)
            choices.setdefault(key, []).append(change.choice)
        firsts.setdefault(key, one)
    return [change_text(one, choices.get(key, ())) for key, one in firsts.items()]


def _has_destination(change: CandidateChange) -> TypeGuard[MoveTo | SetParent]:
    from kueuelib.scheduler.explain.changes import SetParent
    from kueuelib.scheduler.explain.own_changes import MoveTo

    return isinstance(change, MoveTo | SetParent)


def smallest_text(option: TriedChange) -> str:
    """A change in one line, with its result, for places without a heading.

    Args:
        option: the change.
    """
    return change_text(option) + (what_decides(option.checks) if option.checks else "")


def change_text(option: TriedChange, choices: Sequence[str] = ()) -> str:
    """A change in one line, with the object it is about.

    Args:
        option: the change.
        choices: other destinations of what this change moves.
    """
    change = option.change
    text = change.text
    if len(choices) > 1 and _has_destination(change):
        text = change.said_of(f"{', '.join(choices[:-1])} or {choices[-1]}")
    return said(change, text) + preempts(option)


def said(change: CandidateChange, text: str) -> str:
    """A text about a change; it begins with the object unless it names it."""
    return text if change.subject in text else f"{change.subject}: {text}"


def preempts(tried: TriedChange | TriedPair) -> str:
    """The victims in parentheses; empty without any."""
    victims = ", ".join(map(str, tried.victims))
    return f" (preempts {victims})" if victims else ""


def change_data(option: TriedChange) -> Obj:
    """One change, with every field of its own."""
    data = _change(option.change)
    details = data.pop("details")
    return {**data, **_result(option), "details": details}


def pair_data(pair: TriedPair) -> Obj:
    """Two changes, and what they do together."""
    return {"changes": [_change(one) for one in pair.changes], **_result(pair)}


def _result(tried: TriedChange | TriedPair) -> Obj:
    return {"checks": list(tried.checks), "preempts": [str(key) for key in tried.victims]}


def _change(change: CandidateChange) -> Obj:
    own = plain(change)
    own.pop("kind", None)
    return {"kind": change.kind, "subject": change.subject, "text": change.text, "details": own}


def plain(value: Any) -> Any:
    """Values as JSON: keys as texts, enums by name, attrs classes with the name of their class."""
    if isinstance(value, ObjectKey):
        return str(value)
    if isinstance(value, Enum):
        return value.name
    if attrs.has(type(value)):
        fields = {
            field.name: plain(getattr(value, field.name))
            for field in attrs.fields(type(value))
            if field.name != "extra"
        }
        return {"kind": type(value).__name__, **fields}
    if isinstance(value, tuple | list | set | frozenset):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    return value
