"""The work of users: Jobs, Pods and groups of Pods."""

from __future__ import annotations

import attrs

from kueuelib.testing.storm.history import Obj
from kueuelib.testing.storm.users import acts
from kueuelib.testing.storm.users.acts import Act, LabelledDraws
from kueuelib.testing.storm.users.queues import LEVELS, NAMESPACE

JOBS = "jobs.batch"
PODS = "pods"
JOB, POD, GROUP = "job", "pod", "group"

QUEUE = "kueue.x-k8s.io/queue-name"
PRIORITY = "kueue.x-k8s.io/priority-class"
GROUP_NAME = "kueue.x-k8s.io/pod-group-name"
TOTAL = "kueue.x-k8s.io/pod-group-total-count"
WAVES = 3
"""The number of waves of a crowd."""
WAVE_SECONDS = 6.0
"""Seconds for which the jobs of a wave arrive."""
RUN = "kueuelib.dev/run-seconds"
FOR_EVER = "1000000"
EXIT = "kueuelib.dev/exit-code"


@attrs.frozen
class Work:
    """Submitted work that waits for quota.

    Attributes:
        kind: `job`, `pod` or `group`.
        name: of the Job, the Pod or the group.
        at: the time of its submission.
        objects: the raw objects: one, or the Pods of a group.
    """

    kind: str
    name: str
    at: float
    objects: tuple[Obj, ...]

    @property
    def resource(self) -> str:
        """The kind of its objects."""
        return JOBS if self.kind == JOB else PODS

    @property
    def first(self) -> str:
        """The name of its first object."""
        return str(self.objects[0]["metadata"]["name"])

    def submit(self, at: float, word: str = "create", gap: float = 0.3) -> list[Act]:
        """The acts that submit it."""
        return [
            Act(
                at + gap * number,
                f"{self.name}/{word}" + (f"-{number}" if number else ""),
                acts.CREATE,
                self.resource,
                NAMESPACE,
                obj["metadata"]["name"],
                obj,
            )
            for number, obj in enumerate(self.objects)
        ]


def draw_work(
    draws: LabelledDraws,
    count: int,
    queues: tuple[str, ...],
    seconds: float,
    *,
    endless: float = 0.0,
) -> list[Work]:
    """Draws work.

    Args:
        draws: decisions.
        count: the number.
        queues: names of LocalQueues.
        seconds: all arrive within this time.
        endless: the share that runs longer than any storm.
    """
    names = [f"work-{number}" for number in range(1, count + 1)]
    return [_work(draws, name, queues, seconds, endless) for name in names]


def draw_crowd(draws: LabelledDraws, count: int, queues: tuple[str, ...]) -> list[Work]:
    """Draws many short jobs in waves; those of a higher priority often arrive a little later."""
    waves = [draws.uniform(f"wave-{number}", 0.0, 60.0) for number in range(WAVES)]
    return [_in_crowd(draws, f"work-{number}", queues, waves) for number in range(1, count + 1)]


def _in_crowd(draws: LabelledDraws, name: str, queues: tuple[str, ...], waves: list[float]) -> Work:
    level = draws.choice(f"{name}/priority", ("", *LEVELS))
    late = LEVELS.get(level, 0) > 0 and draws.chance(f"{name}/late", 0.5)
    spread = 2 * WAVE_SECONDS if late else WAVE_SECONDS
    at = draws.choice(f"{name}/wave", waves) + draws.uniform(f"{name}/at", 0.0, spread)
    labels = {QUEUE: draws.choice(f"{name}/queue", queues)}
    if level:
        labels[PRIORITY] = level
    notes = {RUN: f"{draws.uniform(f'{name}/run', 0.5, 6.0):.1f}"}
    cpu = draws.choice(f"{name}/cpu", ("500m", "1", "1"))
    return Work(JOB, name, at, (_job(name, 1, labels, notes, cpu),))


def _work(
    draws: LabelledDraws, name: str, queues: tuple[str, ...], seconds: float, endless: float
) -> Work:
    kind = draws.choice(f"{name}/kind", (JOB, JOB, JOB, POD, GROUP))
    early = draws.chance(f"{name}/early", 0.3)
    at = 0.0 if early else draws.uniform(f"{name}/at", 0.0, seconds)
    size = 1 if kind == POD else draws.integer(f"{name}/size", 1 if kind == JOB else 2, 3)
    notes = {RUN: f"{draws.uniform(f'{name}/run', 1.0, 60.0):.1f}"}
    if draws.chance(f"{name}/endless", endless):
        notes[RUN] = FOR_EVER
    if draws.chance(f"{name}/fails", 0.1):
        notes[EXIT] = "1"
    labels = {QUEUE: draws.choice(f"{name}/queue", queues)}
    if draws.chance(f"{name}/prioritised", 0.5):
        labels[PRIORITY] = draws.choice(f"{name}/priority", tuple(LEVELS))
    cpu = draws.choice(f"{name}/cpu", ("500m", "1", "1", "2"))
    if kind == JOB:
        return Work(kind, name, at, (_job(name, size, labels, notes, cpu),))
    if kind == POD:
        return Work(kind, name, at, (_pod(name, labels, notes, cpu),))
    grouped = {**labels, GROUP_NAME: name}
    members = tuple(
        _pod(f"{name}-{number}", grouped, {**notes, TOTAL: str(size)}, cpu)
        for number in range(size)
    )
    return Work(kind, name, at, members)


def _container(cpu: str) -> Obj:
    return {"name": "main", "image": "storm.example/work", "resources": {"requests": {"cpu": cpu}}}


def _pod(name: str, labels: Obj, notes: Obj, cpu: str) -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": dict(labels),
            "annotations": dict(notes),
        },
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "containers": [_container(cpu)],
        },
    }


def _job(name: str, size: int, labels: Obj, notes: Obj, cpu: str) -> Obj:
    pod = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "containers": [_container(cpu)],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": dict(labels)},
        "spec": {
            "parallelism": size,
            "completions": size,
            "backoffLimit": 0,
            "template": {"metadata": {"annotations": dict(notes)}, "spec": pod},
        },
    }
