"""Plays trainings: the controller that their vendor would ship. It knows nothing of queues.

It makes the pods of a training that is not suspended, deletes those of one that is, and reports in
the status how they do. The launcher decides the end.

    python controller.py KUBECONFIG
"""

from __future__ import annotations

import sys
from typing import Any

import anyio

from kueuelib.errors import AlreadyExists, NotFound
from kueuelib.runtime import (
    DONE,
    Cache,
    Client,
    Controller,
    Group,
    Informer,
    Manager,
    Obj,
    ObjectKey,
    PatchType,
    Resource,
    Result,
    Signals,
    connect,
    is_true,
    key_of,
    kinds,
    logs,
    wait_for_server,
)

TRAININGS = Resource("ml.example.com", "v1", "trainings", "Training", namespaced=True)
BY_CONTROLLER = "pods by controller"


class TrainingReconciler:
    """Looks at one training and its pods."""

    def __init__(self, client: Client, trainings: Informer, pods: Informer) -> None:
        self._client = client
        self._trainings = trainings
        self._pods = pods
        pods.add_index(BY_CONTROLLER, _controller_uid)

    async def reconcile(self, key: ObjectKey) -> Result:
        """Make, delete, report."""
        training = self._trainings.store.get(key)
        if training is None or training["metadata"].get("deletionTimestamp"):
            return DONE
        pods = self._pods.store.by_index(BY_CONTROLLER, training["metadata"]["uid"])
        status = _status(training, pods)
        if status != (training.get("status") or {}):
            body = {"status": status}
            await self._client.patch(TRAININGS, key, body, PatchType.MERGE, subresource="status")
        ended = status["phase"] in ("Succeeded", "Failed")
        if ended or training["spec"].get("suspend"):
            await self._delete(pods, ended=ended)
        else:
            await self._create(training, {pod["metadata"]["name"] for pod in pods})
        return DONE

    async def _create(self, training: Obj, present: set[str]) -> None:
        for pod in _pods(training):
            if pod["metadata"]["name"] in present:
                continue
            try:
                await self._client.create(kinds.PODS, pod)
            except AlreadyExists:
                continue  # of an earlier run, on its way out: its end leads here again

    async def _delete(self, pods: tuple[Obj, ...], *, ended: bool) -> None:
        for pod in pods:
            over = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
            if pod["metadata"].get("deletionTimestamp") or (ended and over):
                continue
            try:
                await self._client.delete(kinds.PODS, key_of(pod), uid=pod["metadata"]["uid"])
            except NotFound:
                continue


def _status(training: Obj, pods: tuple[Obj, ...]) -> dict[str, Any]:
    phases = {pod["metadata"]["name"]: pod.get("status", {}).get("phase") for pod in pods}
    over = [phase for phase in phases.values() if phase in ("Succeeded", "Failed")]
    ready = [pod for pod in pods if is_true(pod, "Ready")]
    before = training.get("status", {}).get("phase")
    launcher = phases.get(f"{training['metadata']['name']}-launcher-0")
    phase = "Running" if ready else "Pending"
    if before in ("Succeeded", "Failed"):
        phase = before
    elif launcher in ("Succeeded", "Failed") and not training["spec"].get("suspend"):
        phase = launcher
    status = {
        "active": len(phases) - len(over),
        "ready": len(ready) + phases_of(phases, "Succeeded"),
        "phase": phase,
    }
    if phase in ("Succeeded", "Failed"):
        status["message"] = f"the launcher has {phase.lower()}"
    return status


def phases_of(phases: dict[str, Any], wanted: str) -> int:
    """How many pods are in a phase."""
    return sum(phase == wanted for phase in phases.values())


def _pods(training: Obj) -> list[Obj]:
    spec = training["spec"]
    pods: list[Obj] = []
    for role, count in (("launcher", 1), ("workers", spec["workers"].get("replicas", 1))):
        template = spec[role]["template"]
        for index in range(count):
            meta = {
                **template.get("metadata", {}),
                "name": f"{training['metadata']['name']}-{role}-{index}",
                "namespace": training["metadata"]["namespace"],
                "ownerReferences": [_owner(training)],
            }
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": template["spec"]}
            pods.append(pod)
    return pods


def _owner(training: Obj) -> Obj:
    return {
        "apiVersion": TRAININGS.api_version,
        "kind": TRAININGS.kind,
        "name": training["metadata"]["name"],
        "uid": training["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _controller_uid(pod: Obj) -> tuple[str, ...]:
    refs = pod["metadata"].get("ownerReferences") or ()
    ref = next((ref for ref in refs if ref.get("controller")), None)
    return () if ref is None else (ref["uid"],)


async def run(kubeconfig: str) -> None:
    """Plays trainings until SIGTERM."""
    async with await connect(kubeconfig) as client:
        await wait_for_server(client)
        cache = Cache(client)
        trainings, pods = cache.informer(TRAININGS), cache.informer(kinds.PODS)
        reconciler = TrainingReconciler(client, trainings, pods)
        controller = Controller("training", reconciler).for_(trainings).owns(pods, TRAININGS)
        manager = Manager()
        manager.add(Group.CACHES, cache)
        manager.add(Group.ELECTED, controller)
        with Signals(manager.stop):
            await manager.run()


if __name__ == "__main__":
    logs.configure("console", "info")
    anyio.run(run, sys.argv[1])
