"""Jobs and Workloads as YAML or JSON manifests, for example of `kueuelib apiserver dump`.

The annotation `kueuelib.dev/run-seconds` of the object or its pods is the run time. The arrival is
`kueuelib.dev/arrival-seconds`, or else `metadata.creationTimestamp`, or else 0. A Workload is used
as it is, with its quota. If one in the file has quota, the file is a snapshot: everything in it
arrives at the latest time in its objects, and running jobs have run since their admission. A Job
whose Workload is in the file is read from that Workload. All other objects are part of the cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import attrs
import orjson
import yaml

from kueuelib.api.codec import decode, encode
from kueuelib.api.core import PodTemplateSpec
from kueuelib.api.kueue import Workload
from kueuelib.api.meta import Obj, ObjectKey, annotations_of, controller_of, key_of, parse_time
from kueuelib.errors import ConfigError, InvalidJob, InvalidObject
from kueuelib.jobs.batch import BatchJob
from kueuelib.jobs.contract.topology import errors_of_pod_sets, ignored_requests
from kueuelib.jobs.reconcile.priority import PriorityClasses, PriorityClassNotFound, resolve
from kueuelib.simulator.cluster import key_in
from kueuelib.simulator.parsing import BadValue, Faults, moment, not_negative
from kueuelib.simulator.readers.source import TraceSource, whole_text
from kueuelib.simulator.trace import COMPLETED, FAILED, PodShape, TraceJob
from kueuelib.workload import states

RUN_SECONDS = "kueuelib.dev/run-seconds"
ARRIVAL_SECONDS = "kueuelib.dev/arrival-seconds"
CHECKPOINT_SECONDS = "kueuelib.dev/checkpoint-seconds"
EXIT_CODE = "kueuelib.dev/exit-code"
CONFIGURATION = "Configuration"
WORK = ("Job", "Workload")


def objects_in(path: Path, hint: str = "") -> list[Obj]:
    """All objects of a file, with lists unpacked; a manager's Configuration needs no name.

    Args:
        path: the file.
        hint: a further fix if it contains something else.

    Raises:
        ConfigError: the file cannot be read, or contains something that is not an object.
    """
    try:
        content = whole_text(path)
        documents = list(yaml.load_all(content, Loader=_ManifestLoader))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        problem = getattr(error, "problem", None) or str(error)
        raise ConfigError(where, f"malformed YAML: {problem}", "correct the file") from error
    objects = [obj for content in documents for obj in _flat(content)]
    for number, obj in enumerate(objects, 1):
        if isinstance(obj, dict) and obj.get("kind") == CONFIGURATION:
            continue
        meta = obj.get("metadata") if isinstance(obj, dict) else None
        if (
            not isinstance(meta, dict)
            or not isinstance(meta.get("name"), str)
            or not isinstance(obj.get("kind"), str)
        ):
            raise ConfigError(
                f"{path}, object {number}",
                "is not an object with kind and metadata.name",
                f"give Kubernetes manifests{hint}",
            )
    return objects


class _ManifestLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """YAML as Kubernetes reads it, with times as text."""

    yaml_implicit_resolvers: ClassVar = {
        first: [entry for entry in entries if entry[0] != "tag:yaml.org,2002:timestamp"]
        for first, entries in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def _flat(content: Any) -> Iterator[Any]:
    if isinstance(content, list):
        yield from content
    elif isinstance(content, dict) and str(content.get("kind", "")).endswith("List"):
        yield from content.get("items") or ()
    elif content is not None:
        yield content


def read_manifests(path: Path, faults: Faults, source: TraceSource) -> Iterator[TraceJob]:
    """The jobs of a file.

    Args:
        path: the file; its name may end in `.gz`.
        faults: receives the objects that are left out, by their number in the file.
        source: receives all other objects, and the names of the jobs.

    Raises:
        ConfigError: the file cannot be read, or an object with `--strict`.
    """
    objects = objects_in(path, ", or say --format synthetic or generator if it is one")
    classes = PriorityClasses(
        {obj["metadata"]["name"]: obj for obj in objects if obj["kind"] == "WorkloadPriorityClass"},
        {obj["metadata"]["name"]: obj for obj in objects if obj["kind"] == "PriorityClass"},
    )
    jobs = {key_in(obj): obj for obj in objects if obj["kind"] == "Job"}
    owners = {number: _owner(obj, jobs) for number, obj in enumerate(objects, 1)}
    known = {key_in(owner) for owner in owners.values() if owner is not None}
    source.objects += [obj for obj in objects if obj["kind"] not in WORK]
    collected = []
    for number, obj in enumerate(objects, 1):
        try:
            if obj["kind"] == "Workload":
                job = _of_workload(obj, owners[number], faults)
            elif obj["kind"] == "Job" and key_in(obj) not in known:
                job = _of_job(obj, classes)
            else:
                continue
            if job is not None:
                source.claim(job)
                for text in _ignored(obj, owners[number]):
                    source.ignored.setdefault(text, []).append(f"{obj['kind']} {key_in(obj)}")
        except BadValue as error:
            faults.refuse(path, number, error)
        else:
            collected += [] if job is None else [job]
    yield from _at_once(collected)


def _ignored(obj: Obj, owner: Obj | None) -> Iterator[str]:
    """Requests of an object or its job for a topology that have no effect."""
    job = obj if obj["kind"] == "Job" else owner
    if job is not None:
        template = (job.get("spec") or {}).get("template")
        return ignored_requests(job["metadata"], [("spec.template", template)])
    pod_sets = enumerate(obj["spec"]["podSets"])
    templates = ((f"spec.podSets[{number}].template", one["template"]) for number, one in pod_sets)
    return ignored_requests(obj["metadata"], templates)


def _at_once(jobs: list[TraceJob]) -> Iterator[TraceJob]:
    """Jobs of a snapshot, which all arrive at its time."""
    workloads = [orjson.loads(job.workload) if job.workload else {} for job in jobs]
    if not any(map(states.has_quota, workloads)):
        yield from jobs
        return
    changes = [
        parse_time(condition["lastTransitionTime"])
        for workload in workloads
        for condition in states.status_of(workload).get("conditions") or ()
    ]
    taken = max([*changes, *(job.arrival for job in jobs)])
    for job, workload in zip(jobs, workloads, strict=True):
        since = states.admitted_since(workload) if states.is_admitted(workload) else taken
        ran = min(taken - since, job.run_seconds)
        yield attrs.evolve(job, arrival=taken, ran_seconds=ran)


def _owner(obj: Obj, jobs: Mapping[ObjectKey, Obj]) -> Obj | None:
    """The Job in the same file that a Workload belongs to."""
    owner = controller_of(obj) if obj["kind"] == "Workload" else None
    if owner is None or owner.get("kind") != "Job":
        return None
    return jobs.get(key_in(obj)._replace(name=owner["name"]))


def _of_job(obj: Obj, classes: PriorityClasses) -> TraceJob:
    try:
        job = BatchJob(obj)
        sets = job.pod_sets()
        for pod_set in sets:
            decode(PodTemplateSpec, pod_set.template)
        if errors := [*errors_of_pod_sets((one.path, one.template, one.count) for one in sets)]:
            raise BadValue("", f"Job {key_of(obj)}: {'; '.join(map(str, errors))}")
        priority = resolve(job, sets, classes)
    except (InvalidJob, InvalidObject, PriorityClassNotFound) as error:
        raise BadValue("", f"Job {key_of(obj)}: {error}") from None
    shapes = tuple(_shape(each.raw()) for each in sets)
    return _job(obj, None, job.queue_name, shapes, priority.value)


def _of_workload(given: Obj, owner: Obj | None, faults: Faults) -> TraceJob | None:
    try:
        workload = decode(Workload, given)
    except InvalidObject as error:
        raise BadValue("", str(error)) from None
    obj = encode(workload)
    obj["metadata"]["namespace"] = key_in(given).namespace
    if states.is_finished(obj):
        faults.drop("finished Workload")
        return None
    if not workload.spec.active:
        faults.drop("inactive Workload")
        return None
    shapes = tuple(_shape(raw) for raw in obj["spec"]["podSets"])
    job = _job(obj, owner, workload.spec.queue_name, shapes, workload.spec.priority or 0)
    return attrs.evolve(job, workload=orjson.dumps(obj))


def _shape(pod_set: Mapping[str, Any]) -> PodShape:
    requests: dict[str, str] = {}
    containers = (pod_set["template"].get("spec") or {}).get("containers") or ()
    for container in containers:
        asked = (container.get("resources") or {}).get("requests") or {}
        requests |= {resource: str(amount) for resource, amount in asked.items()}
    raw = orjson.dumps(pod_set, option=orjson.OPT_SORT_KEYS)
    asked = tuple(sorted(requests.items()))
    return PodShape(pod_set["count"], asked, pod_set["name"], pod_set.get("minCount"), raw)


def _job(
    obj: Obj, owner: Obj | None, queue: str, shapes: tuple[PodShape, ...], priority: int
) -> TraceJob:
    key = key_in(obj)
    notes: dict[str, str] = {}
    for shape in shapes:
        notes |= annotations_of(shape.raw()["template"])
    notes |= {**annotations_of(owner or {}), **annotations_of(obj)}
    if RUN_SECONDS not in notes:
        raise BadValue(
            "metadata.annotations", f"{obj['kind']} {key} has no annotation {RUN_SECONDS}"
        )
    arrival = notes.get(ARRIVAL_SECONDS, obj["metadata"].get("creationTimestamp") or 0)
    every = notes.get(CHECKPOINT_SECONDS)
    return TraceJob(
        name=key.name,
        arrival=moment(arrival, "arrival"),
        run_seconds=not_negative(notes[RUN_SECONDS], RUN_SECONDS),
        pod_sets=shapes,
        queue=queue,
        namespace=key.namespace,
        priority=priority,
        end=FAILED if notes.get(EXIT_CODE, "0") != "0" else COMPLETED,
        checkpoint_seconds=not_negative(every, CHECKPOINT_SECONDS) or None if every else None,
    )
