"""A kind with the function that reconciles its objects, and the kinds that it touches."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from math import inf
from typing import Any, Generic, TypeVar

import attrs

from kueuelib.api.forms import Kind, resource_of
from kueuelib.api.meta import Obj, ObjectKey, Resource
from kueuelib.errors import ConfigError
from kueuelib.machinery.store import Delta
from kueuelib.runtime.controller import Result
from kueuelib.runtime.predicates import Predicate

V = TypeVar("V")
C = TypeVar("C")


@attrs.frozen
class OtherKind:
    """A kind of objects in another cluster; made by `OtherCluster.of`.

    Attributes:
        cluster: the name of the cluster.
        resource: the kind.
    """

    cluster: str
    resource: Resource

    @property
    def kind(self) -> str:
        """For messages."""
        return f"{self.resource.kind} of cluster {self.cluster}"


@attrs.frozen
class OtherCluster:
    """Another cluster that an operator watches; made by `Operator.cluster`.

    Attributes:
        name: for the command line, probes, logs and metrics.
    """

    name: str

    def of(self, kind: Kind) -> OtherKind:
        """A kind of objects in this cluster, for `watches=`, `Context.get` and `Context.find`."""
        return OtherKind(self.name, resource_of(kind))


Watched = Resource | OtherKind
"""The objects that an informer follows."""
MapFunction = Callable[[Delta[Obj]], Iterable[ObjectKey]]
Indexes = Mapping[str, Callable[[Obj], Iterable[Hashable]]]
Reconcile = Callable[[V, C], Awaitable[Result | None]]
"""A reconciler: a coroutine function of an object and a `Context`."""
_FINALIZER = re.compile(r"[-.a-z0-9]+/[-._A-Za-z0-9]+")


def watched_of(kind: Kind | OtherKind) -> Watched:
    """The objects that an informer follows for a kind, in this or another cluster."""
    return kind if isinstance(kind, OtherKind) else resource_of(kind)


def arguments_of(function: Callable[..., Any]) -> int:
    """How many arguments a function needs."""
    parameters = inspect.signature(function).parameters.values()
    return sum(
        each.default is each.empty and each.kind <= each.VAR_POSITIONAL for each in parameters
    )


def check_function(function: Any, arguments: int, *, awaited: bool) -> None:
    """Refuse a function that could not be called later.

    Args:
        function: what an author wrote.
        arguments: how many positional ones it gets.
        awaited: whether it must be `async`, or must not be.

    Raises:
        ConfigError: it is something else.
    """
    name = getattr(function, "__name__", f"{function!r:.60}")
    if not callable(function):
        raise ConfigError(name, "is not a function", f"write a function of {arguments} arguments")
    if any(map(inspect.iscoroutinefunction, (function, type(function).__call__))) is not awaited:
        problem, fix = ("is not async", "async def") if awaited else ("is async", "def")
        raise ConfigError(name, problem, f"write it as `{fix} {name}(...)`")
    signature = inspect.signature(function)
    taken = {each.kind: each.name for each in signature.parameters.values()}
    if (named := taken.get(inspect.Parameter.VAR_KEYWORD)) and (
        inspect.Parameter.VAR_POSITIONAL not in taken
    ):
        fix = f"name {arguments} arguments, which it gets by position"
        if awaited:
            fix = f"write it as `async def {name}(obj, context)`: all fields are in obj"
        raise ConfigError(name, f"takes **{named}, but gets nothing by name", fix)
    try:
        signature.bind(*range(arguments))
    except TypeError as error:
        raise ConfigError(
            name, f"cannot be called: {error}", f"it gets {arguments} arguments"
        ) from error


class Reconciled(Generic[V, C]):
    """A kind with the function that reconciles its objects; made by `Operator.reconciles`.

    It can be called like the function itself.

    Attributes:
        kind: the kind, or its class.
        resource: the kind.
        function: the reconciler.
        owns: kinds of children.
        writes: further kinds that are applied and deleted.
        watches: further kinds that are watched, with the keys that a change concerns.
        indexes: functions from a raw object to index values, by kind and name.
        metadata_only: kinds of which only the metadata is read.
        finalizer: empty without teardown function.
        backoff: the first and the longest delay of retries after errors, in seconds.
        adopt: earlier names of the operator, whose hold of the finalizer it takes over.
    """

    def __init__(
        self,
        operator: str,
        kind: Kind,
        function: Reconcile[V, C],
        *,
        owns: Iterable[Kind],
        writes: Iterable[Kind],
        watches: Mapping[Kind | OtherKind, MapFunction],
        indexes: Mapping[Kind | OtherKind, Indexes],
        metadata_only: Iterable[Kind | OtherKind],
        predicate: Predicate | None,
        workers: int,
        timeout: float | None,
        backoff: tuple[float, float],
    ) -> None:
        self._operator = operator
        self.kind = kind
        self.resource = resource_of(kind)
        self.function = function
        self.owns = self._each("owns=", owns)
        self.writes = self._each("writes=", writes)
        given: object = watches
        if not isinstance(given, Mapping):
            problem = "watches= is not a mapping"
            raise ConfigError(self.resource.kind, problem, "write {KIND: function to keys}")
        self.watches = {watched_of(each): keys for each, keys in watches.items()}
        followed: list[Watched] = [
            self.resource,
            *self.owns,
            *(self.watches.keys() - set(self.owns)),
        ]
        if twice := {each.kind for each in followed if followed.count(each) > 1}:
            raise ConfigError(
                f"{self.resource.kind}",
                f"{', '.join(sorted(twice))} is named twice",
                "name it once; only a kind of children may be in owns= and watches=",
            )
        self.indexes = {watched_of(each): dict(named) for each, named in self._named(indexes)}
        self.metadata_only = frozenset(map(watched_of, metadata_only))
        self._check_known("indexes=", self.indexes)
        self._check_known("metadata_only=", self.metadata_only)
        check_function(function, 2, awaited=True)
        self._check_numbers(workers, timeout)
        self.backoff = self._checked_backoff(backoff)
        for keys in self.watches.values():
            check_function(keys, 1, awaited=False)
        for functions in self.indexes.values():
            for each in functions.values():
                check_function(each, 1, awaited=False)
        if predicate is not None:
            check_function(predicate, 1, awaited=False)
        self.predicate = predicate
        self.workers = workers
        self.timeout = timeout
        self.finalizer = ""
        self.adopt: frozenset[str] = frozenset()
        self.teardown_function: Reconcile[V, C] | None = None

    def __call__(self, value: V, context: C) -> Awaitable[Result | None]:
        """Call the reconciler, for example in a test."""
        return self.function(value, context)

    def teardown(
        self, finalizer: str = "", *, adopt: Iterable[str] = ()
    ) -> Callable[[Reconcile[V, C]], Reconcile[V, C]]:
        """Register what has to happen before an object of the kind may vanish.

        The finalizer is added before the reconciler is first called. It is removed when the
        function has returned None or a `Result` that does not ask for another look. If other
        operators use the same finalizer, it stays until all of them have finished.

        Args:
            finalizer: for example `example.com/archive`; `kueuelib.dev/OPERATOR` when empty.
            adopt: names that this operator had before. Otherwise an object that it held under such
                a name stays forever.

        Raises:
            ConfigError: a name is not valid, or there is a teardown function already.
        """
        given: object = finalizer
        if callable(given):
            name = getattr(given, "__name__", "it")
            raise ConfigError(name, "is decorated without a call", "write @....teardown()")
        if isinstance(adopt, str):
            raise ConfigError("adopt=", f"is the string {adopt!r}", f"write adopt=[{adopt!r}]")
        finalizer = finalizer or f"kueuelib.dev/{self._operator}"
        if not _FINALIZER.fullmatch(finalizer):
            raise ConfigError(
                f"finalizer {finalizer!r}", "is not valid", "write DOMAIN/NAME, in lower case"
            )
        if self.finalizer:
            raise ConfigError(
                f"finalizer {finalizer!r}",
                f"{self.resource.kind} has {self.finalizer!r} already",
                "keep one teardown function per kind",
            )

        def register(function: Reconcile[V, C]) -> Reconcile[V, C]:
            check_function(function, 2, awaited=True)
            self.finalizer, self.teardown_function = finalizer, function
            self.adopt = frozenset(adopt)
            return function

        return register

    def _each(self, argument: str, kinds: Iterable[Kind]) -> tuple[Resource, ...]:
        if isinstance(kinds, (str, type, Resource)):
            problem = f"{argument} is a single value"
            raise ConfigError(self.resource.kind, problem, f"write {argument}[KIND, ...]")
        return tuple(map(resource_of, kinds))

    def _named(self, indexes: Mapping[Kind | OtherKind, Indexes]) -> Iterable[Any]:
        for kind, functions in indexes.items():
            given: object = functions
            if not isinstance(given, Mapping):
                problem = f"indexes= of {watched_of(kind).kind} is not a mapping"
                raise ConfigError(self.resource.kind, problem, "write {KIND: {NAME: function}}")
            yield kind, functions

    def _check_numbers(self, workers: int, timeout: float | None) -> None:
        if not isinstance(workers, int) or workers < 1:
            raise ConfigError(self.resource.kind, f"workers= is {workers!r}", "write 1 or more")
        if timeout is not None and (not isinstance(timeout, (int, float)) or timeout <= 0):
            problem = f"timeout= is {timeout!r}"
            raise ConfigError(self.resource.kind, problem, "write seconds above 0, or None")

    def _checked_backoff(self, given: Any) -> tuple[float, float]:
        numbers = tuple(given) if isinstance(given, (tuple, list)) else ()
        if len(numbers) == 2 and all(type(each) in (int, float) for each in numbers):
            first, longest = numbers
            if 0 < first <= longest < inf:
                return first, longest
        raise ConfigError(
            self.resource.kind,
            f"backoff= is {given!r:.60}",
            "write (FIRST, LONGEST), seconds above 0, such as (5, 300)",
        )

    def _check_known(self, argument: str, kinds: Iterable[Watched]) -> None:
        for kind in kinds:
            if kind not in (self.resource, *self.owns, *self.watches):
                raise ConfigError(
                    self.resource.kind,
                    f"{argument} names {kind.kind}, which is neither owned nor watched",
                    "name it in owns= or watches= as well",
                )
