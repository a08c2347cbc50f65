"""Jobs whose `object` is a value of a class or a model; the raw object stays the only state."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial, wraps
from operator import attrgetter
from types import FunctionType
from typing import Any, NamedTuple, Self, TypeVar, cast, get_args, get_origin

from kueuelib.api.forms import Typed, resource_of, typed_of
from kueuelib.api.meta import KubeObject, Obj, copied
from kueuelib.api.models import Model, encode_model, is_model, is_model_class
from kueuelib.api.patch import diff_merge_patch, merge_patch
from kueuelib.errors import ConfigError

# Jobs whose `object` is a model, such as `kubernetes_asyncio.client.V1Job`, which may be changed.
# The raw object stays the only state. A model that was handed out is compared with what it was when
# the raw object is needed, and when a method of the job returns; what differs is written there.

STATE = "_raw"
"""The attribute of a job that holds its `ModelObject`."""


class _HandedOut(NamedTuple):
    """A model that was handed out.

    Attributes:
        known: the model, as long as somebody has it.
        was: its raw form when it was last looked at.
        seen: the raw object of which it was made, with the changes of the model.
    """

    known: weakref.ref[Any]
    was: Obj
    seen: Obj


class ModelObject:
    """The object of one job, raw and as models; a context in which models are kept.

    Args:
        read: makes a model of a raw object.
        raw: the raw object, which is changed in place.
    """

    __slots__ = ("_depth", "_handed_out", "_kept", "_raw", "_read")

    def __init__(self, read: Callable[[Obj], Any], raw: Obj) -> None:
        self._read = read
        self._raw = raw
        self._handed_out: list[_HandedOut] = []
        self._kept: list[Any] = []  # somebody may have a part of one, and change that
        self._depth = 0

    @property
    def raw(self) -> Obj:
        """The raw object, with all changes of models."""
        self._collect()
        return self._raw

    @property
    def model(self) -> Any:
        """A model of the raw object as it is now; the same one as before while nothing differs.

        Raises:
            InvalidObject: the object does not fit the class.
        """
        self._collect()
        for each in self._handed_out:
            model = each.known()
            if model is not None and each.seen == self._raw:
                return model
        seen = copied(self._raw)
        model = self._read(copied(seen))
        self._handed_out.append(_HandedOut(weakref.ref(model), encode_model(model), seen))
        self._kept.append(model)
        return model

    def put(self, given: object) -> None:
        """Change the raw object to what a model says."""
        self._collect()
        _carry(self._raw, encode_model(self._read(copied(self._raw))), encode_model(given))

    def __enter__(self) -> Self:
        self._depth += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._depth == 0 and self._handed_out:
            self._collect()
            self._kept.clear()
            self._handed_out = [each for each in self._handed_out if each.known() is not None]

    def _collect(self) -> None:
        """Write what differs in the models that somebody may have changed."""
        for index, (known, was, seen) in enumerate(self._handed_out):
            model = known()
            now = was if model is None else encode_model(model)
            if now != was:
                for raw in (self._raw, seen):
                    _carry(raw, was, now)
                self._handed_out[index] = _HandedOut(known, copied(now), seen)


def _carry(raw: Obj, was: Obj, now: Obj) -> None:
    """Make the changes between two states in a third one, in place."""
    for name in was.keys() - now.keys():
        raw.pop(name, None)
    for name, value in now.items():
        before, inner = was.get(name), raw.get(name)
        if name in was and before == value:
            continue
        if isinstance(value, dict) and isinstance(before, dict) and isinstance(inner, dict):
            _carry(inner, before, value)
        else:
            raw[name] = copied(value)


def settle_methods(job_type: type) -> None:
    """Write what a method changes in a model to the raw object before the method returns."""
    for name, member in list(vars(job_type).items()):
        if name.startswith("__") or name in ("object", "raw"):
            continue
        if isinstance(member, FunctionType):
            setattr(job_type, name, _settling(member))
        elif isinstance(member, property) and member.fget is not None:
            setattr(job_type, name, member.getter(_settling(member.fget)))


def _settling(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def call(job: Any, *arguments: Any, **named: Any) -> Any:
        with getattr(job, STATE):
            return method(job, *arguments, **named)

    return call


# --------------------------------------------------------------------------------------------------

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
