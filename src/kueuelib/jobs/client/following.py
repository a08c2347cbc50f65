"""Submits a job, asks for its state, watches it and waits for it, with either manager.

    handle = await kueuelib.submit(job, queue="team")
    print((await kueuelib.queue_state(handle)).text)
    async for progress in kueuelib.watch(handle):
        print(progress.state, progress.why)
    end = await kueuelib.wait(handle, timeout=3600)

A pod of a group stands for the group: its handle follows the group's Workload and all its pods.
Without a `client` each call connects by kubectl's rules. Nothing is installed in the cluster, and
the caller needs no more rights than to create its jobs and to read them and Workloads.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import math
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from typing import Any

import anyio
import attrs
import orjson

from kueuelib.api.forms import Typed, raw_of
from kueuelib.api.kinds import KUEUE, PODS, WORKLOADS
from kueuelib.api.meta import KubeObject, Obj, ObjectKey, Resource, key_of, labels_of
from kueuelib.api.models import is_model, without_models
from kueuelib.api.names import (
    DEFAULT_NAMESPACE,
    GROUP_LABEL,
    JOB_UID_LABEL,
    PRIORITY_CLASS_LABEL,
    QUEUE_LABEL,
    is_dns1123_subdomain,
)
from kueuelib.errors import ConfigError, Forbidden, KueuelibError, NotFound
from kueuelib.jobs.builtin import builtin_registry
from kueuelib.jobs.client.places import with_place, with_refusal
from kueuelib.jobs.client.progress import Progress, State, progress_of
from kueuelib.jobs.contract.generic_job import GenericJob
from kueuelib.jobs.contract.integration import Integration
from kueuelib.jobs.lookups.stores import internal
from kueuelib.jobs.pods.compose import compose
from kueuelib.jobs.pods.facts import GroupFacts
from kueuelib.jobs.pods.group import PodGroup
from kueuelib.jobs.pods.reading import group_of
from kueuelib.jobs.reconcile.matching import by_age
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import SYSTEM_CLOCK
from kueuelib.runtime.connection import Kubeconfig, connect
from kueuelib.runtime.endpoint import is_configured
from kueuelib.runtime.informer import Informer
from kueuelib.workload.served import queueing_version

# ---- checks a job that a caller passes before anything is sent; each error names its field -------

_TEXTS = ("name", "generateName", "namespace", "uid")
_MAPS = ("labels", "annotations")


def queued(
    job: Mapping[str, Any] | GenericJob[Any] | Typed,
    queue: str,
    namespace: str,
    priority_class: str,
) -> Obj:
    """A copy of a job in the form in which it is created in a queue.

    Args:
        job: an object in any form, or a `GenericJob`.
        queue: the LocalQueue.
        namespace: used if the job does not name one.
        priority_class: a WorkloadPriorityClass; empty for none.

    Raises:
        ConfigError: the job is not an object that could be created, or a name is invalid.
    """
    _check_name("queue", queue)
    if priority_class:
        _check_name("priority_class", priority_class)
    obj = placed(job, namespace)
    meta = obj["metadata"]
    if not meta.get("name") and not meta.get("generateName"):
        raise ConfigError("metadata.name", "is missing", "give the job a name or a generateName")
    labels = meta["labels"] = {**(meta.get("labels") or {}), QUEUE_LABEL: queue}
    if priority_class:
        labels[PRIORITY_CLASS_LABEL] = priority_class
    try:
        orjson.dumps(obj)
    except TypeError as error:
        raise ConfigError("the job", f"is not JSON: {error}", "give plain values") from error
    return obj


def existing(job: Mapping[str, Any] | GenericJob[Any] | Typed) -> Obj:
    """A copy of an existing job, or an object with no more than what a reference names.

    Raises:
        ConfigError: it is ambiguous.
    """
    raw: Any = raw_of(job) if isinstance(job, KubeObject) or is_model(job) else job
    if isinstance(raw, Mapping) and "metadata" not in raw and "name" in raw:
        meta = {field: raw.get(field) for field in ("name", "namespace", "uid")}
        kind = raw.get("kind") or ""
        version = raw.get("apiVersion") or _VERSIONS.get(kind) or _version_of(kind)
        job = {"apiVersion": version, "kind": kind, "metadata": meta}
    obj = placed(job, "")
    if not obj["metadata"].get("name"):
        raise ConfigError(
            "metadata.name", "is missing", "name the job, or give what submit returned"
        )
    return obj


_VERSIONS = {WORKLOADS.kind: WORKLOADS.api_version, PODS.kind: PODS.api_version}


def _version_of(kind: object) -> str | None:
    """The version of a built-in kind of jobs, for references without one."""
    for integration in builtin_registry().integrations:
        if integration.resource.kind == kind:
            return integration.resource.api_version
    return None


def placed(job: Mapping[str, Any] | GenericJob[Any] | Typed, namespace: str) -> Obj:
    """A raw copy of a job that has a kind and a namespace.

    Raises:
        ConfigError: a field has a wrong type, or the kind is missing.
    """
    raw: Any = job.raw if isinstance(job, GenericJob) else job
    if isinstance(raw, KubeObject) or is_model(raw):
        raw = raw_of(raw)
    if not isinstance(raw, Mapping):
        fix = "give an object, a GenericJob, or what submit returned"
        raise ConfigError("the job", f"is a {type(raw).__name__}", fix)
    obj = copy.deepcopy(dict(without_models(raw)))
    if isinstance(job, GenericJob):
        kind = {"apiVersion": job.resource.api_version, "kind": job.resource.kind}
        obj = kind | {name: value for name, value in obj.items() if value or name not in kind}
    for field in ("apiVersion", "kind"):
        if not isinstance(obj.get(field), str) or not obj[field]:
            raise ConfigError(field, f"is {_shown(obj.get(field))}", "write it as in a manifest")
    obj["metadata"] = meta = _mapping("metadata", obj.get("metadata"))
    for field in _TEXTS:
        if not isinstance(meta.get(field) or "", str):
            raise ConfigError(f"metadata.{field}", f"is {_shown(meta[field])}", "write a text")
    for field in _MAPS:
        if field in meta:
            meta[field] = _texts(f"metadata.{field}", meta[field])
    meta["namespace"] = meta.get("namespace") or namespace or DEFAULT_NAMESPACE
    return obj


def _mapping(field: str, value: Any) -> Obj:
    if not isinstance(value or {}, Mapping):
        raise ConfigError(field, f"is {_shown(value)}", "write a mapping")
    return dict(value or {})


def _texts(field: str, value: Any) -> Obj:
    texts = _mapping(field, value)
    for key, each in texts.items():
        if not isinstance(key, str) or not isinstance(each, str):
            raise ConfigError(f"{field}[{key}]", f"is {_shown(each)}", "write a text")
    return texts


def _check_name(argument: str, value: Any) -> None:
    if not isinstance(value, str) or not is_dns1123_subdomain(value):
        fix = "give a name of lower-case letters, digits, - and ."
        raise ConfigError(argument, f"{_shown(value)} is not a name that an object can have", fix)


def _shown(value: Any) -> str:
    return "missing" if value is None else repr(value)


# --------------------------------------------------------------------------------------------------


class JobGone(KueuelibError):
    """The job was deleted before it reached the awaited state.

    Attributes:
        last: what was known of it last; None if nothing was. A plain pod that was evicted is
            deleted, so its eviction is here.
    """

    def __init__(self, problem: str, last: Progress | None = None) -> None:
        super().__init__(problem)
        self.last = last


@attrs.frozen
class JobHandle:
    """A job in a cluster.

    Attributes:
        resource: its kind.
        key: its namespace and name.
        uid: its UID.
        object: the raw object as it was stored.
    """

    resource: Resource
    key: ObjectKey
    uid: str
    object: Obj


async def submit(
    job: Mapping[str, Any] | GenericJob[Any] | Typed,
    *,
    queue: str,
    namespace: str = "",
    priority_class: str = "",
    client: Client | None = None,
    kubeconfig: Kubeconfig = None,
) -> JobHandle:
    """Creates a job in a queue.

    Args:
        job: an object in any form, or a `GenericJob`; it is not changed.
        queue: the LocalQueue, in the job's namespace.
        namespace: used if the job does not name one; `default` without either.
        priority_class: a WorkloadPriorityClass; empty for none.
        client: for the API server; without one, a client is made.
        kubeconfig: names the server for the client that is made, as for `connect`.

    Raises:
        ConfigError: there is no usable kubeconfig, the server does not serve the kind, or the job
            is not an object; the field is named.
        ApiError: the server refuses the job.
        TransportError: no answer; the job may have been created.
    """
    obj = queued(job, queue, namespace, priority_class)
    async with _client(client, kubeconfig) as used:
        resource = await _resource(used, obj)
        created = await used.create(resource, obj)
    return JobHandle(resource, key_of(created), created["metadata"]["uid"], created)


async def queue_state(
    job: JobHandle | Mapping[str, Any] | GenericJob[Any] | Typed,
    *,
    timeout: float = 30.0,  # noqa: ASYNC109 - part of what is asked for
    integration: Integration | None = None,
    client: Client | None = None,
    kubeconfig: Kubeconfig = None,
) -> Progress:
    """The state of a job in its queue.

    It needs the rights to `get` the object and to `list` Workloads in its namespace. A field for
    which a right is missing is unknown. With the right to `list` Events, the reason also says what
    keeps a manager from making the Workload.

    Args:
        job: as for `watch`.
        timeout: seconds for the whole call.
        integration: as for `watch`.
        client: as for `watch`.
        kubeconfig: as for `watch`.

    Raises:
        TimeoutError: no answer in time.
        JobGone: the job of this UID was deleted.
        NotFound: there is no job of that name.
        ApiError: the server refuses something else.
        TransportError: the server cannot be reached.
        ConfigError: as `watch`.
    """
    try:
        with anyio.fail_after(timeout):
            async with _client(client, kubeconfig) as used:
                watcher = await _watcher(used, job, integration)
                return await watcher.once()
    except TimeoutError as error:
        raise TimeoutError(f"the state of the job is not known after {timeout:g} s") from error


async def watch(
    job: JobHandle | Mapping[str, Any] | GenericJob[Any] | Typed,
    *,
    timeout: float | None = None,  # noqa: ASYNC109 - part of what is asked for
    integration: Integration | None = None,
    client: Client | None = None,
    kubeconfig: Kubeconfig = None,
) -> AsyncGenerator[Progress, None]:
    """Yields the progress of a job, now and after each change, until its end.

    Its place and its expected start are read again every few seconds while it waits.
    Without the right to list Workloads, its state is what the object shows, and the reason to wait
    is the missing right.

    Args:
        job: the result of `submit`, an object in any form, a `GenericJob`, a Workload, or a
            reference: a mapping or model with `kind`, `name`, `namespace`, and perhaps `apiVersion`
            and `uid`. Without a namespace it is in `default`; without a UID, the job of that name
            is meant.
        timeout: seconds until the end at the latest; None: as long as it takes.
        integration: of a kind that does not come with kueuelib; without it, such a job counts as
            running once it is admitted and not suspended.
        client: for the API server; without one, a client is made.
        kubeconfig: names the server for the client that is made, as for `connect`.

    Raises:
        JobGone: the job was deleted.
        NotFound: there is no job of that name.
        TimeoutError: it has not ended in time; the message names the last state and its reason.
        ConfigError: there is no usable kubeconfig, the server does not serve the kinds, or the job
            is ambiguous.
    """
    async with _client(client, kubeconfig) as used:
        watcher = await _watcher(used, job, integration)
        last: Progress | None = None
        async with contextlib.aclosing(watcher.moments(timeout)) as moments:
            async for progress in moments:
                if progress != last:
                    yield progress
                if progress.state.is_end:
                    return
                last = progress


async def wait(
    job: JobHandle | Mapping[str, Any] | GenericJob[Any] | Typed,
    until: State = State.FINISHED,
    *,
    timeout: float | None = None,  # noqa: ASYNC109 - part of what is asked for
    integration: Integration | None = None,
    client: Client | None = None,
    kubeconfig: Kubeconfig = None,
) -> Progress:
    """Waits until a job reaches a state, or its end; the result shows which.

    Args:
        job: the result of `submit`, an object in any form, or a `GenericJob`. Without a namespace
            it is in `default`; without a UID, the job of that name is meant.
        until: the state; a running job also counts as admitted.
        timeout: seconds; None: as long as it takes.
        integration: as for `watch`.
        client: as for `watch`.
        kubeconfig: as for `watch`.

    Raises:
        TimeoutError: the state was not reached in time; the message names the last state and its
            reason.
        JobGone: the job was deleted.
        ConfigError: as `watch`.
    """
    try:
        until = State(until)
    except ValueError:
        fix = f"give one of {', '.join(State)}"
        raise ConfigError("until", f"{until!r} is not a state", fix) from None
    last: Progress | None = None
    wanted = {until, State.RUNNING} if until is State.ADMITTED else {until}
    stream = watch(job, integration=integration, client=client, kubeconfig=kubeconfig)
    try:
        with anyio.fail_after(timeout):
            async for progress in stream:
                last = progress
                if progress.state in wanted or progress.state.is_end:
                    return progress
    except TimeoutError as error:
        if timeout is None:
            raise  # not ours: the server did not answer
        where = "nothing is known of it" if last is None else f"it is {last.state}: {last.why}"
        raise TimeoutError(f"the job is not {until} after {timeout:g} s; {where}") from error
    finally:
        await stream.aclose()
    raise JobGone("the watch ended before the job did")


class _Watcher:
    """The job and its Workloads, as read once, or as seen by two small watches."""

    def __init__(
        self, client: Client, handle: JobHandle, integration: Integration | None, version: str
    ) -> None:
        self._client = client
        self._handle = handle
        self._integration = integration
        key, group_kind = handle.key, handle.resource.group_kind
        self._group = group_of(handle.object) if group_kind == PODS.group_kind else ""
        self._is_workload = group_kind == WORKLOADS.group_kind
        named = labels_of(handle.object).get(GROUP_LABEL) == self._group
        name = f"metadata.name={key.name}"
        if self._group:
            by_label, by_name = f"{GROUP_LABEL}={self._group}" if named else "", ""
            label, name = "", f"metadata.name={self._group}"
        elif self._is_workload:
            by_label, by_name, label = "", name, ""
        else:
            by_label, by_name = "", name
            label, name = f"{JOB_UID_LABEL}={handle.uid}", ""
        self._jobs = _Choice(handle.resource, key.namespace, by_label, by_name)
        self._workloads = _Choice(WORKLOADS.at(version), key.namespace, label, name)
        self._changed = asyncio.Event()
        self._last: Progress | None = None

    async def once(self) -> Progress:
        """The present state."""
        unknown: dict[str, str] = {}
        objects = await self._objects(unknown)
        workloads: tuple[Obj, ...] = ()
        try:
            workloads = await self._workloads.listed(self._client)
        except (Forbidden, NotFound) as error:
            unknown["workload"] = str(error)
        progress = self._progress(objects, workloads, unknown)
        return await self._enriched(progress)

    async def _objects(self, unknown: dict[str, str]) -> tuple[Obj, ...]:
        try:
            if self._group:
                return await self._jobs.listed(self._client)
            return (await self._client.get(self._handle.resource, self._handle.key),)
        except NotFound:
            return ()
        except Forbidden as error:
            unknown["object"] = str(error)
            return (self._handle.object,)

    async def moments(self, timeout: float | None) -> AsyncGenerator[Progress, None]:  # noqa: ASYNC109
        """The present state, and again after every change; consecutive ones may be equal."""
        loop = asyncio.get_running_loop()
        deadline = math.inf if timeout is None else loop.time() + timeout
        # Not in a task group, which must not be open while a generator gives something away.
        jobs, workloads = (each.informer(self._client) for each in (self._jobs, self._workloads))
        tasks = []
        for informer in (jobs, workloads):
            informer.add_handler(lambda _: self._changed.set())
            tasks.append(asyncio.create_task(informer.run()))
        try:
            await jobs.wait_synced(min(SYNC_TIMEOUT, max(0.0, deadline - loop.time())))
            unknown = {}
            with anyio.move_on_after(min(SYNC_TIMEOUT, max(0.0, deadline - loop.time()))):
                await workloads.wait_settled()
            if isinstance(workloads.failing, Forbidden):
                unknown["workload"] = str(workloads.last_error)
                tasks.pop().cancel()  # it would warn again and again
            else:
                await workloads.wait_synced(min(SYNC_TIMEOUT, max(0.0, deadline - loop.time())))
            while True:
                self._changed.clear()
                progress = self._progress(jobs.store.items(), workloads.store.items(), unknown)
                yield await self._enriched(progress)
                wait = min(REFRESH, deadline - loop.time())
                if wait <= 0:
                    where = f"it is {progress.state}: {progress.why}"
                    raise TimeoutError(f"the job has not ended after {timeout:g} s; {where}")
                with anyio.move_on_after(wait):
                    await self._changed.wait()
        finally:
            for task in tasks:
                task.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _enriched(self, progress: Progress) -> Progress:
        """With what is to be read besides the job and its Workload."""
        namespace = self._handle.key.namespace
        progress = await with_place(self._client, progress, namespace)
        return await with_refusal(self._client, progress, namespace, self._handle.uid)

    def _progress(
        self, objects: Iterable[Obj], workloads: Iterable[Obj], unknown: Mapping[str, str]
    ) -> Progress:
        """The state that objects and Workloads show.

        Raises:
            JobGone: the job is deleted.
        """
        now = SYSTEM_CLOCK.now()
        if self._group:
            progress, exists = self._of_group(objects, workloads, now, unknown.get("workload", ""))
            name = f"all pods of the group {self._group} are"
        else:
            in_order = by_age(one for one in workloads if self._is_own(one))
            obj = next((one for one in objects if one["metadata"]["uid"] == self._handle.uid), None)
            exists = obj is not None
            if self._is_workload:
                obj = None
            kind = self._integration
            job = None if kind is None or obj is None else kind.job_type(obj)
            workload = in_order[-1] if in_order else None
            progress = progress_of(job, obj, workload, now, unknown.get("workload", ""))
            name = f"{self._handle.resource.kind} {self._handle.key} is"
        progress = attrs.evolve(progress, unknown={**progress.unknown, **unknown})
        if not exists and not progress.state.is_end:
            raise JobGone(f"{name} deleted", progress if progress.workload else self._last)
        self._last = progress
        return progress

    def _is_own(self, workload: Obj) -> bool:
        return not self._is_workload or workload["metadata"]["uid"] == self._handle.uid

    def _of_group(
        self, objects: Iterable[Obj], workloads: Iterable[Obj], now: float, unknown: str
    ) -> tuple[Progress, bool]:
        """The state of a group, and whether it has pods."""
        workload = next(iter(workloads), None)
        pods = tuple(pod for pod in objects if group_of(pod) == self._group)
        facts = GroupFacts(
            self._handle.key.namespace,
            self._group,
            pods,
            None if workload is None else internal(workload),
        )
        group = PodGroup(facts) if pods else None
        obj = None if group is None else group.object
        missing = compose(pods).problem
        problem = unknown or ("" if missing is None else missing.message)
        return progress_of(group, obj, facts.own, now, problem), group is not None


@attrs.frozen
class _Choice:
    """Some objects of a namespace."""

    resource: Resource
    namespace: str
    labels: str
    fields: str

    def informer(self, client: Client) -> Informer:
        return Informer(
            client,
            self.resource,
            namespace=self.namespace,
            label_selector=self.labels,
            field_selector=self.fields,
        )

    async def listed(self, client: Client) -> tuple[Obj, ...]:
        pages = client.list_all(
            self.resource, self.namespace, label_selector=self.labels, field_selector=self.fields
        )
        return tuple([one async for one in pages])


SYNC_TIMEOUT = 30.0
"""Seconds within which the first answers must come."""
REFRESH = 10.0
"""Seconds after which place and expected start are read again."""


@contextlib.asynccontextmanager
async def _client(given: Client | None, kubeconfig: Kubeconfig) -> AsyncIterator[Client]:
    if given is not None:
        if is_configured(given):
            name = type(given).__name__
            raise ConfigError("client", f"is a {name}", "give what connect() returned for it")
        yield given
        return
    try:
        async with await connect(kubeconfig, field_manager="kueuelib-submit") as made:
            yield made
    finally:
        await asyncio.sleep(0.01)  # sockets under TLS close a moment after their session


async def _resource(client: Client, obj: Mapping[str, Any]) -> Resource:
    version, kind = obj["apiVersion"], obj["kind"]
    if (kind, version.partition("/")[0]) == (WORKLOADS.kind, KUEUE):
        return WORKLOADS.at(await queueing_version(client))
    resource = await client.find_resource(version, kind)
    if resource is None:
        raise ConfigError(f"{version} {kind}", "is not served by the cluster", "install its CRD")
    if not resource.namespaced:
        raise ConfigError(f"{version} {kind}", "is not a kind of jobs", "give one in a namespace")
    return resource


async def _watcher(
    client: Client,
    job: JobHandle | Mapping[str, Any] | GenericJob[Any] | Typed,
    integration: Integration | None,
) -> _Watcher:
    handle = job if isinstance(job, JobHandle) else await _handle(client, job)
    kind = integration or _integration(job, handle.resource)
    return _Watcher(client, handle, kind, await queueing_version(client))


async def _handle(client: Client, job: Mapping[str, Any] | GenericJob[Any] | Typed) -> JobHandle:
    raw = existing(job)
    resource = await _resource(client, raw)
    if not raw["metadata"].get("uid"):
        raw = await client.get(resource, key_of(raw))
    return JobHandle(resource, key_of(raw), raw["metadata"]["uid"], raw)


def _integration(job: object, resource: Resource) -> Integration | None:
    if isinstance(job, GenericJob):
        return Integration.of(type(job))
    for integration in builtin_registry().integrations:
        if integration.watches and integration.resource.group_kind == resource.group_kind:
            return integration
    return None
