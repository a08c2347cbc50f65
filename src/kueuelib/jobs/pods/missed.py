"""Finds pods that bypassed our webhook, and repairs what can be repaired (KEP-976).

A gate cannot be added to an existing pod. A pod that has it (from its manifest) gets the other
marks and is queued like any other. One without a gate is counted, reported, and left alone:
deleting it would be worse than letting one pod run without waiting.

A pod with our finalizer was ours already and has only lost the label by which we see it. It always
gets the label back, otherwise it would hold quota and its finalizer forever.
"""

from __future__ import annotations

from kueuelib.api.kinds import PODS
from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.jobs.contract.commands import MISSED, WARNING, Change, Command, Count, Emit
from kueuelib.jobs.pods.marks import labelled, marked_as_ours
from kueuelib.jobs.pods.metrics import PodMetrics
from kueuelib.jobs.pods.reading import Stage, has_finalizer, stage_of
from kueuelib.jobs.pods.selection import is_selected
from kueuelib.jobs.pods.webhook import is_child, namespace_labels
from kueuelib.jobs.reconcile.executor import Executor
from kueuelib.jobs.reconcile.metrics import LEFT_ALONE, REPAIRED
from kueuelib.jobs.reconcile.self_wired import Parts
from kueuelib.machinery.store import Store
from kueuelib.runtime.controller import DONE, Result

NOT_GATED = "NotQueued"
REMEMBERED = 100_000
"""The maximum number of reported pods that are remembered."""


class MissedPods:
    """Looks at pods with a queue name that our webhook has not marked.

    Args:
        parts: the caches and the configuration.
        executor: executes the plan.
        pods: these pods.
        metrics: counts.
    """

    def __init__(
        self, parts: Parts, executor: Executor, pods: Store[Obj], metrics: PodMetrics
    ) -> None:
        self._parts = parts
        self._executor = executor
        self._pods = pods
        self._metrics = metrics
        self._told: dict[str, None] = {}

    async def reconcile(self, key: ObjectKey) -> Result:
        """Look at one pod and act."""
        pod = self._pods.get(key)
        if pod is None:
            return DONE
        if has_finalizer(pod):
            outcome = await self._executor.run(regained(pod))
            return outcome.result
        if stage_of(pod) not in (Stage.GATED, Stage.STARTED):
            return DONE
        await self._parts.owners.learn(pod, key.namespace)
        labels = namespace_labels(self._parts, key.namespace)
        if labels is None:
            return Result(requeue_after=1.0)
        if is_child(self._parts, pod, key.namespace) or not is_selected(
            pod, self._parts.settings, key.namespace, labels
        ):
            return DONE
        outcome = await self._executor.run(self._plan(pod))
        return outcome.result

    def _plan(self, pod: Obj) -> tuple[Command, ...]:
        if stage_of(pod) is Stage.GATED:
            return _repaired(pod, marked_as_ours(pod))
        uid = pod["metadata"]["uid"]
        if uid in self._told:
            return ()
        if len(self._told) >= REMEMBERED:
            self._told.pop(next(iter(self._told)))
        self._told[uid] = None
        self._metrics.missed(PODS.kind, LEFT_ALONE)
        text = "The pod bypassed the webhook, or lost our marks; it runs without quota"
        return (Emit(pod, NOT_GATED, text, WARNING),)


def regained(pod: Obj) -> tuple[Command, ...]:
    """Gives back the label that one of our pods has lost."""
    return _repaired(pod, labelled(pod))


def _repaired(old: Obj, new: Obj) -> tuple[Command, ...]:
    return (Change(PODS, old, new), Count(MISSED, (PODS.kind, REPAIRED)))
