"""TrainJob (trainer.kubeflow.org): its pods are defined by a runtime that it names.

The runtime is read with the job and added to it as `REFERRED`. What admission adds is written into
a runtime patch of ours, which the trainer's controller merges into the runtime. It accepts changes
of patches only while no pod is active, so that stopping takes two writes.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import attrs

from kueuelib.api.meta import Obj, ObjectKey, Resource, key_of, labels_of
from kueuelib.errors import InvalidJob
from kueuelib.jobs.contract import podset_info
from kueuelib.jobs.contract.capabilities import is_stop_begun
from kueuelib.jobs.contract.integration import REFERRED, Integration, Reference
from kueuelib.jobs.contract.paths import elements, value
from kueuelib.jobs.contract.podset_info import PodSetInfo
from kueuelib.jobs.declared.declarative import (
    Declaration,
    HasCondition,
    ReclaimingDeclaredJob,
    SeenStopDeclaredJob,
    enough,
    every,
)
from kueuelib.jobs.declared.pod_shape import Pods, Slot, lowered, number_at

GROUP = "trainer.kubeflow.org"
MANAGER = "kueue.x-k8s.io/manager"
"""The manager of our runtime patch."""

_KIND = Resource(GROUP, "v1alpha1", "trainjobs", "TrainJob", namespaced=True)
_RUNTIMES = Resource(GROUP, "v1alpha1", "trainingruntimes", "TrainingRuntime", namespaced=True)
_CLUSTER_RUNTIMES = Resource(
    GROUP, "v1alpha1", "clustertrainingruntimes", "ClusterTrainingRuntime", namespaced=False
)
_STEP = f"{GROUP}/trainjob-ancestor-step"
_TRAINER = "trainer"
_SINGLE = (_TRAINER, "dataset-initializer", "model-initializer")
"""Steps that are always one Job, whatever their replicas."""
_NODE = "node"
_JOBS = f"{REFERRED}.spec.template.spec.replicatedJobs"
_PATCHED = "trainingRuntimeSpec.template.spec.replicatedJobs"
_STATUS = "status.jobsStatus"


@attrs.frozen
class _ReplicatedJob(Slot):
    """One replicated Job of the runtime: `place` is the runtime's, `root` the TrainJob."""

    @property
    def template(self) -> Obj:
        """A copy of the runtime's template with the changes of the TrainJob and its patches."""
        template = copy.deepcopy(super().template)
        trainer = value(self.root, "spec.trainer") or {}
        for container in template["spec"].get("containers") or ():
            if container.get("name") != _NODE:
                continue
            if self._step == _TRAINER and trainer.get("image"):
                container["image"] = trainer["image"]
            if self._has_resources_per_node:
                _add_resources(container, trainer.get("resourcesPerNode") or {})
        for patch in value(self.root, "spec.runtimePatches") or ():
            for _, job in elements(
                value(patch, "trainingRuntimeSpec.template.spec.replicatedJobs")
            ):
                if job.get("name") == self.place["name"]:
                    _add_patch(template, value(job, "template.spec.template") or {})
        return template

    @property
    def count(self) -> int:
        """How many pods there are."""
        policy = value(self.root, f"{REFERRED}.spec.mlPolicy")
        nodes = number_at(self.root, "spec.trainer.numNodes")
        count = number_at(self.place, "template.spec.parallelism")
        if self._step == _TRAINER and policy is not None:
            count = number_at(policy, "numNodes")
        if nodes is not None and value(policy, "mpi") is not None:
            if self.place["name"] == _NODE:
                count = max(nodes - 1, 1) if self._launcher_is_node else nodes
        elif nodes is not None and self._step == _TRAINER:
            count = nodes
        return self._replicas * (1 if count is None else count)

    @property
    def succeeded(self) -> int:
        """How many pods are done."""
        for _, status in elements(value(self.root, _STATUS)):
            if status.get("name") == self.place["name"]:
                done = min(number_at(status, "succeeded") or 0, self._replicas)
                return done * (self.count // max(self._replicas, 1))
        return 0

    def merge(self, info: PodSetInfo) -> None:
        """Write what admission adds into the runtime patch.

        Raises:
            InvalidPodSetUpdate: it contradicts the template.
        """
        merged = self.template
        podset_info.merge(merged, info)
        meta = {"labels": dict(info.labels), "annotations": dict(info.annotations)}
        spec: Obj = {"nodeSelector": dict(info.node_selector)}
        if info.tolerations:  # a patch replaces the whole list
            spec["tolerations"] = merged["spec"]["tolerations"]
        if info.scheduling_gates:
            spec["schedulingGates"] = merged["spec"]["schedulingGates"]
        parts = {"metadata": _filled(meta), "spec": _filled(spec)}
        template = {"spec": {"template": _filled(parts)}}
        value(_own_patch(self.root), _PATCHED).append(
            {"name": self.place["name"], "template": template}
        )

    def restore(self, info: PodSetInfo) -> None:
        """Remove the additions."""
        del info
        _drop_own_patch(self.root)

    @property
    def _step(self) -> str:
        return labels_of(self.place["template"]).get(_STEP, "")

    @property
    def _replicas(self) -> int:
        replicas = 1 if self._step in _SINGLE else number_at(self.place, "replicas")
        return 1 if replicas is None else replicas

    @property
    def _launcher_is_node(self) -> bool:
        return value(self.root, f"{REFERRED}.spec.mlPolicy.mpi.runLauncherAsNode") is True

    @property
    def _has_resources_per_node(self) -> bool:
        if self._launcher_is_node and self.place["name"] == _NODE:
            return True
        has_policy = value(self.root, f"{REFERRED}.spec.mlPolicy") is not None
        return self._step == _TRAINER and has_policy


class TrainJob(SeenStopDeclaredJob, ReclaimingDeclaredJob):
    """One TrainJob."""

    resource: ClassVar[Resource] = _KIND
    restores_while_active: ClassVar[bool] = False
    declaration: ClassVar[Declaration] = Declaration(
        _KIND,
        (Pods("jobs", "spec.runtimeRef"),),
        active=f"{_STATUS}.*.active",
        ready=every(
            _JOBS,
            enough(f"{_STATUS}.*.ready", f"{_STATUS}.*.succeeded", units=f"{_JOBS}.*.replicas"),
        ),
        succeeded=HasCondition("Complete"),
        failed=HasCondition("Failed"),
        suspended=HasCondition("Suspended"),
    )

    def slots(self) -> tuple[Slot, ...]:
        """One for each replicated Job of the runtime.

        Raises:
            InvalidJob: there is no such runtime, or it has Jobs without names.
        """
        jobs = value(self.object, _JOBS)
        if jobs is None:
            name = value(self.object, "spec.runtimeRef.name")
            raise InvalidJob("spec.runtimeRef", f'the runtime "{name}" cannot be read')
        pods = Pods("job", "template.spec.template")
        return tuple(
            _ReplicatedJob(
                lowered(job.get("name"), f"{_JOBS}[{index}].name"), self.object, job, pods
            )
            for index, job in elements(jobs)
        )

    def run_with_podsets_info(self, infos: Sequence[PodSetInfo]) -> None:
        """Write a new runtime patch, and clear the field that suspends."""
        slots = self.slots()
        podset_info.check_count(self.resource.kind, infos, len(slots))
        for slot, info in zip(slots, infos, strict=True):
            podset_info.merge(slot.template, info)
        _drop_own_patch(self.object)
        super().run_with_podsets_info(infos)

    def is_suspended(self) -> bool:
        """Whether it is suspended and the last stop is complete."""
        return super().is_suspended() and not is_stop_begun(self.object)


def runtime_of(obj: Obj) -> Reference | None:
    """The runtime that a TrainJob names; None if its kind is not known here."""
    ref = value(obj, "spec.runtimeRef") or {}
    name, group = ref.get("name"), ref.get("apiGroup", GROUP)
    kind = ref.get("kind", _CLUSTER_RUNTIMES.kind)
    for resource in (_CLUSTER_RUNTIMES, _RUNTIMES):
        if name and (group, kind) == (GROUP, resource.kind):
            namespace = key_of(obj).namespace if resource.namespaced else ""
            return Reference(resource, ObjectKey(namespace, name))
    return None


def _add_resources(container: Obj, more: Mapping[str, Any]) -> None:
    resources = container["resources"] = dict(container.get("resources") or {})
    for part in ("requests", "limits"):
        if more.get(part):
            resources[part] = {**(resources.get(part) or {}), **more[part]}


def _add_patch(template: Obj, patch: Mapping[str, Any]) -> None:
    """Add the parts of a patch about where pods run; a patch cannot change what they ask for."""
    for section, field in (
        ("metadata", "labels"),
        ("metadata", "annotations"),
        ("spec", "nodeSelector"),
    ):
        added = value(patch, f"{section}.{field}")
        if added:
            place = template[section] = template.get(section) or {}
            place[field] = {**(place.get(field) or {}), **added}
    tolerations = value(patch, "spec.tolerations")
    if tolerations:
        template["spec"]["tolerations"] = copy.deepcopy(tolerations)
    if gates := value(patch, "spec.schedulingGates"):
        template["spec"]["schedulingGates"] = copy.deepcopy(gates)


def _own_patch(obj: Obj) -> Obj:
    """Our patch in a TrainJob; it is created if missing."""
    patches = obj["spec"]["runtimePatches"] = list(obj["spec"].get("runtimePatches") or ())
    for patch in patches:
        if patch.get("manager") == MANAGER:
            return patch  # type: ignore[no-any-return]
    inner: Obj = {"template": {"spec": {"replicatedJobs": []}}}
    made: Obj = {"manager": MANAGER, "trainingRuntimeSpec": inner}
    patches.append(made)
    return made


def _drop_own_patch(obj: Obj) -> None:
    patches = obj["spec"].get("runtimePatches")
    left = [patch for patch in patches or () if patch.get("manager") != MANAGER]
    if left:
        obj["spec"]["runtimePatches"] = left
    elif patches is not None:
        del obj["spec"]["runtimePatches"]


def _filled(parts: Obj) -> Obj:
    return {key: part for key, part in parts.items() if part}


def _rules() -> tuple[Obj, ...]:
    plurals = [_CLUSTER_RUNTIMES.plural, _RUNTIMES.plural]
    return ({"apiGroups": [GROUP], "resources": plurals, "verbs": ["get"]},)


TRAIN_JOB = attrs.evolve(
    Integration.of(TrainJob), allows_prebuilt=True, refers=runtime_of, rules=_rules
)
