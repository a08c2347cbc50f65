"""A check: an async function with its settings, what it may use, and where it is found."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Hashable, Mapping
from contextvars import ContextVar
from types import ModuleType
from typing import Any

import attrs

from kueuelib.api.kueue import Workload
from kueuelib.api.meta import Obj, Resource
from kueuelib.api.quantity import Quantity
from kueuelib.checks.owned import OwnedObjects
from kueuelib.checks.verdicts import Verdict
from kueuelib.errors import ConfigError
from kueuelib.machinery.recurrence import EventType
from kueuelib.runtime.client import Client
from kueuelib.runtime.importing import loaded

# ---- what a running check may use ----------------------------------------------------------------


@attrs.frozen(eq=False)
class CheckContext:
    """The surroundings of one call of a check.

    Attributes:
        check: the name of the AdmissionCheck; empty in a release function.
        workload: the raw Workload, in the version that the server speaks.
        client: speaks to the API server.
        passed: the other workloads that this AdmissionCheck has accepted and that still hold quota,
            also while they are evicted, in a namespace, or in all when it is empty.
        event: reports something about the workload: type, reason, message.
    """

    check: str
    workload: Obj
    client: Client
    passed: Callable[[str], tuple[Workload, ...]]
    event: Callable[[EventType, str, str], None]


_CURRENT: ContextVar[CheckContext] = ContextVar("kueuelib check")


def current() -> CheckContext:
    """The context of the check that is running.

    Raises:
        LookupError: no check is running.
    """
    return _CURRENT.get()


def enter(context: CheckContext) -> None:
    """Makes a context the current one, in this task."""
    _CURRENT.set(context)


def usage_of(workload: Workload) -> Mapping[str, Quantity]:
    """The quota that a workload holds, by resource, over all pod sets; empty without quota."""
    usage: dict[str, Quantity] = {}
    admission = workload.status.admission
    for assignment in admission.pod_set_assignments if admission else ():
        for resource, amount in assignment.resource_usage.items():
            usage[resource] = usage[resource] + amount if resource in usage else amount
    return usage


# --------------------------------------------------------------------------------------------------

CheckFunction = Callable[[Workload, Any], Awaitable[Verdict] | Verdict]
"""`(workload, parameters) -> verdict`; a function that is not async runs in a thread."""
ReleaseFunction = Callable[[Workload], Awaitable[None] | None]
"""`(workload) -> None`; a function that is not async runs in a thread."""

TIMEOUT = 30.0
INTERVAL = 30.0
CONCURRENCY = 50
NAME_LIMIT = 316
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9._/]*[A-Za-z0-9])?")


@attrs.frozen(eq=False)
class Check:
    """How one kind of admission check is decided; made by `check`.

    Attributes:
        controller_name: `spec.controllerName` of the AdmissionChecks that it decides.
        function: returns the answer for one workload.
        parameters: the kind of `spec.parameters`; None for a check without parameters. For a
            namespaced kind, the object of that name in the workload's own namespace counts.
        timeout: seconds that one call may take.
        interval: seconds between two calls while a workload is Pending.
        recheck: seconds between two calls after Ready, also while the job runs. If None, a check
            with parameters or owned objects is called again when they change and when its process
            starts.
        concurrency: how many workloads are handled at a time.
        serialize: returns the group of a workload; the workloads of a group are decided one at a
            time.
        evict_on_failure: whether a failing call revokes an earlier Ready, or evicts a workload
            that was admitted before its queue got this check. By default an admitted workload
            continues, and the check is called again with growing pauses.
        owned: objects that the check makes for workloads; a change of one triggers another call.
        release: called at least once when a Workload that the function was called about no longer
            uses its quota: it has finished, or its last pod is gone after an eviction or deletion.
    """

    controller_name: str
    function: CheckFunction
    parameters: Resource | None = None
    timeout: float = TIMEOUT
    interval: float = INTERVAL
    recheck: float | None = None
    concurrency: int = CONCURRENCY
    serialize: Callable[[Workload], Hashable] | None = None
    evict_on_failure: bool = False
    owned: OwnedObjects | None = None
    release: ReleaseFunction | None = None

    def __call__(self, workload: Workload, parameters: Any) -> Any:
        """Call the function, for example in a test; the result of an async one is awaited."""
        return self.function(workload, parameters)

    @property
    def field_manager(self) -> str:
        """The field manager of all writes; at most 128 characters."""
        return self.controller_name[:128]


def check(
    controller_name: str,
    *,
    parameters: Resource | None = None,
    timeout: float = TIMEOUT,
    interval: float = INTERVAL,
    recheck: float | None = None,
    concurrency: int = CONCURRENCY,
    serialize: Callable[[Workload], Hashable] | None = None,
    evict_on_failure: bool = False,
    owned: OwnedObjects | None = None,
    release: ReleaseFunction | None = None,
) -> Callable[[CheckFunction], Check]:
    """Makes a check from a function `(workload, parameters) -> Ready | Retry | Rejected | Pending`.

    The function is called with the Workload that holds quota and with the raw parameters object,
    None for a check without parameters. It may be called at any time and any number of times; its
    answer counts only if the workload still holds the same quota. See `Check` for the arguments.

    Raises:
        ConfigError: a name or a number is not valid.
    """
    if callable(controller_name):
        raise ConfigError(
            f"check {getattr(controller_name, '__name__', '')!r}",
            "is decorated without the name of its controller",
            'write @check("example.com/name")',
        )
    subject = f"check {controller_name!r}"
    if not isinstance(controller_name, str) or not _NAME.fullmatch(controller_name):
        raise ConfigError(
            subject, "is not a controller name", 'write a domain and a path: "example.com/name"'
        )
    if len(controller_name) > NAME_LIMIT:
        raise ConfigError(
            subject, f"has {len(controller_name)} characters", f"use at most {NAME_LIMIT}"
        )
    for name, value in (("timeout", timeout), ("interval", interval), ("recheck", recheck)):
        if value is None and name == "recheck":
            continue
        _expect(subject, name, value, (int, float), "seconds above 0")
        if value is None or not 0 < value < float("inf"):
            raise ConfigError(subject, f"{name}={value} is not a time", "give seconds above 0")
    _expect(subject, "concurrency", concurrency, int, "a whole number")
    if concurrency < 1:
        raise ConfigError(subject, f"concurrency={concurrency} allows no calls", "give 1 or more")
    if parameters is not None:
        _expect(subject, "parameters", parameters, Resource, "a Resource, or leave it out")
        if not parameters.group:
            problem = f"no AdmissionCheck can name a {parameters.kind} of the core group"
            fix = "give a kind of another group, for example one of your own (@crd)"
            raise ConfigError(f"{subject}: parameters", problem, fix)
    if serialize is not None:
        if not callable(serialize):
            raise ConfigError(
                subject, "serialize cannot be called", "give a function of a workload"
            )
        _expect_arguments(f"{subject}: serialize", serialize, "workload")
        if is_async(serialize):
            raise ConfigError(subject, "serialize is async", "give a function that does no I/O")
    if release is not None:
        _expect_arguments(subject, release, "workload")

    def made(function: CheckFunction) -> Check:
        _expect_arguments(subject, function, "workload", "parameters")
        return Check(
            controller_name,
            function,
            parameters,
            timeout,
            interval,
            recheck,
            concurrency,
            serialize,
            evict_on_failure,
            owned,
            release,
        )

    return made


def _expect(
    subject: str, name: str, value: object, wanted: type | tuple[type, ...], fix: str
) -> None:
    if isinstance(value, bool) or not isinstance(value, wanted):
        raise ConfigError(subject, f"{name} is of type {type(value).__name__}", f"give {fix}")


def is_async(function: object) -> bool:
    """Whether a function, or an object that can be called, can be awaited."""
    call = getattr(function, "__call__", None)  # noqa: B004 - an object may be async
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def _is_generator(function: object) -> bool:
    call = getattr(function, "__call__", None)  # noqa: B004 - an object may be a generator
    kinds = (inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    return any(is_one(each) for is_one in kinds for each in (function, call))


def _expect_arguments(subject: str, function: object, *arguments: str) -> None:
    if not callable(function):
        raise ConfigError(subject, f"is given {function!r}", "give it a function")
    if _is_generator(function):
        name = getattr(function, "__name__", "the function")
        raise ConfigError(subject, f"{name} is a generator", "write return instead of yield")
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):
        return  # some that are not written in Python have no signature
    try:
        signature.bind(*arguments)
    except TypeError as error:
        name = getattr(function, "__name__", "the function")
        raise ConfigError(
            subject,
            f"{name}{signature} cannot be called: {error}",
            f"give it {len(arguments)} argument{'s'[: len(arguments) - 1]}: {', '.join(arguments)}",
        ) from error


# ---- checks of installed packages and of modules -------------------------------------------------
# A package offers a check to the bundled manager as an entry point of the group `kueuelib.checks`;
# its name is the controller name, its value the check:
#
#     [project.entry-points."kueuelib.checks"]
#     "example.com/budget" = "budget_check:budget"

GROUP = "kueuelib.checks"


def installed() -> tuple[Check, ...]:
    """The checks that installed packages offer, by controller name.

    Raises:
        ConfigError: one cannot be imported, is not a check, or has another name; the message names
            the package and how to remove it.
    """
    from importlib.metadata import entry_points

    checks = []
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: (entry.name, entry.value)):
        package = "its package" if entry.dist is None else entry.dist.name
        subject = f'check "{entry.name}" of the package {package}'
        way_out = f"or remove it: pip uninstall {package}"
        offered = loaded(f"{subject}, {entry.value}", entry.load, f"repair it, {way_out}")
        if not isinstance(offered, Check):
            raise ConfigError(
                subject, f"{entry.value} is not a check", f"decorate it with @check, {way_out}"
            )
        if offered.controller_name != entry.name:
            raise ConfigError(
                subject,
                f"{entry.value} calls itself {offered.controller_name}",
                f"give the entry point and the check the same name, {way_out}",
            )
        checks.append(offered)
    return tuple(checks)


def checks_in(module: ModuleType) -> tuple[Check, ...]:
    """The checks of a module, in the order of their definition; each once."""
    return tuple(
        dict.fromkeys(value for value in vars(module).values() if isinstance(value, Check))
    )
