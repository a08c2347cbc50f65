"""Waits for what an operator does, and says what it failed at if it does not."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import Context, copy_context
from typing import Any, TypeVar, overload

from kueuelib.api.forms import Typed, raw_of, resource_of
from kueuelib.api.meta import ObjectKey, Resource, key_of
from kueuelib.api.models import is_model
from kueuelib.errors import ApiError, BadRequest, ConfigError, Invalid, TransportError
from kueuelib.runtime.client import Client
from kueuelib.runtime.controller import OBSERVER
from kueuelib.runtime.operator.repeats import LISTENER

T = TypeVar("T")
K = TypeVar("K", bound=Typed)
PAUSE = 0.02
"""Seconds between two looks."""


class _Failures:
    """What controllers failed at and have not done since."""

    def __init__(self) -> None:
        self._problems: dict[tuple[str, ObjectKey], str] = {}
        self.repeated: dict[tuple[tuple[str, str], ObjectKey], str] = {}

    def repeat(self, kind: Resource, key: ObjectKey, text: str) -> None:
        """Learn that an object is reconciled again and again; no text when that has ended."""
        self.repeated[kind.group_kind, key] = text

    def note(self, controller: str, key: ObjectKey, problem: str) -> None:
        """Learn how a reconciliation ended; the problem is empty when it did not fail."""
        self._problems.pop((controller, key), None)
        if problem:
            self._problems[controller, key] = problem

    @property
    def last(self) -> str:
        """The last one, in one line; empty when there is none."""
        for (controller, key), problem in reversed(self._problems.items()):
            return f"controller {controller} failed at {key} with {problem}"
        return ""


_OBSERVED: list[_Failures] = []
"""One for each program that runs in this process."""


@contextmanager
def observed() -> Iterator[Context]:
    """A context for tasks; `eventually` knows what their controllers fail at in this block."""
    failures = _Failures()
    context = copy_context()
    context.run(OBSERVER.set, failures.note)
    context.run(LISTENER.set, failures.repeat)
    _OBSERVED.append(failures)
    try:
        yield context
    finally:
        _OBSERVED.remove(failures)


@overload
async def eventually(look: Callable[[], Awaitable[T | None]], within: float = 30.0) -> T: ...


@overload
async def eventually(look: Callable[[], T | None], within: float = 30.0) -> T: ...


async def eventually(look: Callable[[], Any], within: float = 30.0) -> Any:
    """Call a function until it returns something true, and return that.

    Answers of the API server such as NotFound, and lost answers, count as not yet. Errors that a
    retry cannot change are raised at once.

    Args:
        look: a function, or one that returns an awaitable.
        within: seconds.

    Raises:
        AssertionError: it did not in time; the message has the last error or value, and the last
            failure of a controller under `running` or `queueing`.
        BadRequest: the server does not understand the call.
        Invalid: the server does not accept the object.
    """
    __tracebackhide__ = True
    end = asyncio.get_running_loop().time() + within
    while True:
        last: Any
        try:
            answer = look()
            last = await answer if inspect.isawaitable(answer) else answer
            if last:
                return last
        except (BadRequest, Invalid):
            raise
        except (ApiError, TransportError, _NotYet) as error:
            last = error
        if asyncio.get_running_loop().time() >= end:
            seen = str(last) if isinstance(last, _NotYet) else repr(last)
            raise AssertionError(
                "; ".join([f"not within {within:g} s; at the end it was {seen}", *_last_failures()])
            )
        await asyncio.sleep(PAUSE)


async def settled(client: Client, value: K, within: float = 30.0) -> K:
    """Wait until an operator has dealt with an object, and return its newest state.

    The operator has, if `status.observedGeneration` is the generation of the object or a later one,
    which it is not as long as the reconciler fails. That of a built-in kind, such as a Deployment,
    is written by its own controller, which says nothing about an operator: use `eventually`.

    Args:
        client: of the API server.
        value: the object, as the server returned it from a write; also a model.
        within: seconds.

    Raises:
        AssertionError: it has not; the message is that of `eventually`.
        ConfigError: the class has no status, or one without `observed_generation`.
    """
    __tracebackhide__ = True
    kind, key, wanted = client.of(type(value)), key_of(raw_of(value)), value.metadata.generation
    subject = f"settled({type(value).__name__})"
    if not hasattr(value, "status"):
        raise ConfigError(
            subject,
            "the class has no field status",
            "add `status: ConditionedStatus = ConditionedStatus()`, or wait with eventually()",
        )
    if value.status is not None and not hasattr(value.status, "observed_generation"):
        raise ConfigError(
            subject,
            "its status has no observed_generation",
            "extend ConditionedStatus, or wait with eventually()",
        )

    why = "no call of the reconciler has returned for it"
    if is_model(value):
        why = (
            "of a built-in kind, its own controller writes that, and a reconciler does not; wait "
            "for what the reconciler writes, with eventually()"
        )

    async def look() -> K:
        newest = await kind.get(key)
        status: Any = getattr(newest, "status", None)
        observed = getattr(status, "observed_generation", None) or 0
        if observed < wanted:
            told = _repetition(resource_of(type(value)), key) or why
            raise _NotYet(f"observedGeneration {observed} of {key}, not yet {wanted}: {told}")
        return newest

    return await eventually(look, within)


class _NotYet(Exception):
    """Says what is not yet as awaited."""


def _last_failures() -> list[str]:
    return [failures.last for failures in _OBSERVED if failures.last]


def _repetition(kind: Resource, key: ObjectKey) -> str:
    told = (each.repeated.get((kind.group_kind, key), "") for each in _OBSERVED)
    return "; ".join(filter(None, told))
