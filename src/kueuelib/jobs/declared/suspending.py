"""The field that suspends the jobs of a declared kind: a boolean, or a word.

A job that the manager suspends may have had a word of its own, which is neither of the two that the
declaration names. An annotation keeps it until the job starts, and the start writes it back.
"""

from __future__ import annotations

from typing import Any, Final

import attrs

from kueuelib.api.meta import Obj, annotations_of
from kueuelib.jobs.contract.paths import check_path, put, steps_of, value

RESUMES_AS: Final = "kueuelib.dev/resumes-as"
"""The annotation: the word of a job before it was suspended, unless it is the declared one."""

NO_FIELD: Final = "for a kind without such a field, see docs/kinds-without-suspend.md"
"""What to do about a kind that cannot be declared."""


@attrs.frozen
class Word:
    """A field that suspends a job by a word, as `spec.job.state` does for a FlinkDeployment.

    With any other word than `suspended`, or without one, the job runs.

    Attributes:
        path: of the field, in the spec.
        suspended: the word that stops all pods.
        running: the word with which a job starts, unless its user wrote another one before.
    """

    path: str
    suspended: str
    running: str


Suspend = str | Word
"""The path of a boolean, or a word."""


def path_of(suspend: Suspend) -> str:
    """Where the field is."""
    return suspend.path if isinstance(suspend, Word) else suspend


def type_of(suspend: Suspend) -> str:
    """The type of the field, as schemas call it."""
    return "string" if isinstance(suspend, Word) else "boolean"


def is_suspended(obj: Obj, suspend: Suspend) -> bool:
    """Whether the field suspends a raw object."""
    present = value(obj, path_of(suspend))
    return bool(present == suspend.suspended if isinstance(suspend, Word) else present is True)


def suspend_in_place(obj: Obj, suspend: Suspend) -> None:
    """Make the field suspend a raw object; a word of its user is kept in an annotation."""
    if not isinstance(suspend, Word):
        put(obj, suspend, True)
        return
    present = value(obj, suspend.path)
    if present == suspend.suspended:
        return
    put(obj, suspend.path, suspend.suspended)
    own = isinstance(present, str) and present not in ("", suspend.running)
    _remember(obj, present if own else None)


def resume_in_place(obj: Obj, suspend: Suspend) -> None:
    """Make the field start a raw object, with the word of its user if there was one."""
    if not isinstance(suspend, Word):
        put(obj, suspend, False)
        return
    if not is_suspended(obj, suspend):
        return
    kept = annotations_of(obj).get(RESUMES_AS)
    put(obj, suspend.path, kept if kept and kept != suspend.suspended else suspend.running)
    _remember(obj, None)


def _remember(obj: Obj, word: str | None) -> None:
    notes = {key: text for key, text in annotations_of(obj).items() if key != RESUMES_AS}
    if word is not None:
        notes[RESUMES_AS] = word
    if notes != annotations_of(obj):
        obj["metadata"]["annotations"] = notes


def check_suspend(suspend: Any) -> None:
    """Check that users may set the field that suspends, and that its words differ.

    Raises:
        ValueError: they may not, or the words are not two different ones.
    """
    if not suspend:
        raise ValueError(f"suspend={suspend!r} is not a path such as spec.suspend; {NO_FIELD}")
    if not isinstance(suspend, str | Word):
        fix = "a path such as spec.suspend, or Word('spec.state', suspended='off', running='on')"
        raise ValueError(f"suspend={suspend!r} is not {fix}")  # noqa: TRY004 - one kind of error
    path = path_of(suspend)
    check_path("suspend", path)
    first, *rest = steps_of(path)
    if first != "spec" or not rest:
        raise ValueError(f"suspend={path!r} is not in the spec; give a path such as spec.suspend")
    if isinstance(suspend, Word):
        _check_words(suspend)


def _check_words(word: Word) -> None:
    for argument in ("suspended", "running"):
        given: Any = getattr(word, argument)
        if isinstance(given, bool):
            raise ValueError(  # noqa: TRY004 - one kind of error for whatever is wrong
                f"suspend: {argument}={given!r} is not a word; for a boolean that suspends write "
                f"suspend={word.path!r}"
            )
        if not isinstance(given, str) or not given or given != given.strip():
            raise ValueError(f"suspend: {argument}={given!r} is not a word such as 'suspended'")
    if word.suspended == word.running:
        raise ValueError(f"suspend: suspended and running are both {word.running!r}")
