"""Why the job of an admitted Workload does not start: what the manager reports in Events."""

from __future__ import annotations

from typing import Final

from kueuelib.api.ages import duration
from kueuelib.api.kinds import EVENTS, JOBS, PODS
from kueuelib.api.meta import Obj, ObjectKey, parse_time
from kueuelib.api.names import REASON_FAILED_TO_START
from kueuelib.errors import Forbidden, NotFound
from kueuelib.jobs.pods.reading import Stage, stage_of
from kueuelib.jobs.reconcile.failed_starts import START_REFUSED
from kueuelib.runtime.client import Client
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
    meta = workload["metadata"]
    selector = f"involvedObject.uid={meta['uid']},reason={REASON_FAILED_TO_START}"
    try:
        events = await client.list(EVENTS, meta["namespace"], field_selector=selector)
    except Forbidden as error:
        return (f"an Event may say why its job is not started: {error}",) if held else ()
    told = [
        (now - parse_time(one["lastTimestamp"]), one["message"])
        for one in events.items
        if one["message"].startswith(START_REFUSED) and one.get("lastTimestamp")
    ]
    if not told or (held is None and min(told)[0] > RECENT):
        return ()
    age, message = min(told)
    return (f"its job is not started. {message} ({duration(max(0.0, age))} ago)",)


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
