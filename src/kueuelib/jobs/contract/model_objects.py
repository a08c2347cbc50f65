"""Jobs whose `object` is a model, such as `kubernetes_asyncio.client.V1Job`, which may be changed.

The raw object stays the only state. A model that was handed out is compared with what it was when
the raw object is needed, and when a method of the job returns; what differs is written there.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import wraps
from types import FunctionType
from typing import Any, NamedTuple, Self

from kueuelib.api.meta import Obj, copied
from kueuelib.api.models import encode_model

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
