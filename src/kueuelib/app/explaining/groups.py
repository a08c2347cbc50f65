"""Groups of pods that have no Workload because pods of them are missing."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from kueuelib.api import kueue
from kueuelib.api.codec import decode
from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.app.explaining.subject import group_problem
from kueuelib.jobs.pods.reading import Stage, group_of, queue_of, stage_of


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
        if group_of(pod) and stage_of(pod) is Stage.GATED:
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
