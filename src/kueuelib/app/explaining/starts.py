"""Why a job gets no Workload, does not start or lacks pods, as far as Events say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kueuelib.api.ages import duration
from kueuelib.api.kinds import EVENTS, JOBS, PODS
from kueuelib.api.meta import Obj, ObjectKey, parse_time
from kueuelib.api.names import ADMITTED, REASON_FAILED_TO_START
from kueuelib.app.refused_writes import STANDING, problem_of, standing
from kueuelib.app.refusers import find_remedy, latest
from kueuelib.errors import Forbidden, NotFound
from kueuelib.jobs.pods.reading import Stage, stage_of
from kueuelib.jobs.reconcile.refusals import START_REFUSED
from kueuelib.jobs.reconcile.steps import COMPOSE_ERROR, CREATED_WORKLOAD, STARTED
from kueuelib.runtime.client import Client
from kueuelib.scheduler.explain.obstacles import Problem
from kueuelib.workload import states


async def refusal_notes(client: Client, workload: Obj, now: float) -> tuple[str, ...]:
    """What the API server refuses for a Workload and its job, the start of the job first.

    Args:
        client: whose cluster.
        workload: the raw Workload.
        now: seconds since the epoch.
    """
    if states.is_finished(workload):
        return ()
    job = await _job(client, workload)
    admitted = states.is_admitted(workload) and not states.is_evicted(workload)
    held = _is_held(job) if admitted else False
    owner = next(iter(_owners(workload)), {}).get("uid", "")
    meta = workload["metadata"]
    try:
        about = [await _events(client, meta["namespace"], one) for one in (meta["uid"], owner)]
    except Forbidden as error:
        return (f"an Event may say why its job is not started: {error}",) if held else ()
    events = [event for each in about for event in each]
    notes = []
    start = None if held is False else _start(events, workload, held=bool(held), now=now)
    for said, what, event in (
        ("its job is not started. ", "the start", start),
        ("", "it", standing(events, workload, job, now)),
    ):
        if event is None:
            continue
        text = event["message"] if said else problem_of(event)
        notes.append(f"{said}{text} ({_ago(event, now)})")
        fix = await find_remedy(client, event["message"], meta["namespace"])
        notes += [f"what refuses {what}: {fix}"] if fix else []
    return tuple(notes)


def _start(events: Sequence[Obj], workload: Obj, *, held: bool, now: float) -> Obj | None:
    """The Event about a start that fails; None if the start has succeeded since, as far as known.

    Args:
        events: about the Workload and its job.
        workload: the raw Workload, which is admitted.
        held: whether the job is known to wait for its start.
        now: seconds since the epoch.
    """
    told = latest(
        one
        for one in events
        if one["reason"] == REASON_FAILED_TO_START and one["message"].startswith(START_REFUSED)
    )
    if told is None:
        return None
    at = parse_time(told["lastTimestamp"])
    since = states.condition(workload, ADMITTED).get("lastTransitionTime")
    started = latest(one for one in events if one["reason"] == STARTED)
    over = started is not None and parse_time(started["lastTimestamp"]) >= at
    if (since and at < parse_time(since)) or (not held and (over or now - at > STANDING)):
        return None
    return told


async def creation_problem(client: Client, obj: Obj, title: str, now: float) -> Problem | str:
    """Why no Workload is made for an object, as the manager reported it last.

    Args:
        client: whose cluster.
        obj: the raw object.
        title: its kind and name.
        now: seconds since the epoch.

    Returns:
        The problem, or a note if Events may not be listed; empty if nothing was reported.
    """
    meta = obj["metadata"]
    try:
        events = await _events(client, meta["namespace"], meta["uid"])
    except Forbidden as error:
        return f"an Event may say why it has no Workload: {error}"
    told = latest(one for one in events if one["reason"] in (COMPOSE_ERROR, CREATED_WORKLOAD))
    if told is None or told["reason"] != COMPOSE_ERROR:
        return ""
    said = f"the manager said {COMPOSE_ERROR}: {told['message']}"
    problem = f"it has no Workload; {_ago(told, now)} {said}"
    fix = await find_remedy(client, told["message"], meta["namespace"])
    return Problem(title, problem, fix or "correct what the message names")


def _ago(event: Obj, now: float) -> str:
    return f"{duration(max(0.0, now - parse_time(event['lastTimestamp'])))} ago"


async def _events(client: Client, namespace: str, uid: str) -> Sequence[Obj]:
    """The Events about an object.

    Raises:
        Forbidden: the caller may not list Events.
    """
    if not uid:
        return ()
    return (await client.list(EVENTS, namespace, field_selector=f"involvedObject.uid={uid}")).items


def _owners(workload: Obj) -> Iterator[Obj]:
    """The references to the owners of a Workload, the job before others."""
    owners = workload["metadata"].get("ownerReferences") or ()
    yield from sorted(owners, key=lambda one: not one.get("controller"))


async def _job(client: Client, workload: Obj) -> Obj | None:
    """A Job or Pod of a Workload, one that waits for its start if there is one; None if there is
    none that can be read.
    """
    last = None
    for owner in _owners(workload):
        resource = next((one for one in (JOBS, PODS) if one.kind == owner["kind"]), None)
        if resource is None or owner["apiVersion"] != resource.api_version:
            continue
        key = ObjectKey(workload["metadata"]["namespace"], owner["name"])
        try:
            obj = await client.get(resource, key)
        except (Forbidden, NotFound):
            continue
        obj["kind"] = resource.kind
        last = obj
        if _is_held(obj):
            break
    return last


def _is_held(job: Obj | None) -> bool | None:
    """Whether a Job or Pod waits for its start; None without one."""
    if job is None:
        return None
    if job["kind"] == PODS.kind:
        return stage_of(job) is Stage.GATED
    return bool(job["spec"].get("suspend"))
