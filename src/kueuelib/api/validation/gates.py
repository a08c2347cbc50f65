"""The rules of admission gates, for Workloads and for jobs (KEP-6915)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kueuelib.api.meta import Obj, annotations_of
from kueuelib.api.names import ADMISSION_GATED_BY, admission_gates, is_domain_prefixed_path
from kueuelib.api.patterns import LABEL_LIMIT
from kueuelib.api.validation.fields import forbidden, invalid, too_long
from kueuelib.errors import FieldError

GATES_PATH: Final = f"metadata.annotations[{ADMISSION_GATED_BY}]"


def gate_errors(new: Obj, old: Obj | None) -> Iterator[FieldError]:
    """Broken rules of the gates of a new object, or of a change: gates can only be removed."""
    text = annotations_of(new).get(ADMISSION_GATED_BY, "")
    if old is not None:
        if text == annotations_of(old).get(ADMISSION_GATED_BY, ""):
            return
        before = admission_gates(annotations_of(old))
        if not before and text:
            yield forbidden(GATES_PATH, "cannot add admission gate after creation")
        elif not {*admission_gates(annotations_of(new))} <= {*before}:
            yield forbidden(GATES_PATH, "can only remove gates, not add new ones")
    if text.strip():
        yield from _format(text)


def _format(text: str) -> Iterator[FieldError]:
    seen = set()
    for gate in map(str.strip, text.split(",")):
        if not gate:
            yield invalid(GATES_PATH, text, "cannot contain empty gate names")
            continue
        if gate in seen:
            yield invalid(GATES_PATH, text, f"duplicate gate name: {gate}")
            continue
        seen.add(gate)
        if not is_domain_prefixed_path(gate):
            yield invalid(
                GATES_PATH, gate, 'must be a domain-prefixed path (such as "acme.io/foo")'
            )
        if len(gate) > LABEL_LIMIT:
            yield too_long(GATES_PATH, LABEL_LIMIT)
