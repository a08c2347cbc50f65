"""As much of a cluster as groups of pods and their plans touch, in memory."""

from __future__ import annotations

import copy
import itertools
from typing import Any

from kueuelib.api.kinds import PODS
from kueuelib.api.meta import format_time
from kueuelib.api.patch import merge_patch
from kueuelib.jobs.contract.commands import (
    Change,
    Count,
    Create,
    Delete,
    DropFinalizer,
    Emit,
    PatchStatus,
    RequeueAfter,
)
from kueuelib.jobs.contract.settings import JobSettings
from kueuelib.jobs.pods.facts import GroupFacts
from kueuelib.jobs.pods.group import PodGroup
from kueuelib.jobs.pods.integration import regained
from kueuelib.jobs.pods.marks import gated, marked_as_ours
from kueuelib.jobs.pods.pod_plan import plan_group, plan_without_pods, situation_of
from kueuelib.jobs.pods.reading import PodStage, has_finalizer, is_managed, stage_of
from kueuelib.jobs.reconcile.job_snapshot import JobSnapshot
from kueuelib.workload.states import BUNDLE

KUEUE = "kueue.x-k8s.io"
KEPT = 1000.0
"""Seconds that a group is kept which the manager has given up."""
SETTINGS = JobSettings(delete_deactivated_after=KEPT)
FLAVORS = {"spot": {"spec": {"nodeLabels": {"pool": "spot"}}}}


class Server:
    """As much of an API server, its kubelets and its garbage collector as plans touch."""

    def __init__(self) -> None:
        self.pods: dict[str, dict[str, Any]] = {}
        self.workload: dict[str, Any] | None = None
        self.versions = itertools.count(1)
        self.uids = itertools.count(1)
        self.now = 1_700_000_000.0
        self.deleted_by_us: list[str] = []

    # ---- the manager's side

    def plan(self):
        pods = tuple(copy.deepcopy(list(filter(is_managed, self.pods.values()))))
        facts = GroupFacts("ns", "group", pods, copy.deepcopy(self.workload), self.now)
        if not pods:
            return plan_without_pods(facts.own)
        group = PodGroup(facts)
        situation = JobSnapshot(None, self.now, SETTINGS, flavors=FLAVORS)
        return plan_group(situation_of(group, situation), group)

    def find_missed(self) -> None:
        """Pods that lost the label by which the manager sees them, or never had it."""
        for pod in list(self.pods.values()):
            if is_managed(pod):
                continue
            if has_finalizer(pod):
                for command in regained(pod):
                    self.execute(command)
            elif stage_of(pod) is PodStage.GATED:
                self.execute(Change(PODS, pod, marked_as_ours(pod)))

    def execute(self, command: Any) -> bool:
        """One command; whether the plan goes on."""
        self.now += 1
        match command:
            case Create(_, obj):
                if self.workload is not None:
                    return False
                self.workload = copy.deepcopy(obj)
                self.workload["metadata"].update(
                    uid=f"wl-{next(self.uids)}",
                    creationTimestamp=format_time(self.now),
                )
                self.put(self.workload)
            case Change(_, old, _, _, _):
                current = self.find(old)
                if current is None:
                    return False
                changed = merge_patch(current, command.patch)
                if changed["kind"] == "Pod":
                    self.check_pod(current, changed)
                self.put(changed)
            case PatchStatus(_, obj, style, status, manager):
                current = self.find(obj)
                if current is None:
                    return False
                self.put(with_status(current, style, status, manager))
            case DropFinalizer(_, obj, finalizer):
                current = self.find(obj)
                if current is not None and finalizer in current["metadata"]["finalizers"]:
                    changed = copy.deepcopy(current)
                    changed["metadata"]["finalizers"].remove(finalizer)
                    self.put(changed)
            case Delete(_, obj):
                current = self.find(obj)
                if current is not None:
                    if current["kind"] == "Pod":
                        self.deleted_by_us.append(current["metadata"]["uid"])
                    self.delete(current)
            case RequeueAfter():
                return False
            case Emit() | Count():
                pass
        return True

    def check_pod(self, old, new) -> None:
        """What the API server lets change in a pod."""
        before = [gate["name"] for gate in old["spec"].get("schedulingGates", ())]
        after = [gate["name"] for gate in new["spec"].get("schedulingGates", ())]
        assert set(after) <= set(before), "gates can only be removed"
        if old["spec"].get("nodeSelector") != new["spec"].get("nodeSelector"):
            assert before, "selectors change while a pod is gated only"

    def find(self, obj):
        uid = obj["metadata"]["uid"]
        if obj["kind"] == "Pod":
            return self.pods.get(uid)
        found = self.workload
        return found if found is not None and found["metadata"]["uid"] == uid else None

    def put(self, obj) -> None:
        meta = obj["metadata"] = {**obj["metadata"], "resourceVersion": str(next(self.versions))}
        gone = meta.get("deletionTimestamp") and not meta.get("finalizers")
        if obj["kind"] == "Workload":
            self.workload = None if gone else obj
        elif gone and stage_of(obj) is not PodStage.LEAVING:
            self.pods.pop(meta["uid"], None)
        else:
            self.pods[meta["uid"]] = obj

    def delete(self, obj) -> None:
        if obj["metadata"].get("deletionTimestamp"):
            return
        changed = copy.deepcopy(obj)
        changed["metadata"]["deletionTimestamp"] = format_time(self.now + 30)
        self.put(changed)

    # ---- the rest of the cluster

    def create(self, name, cpu, labels=None, annotations=None, **spec) -> str:
        self.now += 1
        uid = f"pod-{next(self.uids)}"
        container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{name}-{uid}",
                "namespace": "ns",
                "uid": uid,
                "creationTimestamp": format_time(self.now),
                "labels": {
                    f"{KUEUE}/queue-name": "main",
                    f"{KUEUE}/pod-group-name": "group",
                    **(labels or {}),
                },
                "annotations": annotations or {},
            },
            "spec": {"containers": [container], **spec},
            "status": {"phase": "Pending"},
        }
        self.put(gated(pod))
        return uid

    def bind(self) -> None:
        for pod in list(self.pods.values()):
            if stage_of(pod) is PodStage.STARTED and not pod["spec"].get("nodeName"):
                spec = {**pod["spec"], "nodeName": "node"}
                self.put({**pod, "spec": spec, "status": {**pod["status"], "phase": "Running"}})

    def end(self, pod, phase) -> None:
        self.now += 1
        condition = {
            "type": "ContainersReady",
            "status": "False",
            "reason": "PodFailed" if phase == "Failed" else "PodCompleted",
            "lastTransitionTime": format_time(self.now),
        }
        status = pod["status"]
        kept = [each for each in status.get("conditions", ()) if each["type"] != "ContainersReady"]
        self.put({**pod, "status": {**status, "phase": phase, "conditions": [*kept, condition]}})

    def drain(self) -> None:
        """Evict whatever runs."""
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "EvictionByEvictionAPI",
        }
        for pod in self.in_stage(PodStage.STARTED):
            conditions = [*pod["status"].get("conditions", ()), condition]
            self.delete({**pod, "status": {**pod["status"], "conditions": conditions}})

    def terminate(self) -> None:
        for pod in self.in_stage(PodStage.LEAVING):
            self.end(pod, "Failed")

    def collect_garbage(self) -> None:
        found = self.workload
        if found is None or found["metadata"].get("deletionTimestamp"):
            return
        refs = found["metadata"].get("ownerReferences") or ()
        if refs and not any(ref["uid"] in self.pods for ref in refs):
            self.delete(found)

    def in_stage(self, *stages):
        return [pod for pod in list(self.pods.values()) if stage_of(pod) in stages]


def with_status(current, style, status, manager):
    if style == "merge":
        return merge_patch(current, {"status": status})
    changed = copy.deepcopy(current)
    found = changed.setdefault("status", {})
    types = {each["type"] for each in status.get("conditions", ())}
    if manager == "kueue-admission":
        for field in ("admission", "requeueState"):
            found.pop(field, None)
        types |= {*BUNDLE}
    kept = [each for each in found.get("conditions", ()) if each["type"] not in types]
    found.update(copy.deepcopy(status))
    found["conditions"] = [*kept, *copy.deepcopy(status.get("conditions", []))]
    return changed
