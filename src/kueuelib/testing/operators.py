"""Runs an operator or the whole queueing system in a test, and waits for what they do."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from contextvars import Context, copy_context
from functools import partial
from types import MappingProxyType
from typing import Any, TypeVar, overload

import anyio

from kueuelib.api.forms import Typed, raw_of, resource_of
from kueuelib.api.kinds import CRDS, MANAGER_NAMESPACE, MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS
from kueuelib.api.meta import Obj, ObjectKey, Resource, is_true, key_of
from kueuelib.api.models import is_model
from kueuelib.app.configuration import (
    OFF,
    Configuration,
    Health,
    Integrations,
    LeaderElection,
    WebhookConfiguration,
)
from kueuelib.app.installation import Installation, install, resource_of_object
from kueuelib.app.metrics_block import Metrics
from kueuelib.app.own_process import assembler, own_configuration
from kueuelib.app.program_context import Assemble, ProgramContext
from kueuelib.app.program_manifests import own_webhooks
from kueuelib.app.wiring import assemble_manager
from kueuelib.checks.assembly import setup as setup_checks
from kueuelib.checks.definition import Check
from kueuelib.controllers.webhooks import by_url
from kueuelib.errors import ApiError, BadRequest, ConfigError, Invalid, NotFound, TransportError
from kueuelib.jobs.contract.generic_job import GenericJob
from kueuelib.jobs.contract.integration import Integration
from kueuelib.runtime.cache import Cache
from kueuelib.runtime.client import Client, read
from kueuelib.runtime.controller import OBSERVER
from kueuelib.runtime.events import EventRecorder
from kueuelib.runtime.manager import Group, Manager
from kueuelib.runtime.operator.declaration import Operator
from kueuelib.runtime.operator.hooks import definitions, hook_configurations
from kueuelib.runtime.operator.program import ServeOptions, assemble, check_served
from kueuelib.runtime.operator.repeats import LISTENER
from kueuelib.runtime.telemetry import Telemetry
from kueuelib.testing.processes import free_port
from kueuelib.workload.served import queueing_version

# ---- waits for what an operator does, and says what it failed at if it does not ------------------

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
            problem = _repetition(resource_of(type(value)), key) or why
            raise _NotYet(f"observedGeneration {observed} of {key}, not yet {wanted}: {problem}")
        return newest

    return await eventually(look, within)


class _NotYet(Exception):
    """Says what is not yet as awaited."""


def _last_failures() -> list[str]:
    return [failures.last for failures in _OBSERVED if failures.last]


def _repetition(kind: Resource, key: ObjectKey) -> str:
    repetitions = (each.repeated.get((kind.group_kind, key), "") for each in _OBSERVED)
    return "; ".join(filter(None, repetitions))


# ---- runs the whole queueing system in a test, with the test's own job kinds and checks ----------

DEADLINE = 60.0
"""Seconds until the kinds must be served, and until everything must run."""


@asynccontextmanager
async def queueing(
    client: Client, *own: Integration | type[GenericJob[Any]] | Check | str
) -> AsyncIterator[None]:
    """Install the queueing system, and run its manager until the block ends.

    The block is entered once every part runs. There is no election, and only webhooks listen.

    Args:
        client: of the API server, for example the fixture `kube_client`.
        own: job kinds and admission checks, each with its own manager in addition to the bundled
            one. The CRD of a job kind may be created before or inside the block. A name, such as
            `pod`, enables a bundled kind besides Jobs.

    Raises:
        ConfigError: there is no bundled kind of that name.
        Exception: the exception of a failed part, when the block ends.
    """
    names = tuple(each for each in own if isinstance(each, str))
    installation = Installation(MANAGER_NAMESPACE, _url(port := free_port()), frameworks=names)
    await install(client, installation, DEADLINE)
    version = await queueing_version(client)
    bundled = partial(assemble_manager, alone=False)
    managers = [await _manager(client, _configuration(port, *names), version, bundled)]
    for each in own:
        if isinstance(each, str):
            continue
        if isinstance(each, Check):
            managers.append(_check_manager(client, version, each))
            continue
        kind = each if isinstance(each, Integration) else Integration.of(each)
        port = free_port()
        for hook in own_webhooks([kind], MANAGER_NAMESPACE, by_url(_url(port))):
            await client.apply(resource_of_object(hook), hook)
        base = own_configuration(_configuration(port), kind)
        managers.append(await _manager(client, base, version, assembler(kind, alone=False)))
    with observed() as context:
        programs = [asyncio.create_task(one.run(), context=context) for one in managers]
        try:
            await eventually(
                lambda: all(one.ready for one in managers) or any(one.done() for one in programs),
                DEADLINE,
            )
            if not any(one.done() for one in programs):
                yield
        finally:
            for manager in managers:
                manager.stop()
            await asyncio.gather(*programs)


def _url(port: int) -> str:
    return f"https://127.0.0.1:{port}"


def _configuration(port: int, *names: str) -> Configuration:
    return Configuration(
        integrations=Integrations((*Integrations().frameworks, *names)),
        namespace=MANAGER_NAMESPACE,
        webhook=WebhookConfiguration(host="127.0.0.1", port=port),
        leader_election=LeaderElection(leader_elect=False),
        metrics=Metrics(bind_address=OFF),
        health=Health(health_probe_bind_address=OFF),
    )


async def _manager(
    client: Client, configuration: Configuration, version: str, assemble: Assemble
) -> Manager:
    manager, own = Manager(), Client(client.transport, field_manager="kueue")
    await assemble(ProgramContext(manager, configuration, own, Telemetry(), version, "queueing"))
    return manager


def _check_manager(client: Client, version: str, check: Check) -> Manager:
    manager, own = Manager(), Client(client.transport, field_manager=check.field_manager)
    cache, recorder = Cache(own), EventRecorder(own, check.controller_name)
    manager.add(Group.EVENTS, recorder, "event recorder")
    setup_checks(manager, cache, own, recorder, [check], version=version)
    manager.add(Group.CACHES, cache, "caches")
    return manager


# --------------------------------------------------------------------------------------------------

_HOOKS = {each.kind: each for each in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)}
RESTORE_TIMEOUT = 10.0
"""Seconds in which a webhook configuration has to be what it was."""


@asynccontextmanager
async def running(
    operator: Operator,
    client: Client,
    *,
    namespace: str = "default",
    clusters: Mapping[str, Client] = MappingProxyType({}),
) -> AsyncIterator[None]:
    """Install an operator, and run it until the block ends.

    The API server gets the CRDs and the webhook configurations. The block is entered once all parts
    run. There is no election. At the end, also after an error, the webhook configurations are as
    before; the CRDs stay, as their objects would vanish with them.

    Args:
        operator: the declaration.
        client: of the API server, for example the fixture `kube_client`.
        namespace: for the certificate of the webhooks.
        clusters: a client of each other cluster of the operator, by name.

    Raises:
        ConfigError: a kind that the operator reconciles, owns, watches or writes is not served.
        Exception: the exception of a failed part, when the block ends.
    """
    port = free_port()
    reach = by_url(f"https://127.0.0.1:{port}")
    own = Client(client.transport, field_manager=operator.name)
    for made in definitions(operator, reach):
        await own.apply(CRDS, made)
        await eventually(partial(_established, own, made))
    await check_served(operator, own, patience=0)
    async with AsyncExitStack() as stack:
        for made in hook_configurations(operator, reach):
            before = await read(own, _HOOKS[made["kind"]], key_of(made))
            stack.push_async_callback(_restore, own, _HOOKS[made["kind"]], key_of(made), before)
            await own.apply(_HOOKS[made["kind"]], made)
        manager = Manager()
        options = ServeOptions(namespace=namespace, webhook_address=f"127.0.0.1:{port}")
        assemble(operator, manager, own, options, Telemetry(), clusters)
        with observed() as context:
            program = asyncio.create_task(manager.run(), name=operator.name, context=context)
            try:
                await eventually(lambda: manager.ready or program.done())
                if not program.done():
                    yield
            finally:
                manager.stop()
                await program


async def _restore(client: Client, resource: Resource, key: ObjectKey, before: Obj | None) -> None:
    """Make a webhook configuration what it was; a server that is gone has none."""
    with anyio.move_on_after(RESTORE_TIMEOUT, shield=True):
        with suppress(NotFound, TransportError):
            if before is None:
                await client.delete(resource, key)
            else:
                now = await client.get(resource, key)
                version = now["metadata"]["resourceVersion"]
                meta = {**before["metadata"], "resourceVersion": version, "managedFields": None}
                await client.replace(resource, {**before, "metadata": meta})


async def _established(client: Client, definition: Obj) -> bool:
    """The definition has its names, and discovery shows its versions."""
    if not is_true(await client.get(CRDS, key_of(definition)), "Established"):
        return False
    spec = definition["spec"]
    for version in spec["versions"]:
        if version["served"]:
            wanted = f"{spec['group']}/{version['name']}", spec["names"]["kind"]
            if await client.find_resource(*wanted) is None:
                return False
    return True
