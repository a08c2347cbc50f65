"""What admission adds to the pods of a job, and how that is removed again (KEP-369).

Templates are raw `PodTemplateSpec`s; tolerations are raw too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import attrs

from kueuelib.api.meta import Obj, copied
from kueuelib.api.models import ModelPart, without_models
from kueuelib.api.names import ORIGIN_KEYS, TOPOLOGY_GATE, UNCONSTRAINED_TOPOLOGY
from kueuelib.errors import InvalidJob, InvalidPodSetInfo, InvalidPodSetUpdate, KueuelibError

_MAPS = ("annotations", "labels", "nodeSelector")


class FlavorNotFound(KueuelibError):
    """A flavor of an admission is not known (yet); a retry may succeed."""


@attrs.frozen
class PodSetInfo:
    """What is added to the pods of one pod set, or restored in them.

    Attributes:
        name: of the pod set.
        count: how many pods may run.
        annotations: of the template.
        labels: of the template.
        node_selector: of the pods.
        tolerations: of the pods, raw.
        scheduling_gates: the names of gates of the pods.
        sources: the origin of each value, by field and key such as `nodeSelector[zone]`, for
            people.
    """

    name: str
    count: int = 0
    annotations: Mapping[str, str] = attrs.field(factory=dict)
    labels: Mapping[str, str] = attrs.field(factory=dict)
    node_selector: Mapping[str, str] = attrs.field(factory=dict)
    tolerations: tuple[Mapping[str, Any], ...] = ()
    scheduling_gates: tuple[str, ...] = ()
    sources: Mapping[str, str] = attrs.field(factory=dict, eq=False, repr=False)


def from_assignment(
    assignment: Mapping[str, Any], default_count: int, flavors: Mapping[str, Mapping[str, Any]]
) -> PodSetInfo:
    """What one entry of `status.admission.podSetAssignments` means for the pods.

    Each flavor counts once, in the order of the names of their resources. If two set the same node
    label, the first one wins.

    Args:
        assignment: the raw entry.
        default_count: the count if the entry has none.
        flavors: the raw ResourceFlavors by name.

    Raises:
        FlavorNotFound: a flavor is missing.
    """
    names = dict.fromkeys(name for _, name in sorted((assignment.get("flavors") or {}).items()))
    selector: dict[str, str] = {}
    tolerations: list[Mapping[str, Any]] = []
    sources: dict[str, str] = {}
    for name in names:
        flavor = flavors.get(name)
        if flavor is None:
            raise FlavorNotFound(f'ResourceFlavor "{name}" is not found')
        spec = flavor.get("spec") or {}
        labels = spec.get("nodeLabels") or {}
        sources = {**_sources(f'flavor "{name}"', "nodeSelector", labels), **sources}
        selector = {**labels, **selector}
        tolerations = _union(tolerations, spec.get("tolerations") or ())
    count = assignment.get("count")
    return PodSetInfo(
        name=assignment.get("name", ""),
        count=default_count if count is None else count,
        node_selector=selector,
        tolerations=tuple(tolerations),
        sources=sources,
    )


def from_update(update: Mapping[str, Any], check: str = "") -> PodSetInfo:
    """What one entry of a check's `podSetUpdates` adds; its count is not used."""
    sources: dict[str, str] = {}
    for field in _MAPS:
        sources |= _sources(f'check "{check}"', field, update.get(field) or {})
    return PodSetInfo(
        name=update.get("name", ""),
        annotations=update.get("annotations") or {},
        labels=update.get("labels") or {},
        node_selector=update.get("nodeSelector") or {},
        tolerations=tuple(update.get("tolerations") or ()),
        sources=sources,
    )


def from_pod_set(pod_set: Mapping[str, Any]) -> PodSetInfo:
    """What a raw entry of `spec.podSets` remembers of the template, for `restore`."""
    template = pod_set.get("template") or {}
    meta, spec = template.get("metadata") or {}, template.get("spec") or {}
    return PodSetInfo(
        name=pod_set["name"],
        count=pod_set.get("count", 1),
        annotations=meta.get("annotations") or {},
        labels=meta.get("labels") or {},
        node_selector=spec.get("nodeSelector") or {},
        tolerations=tuple(spec.get("tolerations") or ()),
        scheduling_gates=_gates(spec),
    )


def infos_for_start(
    workload: Mapping[str, Any], flavors: Mapping[str, Mapping[str, Any]]
) -> tuple[PodSetInfo, ...]:
    """One info per pod set of an admitted Workload, in their order: flavors, then checks.

    Raises:
        FlavorNotFound: a flavor is missing.
        InvalidPodSetInfo: the admission does not name the pod sets of the Workload.
        InvalidPodSetUpdate: flavors and checks contradict each other.
    """
    status = workload.get("status") or {}
    assignments = {
        entry.get("name"): entry
        for entry in (status.get("admission") or {}).get("podSetAssignments") or ()
    }
    pod_sets = workload["spec"]["podSets"]
    if assignments.keys() != {entry["name"] for entry in pod_sets}:
        raise InvalidPodSetInfo(
            f"the admission assigns flavors to the pod sets {sorted(map(str, assignments))}, "
            f"the workload has {[entry['name'] for entry in pod_sets]}"
        )
    infos = []
    for pod_set in pod_sets:
        name = pod_set["name"]
        info = from_assignment(assignments[name], pod_set.get("count", 1), flavors)
        if assignments[name].get("topologyAssignment"):
            info = _for_ungater(info, pod_set.get("topologyRequest") or {})
        for check in status.get("admissionChecks") or ():
            for update in check.get("podSetUpdates") or ():
                if update.get("name") == name:
                    info = combine(info, from_update(update, check.get("name", "")))
        infos.append(info)
    return tuple(infos)


def _for_ungater(info: PodSetInfo, request: Mapping[str, Any]) -> PodSetInfo:
    """An info whose pods wait until the ungater has chosen their domains (KEP-2724).

    Pods of a pod set that asks for no topology say that they have a place nevertheless, so that
    they are not taken for pods of others.
    """
    asked = {field: value for field, value in request.items() if field not in _RANKS}
    notes = info.annotations if asked else {**info.annotations, UNCONSTRAINED_TOPOLOGY: "true"}
    return attrs.evolve(info, annotations=notes, scheduling_gates=(TOPOLOGY_GATE,))


_RANKS = frozenset(("podIndexLabel", "subGroupIndexLabel", "subGroupCount", "podSetGroupName"))


def infos_for_restore(
    workload: Mapping[str, Any] | None, asked: Mapping[str, int] = MappingProxyType({})
) -> tuple[PodSetInfo, ...]:
    """What a Workload remembers of its job's templates and counts; empty without a Workload.

    Args:
        workload: the raw Workload.
        asked: the counts that the job has now, by pod set. One that differs from the admitted count
            was changed by the user, and is kept.
    """
    if workload is None:
        return ()
    admission = (workload.get("status") or {}).get("admission") or {}
    admitted = {each["name"]: each for each in admission.get("podSetAssignments") or ()}
    infos = []
    for entry in workload["spec"]["podSets"]:
        info = from_pod_set(entry)
        name, present = info.name, asked.get(info.name, info.count)
        if name in admitted and present != admitted[name].get("count", info.count):
            info = attrs.evolve(info, count=present)
        infos.append(info)
    return tuple(infos)


def combine(first: PodSetInfo, second: PodSetInfo) -> PodSetInfo:
    """Both together; equal tolerations are kept once.

    Raises:
        InvalidPodSetUpdate: they give one key different values.
    """
    return attrs.evolve(
        first,
        annotations=_agree("annotations", first.annotations, second, second.annotations, first),
        labels=_agree("labels", first.labels, second, second.labels, first),
        node_selector=_agree(
            "nodeSelector", first.node_selector, second, second.node_selector, first
        ),
        tolerations=tuple(_union(first.tolerations, second.tolerations)),
        scheduling_gates=tuple(dict.fromkeys((*first.scheduling_gates, *second.scheduling_gates))),
        sources={**second.sources, **first.sources},
    )


def merge(template: Obj, info: PodSetInfo) -> None:
    """Add what an info brings to a template, in place.

    The template, its metadata and its spec remain the same dicts. The four fields that an info can
    bring, such as `labels`, get new values: dicts and lists that others hold do not change.

    Raises:
        InvalidJob: the template cannot be read; it is left as it was.
        InvalidPodSetUpdate: the template gives a key another value; it is left as it was.
    """
    check_template("template", template)
    meta, spec = template.get("metadata") or {}, template.get("spec") or {}
    annotations = _agree("annotations", meta.get("annotations") or {}, info, info.annotations)
    labels = _agree("labels", meta.get("labels") or {}, info, info.labels)
    selector = _agree("nodeSelector", spec.get("nodeSelector") or {}, info, info.node_selector)
    tolerations = _union(spec.get("tolerations") or (), info.tolerations)
    gates = tuple(dict.fromkeys((*_gates(spec), *info.scheduling_gates)))
    _put(template, annotations, labels, selector, tolerations, gates)


def merge_all(kind: str, templates: Sequence[Obj], infos: Sequence[PodSetInfo]) -> None:
    """Add what each info brings to the template of its pod set, in place; see `merge`.

    Raises:
        InvalidPodSetInfo: there are not as many infos as templates.
        InvalidPodSetUpdate: a template gives a key another value.
    """
    check_count(kind, infos, len(templates))
    for template, info in zip(templates, infos, strict=True):
        merge(template, info)


def merged_all(
    kind: str, templates: Sequence[Mapping[str, Any] | ModelPart], infos: Sequence[PodSetInfo]
) -> tuple[Obj, ...]:
    """Each template with what the info of its pod set brings; see `merge_all`.

    The templates, raw ones or models, stay as they are: those in values of a class with `@crd`
    must.
    """
    merged = tuple(copied(dict(without_models(template))) for template in templates)
    merge_all(kind, merged, infos)
    return merged


def restored_all(
    templates: Iterable[Mapping[str, Any] | ModelPart], infos: Iterable[PodSetInfo]
) -> tuple[Obj, ...]:
    """Each template as the info of its pod set says; see `restore_all`. The originals stay."""
    restored = tuple(copied(dict(without_models(template))) for template in templates)
    restore_all(restored, infos)
    return restored


def restore_all(templates: Iterable[Obj], infos: Iterable[PodSetInfo]) -> bool:
    """Restore each template from the info of its pod set; returns whether anything changed.

    Without infos, nothing changes.
    """
    return sum(restore(*pair) for pair in zip(templates, infos, strict=False)) > 0


def restore(template: Obj, info: PodSetInfo) -> bool:
    """Restore the parts of a template that a start may change from an info, in place.

    Returns:
        Whether anything changed; absent and empty are the same.

    Raises:
        InvalidJob: the template cannot be read; it is left as it was.
    """
    check_template("template", template)
    before = _parts(template)
    wanted = (
        dict(info.annotations),
        dict(info.labels),
        dict(info.node_selector),
        [dict(entry) for entry in info.tolerations],
        info.scheduling_gates,
    )
    if before == wanted:
        return False
    _put(template, *wanted)
    return True


def check_template(path: str, template: Any) -> None:
    """Check the form of what a start may change in a template.

    Args:
        path: of the template, for the error.
        template: the raw template.

    Raises:
        InvalidJob: a part has another form; the error names it.
    """
    _check(path, template, dict)
    for section, fields in (("metadata", ("annotations", "labels")), ("spec", ("nodeSelector",))):
        part = template.get(section)
        _check(f"{path}.{section}", part, dict)
        for field in fields:
            _check(f"{path}.{section}.{field}", (part or {}).get(field), dict)
    for field in ("tolerations", "schedulingGates"):
        entries = (template.get("spec") or {}).get(field)
        _check(f"{path}.spec.{field}", entries, list)
        for index, each in enumerate(entries or ()):
            _check(f"{path}.spec.{field}[{index}]", each, dict)


def check_count(kind: str, infos: Sequence[PodSetInfo], wanted: int) -> None:
    """Raise an error unless there are as many infos as pod sets.

    Raises:
        InvalidPodSetInfo: the numbers differ.
    """
    if len(infos) != wanted:
        raise InvalidPodSetInfo(f"{kind}: expected {wanted} pod sets, got {len(infos)}")


def _check(path: str, part: Any, form: type) -> None:
    if part is not None and not isinstance(part, form):
        raise InvalidJob(path, "must be a list" if form is list else "must be a mapping")


def _gates(spec: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple([each.get("name", "") for each in spec.get("schedulingGates") or ()])


def _parts(template: Mapping[str, Any]) -> tuple[Obj, Obj, Obj, list[Any], tuple[str, ...]]:
    meta, spec = template.get("metadata") or {}, template.get("spec") or {}
    return (
        dict(meta.get("annotations") or {}),
        dict(meta.get("labels") or {}),
        dict(spec.get("nodeSelector") or {}),
        [dict(entry) for entry in spec.get("tolerations") or ()],
        _gates(spec),
    )


def _put(
    template: Obj,
    annotations: Mapping[str, str],
    labels: Mapping[str, str],
    selector: Mapping[str, str],
    tolerations: Sequence[Mapping[str, Any]],
    gates: Sequence[str],
) -> None:
    for section, field, value in (
        ("metadata", "annotations", dict(annotations)),
        ("metadata", "labels", dict(labels)),
        ("spec", "nodeSelector", dict(selector)),
        ("spec", "tolerations", [copied(entry) for entry in tolerations]),
        ("spec", "schedulingGates", [{"name": name} for name in gates]),
    ):
        entries = {} if template.get(section) is None else template[section]
        if value:
            template[section] = entries
            entries[field] = value
        elif entries.get(field):
            del entries[field]
            if not entries:
                del template[section]


def _agree(
    field: str,
    present: Mapping[str, str],
    info: PodSetInfo,
    added: Mapping[str, str],
    owner: PodSetInfo | None = None,
) -> dict[str, str]:
    """Both together; a value without a source belongs to the pod template.

    What somebody else wrote about the origin of the pods is overwritten.
    """
    for key, value in added.items():
        if present.get(key, value) != value and key not in ORIGIN_KEYS:
            where = f"{field}[{key}]"
            template = "the pod template" if owner is None else "another source"
            before = (owner.sources if owner else {}).get(where, template)
            raise InvalidPodSetUpdate(
                f'pod set "{info.name}": {where} is "{present[key]}" by {before} '
                f'and "{value}" by {info.sources.get(where, "what admission adds")}'
            )
    return {**present, **added}


def _sources(who: str, field: str, values: Mapping[str, str]) -> dict[str, str]:
    return {f"{field}[{key}]": who for key in values}


def _union(
    first: Sequence[Mapping[str, Any]], second: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    return [*first, *(entry for entry in second if entry not in first)]
