"""The Deployment controller: executes the decisions of `rollout`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kueuelib.api.kinds import DEPLOYMENTS, REPLICA_SETS
from kueuelib.api.meta import Obj, ObjectKey, annotations_of, controller_of, key_of, labels_of
from kueuelib.embedded.builtins.workloads import selects
from kueuelib.embedded.cluster.controller import ControllerTools, SimulatedController
from kueuelib.embedded.cluster.pod_control import claimed
from kueuelib.embedded.cluster.pod_life import is_terminal
from kueuelib.embedded.cluster.replica_sets import wanted
from kueuelib.embedded.cluster.rollout import REVISION, RolloutStep, decide, is_rolling, refused
from kueuelib.embedded.verbs import Propagation
from kueuelib.errors import AlreadyExists, ApiError
from kueuelib.machinery.store import Delta

_COMPONENT = "deployment-controller"


class DeploymentController(SimulatedController[ObjectKey]):
    """Makes and scales the ReplicaSets of Deployments, and writes the status."""

    name = "deployment"

    def __init__(self, parts: ControllerTools) -> None:
        super().__init__(parts)
        self._deployments = parts.kinds.of(DEPLOYMENTS)
        self._sets = parts.kinds.of(REPLICA_SETS)
        self._deployments.add_handler(self._on_deployment)
        self._sets.add_handler(self._on_set)
        self._pods.add_handler(self._on_pod)

    def _on_deployment(self, delta: Delta[Obj]) -> None:
        if delta.new is not None:
            self.loop.add(delta.key)

    def _on_set(self, delta: Delta[Obj]) -> None:
        for replica_set in (delta.old, delta.new):
            ref = None if replica_set is None else controller_of(replica_set)
            if ref is not None and ref.get("kind") == DEPLOYMENTS.kind:
                self.loop.add(ObjectKey(delta.key.namespace, ref["name"]))
        if delta.new is not None and controller_of(delta.new) is None:
            for each in self._deployments.in_namespace(delta.key.namespace):
                if selects(each["spec"].get("selector") or {}, labels_of(delta.new)):
                    self.loop.add(key_of(each))

    def _on_pod(self, delta: Delta[Obj]) -> None:
        """Looks at a Deployment that waits for the end of old pods."""
        if delta.old is None or (delta.new is not None and not is_terminal(delta.new)):
            return
        ref = controller_of(delta.old)
        if ref is None or ref.get("kind") != REPLICA_SETS.kind:
            return
        owner = self._sets.get(ObjectKey(delta.key.namespace, ref["name"]))
        above = None if owner is None else controller_of(owner)
        key = ObjectKey(delta.key.namespace, "" if above is None else above["name"])
        deployment = self._deployments.get(key)
        if deployment is not None and not is_rolling(deployment):
            self.loop.add(key)

    async def _reconcile(self, key: ObjectKey) -> float | None:
        deployment = self._deployments.get(key)
        if deployment is None:
            return None
        sets = await claimed(self._sets, deployment)
        running = {each["metadata"]["uid"]: self._running(each) for each in sets}
        step = decide(deployment, sets, running, self._clock.now())
        await self._change(deployment, step)
        for each in step.delete:
            await self._sets.delete(each, propagation=Propagation.BACKGROUND)
        status, problem = await self._create(deployment, step)
        known = annotations_of(deployment)
        noted = known if problem or not step.revision else {**known, REVISION: step.revision}
        if status != (deployment.get("status") or {}) or noted != known:
            meta = {**deployment["metadata"], "annotations": dict(noted)}
            await self._deployments.update_status({**deployment, "metadata": meta}, status)
        if problem is not None:
            raise problem
        return step.due

    def _running(self, replica_set: Obj) -> int:
        pods = self._pods.owned_by(replica_set["metadata"]["uid"])
        return sum(not is_terminal(pod) for pod in pods)

    async def _change(self, deployment: Obj, step: RolloutStep) -> None:
        for change in step.change:
            await self._sets.patch(key_of(change.replica_set), change.patch)
            self._report_size(
                deployment, change.replica_set, wanted(change.replica_set), change.size
            )

    async def _create(self, deployment: Obj, step: RolloutStep) -> tuple[Obj, ApiError | None]:
        """Makes the new ReplicaSet, if there has to be one; returns the status to be written."""
        if step.create is None:
            return step.status, None
        try:
            made = await self._sets.create(step.create)
        except AlreadyExists as error:
            # Another ReplicaSet has the name, so the hash has to become another one.
            status = dict(deployment.get("status") or {})
            return {**status, "collisionCount": status.get("collisionCount", 0) + 1}, error
        except ApiError as error:
            name = step.create["metadata"]["name"]
            text = f'Failed to create new replica set "{name}": {error.message}'
            self._events.warning(deployment, _COMPONENT, "ReplicaSetCreateError", text)
            return refused(deployment, text, self._clock.now()), error
        self._report_size(deployment, made, 0, wanted(made))
        return step.status, None

    def _report_size(
        self, deployment: Obj, replica_set: Mapping[str, Any], before: int, size: int
    ) -> None:
        if before == size:
            return
        way, name = "up" if size > before else "down", replica_set["metadata"]["name"]
        text = f"Scaled {way} replica set {name} from {before} to {size}"
        self._events.normal(deployment, _COMPONENT, "ScalingReplicaSet", text)
