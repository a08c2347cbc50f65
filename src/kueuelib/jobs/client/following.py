"""Submits a job, watches it and waits for it, in any cluster with either manager.

    handle = await kueuelib.submit(job, queue="team")
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
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any

import anyio
import attrs
import orjson

from kueuelib.api.forms import Typed, raw_of
from kueuelib.api.kinds import PODS, WORKLOADS
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
from kueuelib.errors import ConfigError, KueuelibError
from kueuelib.jobs.catalog.builtin import builtin_registry
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
from kueuelib.runtime.connection import connect
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
    """A copy of an existing job.

    Raises:
        ConfigError: it is ambiguous.
    """
    obj = placed(job, "")
    if not obj["metadata"].get("name"):
        raise ConfigError(
            "metadata.name", "is missing", "name the job, or give what submit returned"
        )
    return obj


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
    """The job was deleted before it reached the awaited state."""


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
    kubeconfig: str | None = None,
) -> JobHandle:
    """Creates a job in a queue.

    Args:
        job: an object in any form, or a `GenericJob`; it is not changed.
        queue: the LocalQueue, in the job's namespace.
        namespace: used if the job does not name one; `default` without either.
        priority_class: a WorkloadPriorityClass; empty for none.
        client: for the API server; without one, a client is made.
        kubeconfig: for the client that is made.

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


async def watch(
    job: JobHandle | Mapping[str, Any] | GenericJob[Any] | Typed,
    *,
    integration: Integration | None = None,
    client: Client | None = None,
    kubeconfig: str | None = None,
) -> AsyncGenerator[Progress, None]:
    """Yields the progress of a job, now and after each change, until its end.

    Args:
        job: the result of `submit`, an object in any form, or a `GenericJob`. Without a namespace
            it is in `default`; without a UID, the job of that name is meant.
        integration: of a kind that does not come with kueuelib; without it, such a job counts as
            running once it is admitted and not suspended.
        client: for the API server; without one, a client is made.
        kubeconfig: for the client that is made.

    Raises:
        JobGone: the job was deleted.
        NotFound: there is no job of that name.
        ConfigError: there is no usable kubeconfig, the server does not serve the kinds, or the job
            is ambiguous.
    """
    async with _client(client, kubeconfig) as used:
        handle = job if isinstance(job, JobHandle) else await _handle(used, job)
        watcher = _Watcher(used, handle, integration or _integration(job, handle.resource))
        last: Progress | None = None
        async with contextlib.aclosing(watcher.moments(await queueing_version(used))) as moments:
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
    kubeconfig: str | None = None,
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
    """The job and its Workloads, as seen by two small watches."""

    def __init__(self, client: Client, handle: JobHandle, integration: Integration | None) -> None:
        self._client = client
        self._handle = handle
        self._integration = integration
        is_pod = handle.resource.group_kind == PODS.group_kind
        self._group = group_of(handle.object) if is_pod else ""
        named = labels_of(handle.object).get(GROUP_LABEL) == self._group
        self._selector = f"{GROUP_LABEL}={self._group}" if self._group and named else ""
        self._changed = asyncio.Event()

    async def moments(self, version: str) -> AsyncGenerator[Progress, None]:
        """The present state, and again after every change; consecutive ones may be equal."""
        key = self._handle.key
        group = self._group
        jobs = Informer(
            self._client,
            self._handle.resource,
            namespace=key.namespace,
            label_selector=self._selector,
            field_selector="" if group else f"metadata.name={key.name}",
        )
        workloads = Informer(
            self._client,
            WORKLOADS.at(version),
            namespace=key.namespace,
            label_selector="" if group else f"{JOB_UID_LABEL}={self._handle.uid}",
            field_selector=f"metadata.name={group}" if group else "",
        )
        # Not in a task group, which must not be open while a generator gives something away.
        tasks = []
        for informer in (jobs, workloads):
            informer.add_handler(lambda _: self._changed.set())
            tasks.append(asyncio.create_task(informer.run()))
        try:
            for informer in (jobs, workloads):
                await informer.wait_synced(SYNC_TIMEOUT)
            while True:
                self._changed.clear()
                yield (self._group_now if self._group else self._now)(jobs, workloads)
                await self._changed.wait()
        finally:
            for task in tasks:
                task.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.gather(*tasks, return_exceptions=True)

    def _now(self, jobs: Informer, workloads: Informer) -> Progress:
        obj = jobs.store.get(self._handle.key)
        if obj is not None and obj["metadata"]["uid"] != self._handle.uid:
            obj = None
        in_order = by_age(workloads.store.items())
        workload = in_order[-1] if in_order else None
        kind = self._integration
        job = None if kind is None or obj is None else kind.job_type(obj)
        progress = progress_of(job, obj, workload)
        if obj is None and not progress.state.is_end:
            raise JobGone(f"{self._handle.resource.kind} {self._handle.key} is deleted")
        return progress

    def _group_now(self, jobs: Informer, workloads: Informer) -> Progress:
        workload = next(iter(workloads.store.items()), None)
        pods = tuple(pod for pod in jobs.store.items() if group_of(pod) == self._group)
        facts = GroupFacts(
            self._handle.key.namespace,
            self._group,
            pods,
            None if workload is None else internal(workload),
        )
        group = PodGroup(facts) if pods else None
        problem = compose(pods).problem
        progress = progress_of(
            group,
            None if group is None else group.object,
            facts.own,
            "" if problem is None else problem.message,
        )
        if group is None and not progress.state.is_end:
            raise JobGone(f"all pods of the group {self._group} are deleted")
        return progress


SYNC_TIMEOUT = 30.0
"""Seconds within which the first answers must come."""


@contextlib.asynccontextmanager
async def _client(given: Client | None, kubeconfig: str | None) -> AsyncIterator[Client]:
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
    resource = await client.find_resource(version, kind)
    if resource is None:
        raise ConfigError(f"{version} {kind}", "is not served by the cluster", "install its CRD")
    if not resource.namespaced:
        raise ConfigError(f"{version} {kind}", "is not a kind of jobs", "give one in a namespace")
    return resource


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
