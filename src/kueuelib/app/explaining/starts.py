"""Why a job gets no Workload, or does not start: what the manager reports in Events."""

from __future__ import annotations

from typing import Final

from kueuelib.api.ages import duration
from kueuelib.api.kinds import EVENTS, JOBS, PODS
from kueuelib.api.meta import Obj, ObjectKey, parse_time
from kueuelib.api.names import REASON_FAILED_TO_START
from kueuelib.app.refusers import find_remedy, latest
from kueuelib.errors import Forbidden, NotFound
from kueuelib.jobs.pods.reading import Stage, stage_of
from kueuelib.jobs.reconcile.failed_starts import START_REFUSED
from kueuelib.jobs.reconcile.steps import COMPOSE_ERROR
from kueuelib.runtime.client import Client
from kueuelib.scheduler.explain.obstacles import Problem
from kueuelib.workload import states

RECENT: Final = 300.0
"""Seconds for which an Event counts if the job cannot be read; starts are tried more often."""


async def start_note(client: Client, workload: Obj, now: float) -> tuple[str, ...]:
    """Why the start of a job fails; empty if the job runs or need not run.

    Args:
        client: whose cluster.
        workload: the raw Workload.
        now: seconds since the epoch.
    """
    over = states.is_evicted(workload) or states.is_finished(workload)
    if over or not states.is_admitted(workload):
        return ()
    held = await _is_held(client, workload)
    if held is False:
        return ()
    try:
        told = await _last(client, workload, REASON_FAILED_TO_START, START_REFUSED)
    except Forbidden as error:
        return (f"an Event may say why its job is not started: {error}",) if held else ()
    if told is None:
        return ()
    age, message = now - parse_time(told["lastTimestamp"]), told["message"]
    if held is None and age > RECENT:
        return ()
    note = f"its job is not started. {message} ({duration(max(0.0, age))} ago)"
    fix = await find_remedy(client, message)
    return (note, f"what refuses the start: {fix}") if fix else (note,)


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
    try:
        told = await _last(client, obj, COMPOSE_ERROR)
    except Forbidden as error:
        return f"an Event may say why it has no Workload: {error}"
    if told is None:
        return ""
    age = duration(max(0.0, now - parse_time(told["lastTimestamp"])))
    problem = f"it has no Workload; {age} ago the manager said {COMPOSE_ERROR}: {told['message']}"
    fix = await find_remedy(client, told["message"])
    return Problem(title, problem, fix or "correct what the message names")


async def _last(client: Client, obj: Obj, reason: str, begins: str = "") -> Obj | None:
    """The latest Event of a reason about an object.

    Raises:
        Forbidden: the caller may not list Events.
    """
    meta = obj["metadata"]
    selector = f"involvedObject.uid={meta['uid']},reason={reason}"
    events = await client.list(EVENTS, meta["namespace"], field_selector=selector)
    return latest(one for one in events.items if one["message"].startswith(begins))


async def _is_held(client: Client, workload: Obj) -> bool | None:
    """Whether a Job or Pod of a Workload waits for its start; None if that is not known."""
    known = None
    for owner in workload["metadata"].get("ownerReferences") or ():
        resource = next((one for one in (JOBS, PODS) if one.kind == owner["kind"]), None)
        if resource is None or owner["apiVersion"] != resource.api_version:
            continue
        key = ObjectKey(workload["metadata"]["namespace"], owner["name"])
        try:
            obj = await client.get(resource, key)
        except (Forbidden, NotFound):
            continue
        known = False
        if stage_of(obj) is Stage.GATED if resource is PODS else obj["spec"].get("suspend"):
            return True
    return known
