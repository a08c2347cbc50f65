"""Jobs whose object does not fit its class: it is read as far as possible, so that it can stop.

A CRD may allow what the class with `@crd` does not. The fields that fit are read and written as
usual. Another one reads as its default, or as an empty value, and stays in the raw object.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, get_args

import attrs

from kueuelib.api.codec import decode
from kueuelib.api.meta import KubeObject, Obj
from kueuelib.api.models import Model
from kueuelib.api.struct import Struct, json_name
from kueuelib.errors import InvalidJob, InvalidObject
from kueuelib.jobs.contract.generic_job import GenericJob, PodSet
from kueuelib.jobs.contract.typed_objects import decoded, model_members_for, value_members_for

_STEPS = re.compile(r"(?<=\[)[^\]]*|[^.\[\]]+")
"""The steps of a path such as `spec.containers[0].name`; in brackets there are also map keys."""
_BLANKS: tuple[Any, ...] = ({}, [], "", 0, False, "1970-01-01T00:00:00Z")
"""One of these fits any required field that is neither a class nor a `Literal`."""


def read_loosely(job: GenericJob) -> GenericJob:
    """The same job, with an `object` that can be read, and no pod sets: they are unknown."""
    return _loose(type(job))(job.raw)


@lru_cache(maxsize=256)
def _loose(base: type[GenericJob]) -> type[GenericJob]:
    named = base.object_class
    assert named is not None, "raw JSON fits any object"

    def pod_sets(job: GenericJob) -> tuple[PodSet, ...]:
        try:
            decoded(named, job.raw)
        except InvalidObject as error:
            first = error.errors[0]
            raise InvalidJob(first.path, first.message) from error
        return base.pod_sets(job)

    if issubclass(named, KubeObject):
        members = value_members_for(named, decoded_loosely)
    else:
        members = model_members_for(named, _model_loosely)
    own = {**members, "resource": base.resource, "pod_sets": pod_sets}
    return type(base.__name__, (base,), own)


def _model_loosely(named: type[Model], raw: Obj) -> Model:
    """A raw object as a model, without the fields that do not fit."""
    while True:
        try:
            return decoded(named, raw)
        except InvalidObject as error:
            raw = _without(raw, _STEPS.findall(error.errors[0].path))


def _without(raw: Any, steps: Sequence[str]) -> Any:
    """Raw JSON without the field or entry to which the steps lead."""
    first, *rest = steps
    if isinstance(raw, list):
        index = int(first)
        kept = [_without(raw[index], rest)] if rest else []
        return [*raw[:index], *kept, *raw[index + 1 :]]
    kept_field = {first: _without(raw[first], rest)} if rest else {}
    return {name: value for name, value in raw.items() if name != first} | kept_field


def decoded_loosely(named: type[KubeObject], raw: Obj) -> KubeObject:
    """A raw object as a value of a class, without the fields that do not fit."""
    return decoded(named, fitted(named, {**raw, "apiVersion": named.resource.api_version}))


def fitted(named: type[Struct], raw: Any) -> Obj:
    """A piece of a raw object, where fields that do not fit its class are absent or empty."""
    fields = dict(raw) if isinstance(raw, dict) else {}
    wrong = _misfits(named, fields)
    for field in attrs.fields(attrs.resolve_types(named)):
        name, kind = json_name(field), field.type
        if name not in wrong:
            continue
        if isinstance(kind, type) and issubclass(kind, Struct):
            fields[name] = fitted(kind, fields.get(name))
        elif field.default is not attrs.NOTHING:
            del fields[name]
        else:
            blanks = (*_BLANKS, *get_args(kind))
            fields[name] = next((e for e in blanks if name not in _misfits(named, {name: e})), None)
    return fields


def _misfits(named: type[Struct], piece: Obj) -> set[str]:
    """The fields that do not fit; a required one that is missing is one of them."""
    try:
        decode(named, piece)
    except InvalidObject as error:
        return {re.split(r"[.\[]", each.path)[0] for each in error.errors}
    return set()
