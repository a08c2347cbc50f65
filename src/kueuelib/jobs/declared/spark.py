"""SparkApplication (sparkoperator.k8s.io): the driver, and its executors.

Their pods are described by fields of their own, and by a template for all that these cannot
express. What admission adds is written into the fields, which the operator applies to pods that
come from a template, too.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

import attrs

from kueuelib.api.meta import Obj, Resource
from kueuelib.errors import FieldError, InvalidJob
from kueuelib.jobs.contract import podset_info
from kueuelib.jobs.contract.field_rules import invalid
from kueuelib.jobs.contract.integration import Integration
from kueuelib.jobs.contract.paths import drop, put, value, values
from kueuelib.jobs.contract.podset_info import PodSetInfo
from kueuelib.jobs.declared.declarative import Declaration, DeclaredJob, differs, equals, every
from kueuelib.jobs.declared.pod_shape import Pods, Slot, number_at

_KIND = Resource(
    "sparkoperator.k8s.io", "v1beta2", "sparkapplications", "SparkApplication", namespaced=True
)
_STATE: Final = "status.applicationState.state"
_SHARED: Final = "spec.nodeSelector"
"""Node selectors of all pods; the operator accepts these, or those of driver and executor."""
_MAIN: Final = {
    "driver": ("spark-kubernetes-driver",),
    "executor": ("spark-kubernetes-executor", "executor"),
}
"""Names of the container that runs Spark; if none has such a name, it is the first one."""
_LOCAL: Final = "spark-local-dir-"
"""Volumes with this prefix are mounted by Spark."""
_MEMORY = re.compile(r"([0-9]+)([kmgtp]?)b?", re.ASCII | re.IGNORECASE)
_RESOURCES: Final = (
    ("coreRequest", "requests", "cpu"),
    ("coreLimit", "limits", "cpu"),
    ("memory", "requests", "memory"),
    ("memoryLimit", "limits", "memory"),
)


_GATES = "template.spec.schedulingGates"


@attrs.frozen
class _Role(Slot):
    """The driver or the executors; `place` is the whole object."""

    @property
    def template(self) -> Obj:
        """A new template with what the operator and Spark make of the fields."""
        role, template = self._role, copy.deepcopy(self._mapping("template"))
        path = self.pods.template
        podset_info.check_template(f"{path}.template", template)
        meta, spec = template.get("metadata") or {}, template.get("spec") or {}
        kept = {
            field: {**(meta.get(field) or {}), **self._mapping(field)}
            for field in ("labels", "annotations")
        }
        spec["nodeSelector"] = {**self._base_selector, **self._mapping("nodeSelector")}
        spec["tolerations"] = [*(spec.get("tolerations") or ()), *self._list("tolerations")]
        for field in ("affinity", "priorityClassName"):
            if role.get(field):
                spec[field] = copy.deepcopy(role[field])
        for field, more in (("initContainers", "initContainers"), ("containers", "sidecars")):
            present = _containers(f"{path}.template.spec.{field}", spec.get(field))
            added = _containers(f"{path}.{more}", role.get(more))
            names = {each.get("name") for each in present}
            spec[field] = [*present, *(each for each in added if each.get("name") not in names)]
        self._complete(spec)
        filled = {key: part for key, part in spec.items() if part not in ({}, [])}
        return {"metadata": {key: part for key, part in kept.items() if part}, "spec": filled}

    def merge(self, info: PodSetInfo) -> None:
        """Write what admission adds into the fields.

        Raises:
            InvalidPodSetUpdate: it contradicts them, or the template.
        """
        template = self.template
        present = template["spec"].get("tolerations") or ()
        podset_info.merge(template, info)
        for field, added in _maps(info):
            self._put(field, {**self._mapping(field), **added})
        more = (dict(each) for each in info.tolerations if each not in present)
        self._put("tolerations", [*self._list("tolerations"), *more])
        if info.scheduling_gates:
            put(self._role, _GATES, template["spec"]["schedulingGates"])

    def restore(self, info: PodSetInfo) -> None:
        """Put the fields back; what the template says by itself is not repeated in them."""
        meta, base = value(self._role, "template.metadata") or {}, dict(self._base_selector)
        given = {"nodeSelector": base, **{name: meta.get(name) or {} for name in meta}}
        for field, wanted in _maps(info):
            own, others = self._mapping(field), given.get(field) or {}
            entries = wanted.items()
            self._put(field, {k: v for k, v in entries if k in own or others.get(k) != v})
        of_template = value(self._role, "template.spec.tolerations") or ()
        left = [dict(each) for each in info.tolerations]
        for each in of_template:
            if each in left:
                left.remove(each)
        self._put("tolerations", left)
        if info.scheduling_gates:
            put(self._role, _GATES, [{"name": name} for name in info.scheduling_gates])
        elif value(self._role, _GATES) is not None:
            drop(self._role, _GATES)

    @property
    def _role(self) -> Obj:
        role = value(self.root, self.pods.template)
        if not isinstance(role, dict):
            raise InvalidJob(self.pods.template, "must be a mapping")
        return role

    @property
    def _base_selector(self) -> Mapping[str, str]:
        """The node selectors besides those of the role."""
        shared = value(self.root, _SHARED) or {}
        if not isinstance(shared, dict):
            raise InvalidJob(_SHARED, "must be a mapping")
        return {**(value(self._role, "template.spec.nodeSelector") or {}), **shared}

    def _mapping(self, field: str) -> Obj:
        part: Any = self._role.get(field) or {}
        if not isinstance(part, dict):
            raise InvalidJob(f"{self.pods.template}.{field}", "must be a mapping")
        return part

    def _list(self, field: str) -> Sequence[Obj]:
        part: Any = self._role.get(field) or []
        if not isinstance(part, list) or not all(isinstance(each, dict) for each in part):
            raise InvalidJob(f"{self.pods.template}.{field}", "must be a list of mappings")
        return part

    def _put(self, field: str, part: Any) -> None:
        """Write a field of the role, unless it says the same already."""
        if part:
            self._role[field] = part
        elif self._role.get(field):
            del self._role[field]

    def _complete(self, spec: Obj) -> None:
        """Add the resources and mounts of the container that runs Spark."""
        role, names = self._role, _MAIN[self.name]
        containers = spec["containers"] = spec["containers"] or [{"name": names[0]}]
        main = next((each for each in containers if each.get("name") in names), containers[0])
        resources = main["resources"] = copy.deepcopy(main.get("resources") or {})
        for field, section, resource in _RESOURCES:
            if role.get(field):
                amount = _memory(role[field]) if resource == "memory" else role[field]
                resources[section] = {**(resources.get(section) or {}), resource: amount}
        device, count = value(role, "gpu.name"), number_at(role, "gpu.quantity")
        if device and count:
            resources["limits"] = {**(resources.get("limits") or {}), device: str(count)}
        volumes = {each.get("name"): each for each in values(self.root, "spec.volumes.*")}
        mounts = [
            each
            for each in self._list("volumeMounts")
            if each.get("name") in volumes and not str(each["name"]).startswith(_LOCAL)
        ]
        if mounts:
            main["volumeMounts"] = [*(main.get("volumeMounts") or ()), *copy.deepcopy(mounts)]
            used = dict.fromkeys(each["name"] for each in mounts)
            more = (copy.deepcopy(volumes[name]) for name in used)
            spec["volumes"] = [*(spec.get("volumes") or ()), *more]


def _maps(info: PodSetInfo) -> Iterator[tuple[str, Mapping[str, str]]]:
    """The mappings of an info by their fields in a role."""
    yield "labels", info.labels
    yield "annotations", info.annotations
    yield "nodeSelector", info.node_selector


def _containers(path: str, given: Any) -> list[Obj]:
    """A copy of a list of containers."""
    part = given or []
    if not isinstance(part, list) or not all(isinstance(each, dict) for each in part):
        raise InvalidJob(path, "must be a list of mappings")
    return copy.deepcopy(part)


def _memory(text: Any) -> Any:
    """An amount of memory as Kubernetes writes it. In Java, `g` is Gi, and the default unit MiB."""
    parts = _MEMORY.fullmatch(str(text))
    if parts is None:
        return text
    number, unit = parts.groups()
    return f"{number}{'K' if unit.lower() == 'k' else (unit or 'm').upper()}i"


def _executors_run(obj: Obj) -> bool:
    """Whether as many executors as are wanted have started."""
    wanted = number_at(obj, "spec.executor.instances")
    states = values(obj, "status.executorState.*")
    started = sum(state in ("RUNNING", "COMPLETED") for state in states)
    return started >= (1 if wanted is None else wanted)


class SparkApplication(DeclaredJob):
    """One SparkApplication."""

    resource: ClassVar[Resource] = _KIND
    declaration: ClassVar[Declaration] = Declaration(
        _KIND,
        (
            Pods("driver", "spec.driver"),
            Pods("executor", "spec.executor", "spec.executor.instances"),
        ),
        # a failed submission may be repeated, and every other state has pods, or leads to some
        active=differs(_STATE, "SUSPENDED", "COMPLETED", "FAILED"),
        ready=every(equals(_STATE, "RUNNING"), _executors_run),
        succeeded=equals(_STATE, "COMPLETED"),
        failed=equals(_STATE, "FAILED"),
        message="status.applicationState.errorMessage",
    )

    def slots(self) -> tuple[Slot, ...]:
        """The driver and the executors."""
        return tuple(
            _Role(pods.name, self.object, self.object, pods) for pods in self.declaration.pods
        )

    def run_with_podsets_info(self, infos: Sequence[PodSetInfo]) -> None:
        """Write the infos, and clear the field that suspends."""
        podset_info.check_count(self.resource.kind, infos, len(self.declaration.pods))
        shared = value(self.object, _SHARED)
        if isinstance(shared, dict) and any(info.node_selector for info in infos):
            for pods in self.declaration.pods:
                own = value(self.object, f"{pods.template}.nodeSelector") or {}
                put(self.object, f"{pods.template}.nodeSelector", {**shared, **own})
            drop(self.object, _SHARED)
        super().run_with_podsets_info(infos)


def _validate(new: Obj, _old: Obj | None) -> Sequence[FieldError]:
    """Refuses pods that would run without quota."""
    errors = []
    if value(new, "spec.mode") == "client":
        detail = "the driver of a queued application has to be a pod: write cluster"
        errors.append(invalid("spec.mode", "client", detail))
    path = "spec.dynamicAllocation.enabled"
    if value(new, path) is True:
        detail = "a queued application has a fixed number of executors: quota is for its instances"
        errors.append(invalid(path, True, detail))
    return errors


SPARK_APPLICATION = Integration.of(SparkApplication, validate=_validate)
