"""Jobs whose `object` is a value of a class; the raw object stays the only state."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import Any, TypeVar, cast, get_args, get_origin

from kueuelib.api.forms import Typed, resource_of, typed_of
from kueuelib.api.meta import KubeObject, Obj
from kueuelib.api.models import Model, is_model, is_model_class
from kueuelib.api.patch import diff_merge_patch, merge_patch
from kueuelib.errors import ConfigError
from kueuelib.jobs.contract.model_objects import STATE, ModelObject

V = TypeVar("V", bound=Typed)

_RAW = STATE
"""The attribute that holds the raw object of such a job."""


def class_of_objects(job_type: type) -> type[Typed] | None:
    """The class that a job class itself names, as in `GenericJob[Training]`; None for none.

    Raises:
        ConfigError: that class has no `@crd`, or is a model of something else than a kind.
    """
    for base in vars(job_type).get("__orig_bases__", ()):
        origin, arguments = get_origin(base), get_args(base)
        if not isinstance(origin, type) or not hasattr(origin, "suspended_copy") or not arguments:
            continue
        named = arguments[0]
        if is_model_class(named):
            resource_of(named)
            return named
        if not isinstance(named, type) or not issubclass(named, KubeObject):
            continue
        resource_of(named)
        return named
    return None


def decoded(named: type[V], raw: Obj) -> V:
    """A raw object as a value, in any version that the job reads: their fields are the same.

    Raises:
        InvalidObject: it does not fit the class.
    """
    return typed_of(named, {**raw, "apiVersion": resource_of(named).api_version})


def members_for(named: type[Typed]) -> dict[str, Any]:
    """What a class of jobs with objects of a class has: its kind, `object` and `raw`."""
    if issubclass(named, KubeObject):
        return value_members_for(named, decoded)
    return model_members_for(named, decoded)


def model_members_for(
    named: type[Model], read: Callable[[type[Model], Obj], Model]
) -> dict[str, Any]:
    """What a class of jobs with models as objects has; see `ModelObject`."""

    def get(job: Any) -> Any:
        state: ModelObject = getattr(job, _RAW)
        return state.model

    def put(job: Any, given: Obj | Model) -> None:
        if is_model(given):
            _check_kind(resource_of(type(given)).kind, named)
            getattr(job, _RAW).put(given)
        else:
            _check_kind(cast("Obj", given).get("kind"), named)
            setattr(job, _RAW, ModelObject(partial(read, named), cast("Obj", given)))

    return {
        "object_class": named,
        "resource": resource_of(named),
        "object": property(get, put, doc=f"The object as a {named.__name__}."),
        "raw": property(attrgetter(f"{_RAW}.raw"), doc="The object as raw JSON."),
    }


def _check_kind(kind: str | None, named: type[Typed]) -> None:
    wanted = resource_of(named).kind
    if kind is not None and kind != wanted:
        raise ConfigError(f"a {kind}", f"is not a {wanted}", f"give a {named.__name__}")


def value_members_for(
    named: type[KubeObject], read: Callable[[type[KubeObject], Obj], KubeObject]
) -> dict[str, Any]:
    """What a class of jobs with values as objects has.

    `object` is decoded on each use, some 10 µs, so it never differs from the raw object. An
    assignment changes the raw object by the difference between the two values, in place: what the
    class does not know stays, and so does the form of what is equal.
    """

    def get(job: Any) -> KubeObject:
        return read(named, job.raw)

    def put(job: Any, given: Obj | KubeObject) -> None:
        if not isinstance(given, KubeObject):
            setattr(job, _RAW, given)
            return
        from kueuelib.api.codec import encode

        raw: Obj = job.raw
        changed = merge_patch(raw, diff_merge_patch(encode(get(job)), encode(given)))
        raw.clear()
        raw.update(changed)

    return {
        "object_class": named,
        "resource": named.resource,
        "object": property(get, put, doc=f"The object as a {named.__name__}."),
        "raw": property(attrgetter(_RAW), doc="The object as raw JSON."),
    }
