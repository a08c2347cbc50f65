"""Checks whether the paths and values of a declared kind fit the schema of its CRD.

An API server drops fields that the schema of a CRD does not have. If `suspend` is such a field, a
job can never be suspended: it runs without quota, and no error shows it. A value that the schema
does not allow never occurs: a job whose end is declared with it never finishes.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from kueuelib.api.meta import Obj
from kueuelib.jobs.contract.integration import Integration
from kueuelib.jobs.contract.paths import ANY, steps_of
from kueuelib.jobs.declared.declarative import NO_FIELD, DeclaredJob, Word, path_of
from kueuelib.jobs.declared.pod_shape import AtMost, Done, Factor, Pods
from kueuelib.jobs.declared.signs import (
    Differs,
    Enough,
    Equals,
    Every,
    HasCondition,
    Outdated,
    Sign,
)

_SERVERS = ("apiVersion", "kind", "metadata")
"""Fields that every object has, whatever its schema."""

_FIXES = {
    "boolean": "write suspend={!r}",
    "string": "write suspend=Word({!r}, suspended=..., running=...)",
}
"""What to write if the field that suspends is of the other type."""


@attrs.frozen
class CrdMismatch:
    """A declared path or value that does not fit the CRD.

    Attributes:
        argument: of the declaration, for example `suspend`.
        path: as declared, starting at the object.
        problem: what is wrong with it, as the end of a sentence about the path.
        fix: what to write, or what the CRD allows.
    """

    argument: str
    path: str
    problem: str
    fix: str

    def __str__(self) -> str:
        return f"{self.argument}={self.path!r} {self.problem}: {self.fix}"


def mismatches(integration: Integration, crd: Mapping[str, Any]) -> tuple[CrdMismatch, ...]:
    """The paths and values of a declared kind that do not fit its CRD; empty for other kinds.

    Args:
        integration: the kind.
        crd: the raw definition; a version that it does not have is not checked.
    """
    job_type = integration.job_type
    versions = (crd.get("spec") or {}).get("versions") or ()
    schema: Any = next(
        (
            (each.get("schema") or {}).get("openAPIV3Schema")
            for each in versions
            if each.get("name") == integration.resource.version
        ),
        None,
    )
    if not isinstance(schema, dict) or not issubclass(job_type, DeclaredJob):
        return ()
    unfit = (
        _mismatch(schema, argument, path, values) for argument, path, values in _reads(job_type)
    )
    return tuple({each: None for each in unfit if each is not None})


def _mismatch(schema: Obj, argument: str, path: str, values: Sequence[Any]) -> CrdMismatch | None:
    steps = steps_of(path)
    if steps[0] in _SERVERS:
        return None
    level = [schema]
    for index, step in enumerate(steps):
        below = [each for parent in level for each in _below(parent, step)]
        if not below:
            fields = sorted({name for parent in level for name in parent.get("properties") or ()})
            way = ".".join(steps[:index]) or "the object"
            fix = _fix(way, step, fields, f"; {NO_FIELD}" if argument == "suspend" else "")
            return CrdMismatch(argument, path, "is not a field of the CRD", fix)
        level = below
    wanted = ("string" if values else "boolean") if argument == "suspend" else ""
    if wanted and all(each.get("type", wanted) != wanted for each in level):
        other = level[0]["type"]
        fix = _FIXES.get(other, f"give a {wanted}").format(path)
        return CrdMismatch(argument, path, f"is of type {other}", fix)
    if all("enum" in each for each in level):
        allowed = list(dict.fromkeys(value for each in level for value in each["enum"]))
        for value in values:
            if value not in allowed:
                fix = f"the CRD allows {', '.join(map(repr, allowed))}"
                return CrdMismatch(argument, path, f"is never {value!r}", fix)
    return None


def _below(schema: Obj, step: str) -> Sequence[Obj]:
    """The schemas that a step leads to; `{}` is one that allows everything."""
    properties = schema.get("properties") or {}
    if step in properties:
        return [properties[step]]
    if schema.get("type") == "array":
        return [schema.get("items") or {}] if step == ANY or step.isdecimal() else []
    further = schema.get("additionalProperties")
    if further:
        return [further if isinstance(further, dict) else {}]
    if schema.get("x-kubernetes-preserve-unknown-fields") or "type" not in schema:
        return [{}]
    return list(properties.values()) if step == ANY else []


def _fix(way: str, step: str, fields: Sequence[str], otherwise: str) -> str:
    if close := difflib.get_close_matches(step, fields, 1):
        return f"write {close[0]!r} for {step!r}"
    return f"{way} has {', '.join(fields) or 'no fields'}{otherwise}"


_Read = tuple[str, str, Sequence[Any]]
"""An argument, a path, and the values with which the field at the path is compared."""


def _reads(job_type: type[DeclaredJob]) -> Iterator[_Read]:
    declared = job_type.declaration
    suspend = declared.suspend
    words = (suspend.suspended, suspend.running) if isinstance(suspend, Word) else ()
    yield "suspend", path_of(suspend), words
    for pods in declared.pods:
        yield from _reads_of_pods(pods)
    for argument in ("active", "terminating", "ready", "succeeded", "failed", "skip"):
        for path, values in reads_of_sign(getattr(declared, argument)):
            yield argument, path, values
    if declared.suspended is not None:
        yield "suspended", declared.suspended.path, ()
    for argument in ("message", "priority_class"):
        if path := getattr(declared, argument):
            yield argument, path, ()


def _reads_of_pods(pods: Pods) -> Iterator[_Read]:
    yield from ((argument, path, ()) for argument, path in _paths_of_pods(pods))
    if pods.when is not None:
        yield from (("when", path, values) for path, values in reads_of_sign(pods.when))


def _paths_of_pods(pods: Pods) -> Iterator[tuple[str, str]]:
    place = f"{pods.each}.{ANY}." if pods.each else ""
    if pods.each and pods.name:
        yield "name", place + pods.name
    yield "template", place + pods.template
    if not isinstance(pods.count, int):
        counts = pods.count if isinstance(pods.count, tuple) else (pods.count,)
        yield from (("count", place + path) for path in _paths_of_factors(counts))
    if pods.min_count:
        yield "min_count", place + pods.min_count
    if isinstance(pods.succeeded, Done):
        done = pods.succeeded
        yield from (("succeeded", f"{done.each}.{ANY}.{each}") for each in (done.count, done.name))
        yield from (("succeeded", place + path) for path in _paths_of_factors(done.pods))
    elif pods.succeeded:
        yield "succeeded", place + pods.succeeded


def _paths_of_factors(factors: Sequence[Factor]) -> Iterator[str]:
    for factor in factors:
        yield from (factor.path, factor.limit) if isinstance(factor, AtMost) else (factor,)


def reads_of_sign(sign: Sign | Sequence[Sign]) -> Iterator[tuple[str, Sequence[Any]]]:
    """The paths that a sign reads, each with the values that it compares; none for a function."""
    if isinstance(sign, str):
        yield sign, ()
    elif isinstance(sign, HasCondition | Outdated):
        yield sign.path, ()
    elif isinstance(sign, Equals):
        yield sign.path, sign.wanted
    elif isinstance(sign, Differs):
        yield sign.path, sign.others
    elif isinstance(sign, Enough):
        yield from ((path, ()) for path in (*sign.paths, *filter(None, (sign.units,))))
    elif isinstance(sign, Every):
        yield from reads_of_sign(sign.signs)
    elif isinstance(sign, list | tuple):
        for each in sign:
            yield from reads_of_sign(each)
