"""Finds the Workload of a question: of a Job, a Pod or a group, in a cluster or a manifest."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import attrs

from kueuelib.api import batch, core, kueue
from kueuelib.api.codec import decode
from kueuelib.api.kinds import CRON_JOBS, JOBS, PODS, WORKLOADS
from kueuelib.api.meta import Obj, ObjectKey, Resource, controller_of, format_time, key_of
from kueuelib.api.names import PREBUILT_LABEL, workload_name
from kueuelib.api.quantity import Quantity
from kueuelib.api.validation import default_workload, validate_workload
from kueuelib.api.validation.fields import NOT_NEGATIVE, each, invalid
from kueuelib.api.workload_state import is_finished
from kueuelib.app.explaining.gather import ObjectNotFound
from kueuelib.errors import ConfigError, FieldError, InvalidObject, KueuelibError
from kueuelib.jobs.batch import BatchJob
from kueuelib.jobs.contract.field_rules import identifier
from kueuelib.jobs.contract.generic_job import GenericJob
from kueuelib.jobs.contract.topology import (
    asking_annotations,
    errors_of_pod_sets,
    topology_errors,
)
from kueuelib.jobs.lookups.stores import job_uids, owner_uids
from kueuelib.jobs.pods.compose import CompositionProblem, compose
from kueuelib.jobs.pods.facts import stands_for_group
from kueuelib.jobs.pods.reading import PodStage, group_of, queue_of, stage_of
from kueuelib.jobs.pods.single import PodJob
from kueuelib.jobs.reconcile.matching import by_age, controlled_by
from kueuelib.jobs.reconcile.priority import PriorityClasses, resolve
from kueuelib.jobs.reconcile.workload_build import build_workload
from kueuelib.runtime.yaml_files import documents
from kueuelib.scheduler.explain.problems import Problem

# ---- negative amounts in manifests, which no server accepts in a pod -----------------------------

_NOTHING = Quantity.parse(0)


def negative_amounts(pod: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """Negative requests, limits and overhead.

    Args:
        pod: the raw spec of a pod, with quantities that can be read.
        path: where it is, for example `spec.template.spec`.
    """
    for field in ("containers", "initContainers"):
        for place, container in each(pod, field, path):
            yield from _of_resources(container.get("resources"), f"{place}.resources")
    yield from _of_resources(pod.get("resources"), f"{path}.resources")
    yield from _of_amounts(pod.get("overhead"), f"{path}.overhead")


def negative_counts(parent: Mapping[str, Any], path: str, *names: str) -> Iterator[FieldError]:
    """Negative numbers of pods.

    Args:
        parent: the object with the fields.
        path: its own path.
        names: the fields.
    """
    for name in names:
        value = parent.get(name)
        if value is not None and value < 0:
            yield invalid(f"{path}.{name}", value, NOT_NEGATIVE)


def _of_resources(resources: Obj | None, path: str) -> Iterator[FieldError]:
    for field in ("limits", "requests"):
        yield from _of_amounts((resources or {}).get(field), f"{path}.{field}")


def _of_amounts(amounts: Obj | None, path: str) -> Iterator[FieldError]:
    for name, value in (amounts or {}).items():
        if Quantity.parse(value) < _NOTHING:
            yield invalid(f"{path}[{name}]", value, NOT_NEGATIVE)


# --------------------------------------------------------------------------------------------------

_KINDS: Mapping[str, Resource] = {
    **dict.fromkeys(("job", "jobs", "job.batch", "jobs.batch"), JOBS),
    **dict.fromkeys(
        ("cronjob", "cronjobs", "cj", "cronjob.batch", "cronjobs.batch"),
        CRON_JOBS,
    ),
    **dict.fromkeys(("pod", "pods", "po"), PODS),
    **dict.fromkeys(
        ("workload", "workloads", "wl", "workload.kueue.x-k8s.io", "workloads.kueue.x-k8s.io"),
        WORKLOADS,
    ),
}
_NOT_SUBMITTED = "not-submitted"


@attrs.frozen
class SubjectReference:
    """The object of a question.

    Attributes:
        resource: Jobs, CronJobs, Pods or Workloads; None for any other kind, which is found by its
            Workload.
        name: the object.
        kind: the kind as the user wrote it, if there is no resource.
    """

    resource: Resource | None
    name: str
    kind: str = ""

    @property
    def title(self) -> str:
        """The object, as kind and name."""
        return f"{self.kind if self.resource is None else self.resource.kind} {self.name}"


def parse_reference(text: str) -> SubjectReference:
    """`KIND/NAME` as kubectl writes it.

    Raises:
        ConfigError: another form.
    """
    kind, slash, name = text.partition("/")
    if not slash or not kind or not name or "/" in name:
        raise ConfigError(text, "is not KIND/NAME", "write for example job/train")
    resource = _KINDS.get(kind.lower())
    return SubjectReference(resource, name, kind if resource is None else "")


def owned_workload(reference: SubjectReference, namespace: str, workloads: Sequence[Obj]) -> Obj:
    """The raw Workload of an object whose kind is not known here.

    Raises:
        ObjectNotFound: there is none.
    """
    workload = workload_owned_by(reference, namespace, workloads)
    if workload is None:
        raise ObjectNotFound(
            f"no Workload in namespace {namespace} belongs to {reference.title}; a kind other than "
            "Job and Pod can be explained once a manager has made a Workload for it"
        )
    return workload


def workload_owned_by(
    reference: SubjectReference, namespace: str, workloads: Sequence[Obj]
) -> Obj | None:
    """The raw Workload of an object of any kind, by its owner reference; None if there is none.

    Among several, the newest unfinished one is meant.
    """
    owned = list(
        by_age(
            wl
            for wl in workloads
            if wl["metadata"].get("namespace") == namespace
            and any(
                ref["name"] == reference.name and _is_called(ref, reference.kind.lower())
                for ref in wl["metadata"].get("ownerReferences") or ()
            )
        )
    )
    live = [wl for wl in owned if not is_finished(wl)]
    return next(reversed(live or owned), None)


def _is_called(ref: Mapping[str, Any], kind: str) -> bool:
    """Whether an owner has a kind, in the spellings of kubectl: singular, plural, with group."""
    own = str(ref["kind"]).lower()
    group = str(ref["apiVersion"]).rpartition("/")[0]
    return kind in {f"{name}{tail}" for name in (own, f"{own}s") for tail in ("", f".{group}")}


def _is_made_for(workload: Obj, uid: str) -> bool:
    """Whether a raw Workload is that of the object with this UID, or of the group of this pod."""
    in_group = stands_for_group(workload) and uid in owner_uids(workload)
    return in_group or controlled_by(workload, uid) or _has_lost(workload, uid)


def _has_lost(workload: Obj, uid: str) -> bool:
    """Whether a raw Workload was made for the object with this UID, and refers to it no longer."""
    return uid in job_uids(workload) and uid not in owner_uids(workload)


def name_problem(obj: Obj, kind: Resource, workload: Obj | None) -> Problem | None:
    """How a Workload keeps an object from getting its own, whose name it has; None if it does not.

    Args:
        obj: the raw object, which has no Workload and is not in a group.
        kind: its kind.
        workload: the raw Workload with the name of `own_workload_key`, if there is one.
    """
    if workload is None:
        return None
    (namespace, name), owner = key_of(workload), controller_of(workload)
    whose = "has no owner" if owner is None else f"belongs to {owner['kind']} {owner['name']}"
    text = f"its Workload would be {name}, and there is one of this name that {whose}"
    fix = f"kubectl delete -n {namespace} workload {name}  # if nothing needs it"
    return Problem(f"{kind.kind} {obj['metadata']['name']}", text, fix)


def own_workload_key(obj: Obj, kind: Resource) -> ObjectKey:
    """The key of the Workload that is made for an object that is not in a group."""
    (namespace, name), uid = key_of(obj), obj["metadata"]["uid"]
    return ObjectKey(namespace, workload_name(kind.kind, kind.group, name, uid))


def workload_of(obj: Obj, workloads: Sequence[Obj]) -> Obj | None:
    """The raw Workload that stands for a Job or Pod; None when there is none.

    Among several, the newest unfinished one counts.
    """
    uid, meta = obj["metadata"]["uid"], obj["metadata"]
    prebuilt = identifier(obj, PREBUILT_LABEL)
    owned = by_age(
        wl
        for wl in workloads
        if wl["metadata"].get("namespace") == meta.get("namespace")
        and (_is_made_for(wl, uid) or (prebuilt and wl["metadata"]["name"] == prebuilt))
    )
    live = [wl for wl in owned if not is_finished(wl)]
    return next(reversed(live or list(owned)), None)


def owning_job(pod: Obj) -> str:
    """The Job that controls a pod, empty for none."""
    owner = controller_of(pod)
    if owner is None or owner.get("kind") != JOBS.kind:
        return ""
    return str(owner["name"]) if str(owner.get("apiVersion", "")).startswith("batch/") else ""


def would_be(obj: Obj, classes: PriorityClasses, subject: str, now: float) -> kueue.Workload:
    """The Workload that a Job or Pod would get if it were submitted; a Workload is its own.

    Args:
        obj: the raw object, of the cluster or of a manifest; not changed.
        classes: the priority classes.
        subject: what to call it in errors.
        now: when it would be created, seconds since the epoch.

    Raises:
        ConfigError: the object is not valid, or of a kind that cannot be explained.
    """
    meta = {
        "uid": _NOT_SUBMITTED,
        "creationTimestamp": format_time(now),
        **(obj.get("metadata") or {}),
    }
    obj = {**obj, "metadata": meta}
    kind, group = str(obj.get("kind")), str(obj.get("apiVersion", "")).rpartition("/")[0]
    try:
        if (group, kind) == (WORKLOADS.group, WORKLOADS.kind):
            raw = default_workload({key: value for key, value in obj.items() if key != "status"})
            _refuse(kind, meta["name"], validate_workload(raw))
            if not (raw.get("spec") or {}).get("podSets"):
                raise ConfigError(subject, "spec.podSets is missing", "name at least one pod set")
            workload = _created(raw, meta)
            for place, pod_set in each(raw["spec"], "podSets", "spec"):
                _check_numbers(negative_counts(pod_set, place, "count"), subject)
                pod = pod_set["template"].get("spec") or {}
                _check_numbers(negative_amounts(pod, f"{place}.template.spec"), subject)
            return workload
        if (group, kind) == (JOBS.group, JOBS.kind):
            decode(batch.Job, obj)
            _check_template(obj, subject, "spec.template.spec")
            counts = negative_counts(obj["spec"], "spec", "parallelism", "completions")
            _check_numbers(counts, subject)
            job = BatchJob(obj)
            parts = [(one.path, one.template, one.count) for one in job.pod_sets()]
            _refuse(kind, meta["name"], [*errors_of_pod_sets(parts)])
            return _from(job, classes, subject)
        if (group, kind) == (PODS.group, PODS.kind):
            decode(core.Pod, obj)
            _check_template(obj, subject, "spec")
            if group_of(obj):
                raise ConfigError(
                    subject,
                    "is one pod of a group, which gets a Workload as a whole",
                    "submit the group, and ask about one of its pods",
                )
            wrong = topology_errors("metadata.annotations", asking_annotations(obj))
            _refuse(kind, meta["name"], [*wrong])
            return _from(PodJob(obj), classes, subject)
    except InvalidObject as error:
        broken = error.errors[0] if error.errors else error
        raise ConfigError(subject, str(broken), "correct the field") from error
    raise unexplained(obj, subject)


def unexplained(obj: Obj, subject: str) -> ConfigError:
    """The error for an object of a kind that cannot be explained."""
    kind = f"{obj.get('kind')} ({obj.get('apiVersion')})"
    problem = f"objects of kind {kind} cannot be explained"
    return ConfigError(subject, problem, "give Jobs, Pods or Workloads")


def _refuse(kind: str, name: str, errors: Sequence[FieldError]) -> None:
    if errors:
        raise InvalidObject(kind, name, errors)


def _check_template(obj: Obj, subject: str, path: str) -> None:
    template: Any = obj
    for part in path.split("."):
        template = template.get(part) if isinstance(template, dict) else None
    if not isinstance(template, dict) or not template.get("containers"):
        raise ConfigError(subject, f"{path}.containers is missing", "name at least one container")
    _check_numbers(negative_amounts(template, path), subject)


def _check_numbers(errors: Iterator[FieldError], subject: str) -> None:
    broken = next(errors, None)
    if broken is not None:
        raise ConfigError(subject, str(broken), "give 0 or more there, or leave it out")


def _from(job: GenericJob, classes: PriorityClasses, subject: str) -> kueue.Workload:
    pod_sets = job.pod_sets()
    try:
        priority = resolve(job, pod_sets, classes)
    except KueuelibError as error:
        raise ConfigError(subject, str(error), "create the class or name another one") from error
    raw = build_workload(job, pod_sets, priority)
    return _created(default_workload(raw), job.raw["metadata"])


def _created(raw: Obj, meta: Mapping[str, Any]) -> kueue.Workload:
    times = {"uid": meta["uid"], "creationTimestamp": meta["creationTimestamp"]}
    return decode(kueue.Workload, {**raw, "metadata": {**raw["metadata"], **times}})


def group_problem(pod: Obj, pods: Sequence[Obj]) -> CompositionProblem | None:
    """Why the group of a pod has no Workload; None when nothing is wrong with it.

    Args:
        pod: the pod that was asked about.
        pods: all pods of its namespace.
    """
    group = group_of(pod)
    return compose([one for one in pods if group_of(one) == group]).problem if group else None


# ---- reads the manifests that `kueuelib explain -f` asks about -----------------------------------

_ASKED_KINDS = {one.kind for one in (JOBS, PODS, WORKLOADS)}


@attrs.frozen
class Document:
    """One object of a manifest.

    Attributes:
        obj: the raw object, with a namespace and a name.
        subject: what to call it in errors: file, number of the document, kind and name.
        title: its kind and name.
    """

    obj: Obj
    subject: str
    title: str


def parse_manifests(text: str, source: str, namespace: str, default: str) -> tuple[Document, ...]:
    """All objects of a text, with `List`s unpacked.

    Args:
        text: YAML or JSON, with any number of documents.
        source: what to call it in errors.
        namespace: the namespace that was asked for, empty for none.
        default: the namespace of objects that name none.

    Raises:
        ConfigError: malformed or empty YAML, a document that is not an object, or another namespace
            than requested.
    """
    contents = documents(text, source)
    parsed = []
    for number, content in enumerate(contents, start=1):
        if content is None:
            continue
        subject = source if len(contents) == 1 else f"{source}, document {number}"
        parsed += [
            _document(obj, subject, namespace, default) for obj in _objects(content, subject)
        ]
    if not parsed:
        raise ConfigError(source, "holds no object", "give a manifest of a Job, Pod or Workload")
    return tuple(parsed)


def _objects(content: Any, subject: str) -> list[Any]:
    if isinstance(content, dict) and content.get("kind") == "List":
        return list(content.get("items") or ())
    if not isinstance(content, dict):
        raise ConfigError(subject, "is not a mapping", "give a manifest with apiVersion and kind")
    return [content]


def _document(obj: Any, subject: str, namespace: str, default: str) -> Document:
    if not isinstance(obj, dict):
        raise ConfigError(subject, "holds an item that is not a mapping", "correct the list")
    for field in ("apiVersion", "kind"):
        if not isinstance(obj.get(field), str):
            raise ConfigError(subject, f"{field} is missing", "name it as in any manifest")
    meta = obj.get("metadata")
    meta = dict(meta) if isinstance(meta, dict) else {}
    name = meta.get("name") or (f"{meta['generateName']}new" if meta.get("generateName") else "")
    if not isinstance(name, str) or not name:
        if obj["kind"] not in _ASKED_KINDS:
            raise unexplained(obj, subject)
        raise ConfigError(f"{subject}, {obj['kind']}", "metadata.name is missing", "give it a name")
    title = f"{obj['kind']} {name}"
    own_namespace = meta.get("namespace")
    if own_namespace and namespace and own_namespace != namespace:
        raise ConfigError(
            f"{subject}, {title}",
            f"metadata.namespace is {own_namespace}, but {namespace} was asked for",
            "leave one of them out",
        )
    meta |= {"name": name, "namespace": own_namespace or namespace or default}
    return Document({**obj, "metadata": meta}, f"{subject}, {title}", title)


# ---- groups of pods that have no Workload because pods of them are missing -----------------------


def incomplete_groups(
    pods: Sequence[Obj], made: Collection[ObjectKey]
) -> Iterator[tuple[kueue.Workload, str]]:
    """The groups that wait for pods, each as the Workload that it would get, without pod sets; and
    what is wrong with it.

    Args:
        pods: those that have a queue.
        made: the Workloads that exist.
    """
    groups: dict[ObjectKey, list[Obj]] = {}
    for pod in pods:
        if group_of(pod) and stage_of(pod) is PodStage.GATED:
            key = ObjectKey(pod["metadata"].get("namespace") or "", group_of(pod))
            groups.setdefault(key, []).append(pod)
    for key, members in sorted(groups.items()):
        problem = None if key in made else group_problem(members[0], pods_of(pods, key))
        if problem is not None:
            yield _would_be(key, members), problem.message


def pods_of(pods: Sequence[Obj], group: ObjectKey) -> list[Obj]:
    """The pods of a group."""
    return [
        pod
        for pod in pods
        if group_of(pod) == group.name and pod["metadata"].get("namespace") == group.namespace
    ]


def _would_be(key: ObjectKey, members: Sequence[Obj]) -> kueue.Workload:
    created = min(pod["metadata"].get("creationTimestamp") or "" for pod in members)
    meta = {"namespace": key.namespace, "name": key.name}
    if created:
        meta["creationTimestamp"] = created
    spec = {"queueName": queue_of(members[0]), "podSets": []}
    return decode(kueue.Workload, {"metadata": meta, "spec": spec})
