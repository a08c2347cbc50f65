"""Validates queued `batch/v1` Jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kueuelib.api.meta import Obj, annotations_of
from kueuelib.api.names import MIN_PARALLELISM, SYNC_COMPLETIONS, is_go_bool
from kueuelib.errors import FieldError
from kueuelib.jobs.batch.job import pods_count
from kueuelib.jobs.contract.field_rules import annotation_path, forbidden, invalid

JUDGED: Final = ("spec.parallelism", "spec.completions")
"""The mutable fields that the rules read, besides labels and annotations."""
_COUNTS = ("parallelism", "completions")


def validate_batch_job(new: Obj, old: Obj | None) -> Sequence[FieldError]:
    """The rules of partial admission."""
    errors = [*_min_parallelism(new, old), *_sync_completions(new)]
    if old is not None:
        errors += _changes(new, old)
    return errors


def _min_parallelism(new: Obj, old: Obj | None) -> list[FieldError]:
    text = annotations_of(new).get(MIN_PARALLELISM)
    if text is None:
        return []
    path = annotation_path(MIN_PARALLELISM)
    try:
        value = int(text)
    except ValueError:
        return [invalid(path, text, "must be a number")]
    if value <= 0:
        return [invalid(path, value, "must be greater than 0")]
    count = pods_count(new["spec"])
    if value >= count and _bound_applies(new, old):
        return [invalid(path, value, f"must be less than the number of pods, {count}")]
    return []


def _bound_applies(new: Obj, old: Obj | None) -> bool:
    """Whether the minimum applies: a running Job may have been admitted with fewer pods."""
    if old is None:
        return True
    if not _suspended(new):
        return False
    changed = any(new["spec"].get(field) != old["spec"].get(field) for field in _COUNTS)
    before, after = (annotations_of(obj).get(MIN_PARALLELISM) for obj in (old, new))
    return changed or before != after


def _sync_completions(new: Obj) -> list[FieldError]:
    text = annotations_of(new).get(SYNC_COMPLETIONS)
    if text is None:
        return []
    path, spec = annotation_path(SYNC_COMPLETIONS), new["spec"]
    value = is_go_bool(text)
    if value is None:
        return [invalid(path, text, "must be true or false")]
    if not value:
        return []
    if spec.get("completionMode") != "Indexed":
        return [invalid(path, text, "needs the completion mode Indexed")]
    if spec.get("completions") != spec.get("parallelism", 1):
        detail = f"must equal the parallelism, because the annotation {SYNC_COMPLETIONS} is true"
        return [invalid("spec.completions", spec.get("completions"), detail)]
    return []


def _changes(new: Obj, old: Obj) -> list[FieldError]:
    errors = []
    if (
        MIN_PARALLELISM in annotations_of(old)
        and not _suspended(old)
        and new["spec"].get("parallelism") != old["spec"].get("parallelism")
    ):
        detail = "cannot change while a Job with partial admission is not suspended"
        errors.append(forbidden("spec.parallelism", detail))
    before, after = (annotations_of(obj).get(SYNC_COMPLETIONS) for obj in (old, new))
    if before != after and not _suspended(old) and not _suspended(new):
        detail = "cannot change while the Job is not suspended"
        errors.append(forbidden(annotation_path(SYNC_COMPLETIONS), detail))
    return errors


def _suspended(obj: Mapping[str, Any]) -> bool:
    return obj["spec"].get("suspend") is True
