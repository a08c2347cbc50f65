"""Jobs whose `object` is a value of a class with `@crd`; the raw object stays the only state."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, get_args, get_origin

from kueuelib.api.meta import KubeObject, Obj
from kueuelib.api.patch import diff_merge_patch, merge_patch
from kueuelib.errors import ConfigError

_RAW = "_raw"
"""The attribute that holds the raw object of such a job."""


def class_of_objects(job_type: type) -> type[KubeObject] | None:
    """The class that a job class itself names, as in `GenericJob[Training]`; None for none.

    Raises:
        ConfigError: that class has no `@crd`.
    """
    for base in vars(job_type).get("__orig_bases__", ()):
        origin, arguments = get_origin(base), get_args(base)
        if not isinstance(origin, type) or not hasattr(origin, "suspended_copy") or not arguments:
            continue
        named = arguments[0]
        if not isinstance(named, type) or not issubclass(named, KubeObject):
            continue
        if not hasattr(named, "resource"):
            raise ConfigError(
                f"class {job_type.__name__}",
                f"{named.__name__} has no kind",
                f"decorate {named.__name__} with @crd",
            )
        return named
    return None


def decoded(named: type[KubeObject], raw: Obj) -> KubeObject:
    """A raw object as a value, in any version that the job reads: their fields are the same.

    Raises:
        InvalidObject: it does not fit the class.
    """
    from kueuelib.api.codec import decode

    return decode(named, {**raw, "apiVersion": named.resource.api_version})


def members_for(
    named: type[KubeObject], read: Callable[[type[KubeObject], Obj], KubeObject] = decoded
) -> dict[str, Any]:
    """What a class of jobs with objects of a class has: its kind, `object` and `raw`.

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
