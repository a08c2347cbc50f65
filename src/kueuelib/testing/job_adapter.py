"""The adapter that the author of a kind writes for the conformance suite, and its contract."""

from __future__ import annotations

import abc
import copy
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, ParamSpec

from kueuelib.api.kinds import WORKLOADS
from kueuelib.api.meta import Obj, labels_of
from kueuelib.api.names import QUEUE_LABEL
from kueuelib.errors import ConfigError, InvalidJob
from kueuelib.jobs.contract.generic_job import GenericJob, JobEnd, PodSet
from kueuelib.jobs.contract.integration import Integration
from kueuelib.jobs.contract.paths import values
from kueuelib.jobs.contract.podset_info import PodSetInfo
from kueuelib.jobs.declared.crd_mismatches import mismatches, reads_of_sign
from kueuelib.jobs.declared.declarative import DeclaredJob
from kueuelib.jobs.declared.signs import Sign
from kueuelib.runtime.yaml_files import documents, read_text
from kueuelib.testing.job_world import NAMESPACE, QUEUE, JobWorld, unshared

P = ParamSpec("P")


class JobAdapter(abc.ABC):
    """Plays the controller of a kind; every method returns a new object and changes no argument."""

    integration: ClassVar[Integration]
    """The kind."""
    crd: ClassVar[str | Path | Obj | None] = None
    """Its CRD: a file, next to that of the adapter if the path is relative, or the raw object.
    Every path and value of a declared kind must fit its schema; None: not checked.
    """

    @abc.abstractmethod
    def make(self) -> Obj:
        """A job as a user creates it: not suspended, without labels, with two pods or more."""

    @abc.abstractmethod
    def running(self, obj: Obj) -> Obj:
        """The unsuspended job once all its pods are ready."""

    @abc.abstractmethod
    def stopped(self, obj: Obj) -> Obj:
        """The suspended job once its last pod is gone."""

    @abc.abstractmethod
    def succeeded(self, obj: Obj) -> Obj:
        """The job after its success; like `running` if its kind never ends."""

    @abc.abstractmethod
    def failed(self, obj: Obj) -> Obj:
        """The job after its failure; like `running` if its kind never ends."""

    @abc.abstractmethod
    def changed(self, obj: Obj) -> Obj:
        """The job after a change by its user that asks for other pods."""

    def edited(self, obj: Obj, selector: Mapping[str, str]) -> Obj:
        """The job after its user added node selectors to its pod templates.

        By default it changes every part of the spec that looks like a pod template.

        Args:
            obj: the job.
            selector: the labels of nodes.
        """
        job = copy.deepcopy(obj)
        for spec in pod_specs(job["spec"]):
            spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), **selector}
        return job


def pod_specs(part: Any) -> Iterator[Obj]:
    """The specs of all pod templates in a part of an object."""
    if isinstance(part, dict):
        spec = part.get("spec")
        if isinstance(spec, dict) and isinstance(spec.get("containers"), list):
            yield spec
        for value in part.values():
            yield from pod_specs(value)
    elif isinstance(part, list):
        for value in part:
            yield from pod_specs(value)


def check_adapter(adapter: Any) -> None:
    """Check the contract of an adapter.

    Raises:
        ConfigError: it is broken; the error names the member and the fix.
    """
    name = adapter.__name__ if isinstance(adapter, type) else type(adapter).__name__
    if not isinstance(adapter, JobAdapter):
        fix = f"write adapter = {name}()" if isinstance(adapter, type) else "inherit JobAdapter"
        raise ConfigError(f"adapter {name}", "is not an instance of JobAdapter", fix)
    integration = getattr(adapter, "integration", None)
    if not isinstance(integration, Integration):
        kind = getattr(integration, "__name__", type(integration).__name__)
        raise ConfigError(
            f"{name}.integration",
            f"{kind} is not an Integration",
            f"write Integration.of({kind}), or use what declare() returned",
        )
    _check_crd(adapter, name)
    given = _returned(name, "make", adapter.make())
    given["metadata"] = {"namespace": NAMESPACE, "uid": "uid", **given["metadata"]}
    job = integration.job_type(copy.deepcopy(given))
    _check_pod_sets(f"{integration.resource.kind}.pod_sets()", name, job)
    job.suspend()
    running: Obj = {}
    started = job.copy()
    started.run_with_podsets_info([PodSetInfo(e.name, e.count) for e in started.pod_sets()])
    for method in ("running", "stopped", "succeeded", "failed", "changed"):
        given = job.raw if method in ("stopped", "changed") else started.raw
        argument = {"status": {}, **copy.deepcopy(given)}
        before = copy.deepcopy(argument)
        played = _returned(name, method, getattr(adapter, method)(argument))
        if argument != before:
            raise ConfigError(
                f"{name}.{method}",
                "changes its argument",
                "return a changed copy: copy.deepcopy(obj)",
            )
        if played != running:  # a kind that never ends has nothing else to play
            _check_answers(integration, name, method, played)
        running = played if method == "running" else running


def _check_crd(adapter: JobAdapter, name: str) -> None:
    if adapter.crd is None:
        return
    integration = adapter.integration
    wanted = f"{integration.resource.plural}.{integration.resource.group}"
    where = f"{name}.crd"
    if isinstance(adapter.crd, dict):
        given = [adapter.crd]
    else:
        file = Path(inspect.getfile(type(adapter))).parent / adapter.crd
        where = str(file)
        given = documents(read_text(file, "give the path of the CRD's file"), where)
    crd = next((obj for obj in given if _name_in(obj) == wanted), None)
    if crd is None:
        raise ConfigError(where, f"has no CRD {wanted}", "give the file with the CRD of the kind")
    if unfit := mismatches(integration, crd):
        problem = f"{integration.resource.kind}: {'; '.join(map(str, unfit))}"
        raise ConfigError(where, problem, "correct the declaration, or the CRD")


def _name_in(obj: Any) -> Any:
    meta = obj.get("metadata") if isinstance(obj, dict) else None
    return meta.get("name") if isinstance(meta, dict) else None


def _check_pod_sets(subject: str, adapter: str, job: GenericJob) -> None:
    try:
        pod_sets: Any = job.pod_sets()
    except InvalidJob as error:
        fix = f"correct the path of the template, or what {adapter}.make() returns"
        raise ConfigError(subject, f"{error}, in what {adapter}.make() returns", fix) from error
    if not isinstance(pod_sets, list | tuple) or not all(isinstance(e, PodSet) for e in pod_sets):
        returned = type(pod_sets).__name__
        raise ConfigError(subject, f"returned {returned}", "return a list of PodSet(...)")
    if not pod_sets:
        fix = "correct the path of the template, or make() a job with one"
        raise ConfigError(subject, f"finds no pods in what {adapter}.make() returns", fix)


def _check_answers(integration: Integration, adapter: str, method: str, obj: Obj) -> None:
    """Check what the job says about an object in a known state, for example a running one."""
    job, kind = integration.job_type(copy.deepcopy(obj)), integration.resource.kind
    wanted: tuple[tuple[str, Callable[[], Any], bool], ...] = ()
    if method == "running":
        wanted = (("is_active", job.is_active, True), ("pods_ready", job.pods_ready, True))
    if method == "stopped":
        wanted = (("is_active", job.is_active, False),)
    if method in ("succeeded", "failed"):
        wanted = (("finished", job.finished, True),)
    for question, ask, holds in wanted:
        answer: Any = ask()
        if bool(answer) is not holds:
            problem = f"returns {answer!r} for what {adapter}.{method}() returns"
            at_fault = question
            if getattr(type(job), question) is getattr(DeclaredJob, question, None):
                at_fault = _ARGUMENTS.get(question, method)
                sign = getattr(integration.job_type.declaration, at_fault)  # type: ignore[attr-defined]
                if read := _fields_read(obj, sign):
                    at_fault += f"={sign!r}"
                    problem += f", where {read}"
            fix = f"correct {at_fault}, or {adapter}.{method}()"
            raise ConfigError(f"{kind}.{question}()", problem, fix)
        if question != "finished":
            continue
        if not isinstance(answer, JobEnd):
            problem = f"returned {type(answer).__name__}"
            raise ConfigError(f"{kind}.finished()", problem, "return JobEnd(...) or None")
        if answer.succeeded is not (method == "succeeded"):
            problem = f"says succeeded={answer.succeeded} for what {adapter}.{method}() returns"
            fix = "correct the signs succeeded and failed, or the adapter"
            raise ConfigError(f"{kind}.finished()", problem, fix)


_ARGUMENTS = {"is_active": "active", "pods_ready": "ready"}
"""The argument of `declare` that answers a question; the end has one for each method."""


def _fields_read(obj: Obj, sign: Sign | Sequence[Sign]) -> str:
    """The fields that a sign reads, with their values in the object; empty for a function."""
    paths = dict.fromkeys(path for path, _ in reads_of_sign(sign))
    return ", ".join(
        f"{path} is {' and '.join(map(repr, values(obj, path))) or 'absent'}" for path in paths
    )


def _returned(adapter: str, method: str, value: Any) -> Obj:
    if not isinstance(value, dict) or not isinstance(value.get("metadata"), dict):
        kind = "an object without metadata" if isinstance(value, dict) else type(value).__name__
        raise ConfigError(
            f"{adapter}.{method}()", f"returned {kind}", "return the whole raw object"
        )
    try:
        return unshared(value)
    except TypeError as error:
        fix = "return texts, numbers, lists and mappings only"
        raise ConfigError(f"{adapter}.{method}()", f"is not JSON: {error}", fix) from error


def about(*methods: str) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """The decorator of a case: if it fails, the report names these methods of the job."""

    def decorate(case: Callable[P, None]) -> Callable[P, None]:
        @functools.wraps(case)
        def named(*args: P.args, **kwargs: P.kwargs) -> None:
            __tracebackhide__ = True
            try:
                case(*args, **kwargs)
            except Exception as error:
                (cases, *_) = args
                assert isinstance(cases, AdaptedJobs)
                job = cases.adapter.integration.job_type.__name__
                error.add_note(f"look at {' and '.join(f'{job}.{name}()' for name in methods)}")
                raise

        return named

    return decorate


class AdaptedJobs:
    """The base of the cases: jobs of one adapter, and their world."""

    adapter: ClassVar[JobAdapter]

    def __init_subclass__(cls, **more: Any) -> None:
        """Refuse an adapter that breaks its contract, with one error."""
        super().__init_subclass__(**more)
        if "adapter" in vars(cls):
            check_adapter(cls.adapter)

    @property
    def _integration(self) -> Integration:
        return self.adapter.integration

    def _job(self, obj: Obj) -> GenericJob:
        return self._integration.job_type(obj)

    def _counts(self, obj: Obj) -> list[tuple[str, int]]:
        return [(entry.name, entry.count) for entry in self._job(obj).pod_sets()]

    def _new(self) -> Obj:
        obj = unshared(self.adapter.make())
        obj["metadata"] = {"namespace": NAMESPACE, "uid": "uid", **obj["metadata"]}
        return obj

    def _queued(self) -> Obj:
        obj = self._new()
        obj["metadata"]["labels"] = {**labels_of(obj), QUEUE_LABEL: QUEUE}
        return obj

    def _suspended(self) -> Obj:
        obj = self._new()
        self._job(obj).suspend()
        return obj

    def _started(self) -> Obj:
        job = self._job(self._suspended())
        job.run_with_podsets_info([PodSetInfo(e.name, e.count) for e in job.pod_sets()])
        return job.raw

    def _infos(self, job: GenericJob) -> list[PodSetInfo]:
        toleration = {"key": "conformance", "operator": "Exists"}
        return [
            PodSetInfo(
                entry.name,
                entry.count,
                annotations={"pod-set": entry.name},
                labels={"pod-set": entry.name},
                node_selector={"pod-set": entry.name},
                tolerations=(toleration,),
                scheduling_gates=("example.com/conformance",),
            )
            for entry in job.pod_sets()
        ]

    def _world(self, obj: Obj, *, one_at_a_time: bool = False) -> JobWorld:
        return JobWorld(self._integration, obj, one_at_a_time=one_at_a_time)

    def _waiting(self, *, one_at_a_time: bool = False) -> JobWorld:
        obj = self._queued()
        self._job(obj).suspend()
        world = self._world(obj, one_at_a_time=one_at_a_time)
        world.settle()
        return world

    def _assert_restored(self, world: JobWorld) -> None:
        """Assert that the templates are as they were before the start."""
        before = self._job(self._suspended()).pod_sets()
        for entry, wanted in zip(self._job(world.live_job).pod_sets(), before, strict=True):
            assert placed_parts(entry.template) == placed_parts(wanted.template)

    def _assert_starts_elsewhere(self, world: JobWorld) -> None:
        """Assert that the stopped job is restored, and runs where it is admitted next."""
        assert world.is_suspended()
        assert not world.holds_quota()
        self._assert_restored(world)
        world.admit("reserved")
        world.settle()
        assert not world.is_suspended()
        self._assert_placed(world, "reserved")

    def _assert_placed(self, world: JobWorld, pool: str) -> None:
        """Assert that every template selects the nodes of that flavor."""
        for entry in self._job(world.live_job).pod_sets():
            assert entry.template["spec"]["nodeSelector"]["pool"] == pool

    def _running(self, *, one_at_a_time: bool = False) -> JobWorld:
        world = self._waiting(one_at_a_time=one_at_a_time)
        world.admit("spot")
        world.settle()
        world.change(self.adapter.running(world.live_job))
        world.settle()
        assert not world.is_suspended(), (
            "after its start the job is suspended again: either run_with_podsets_info() does not "
            "unsuspend it, or its pod_sets() are not what was admitted"
        )
        assert world.workload["kind"] == WORKLOADS.kind
        return world


def placed_parts(template: Obj) -> tuple[Any, ...]:
    """The parts of a template that a start changes; absent ones as empty."""
    meta, spec = template.get("metadata") or {}, template.get("spec") or {}
    return (
        meta.get("labels") or {},
        meta.get("annotations") or {},
        spec.get("nodeSelector") or {},
        spec.get("tolerations") or [],
        spec.get("schedulingGates") or [],
    )
