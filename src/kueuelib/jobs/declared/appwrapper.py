"""AppWrapper (workload.codeflare.dev): one job that contains whole objects, which its controller
creates.

Its pod templates are inside the wrapped objects. What admission adds is written into a field next
to them, from which its controller takes it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import attrs

from kueuelib.api.meta import Obj, Resource
from kueuelib.api.names import is_dns1123_label
from kueuelib.errors import InvalidJob
from kueuelib.jobs.contract import podset_info
from kueuelib.jobs.contract.integration import Integration
from kueuelib.jobs.contract.paths import elements, value
from kueuelib.jobs.contract.podset_info import PodSetInfo
from kueuelib.jobs.contract.topology import BY_COMPLETION, Ranks
from kueuelib.jobs.declared.declarative import (
    AtMost,
    Declaration,
    DeclaredJob,
    HasCondition,
    equals,
)
from kueuelib.jobs.declared.jobset import JOB_SET
from kueuelib.jobs.declared.kubeflow import PYTORCH_JOB
from kueuelib.jobs.declared.pod_shape import Pods, Slot, number_at, slots_of
from kueuelib.jobs.declared.ray import RAY_CLUSTER, RAY_JOB
from kueuelib.jobs.declared.signs import shows

_KIND = Resource("workload.codeflare.dev", "v1beta2", "appwrappers", "AppWrapper", namespaced=True)
_REPLICATED = (Pods("main", "spec.template", "spec.replicas"),)
_KNOWN: Mapping[tuple[str, str], tuple[Pods, ...]] = {
    ("batch/v1", "Job"): (
        Pods(
            "main",
            "spec.template",
            AtMost("spec.parallelism", "spec.completions"),
            ranks=BY_COMPLETION,
        ),
    ),
    ("apps/v1", "Deployment"): _REPLICATED,
    ("apps/v1", "StatefulSet"): _REPLICATED,
    **{
        (integration.resource.api_version, integration.resource.kind): tuple(
            attrs.evolve(pods, adds=None)
            for pods in integration.job_type.declaration.pods
            if pods.default is None
        )
        for integration in (JOB_SET, PYTORCH_JOB, RAY_CLUSTER, RAY_JOB)
        if issubclass(integration.job_type, DeclaredJob)
    },
}
"""Where wrapped objects of the kinds that an AppWrapper knows have their pods."""


@attrs.frozen
class _Wrapped(Slot):
    """One pod set of a component.

    Attributes:
        component: the part of the object that has `podSetInfos`.
        index: which of the component's pod sets.
    """

    component: Obj = attrs.field(factory=dict)
    index: int = 0

    @property
    def template(self) -> Obj:
        """A copy of the wrapped template, with what was added next to it."""
        wrapped = super().template
        meta = wrapped.get("metadata") or {}
        kept = {key: meta[key] for key in ("labels", "annotations") if meta.get(key)}
        template = copy.deepcopy({"metadata": kept, "spec": wrapped["spec"]})
        infos = self.component.get("podSetInfos") or []
        if self.index < len(infos):
            podset_info.merge(template, _info(self.name, infos[self.index]))
        return template

    def merge(self, info: PodSetInfo) -> None:
        """Write what admission adds next to the wrapped object.

        Raises:
            InvalidPodSetUpdate: it contradicts the template.
        """
        podset_info.merge(self.template, info)
        infos = self.component["podSetInfos"] = [*(self.component.get("podSetInfos") or ())]
        infos += [{} for _ in range(self.index + 1 - len(infos))]
        parts = {
            "annotations": dict(info.annotations),
            "labels": dict(info.labels),
            "nodeSelector": dict(info.node_selector),
            "tolerations": [dict(each) for each in info.tolerations],
            "schedulingGates": [{"name": name} for name in info.scheduling_gates],
        }
        infos[self.index] = {key: part for key, part in parts.items() if part}

    def restore(self, info: PodSetInfo) -> None:
        """Remove the additions."""
        del info
        self.component.pop("podSetInfos", None)


def _has_failed(obj: Obj) -> bool:
    """Whether it failed and nothing of it remains."""
    left = shows(obj, HasCondition("ResourcesDeployed"), 0)
    return bool(value(obj, "status.phase") == "Failed") and not left


class AppWrapper(DeclaredJob):
    """One AppWrapper."""

    resource: ClassVar[Resource] = _KIND
    declaration: ClassVar[Declaration] = Declaration(
        _KIND,
        (Pods("components", "spec.components"),),
        active=HasCondition("QuotaReserved"),
        ready=HasCondition("PodsReady"),
        succeeded=equals("status.phase", "Succeeded"),
        failed=_has_failed,
    )

    def slots(self) -> tuple[Slot, ...]:
        """One per pod set of a component, numbered across all components."""
        slots: list[Slot] = []
        for position, component in elements(value(self.object, "spec.components")):
            for index, slot in enumerate(_slots(f"spec.components[{position}]", component)):
                name = f"{self.object['metadata'].get('name', '')}-{len(slots)}"
                if not is_dns1123_label(name):
                    problem = f'"{name}" cannot be the name of a pod set: use 60 letters at most'
                    raise InvalidJob("metadata.name", problem)
                slots.append(_Wrapped(name, slot.root, slot.place, slot.pods, component, index))
        return tuple(slots)


def _slots(where: str, component: Obj) -> Iterator[Slot]:
    """The pod sets that a component declares, or else those of the wrapped kind."""
    declared = component.get("podSets")
    if declared:
        for index, entry in enumerate(declared):
            path = str(entry.get("path", "")).replace("[", ".").replace("]", "")
            count = number_at(entry, "replicas")
            try:
                pods = Pods("main", path, count=1 if count is None else count, ranks=_ranks(entry))
            except ValueError as error:
                raise InvalidJob(f"{where}.podSets[{index}].path", str(error)) from error
            yield Slot("", component, component, pods)
        return
    wrapped = component.get("template") or {}
    kind = (wrapped.get("apiVersion", ""), wrapped.get("kind", ""))
    if kind == ("v1", "Pod"):
        yield Slot("", component, component, Pods("main", "template"))
    for pods in _KNOWN.get(kind, ()):
        yield from slots_of(wrapped, pods)


def _ranks(entry: Obj) -> Ranks | None:
    """The ranks that a declared pod set names in its annotations."""
    notes = entry.get("annotations") or {}
    index, group, groups = (
        notes.get(f"workload.codeflare.dev.appwrapper/tas-{name}")
        for name in ("pod-index-label", "sub-group-index-label", "sub-group-count")
    )
    number = int(groups) if groups and groups.isascii() and groups.isdigit() else ""
    ranks = Ranks(index or "", group or "", number)
    return ranks if ranks.raw() else None


def _info(name: str, raw: Mapping[str, Any]) -> PodSetInfo:
    return PodSetInfo(
        name,
        0,
        annotations=raw.get("annotations") or {},
        labels=raw.get("labels") or {},
        node_selector=raw.get("nodeSelector") or {},
        tolerations=tuple(raw.get("tolerations") or ()),
        scheduling_gates=tuple([one["name"] for one in raw.get("schedulingGates") or ()]),
    )


APP_WRAPPER = Integration.of(AppWrapper, allows_prebuilt=True)
