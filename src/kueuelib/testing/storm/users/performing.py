"""Performs acts by calls without faults."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Protocol

from kueuelib.errors import AlreadyExists, ApiError
from kueuelib.testing.storm.history import Obj
from kueuelib.testing.storm.users import acts
from kueuelib.testing.storm.users.acts import Act, LabelledDraws

# ---- acts of users on an object while a manager writes it ----------------------------------------

WORKLOADS = "workloads.kueue.x-k8s.io"
AT_ONCE = 0.01
"""Seconds between two acts that belong together."""
SOON = 0.5
"""The maximum number of seconds until an object is created again."""
BACK = (2.0, 30.0)
"""Seconds until a Workload is activated again."""

ANNOTATE, DELETE, AGAIN, DEACTIVATE, STRIP = "annotate", "delete", "again", "deactivate", "strip"
WAYS = {
    WORKLOADS: (ANNOTATE, DEACTIVATE, DEACTIVATE, STRIP, DELETE),
    "jobs.batch": (ANNOTATE, AGAIN, AGAIN, DELETE),
    "pods": (ANNOTATE, AGAIN, DELETE),
}
"""The possible acts on objects of a kind; one that is listed twice is twice as likely."""


KNOWN_WAYS = {"recreated": AGAIN, "replaced": STRIP}
"""The act of a fault that has only one."""


def meddle(
    draws: LabelledDraws,
    label: str,
    target: tuple[str, str, str],
    before: Iterable[Act],
    kind: str = "overtaken",
) -> tuple[Act, ...]:
    """Draws acts on an object; the times count from now.

    Args:
        draws: decisions.
        label: of this interference.
        target: resource, namespace and name of the object.
        before: all acts of the scenario, which contain its creation.
        kind: the fault that they belong to.
    """
    created = [act for act in before if act.verb == acts.CREATE]
    body = next((act.body for act in created if _is(act, target)), None)
    if kind == "doubted":
        return _rival(label, target, created)
    if kind == "undone":
        at, back = draws.uniform(f"{label}/at", 0.1, 2.0), draws.uniform(f"{label}/back", *BACK)
        return tuple(
            Act(when, f"{label}/{word}", acts.PATCH_WORKLOAD, *target, {"spec": {"active": active}})
            for when, word, active in ((at, "off", False), (at + back, "on", True))
        )
    way = KNOWN_WAYS.get(kind) or draws.choice(f"{label}/way", WAYS[target[0]])
    if way == ANNOTATE:
        note = {"metadata": {"annotations": {"storm.example/meddled": label[-40:]}}}
        return (Act(0.0, f"{label}/annotate", acts.PATCH, *target, note),)
    if way == DEACTIVATE:
        back = draws.uniform(f"{label}/back", *BACK)
        return (
            Act(0.0, f"{label}/off", acts.PATCH, *target, {"spec": {"active": False}}),
            Act(back, f"{label}/on", acts.PATCH, *target, {"spec": {"active": True}}),
        )
    gone = Act(AT_ONCE, f"{label}/delete", acts.DELETE, *target)
    if way == STRIP:
        bare = {"metadata": {"finalizers": None}}
        return (Act(0.0, f"{label}/strip", acts.PATCH, *target, bare), gone)
    if way == AGAIN and body is not None:
        soon = 2 * AT_ONCE + draws.uniform(f"{label}/soon", 0.0, SOON)
        return (gone, Act(soon, f"{label}/again", acts.CREATE, *target, body))
    return (gone,)


def _rival(label: str, target: tuple[str, str, str], created: list[Act]) -> tuple[Act, ...]:
    """A Job of high priority for the same queue as the one that a Workload is for."""
    for act in created:
        if act.resource == "jobs.batch" and target[2].startswith(f"job-{act.name}-"):
            name = f"{act.name}-rival"
            meta = {**(act.body or {})["metadata"], "name": name}
            meta["labels"] = {**meta["labels"], "kueue.x-k8s.io/priority-class": "high"}
            body = {**(act.body or {}), "metadata": meta}
            where = (act.resource, act.namespace, name)
            return (Act(0.5, f"{label}/rival", acts.CREATE, *where, body),)
    return ()


def _is(act: Act, target: tuple[str, str, str]) -> bool:
    return (act.resource, act.namespace, act.name) == target


# --------------------------------------------------------------------------------------------------

PODS = "pods"
JOB_NAME = "batch.kubernetes.io/job-name"
FAILING = frozenset({"ServerError", "Unavailable", "ServerTimeout"})
"""Outcomes after which a user repeats an act."""
TRIES = 120
PAUSE = 1.0
"""Seconds between two tries of an act."""


class RawCalls(Protocol):
    """Raw calls; resources are named `plural.group`."""

    async def get(self, resource: str, namespace: str, name: str, /) -> Obj:
        """An object."""
        ...

    async def list(self, resource: str, namespace: str = "", /) -> list[Obj]:
        """The objects of a namespace, or of all."""
        ...

    async def create(self, resource: str, obj: Mapping[str, Any], /) -> Obj:
        """Stores a new object."""
        ...

    async def patch(
        self, resource: str, namespace: str, name: str, body: Any, subresource: str = "", /
    ) -> Obj:
        """Merges a patch into an object."""
        ...

    async def delete(self, resource: str, namespace: str, name: str, /) -> None:
        """Requests the deletion of an object, and of its dependents in the background."""
        ...


async def perform(act: Act, api: RawCalls) -> str:
    """Performs an act.

    Returns:
        the outcome in a word: `done`, `nothing` if the object does not exist, or the name of the
        API server's error.
    """
    try:
        return await _perform(act, api)
    except ApiError as error:
        return type(error).__name__


async def insist(act: Act, api: RawCalls, sleep: Callable[[float], Awaitable[None]]) -> str:
    """Performs an act, and repeats it while the server fails, because a manager's webhook may not
    answer.

    Args:
        act: the act.
        api: calls.
        sleep: waits for some seconds.

    Returns:
        the outcome of `perform`; one of `FAILING` if no try succeeded. An object may disappear
        between the two calls of `restore`, so that is also repeated.
    """
    again = FAILING | {"NotFound"} if act.verb == acts.RESTORE else FAILING
    for _ in range(TRIES):
        outcome = await perform(act, api)
        if outcome not in again:
            break
        await sleep(PAUSE)
    return outcome


async def _perform(act: Act, api: RawCalls) -> str:
    where = (act.resource, act.namespace, act.name)
    match act.verb:
        case acts.CREATE:
            await api.create(act.resource, act.body or {})
        case acts.PATCH:
            await api.patch(*where, act.body)
        case acts.PATCH_STATUS:
            await api.patch(*where, {"status": act.body}, "status")
        case acts.DELETE:
            await api.delete(*where)
        case acts.RESTORE:
            return await _restore(act, api)
        case acts.PATCH_WORKLOAD | acts.DELETE_WORKLOAD:
            return await _to_workload(act, api)
        case acts.DELETE_PODS:
            return await _delete_pods(act, api)
        case acts.ANSWER:
            return await _answer(act, api)
        case unknown:
            raise ValueError(f"act {act.label}: unknown verb {unknown!r}")
    return "done"


async def _restore(act: Act, api: RawCalls) -> str:
    body = act.body or {}
    spec = {key: value for key, value in body["spec"].items() if value is not None}
    try:
        await api.create(act.resource, {**body, "spec": spec})
    except AlreadyExists:
        await api.patch(act.resource, act.namespace, act.name, {"spec": body["spec"]})
    return "done"


async def _to_workload(act: Act, api: RawCalls) -> str:
    """Applies an act to the Workloads of the named object, by its UID."""
    owner = (await api.get(act.resource, act.namespace, act.name))["metadata"]["uid"]
    outcome = "nothing"
    for workload in await api.list(WORKLOADS, act.namespace):
        meta = workload["metadata"]
        if owner not in [one["uid"] for one in meta.get("ownerReferences") or ()]:
            continue
        outcome = "done"
        if act.verb == acts.DELETE_WORKLOAD:
            await api.delete(WORKLOADS, act.namespace, meta["name"])
        else:
            await api.patch(WORKLOADS, act.namespace, meta["name"], act.body)
    return outcome


async def _delete_pods(act: Act, api: RawCalls) -> str:
    outcome = "nothing"
    for pod in await api.list(PODS, act.namespace):
        meta = pod["metadata"]
        if (meta.get("labels") or {}).get(JOB_NAME) == act.name:
            await api.delete(PODS, act.namespace, meta["name"])
            outcome = "done"
    return outcome


async def _answer(act: Act, api: RawCalls) -> str:
    answer = act.body or {}
    outcome = "nothing"
    for workload in await api.list(WORKLOADS):
        status = workload.get("status") or {}
        states = status.get("admissionChecks") or []
        waits = [one for one in states if one["name"] == act.name and one["state"] == "Pending"]
        if not status.get("admission") or not waits:
            continue
        outcome = "done"
        answered = [
            {**one, **answer, "message": "answered by a user"} if one in waits else one
            for one in states
        ]
        meta = workload["metadata"]
        # The version keeps the answer from overwriting what happened since it was read.
        body = {
            "metadata": {"resourceVersion": meta["resourceVersion"]},
            "status": {"admissionChecks": answered},
        }
        await api.patch(WORKLOADS, meta["namespace"], meta["name"], body, "status")
    return outcome
