"""Laws about owners: one Workload per job, existing owners, real ends."""

from __future__ import annotations

from collections.abc import Iterator

from kueuelib.testing.storm.history import Commit
from kueuelib.testing.storm.laws.memory import Memory, is_manager
from kueuelib.testing.storm.laws.reading import (
    condition,
    controller,
    finished,
    is_group,
    leaving,
    owner_uids,
)

ENDED = ("Succeeded", "Failed", "JobFinished")
"""Reasons of Finished about how the job ended."""

ABOUT = ("Job", "Pod", "Workload")
"""Kinds whose events are checked, because all their objects are in the history."""


def one_workload_per_job(memory: Memory, commit: Commit) -> Iterator[str]:
    """A job never has two live Workloads that managers created."""
    new = commit.new
    if new is None or not is_manager(commit.actor) or is_group(new) or leaving(new):
        return
    owner = controller(new).get("uid")
    others = memory.by_owner.get(str(owner), set()) - {(commit.namespace, commit.name)}
    if owner and others:
        names = ", ".join(sorted(name for _namespace, name in others))
        yield f"the job with UID {owner} already has {names}"


def owners_are_real(memory: Memory, commit: Commit) -> Iterator[str]:
    """Owners that a manager writes existed, and a Workload never changes hands."""
    new, old = commit.new, commit.old
    if new is None or not is_manager(commit.actor):
        return
    known = {*owner_uids(old or {"metadata": {}})}
    members = memory.groups.get(f"{commit.namespace}/{commit.name}", set())
    for owner in owner_uids(new):
        if owner in known:
            continue
        if owner not in memory.uids:
            yield f"the owner with UID {owner} never existed"
        elif is_group(new) and owner not in members:
            yield f"the owner with UID {owner} was never in the group"
    before, after = controller(old or {"metadata": {}}), controller(new)
    if before and after and before["uid"] != after["uid"]:
        yield f"its controller changed from {before['uid']} to {after['uid']}"


def finished_with_cause(memory: Memory, commit: Commit) -> Iterator[str]:
    """A Workload is Finished only if its job has ended."""
    new = commit.new
    if new is None or not is_manager(commit.actor) or not finished(new) or finished(commit.old):
        return
    reason = condition(new, "Finished").get("reason")
    if reason not in ENDED:
        return
    if is_group(new):
        members = memory.groups.get(f"{commit.namespace}/{commit.name}", set())
        if not members & memory.ended:
            yield f"Finished says {reason}, but no pod of the group has ended"
        return
    owner = controller(new)
    if owner.get("kind") in ("Job", "Pod") and owner["uid"] not in memory.ended:
        yield f"Finished says {reason}, but {owner['kind']} {owner['name']} has not ended"


def events_are_about_real_objects(memory: Memory, commit: Commit) -> Iterator[str]:
    """An event names an object that existed, by the UID that it had."""
    event = commit.new
    if event is None or not is_manager(commit.actor):
        return
    about = event.get("involvedObject") or event.get("regarding") or {}
    known = memory.uids.get(str(about.get("uid") or ""))
    if about.get("kind") not in ABOUT or not about.get("uid"):
        return
    where = (about.get("namespace", ""), about.get("name"))
    if known is None:
        yield f"{about['kind']} {about.get('name')} never had the UID {about['uid']}"
    elif known[1:] != where:
        yield f"the UID {about['uid']} is of {known[2]}, not of {about.get('name')}"


def no_job_is_deleted(_memory: Memory, commit: Commit) -> Iterator[str]:
    """Managers delete no Job: it belongs to a user."""
    old, new = commit.old, commit.new
    if old is None or leaving(old) or not is_manager(commit.actor):
        return
    if new is None or leaving(new):
        yield "a manager deleted it"
