"""Notices an object that is reconciled again and again because each call causes the next one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from enum import Enum
from typing import Any, Final

import attrs

from kueuelib.api.meta import Obj, ObjectKey, Resource
from kueuelib.api.patch import diff_json_patch
from kueuelib.machinery.store import Delta

OFTEN = 8
"""Rounds in a row that change the same fields; the first ones may differ, so ten are the most."""
MANY = 100
"""Rounds in a row that change something, if they also create or delete other objects each time."""
WITHIN = 60.0
"""Seconds in which they come, and between two warnings about one object."""
SOON = 0.1
"""Seconds; a shorter `requeue_after` counts as a round that causes the next one."""
SHOWN = 5
"""Fields that a warning names."""
WIDTH = 40
"""Characters of a value that a warning shows."""
_ABSENT: Final = "nothing"
_SERVER_SIDE = ("resourceVersion", "generation", "managedFields")

Listener = Callable[[Resource, ObjectKey, str], None]
"""Learns the kind, the key and the warning; an empty text when the row has ended."""
LISTENER: ContextVar[Listener | None] = ContextVar("listener to repetitions", default=None)
"""Every operator that runs in a context where it is set reports to it; tests set it."""


class Cause(Enum):
    """Why the next round comes at once; the value says what to do about it."""

    OWN = (
        "write a field of the own object only if it differs from a value that depends on what the "
        "user asked for"
    )
    CHILD = "apply to a child what depends on the object only, and not for example the time"
    CHILDREN = (
        "apply the same children in each call: prune deletes those that the call neither applied "
        "nor found with get"
    )
    STATUS = "report what depends on the objects only, and not for example the time"
    CONFLICT = (
        "somebody else, or an earlier write of this call, changes the object meanwhile: write only "
        "your own fields, with apply, and pass the answers of client to learn"
    )
    REQUEUE = f"return a requeue_after of {SOON} s or more, or watch what it waits for"


@attrs.frozen
class ObservedChange:
    """What a round did to one object.

    Attributes:
        subject: the kind and key of a child or of another object; empty for the object itself.
        old: what it was; None if it was created.
        new: what it became; None if it was deleted.
        hidden: whether its values are secret.
    """

    subject: str
    old: Obj | None
    new: Obj | None
    hidden: bool = False

    @property
    def whole(self) -> bool:
        """Whether the object was created or deleted."""
        return self.old is None or self.new is None

    def paths(self) -> dict[str, str]:
        """The JSON paths that differ, each with the old and the new value for people."""
        if self.old is None or self.new is None:
            return {"": "deleted" if self.new is None else "created"}
        old, new = _compared(self.old), _compared(self.new)
        values = {each["path"]: self._values(old, new, each["path"]) for each in _leaves(old, new)}
        return values or {"/metadata/managedFields": "changed"}

    def _values(self, old: Obj, new: Obj, path: str) -> str:
        if self.hidden:
            return "(not shown)"
        before, after = _at(old, path), _at(new, path)
        place = ""
        if isinstance(before, list) and isinstance(after, list):
            place, before, after = min(_inside(before, after), key=_weight)
        return f"{place}: {_both(before, after)}" if place else _both(before, after)


@attrs.frozen
class Round:
    """What a call left behind.

    Attributes:
        changes: what it wrote.
        conflict: the text of the Conflict that it ended with; empty if it did not.
        others: what differs from the object that it began with, then.
        requeue_after: seconds, as it asked.
    """

    changes: Sequence[ObservedChange] = ()
    conflict: str = ""
    others: ObservedChange | None = None
    requeue_after: float | None = None


@attrs.frozen
class RepeatWarning:
    """What to warn about.

    Attributes:
        times: rounds in a row.
        seconds: in which they came.
        changed: what the last one changed.
        cause: why they came.
    """

    times: int
    seconds: float
    changed: tuple[str, ...]
    cause: Cause

    def text(self, kind: str, key: ObjectKey) -> str:
        """A sentence for people."""
        return (
            f"the operator reconciles {kind} {key} again and again: {self.times} rounds in "
            f"{self.seconds:g} s; each changes {', '.join(self.changed)}; {self.cause.value}"
        )


@attrs.define
class _RepeatRow:
    since: float
    times: int = 0
    same: int = 0
    warned: bool = False
    marks: set[tuple[str, str]] = attrs.field(factory=set)
    ours: set[str] = attrs.field(factory=set)
    heard: set[str] = attrs.field(factory=set)


class Repeats:
    """Counts the rounds in a row that caused the next one, by object.

    Args:
        monotonic: gives the time.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._rows: dict[ObjectKey, _RepeatRow] = {}

    def heard(self, delta: Delta[Obj], keys: Iterable[ObjectKey]) -> None:
        """Learn of a change that makes these keys due."""
        for key in keys:
            if delta.new is not None and (row := self._rows.get(key)) is not None:
                row.heard.add(delta.new["metadata"]["resourceVersion"])

    def warned(self, key: ObjectKey) -> bool:
        """Whether there was a warning about the present row of an object."""
        return key in self._rows and self._rows[key].warned

    def note(self, key: ObjectKey, done: Round) -> RepeatWarning | None:
        """Learn of a round; returns what to warn about, if it is time."""
        cause, marks = _cause_of(done)
        if cause is None:
            self._rows.pop(key, None)
            return None
        now = self._monotonic()
        row = self._rows.get(key)
        ours = {each.new["metadata"]["resourceVersion"] for each in done.changes if each.new}
        strange = row is not None and row.heard - row.ours - ours
        if row is None or now - row.since > WITHIN or (cause is Cause.STATUS and strange):
            row = self._rows[key] = _RepeatRow(now)
        row.ours, row.heard = row.ours | ours if len(row.ours) < MANY else ours, set()
        row.times += 1
        known = {subject.strip() for subject, _ in row.marks}
        fresh = any(each.whole and each.subject not in known for each in done.changes)
        row.same = row.same + 1 if row.marks & marks.keys() and not fresh else 1
        if row.warned:
            return None
        row.marks |= marks.keys()
        if row.same < OFTEN and row.times < MANY:
            return None
        row.warned = True
        texts = [f"{subject}{path}: {said}".strip() for (subject, path), said in marks.items()]
        shown = (*texts[:SHOWN], *([f"{len(texts) - SHOWN} more"] if len(texts) > SHOWN else ()))
        return RepeatWarning(row.times, round(now - row.since, 1), shown, cause)


def _cause_of(done: Round) -> tuple[Cause | None, dict[tuple[str, str], str]]:
    marks = {
        (f"{each.subject} " if each.subject else "", path): said
        for each in done.changes
        for path, said in each.paths().items()
    }
    own = [path for subject, path in marks if not subject]
    if any(not path.startswith("/status") for path in own):
        return Cause.OWN, marks
    if len(own) < len(marks):
        whole = all(each.whole for each in done.changes if each.subject)
        return Cause.CHILDREN if whole else Cause.CHILD, marks
    if done.conflict:
        return Cause.CONFLICT, {("", "Conflict"): _conflict(done)}
    if own:
        return Cause.STATUS, marks
    if done.requeue_after and done.requeue_after < SOON:
        return Cause.REQUEUE, {("", "nothing"): f"requeue_after is {done.requeue_after:g} s"}
    return None, {}


def _conflict(done: Round) -> str:
    others = done.others.paths() if done.others is not None else {}
    changes = [f"{path}: {said}" for path, said in others.items()][:SHOWN]
    return "; ".join([done.conflict, *changes])


def _compared(obj: Obj) -> Obj:
    meta = {name: value for name, value in obj["metadata"].items() if name not in _SERVER_SIDE}
    return {**obj, "metadata": meta}


def _leaves(old: Obj, new: Obj) -> Iterator[dict[str, Any]]:
    """The differences, spec first, and status last."""
    steps = sorted(diff_json_patch(old, new), key=lambda each: str(each["path"]))
    yield from (each for each in steps if not each["path"].startswith("/status"))
    yield from (each for each in steps if each["path"].startswith("/status"))


def _at(obj: Any, path: str) -> Any:
    for part in path.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(obj, dict) or name not in obj:
            return _ABSENT
        obj = obj[name]
    return obj


def _inside(old: Any, new: Any, place: str = "") -> Iterator[tuple[str, Any, Any]]:
    """The differences in two values, each with its place; entries of lists match by their names."""
    if isinstance(old, list) and isinstance(new, list):
        old, new = _by_name(old), _by_name(new)
        form = "[{}]"
    elif isinstance(old, dict) and isinstance(new, dict):
        form = ".{}" if place else "{}"
    else:
        yield place, old, new
        return
    if list(old) != list(new) and old == new:
        yield place, list(old), list(new)  # only the order differs
    for name in {**old, **new}:
        before, after = old.get(name, _ABSENT), new.get(name, _ABSENT)
        if before != after:
            yield from _inside(before, after, place + form.format(name))


def _by_name(entries: list[Any]) -> dict[Any, Any]:
    """The entries of a list by their type or name, or by number unless each has its own."""
    for name in ("type", "name"):
        named = {each.get(name): each for each in entries if isinstance(each, dict)}
        if len(named) == len(entries) and None not in named:
            return named
    return dict(enumerate(entries))


def _weight(difference: tuple[str, Any, Any]) -> bool:
    """What only accompanies another difference comes last."""
    return difference[0].endswith(("Time", "observedGeneration"))


def _both(old: Any, new: Any) -> str:
    """Two values for people; of long ones, the part where they begin to differ."""
    texts = [
        each if each is _ABSENT else json.dumps(each, ensure_ascii=False) for each in (old, new)
    ]
    if max(map(len, texts)) <= WIDTH:
        return " -> ".join(texts)
    pairs = enumerate(zip(*texts, strict=False))
    same = next((at for at, (one, other) in pairs if one != other), 0)
    start = 0 if same < WIDTH // 2 else same - WIDTH // 4
    return " -> ".join(_cut(text, start) for text in texts)


def _cut(text: str, start: int) -> str:
    shown = text if text is _ABSENT or not start else f"...{text[start:]}"
    return shown if len(shown) <= WIDTH else f"{shown[: WIDTH - 3]}..."
