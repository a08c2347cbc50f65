"""How an author declares an operator; nothing here connects to a server."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

import attrs

from kueuelib.api.definitions import Definition
from kueuelib.api.forms import Kind, Typed, resource_of
from kueuelib.api.meta import KubeObject, Obj, Resource
from kueuelib.errors import ConfigError, FieldError
from kueuelib.machinery.backoff import FIRST_DELAY, LONGEST_DELAY
from kueuelib.runtime.operator.reconciled import (
    Indexes,
    MapFunction,
    OtherCluster,
    OtherKind,
    Reconcile,
    Reconciled,
    arguments_of,
    check_function,
)
from kueuelib.runtime.predicates import Predicate
from kueuelib.runtime.webhook.admission import AdmissionRequest, ValidationResult

if TYPE_CHECKING:
    from kueuelib.runtime.operator.context import Context
    from kueuelib.runtime.telemetry import Telemetry


# ---- a kind with the function that checks or completes its objects before they are stored --------

OPERATIONS = ("CREATE", "UPDATE", "DELETE")


def _check_operations(hook: OperatorWebhook, _: object, operations: tuple[str, ...]) -> None:
    allowed = OPERATIONS[:2] if hook.mutating else OPERATIONS
    if not operations or not set(operations) <= set(allowed):
        raise ConfigError(
            name_of(hook.function),
            f"operations= is {', '.join(operations) or 'empty'}",
            f"write some of {', '.join(allowed)}",
        )


@attrs.frozen
class OperatorWebhook:
    """A webhook of an operator.

    Attributes:
        kind: the kind, or its class.
        function: a check (`mutating` is False) or a function from object to object.
        mutating: whether the function changes objects.
        operations: when the API server calls it.
        object_selector: only objects with such labels.

    Raises:
        ConfigError: an operation is not one that a webhook can get.
    """

    kind: Kind
    function: Callable[..., Any]
    mutating: bool
    operations: tuple[str, ...] = attrs.field(validator=_check_operations)
    object_selector: Mapping[str, Any]

    @property
    def path(self) -> str:
        """Where it is served."""
        resource = resource_of(self.kind)
        verb = "default" if self.mutating else "validate"
        return f"/{verb}-{resource.plural}.{resource.group or 'core'}"


def name_of(function: object) -> str:
    """What a function is called in messages."""
    return getattr(function, "__name__", f"{function!r:.60}")


# --------------------------------------------------------------------------------------------------

K = TypeVar("K", bound=Typed)
V = TypeVar("V")

Judged = Sequence[FieldError] | ValidationResult
Check = Callable[[V | None, V | None, AdmissionRequest], Judged]
ShortCheck = Callable[[V], Judged]
"""A check of the new object only, so it is not called for deletions."""


class Validates(Protocol[V]):
    """The decorator of a check, in either form."""

    @overload
    def __call__(self, function: ShortCheck[V], /) -> ShortCheck[V]: ...
    @overload
    def __call__(self, function: Check[V], /) -> Check[V]: ...


_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class Operator:
    """A declaration of kinds, reconcilers and webhooks.

    `kueuelib run MODULE:NAME` runs it, `kueuelib manifests MODULE:NAME` prints what it needs in a
    cluster, `kueuelib.testing.running` runs it in a test.

    Args:
        name: a DNS label: of the field manager, the Lease, the ServiceAccount, the Deployment.
        namespace: watch and write in this namespace only; all when empty.
        kinds: classes with `crd` whose definitions belong to the manifests although nothing
            reconciles them.
        rules: raw RBAC rules for what does not follow from the declaration: calls of
            `Context.client`, or the verb `bind` for roles that it binds.

    Raises:
        ConfigError: the name is not valid, or a rule has no verbs.
    """

    def __init__(
        self,
        name: str,
        *,
        namespace: str = "",
        kinds: Iterable[type[KubeObject]] = (),
        rules: Iterable[Mapping[str, Any]] = (),
    ) -> None:
        self.name = _checked(name, "operator")
        self.namespace = namespace
        self.rules = tuple(rules)
        for each in self.rules:
            if not each.get("verbs"):
                problem = f"a rule of rules= has no verbs: {dict(each)!r:.80}"
                raise ConfigError(f"operator {name}", problem, "name at least one")
        self.reconciled: list[Reconciled[Any, Context]] = []
        self.hooks: list[OperatorWebhook] = []
        self.clusters: dict[str, OtherCluster] = {}
        self._kinds = tuple(kinds)

    def cluster(self, name: str) -> OtherCluster:
        """Declare another cluster, whose objects `watches=` may name.

        ```python
        west = app.cluster("west")

        @app.reconciles(Site, watches={west.of(kinds.JOBS): lambda delta: [delta.key]})
        ```

        `kueuelib run --cluster west=KUBECONFIG` says where it is. Its loss stops nothing: what was
        read stays in the cache, and `Context.cluster` says whether it answers.

        Args:
            name: a DNS label.

        Raises:
            ConfigError: the name is not valid.
        """
        made = OtherCluster(_checked(name, "cluster"))
        return self.clusters.setdefault(name, made)

    @overload
    def reconciles(
        self,
        kind: type[K],
        *,
        owns: Iterable[Kind] = (),
        writes: Iterable[Kind] = (),
        watches: Mapping[Kind | OtherKind, MapFunction] | None = None,
        indexes: Mapping[Kind | OtherKind, Indexes] | None = None,
        metadata_only: Iterable[Kind | OtherKind] = (),
        predicate: Predicate | None = None,
        workers: int = 1,
        timeout: float | None = None,
        backoff: tuple[float, float] = (FIRST_DELAY, LONGEST_DELAY),
    ) -> Callable[[Reconcile[K, Context]], Reconciled[K, Context]]: ...

    @overload
    def reconciles(
        self,
        kind: Resource,
        *,
        owns: Iterable[Kind] = (),
        writes: Iterable[Kind] = (),
        watches: Mapping[Kind | OtherKind, MapFunction] | None = None,
        indexes: Mapping[Kind | OtherKind, Indexes] | None = None,
        metadata_only: Iterable[Kind | OtherKind] = (),
        predicate: Predicate | None = None,
        workers: int = 1,
        timeout: float | None = None,
        backoff: tuple[float, float] = (FIRST_DELAY, LONGEST_DELAY),
    ) -> Callable[[Reconcile[Obj, Context]], Reconciled[Obj, Context]]: ...

    def reconciles(
        self,
        kind: Resource | type[Any],
        *,
        owns: Iterable[Kind] = (),
        writes: Iterable[Kind] = (),
        watches: Mapping[Kind | OtherKind, MapFunction] | None = None,
        indexes: Mapping[Kind | OtherKind, Indexes] | None = None,
        metadata_only: Iterable[Kind | OtherKind] = (),
        predicate: Predicate | None = None,
        workers: int = 1,
        timeout: float | None = None,
        backoff: tuple[float, float] = (FIRST_DELAY, LONGEST_DELAY),
    ) -> Callable[[Reconcile[Any, Context]], Reconciled[Any, Context]]:
        """Register the function that makes the world agree with an object.

        It is called with the object and a `Context` whenever the object, one of its children, or
        something watched has changed, and returns None or a `Result`. What it raises is repeated
        after a growing delay. It is never called for an object that is being deleted.

        Args:
            kind: a class with `crd`, a model of kubernetes_asyncio, or a `Resource`; the function
                gets a typed or a raw object.
            owns: kinds of children. They get an owner reference and vanish with the object.
            writes: kinds that are applied or deleted without being owned; they are not watched.
            watches: kinds that are watched, here or in a `cluster`, each with a function from a
                change to the keys of the objects that it concerns.
            indexes: the kind itself and kinds out of `owns` and `watches`, each with named
                functions from a raw object to the values under which `Context.children` and
                `Context.find` find it.
            metadata_only: kinds out of `owns` and `watches` of which only the metadata is read.
            predicate: which changes of the object count; all by default.
            workers: how many objects may be reconciled at once.
            timeout: seconds after which one call is cancelled and counts as an error.
            backoff: seconds until the first retry after an error, and the most seconds between
                retries; each delay is twice the last one. A conflict is always retried soon.

        Raises:
            ConfigError: the kind has a reconciler already, a cluster is not declared, or another
                argument cannot work.
        """
        if inspect.isfunction(kind):
            raise ConfigError(
                f"operator {self.name}",
                f"{kind.__name__} is decorated without a kind",
                "write @app.reconciles(KIND)",
            )
        resource = resource_of(kind)
        if any(each.resource.group_kind == resource.group_kind for each in self.reconciled):
            raise ConfigError(
                f"operator {self.name}",
                f"{resource.kind} has two reconcilers",
                "keep one function per kind",
            )

        def register(function: Reconcile[Any, Context]) -> Reconciled[Any, Context]:
            made: Reconciled[Any, Context] = Reconciled(
                self.name,
                kind,
                function,
                owns=owns,
                writes=writes,
                watches=watches or {},
                indexes=indexes or {},
                metadata_only=metadata_only,
                predicate=predicate,
                workers=workers,
                timeout=timeout,
                backoff=backoff,
            )
            self._check_clusters(made)
            self.reconciled.append(made)
            return made

        return register

    def _check_clusters(self, declared: Reconciled[Any, Context]) -> None:
        for each in declared.watches:
            if isinstance(each, OtherKind) and each.cluster not in self.clusters:
                raise ConfigError(
                    f"operator {self.name}",
                    f"watches {each.kind}, which it does not declare",
                    f"call cluster({each.cluster!r}) of this operator",
                )

    @overload
    def validates(
        self,
        kind: type[K],
        *,
        operations: Sequence[str] = ("CREATE", "UPDATE"),
        object_selector: Mapping[str, Any] | None = None,
    ) -> Validates[K]: ...

    @overload
    def validates(
        self,
        kind: Resource,
        *,
        operations: Sequence[str] = ("CREATE", "UPDATE"),
        object_selector: Mapping[str, Any] | None = None,
    ) -> Validates[Obj]: ...

    def validates(
        self,
        kind: Resource | type[Any],
        *,
        operations: Sequence[str] = ("CREATE", "UPDATE"),
        object_selector: Mapping[str, Any] | None = None,
    ) -> Validates[Any]:
        """Register a validating webhook: a function of (new, old, request) to broken rules.

        A function with one argument receives the new object only.

        Args:
            kind: a class with `crd`, a model of kubernetes_asyncio, or a `Resource`; the function
                gets typed or raw objects, None for an object that does not exist.
            operations: some of `CREATE`, `UPDATE` and `DELETE`.
            object_selector: a raw label selector; only such objects are shown to the webhook.

        Raises:
            ConfigError: the function or an operation is not one that can be called.
        """

        def register(function: Any) -> Any:
            short = arguments_of(function) == 1
            check_function(function, 1 if short else 3, awaited=False)
            if short and "DELETE" in operations:
                raise ConfigError(
                    f"operator {self.name}",
                    f"{name_of(function)} has one argument, but a deletion has no new object",
                    "give it three arguments: new, old, request",
                )
            full = function
            if short:

                @wraps(function)
                def full(new: Any, _old: Any, _request: AdmissionRequest) -> Any:
                    return function(new)

            self._hook(kind, operations, object_selector, mutating=False)(full)
            return function

        return register

    @overload
    def defaults(
        self,
        kind: type[K],
        *,
        operations: Sequence[str] = ("CREATE", "UPDATE"),
        object_selector: Mapping[str, Any] | None = None,
    ) -> Callable[[Callable[[K], K]], Callable[[K], K]]: ...

    @overload
    def defaults(
        self,
        kind: Resource,
        *,
        operations: Sequence[str] = ("CREATE", "UPDATE"),
        object_selector: Mapping[str, Any] | None = None,
    ) -> Callable[[Callable[[Obj], Obj]], Callable[[Obj], Obj]]: ...

    def defaults(
        self,
        kind: Resource | type[Any],
        *,
        operations: Sequence[str] = ("CREATE", "UPDATE"),
        object_selector: Mapping[str, Any] | None = None,
    ) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
        """Register a defaulting webhook: a function from an object to one with its defaults.

        Defaults that do not depend on other fields are better in the class: they need no webhook.

        Args:
            kind: a class with `crd`, a model of kubernetes_asyncio, or a `Resource`; the function
                takes and returns typed or raw objects. Only the fields that a typed function
                changed are patched.
            operations: some of `CREATE` and `UPDATE`.
            object_selector: a raw label selector; only such objects are shown to the webhook.
        """

        def register(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
            check_function(function, 1, awaited=False)
            made: Callable[[Any], Any] = self._hook(
                kind, operations, object_selector, mutating=True
            )(function)
            return made

        return register

    def _hook(
        self,
        kind: Resource | type[Any],
        operations: Sequence[str],
        object_selector: Mapping[str, Any] | None,
        *,
        mutating: bool,
    ) -> Callable[[Any], Any]:
        def register(function: Any) -> Any:
            given = (operations,) if isinstance(operations, str) else tuple(operations)
            hook = OperatorWebhook(kind, function, mutating, given, object_selector or {})
            if any(each.path == hook.path for each in self.hooks):
                raise ConfigError(
                    f"operator {self.name}",
                    f"{hook.path} is served already",
                    "keep one function per kind",
                )
            self.hooks.append(hook)
            return function

        return register

    @property
    def definitions(self) -> tuple[Definition, ...]:
        """The definitions, made by `crd`, of all classes that the operator names, each once."""
        kinds = [*(each.kind for each in self.reconciled), *self._kinds]
        definitions = (getattr(kind, "definition", None) for kind in kinds)
        return tuple(dict.fromkeys(each for each in definitions if isinstance(each, Definition)))

    @property
    def needs_webhooks(self) -> bool:
        """Whether the API server calls the operator: for admission, or for conversion."""
        return bool(self.hooks) or any(each.versions for each in self.definitions)

    def main(
        self,
        kubeconfig: str | None = None,
        clusters: Mapping[str, str] = MappingProxyType({}),
        telemetry: Telemetry | None = None,
    ) -> None:
        """Run until SIGTERM or SIGINT; the last line of a program. See `kueuelib run`.

        Lines of the log are for people, unless the program has configured structlog or logging.

        Args:
            kubeconfig: a file, found by kubectl's rules when None.
            clusters: the kubeconfig of each other cluster, by its name.
            telemetry: where to report, for a program that serves its metrics itself.

        Raises:
            SystemExit: it cannot work, exit code 2, or failed, exit code 1; stderr has the line
                that says why.
        """
        from kueuelib.runtime.entry import run_logged
        from kueuelib.runtime.operator.program import ServeOptions, serve

        options = ServeOptions(kubeconfig=kubeconfig, clusters=clusters)
        run_logged(serve, self, options, telemetry)


def _checked(name: str, what: str) -> str:
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{what} {name!r}",
            "is not a valid name",
            "use at most 63 lower-case letters, digits and '-'",
        )
    return name
