"""Programs with an adversary, which are run as those of `programs.py`."""

from __future__ import annotations

import asyncio
import json
import sys

import attrs
import programs

from kueuelib.testing.storm.exchange import ObservedRequest
from kueuelib.testing.storm.faults import FINE, FLOWING, EventFate, Fate, refusal
from kueuelib.testing.storm.loop import EPOCH

JOBS, WORKLOADS, PODS = "jobs.batch", "workloads.kueue.x-k8s.io", "pods"


class Scripted:
    """Gives fates to the calls and events that match."""

    def __init__(self, call=None, event=None, connect=None):
        self._call, self._event, self._connect = call, event, connect
        self.hits = []

    def connect(self, owner, peer, ordinal, now):
        return self._found("connect", self._connect and self._connect(owner, peer, ordinal), FINE)

    def call(self, call, now):
        return self._found(call.verb, self._call and self._call(call), FINE)

    def event(self, watch, number, event, now):
        fate = self._event and self._event(watch, number, event)
        return self._found(watch.resource, fate, FLOWING)

    def _found(self, what, fate, default):
        if fate:
            self.hits.append(what)
        return fate or default


class Heard:
    """Notes the status of each answer that arrives."""

    def __init__(self):
        self.statuses = []

    def sent(self, call, now):
        pass

    def answered(self, call, status, body, now):
        self.statuses.append(status)


async def _under(world, adversary, jobs=4, patience=70):
    world.set_adversary(adversary)
    await programs.fill(world, jobs)
    await world.sleep(10)
    behind = world.behind
    quiet = await world.quiet(patience, 4000)
    return {
        "quiet": quiet,
        "behind": [behind, world.behind],
        "complete": programs.complete(world),
        "hits": len(adversary.hits),
        "workloads": len(world.objects(WORKLOADS)),
        "lists": sum(f"-> server: list {JOBS}" in line for line in world.lines),
        "done": max(commit.at for commit in world.history if commit.resource == JOBS) - EPOCH,
    }


def _every(number, verbs, fate):
    """A fate for every so many calls of a manager with these verbs; Leases are left alone."""
    count = 0

    def choose(call):
        nonlocal count
        if call.owner != "manager-1" or call.verb not in verbs or "leases" in call.resource:
            return None
        count += 1
        return fate if count % number == 0 else None

    return choose


WRITES = ("create", "update", "patch", "apply", "delete")


async def calm(world):
    return await _under(world, Scripted())


async def late(world):
    return await _under(world, Scripted(_every(2, WRITES, Fate(delay=3.0, faults=("delay",)))))


def _events_of(world):
    return [c for c in world.history if c.resource == "events" and c.actor == "manager-1"]


async def late_after_death(world):
    """What a dead manager has asked for is done twenty seconds later."""
    late = Fate(delay=20.0)
    adversary = Scripted(
        lambda call: late if call.verb == "create" and call.resource == "events" else None
    )
    world.set_adversary(adversary)
    await programs.fill(world, 2)
    await world.sleep(5)
    before = len(_events_of(world))
    world.set_adversary(None)
    world.kill("manager-1")
    await world.sleep(20)
    after = len(_events_of(world))
    await world.start_manager("manager-1")
    quiet = await world.quiet(30, 300)
    return {
        "quiet": quiet,
        "complete": programs.complete(world),
        "before": before,
        "after": after,
    }


async def lagging_candidate(world):
    """The watches of a candidate are a minute and a half late when the leader dies."""
    await world.start_manager("manager-2")
    await world.ready("manager-2")
    slow = EventFate(delay=90.0, faults=("event-delay",))
    adversary = Scripted(event=lambda watch, _n, _e: slow if watch.owner == "manager-2" else None)
    world.set_adversary(adversary)
    await programs.fill(world, 6)
    await world.sleep(12)
    world.kill("manager-1")
    killed = len(world.lines)
    await world.sleep(80)
    refused = [line for line in world.lines[killed:] if _is_refused(line, "manager-2")]
    quiet = await world.quiet(100, 900)
    return {"quiet": quiet, "complete": programs.complete(world), "refused": refused}


def _is_refused(line, name):
    """Whether a line of the trace is about a write that the server refused."""
    _, answered, rest = line.partition(f"{name} <- server: ")
    call, _, answer = rest.rpartition(": ")
    return bool(answered) and not call.startswith(("get ", "list ")) and answer.startswith("4")


async def no_bookmarks(world):
    drop = EventFate(drop=True)
    adversary = Scripted(event=lambda _w, _n, event: drop if b'"BOOKMARK"' in event[:40] else None)
    return await _under(world, adversary, patience=90)


async def late_answers(world):
    return await _under(world, Scripted(_every(1, WRITES, Fate(answer_delay=3.0))))


async def lost(world):
    return await _under(world, Scripted(_every(3, WRITES, Fate(lose_answer=True))))


async def cut(world):
    return await _under(world, Scripted(_every(3, WRITES, Fate(cut_answer=0.5))))


async def timed_out(world):
    late = refusal(504, "Timeout", "request did not complete within the allotted time")
    heard = Heard()
    world.set_witness(heard)
    counts = await _under(world, Scripted(_every(3, WRITES, Fate(instead=late))))
    return {**counts, "doubts": heard.statuses.count(504)}


async def silent(world):
    return await _under(world, Scripted(_every(5, WRITES, Fate(silent=True))))


async def refused(world):
    slow = refusal(429, "TooManyRequests", "slow down", retry_after=1)
    return await _under(world, Scripted(_every(2, WRITES, Fate(refuse=slow))))


async def conflicts(world):
    fate = Fate(refuse=refusal(409, "Conflict", "the object has been modified"))
    choose = _every(2, ("patch", "apply"), fate)
    return await _under(world, Scripted(lambda call: "kueue" in call.resource and choose(call)))


async def unconnected(world):
    fate = Fate(refuse=refusal(503, "", ""))
    return await _under(world, Scripted(connect=lambda _o, _p, n: fate if n % 2 else None))


def _events(number, fate):
    count = 0

    def choose(watch, _number, _event):
        nonlocal count
        if watch.resource not in (JOBS, WORKLOADS, PODS):
            return None
        count += 1
        return fate if count % number == 0 else None

    return choose


async def events_late(world):
    return await _under(world, Scripted(event=_events(2, EventFate(delay=5.0))))


async def events_closed(world):
    return await _under(world, Scripted(event=_events(4, EventFate(close=True))))


async def events_cut(world):
    return await _under(world, Scripted(event=_events(4, EventFate(cut=True))))


async def events_gone(world):
    return await _under(world, Scripted(event=_events(4, EventFate(gone=True))))


async def events_silent(world):
    """The watch of Jobs is silent from its seventh event on; once."""
    silenced = []

    def choose(watch, number, _event):
        if watch.resource != JOBS or number < 6 or silenced:
            return None
        silenced.append(watch)
        return EventFate(silence=True)

    return await _under(world, Scripted(event=choose), patience=800)


async def stale(world):
    """A manager starts while lists from before the Jobs were made are to be had."""
    await world.sleep(2)
    await programs.fill(world, 3, seconds=60)
    await world.sleep(10)
    world.kill("manager-1")
    early = Fate(stale_list=world.now - 1.0)
    listed = "resourceVersion=0"
    adversary = Scripted(
        lambda call: early if call.verb == "list" and listed in call.query else None
    )
    world.set_adversary(adversary)
    call = ObservedRequest(
        "x", "server", "GET", "/apis/batch/v1/jobs", listed, "list", JOBS, "", "", "", 0
    )
    seen = len(json.loads(world.wire.stale(call, world.now - 1.0))["items"])
    (*_, (_, newest)) = world.revisions
    least = attrs.evolve(call, query=f"resourceVersion={newest}")
    fresh = len(json.loads(world.wire.stale(least, world.now - 1.0))["items"])
    future = attrs.evolve(call, query=f"resourceVersion={newest + 1}")
    refused = world.wire.stale(future, world.now - 1.0) is None
    await world.start_manager("manager-1")
    await world.ready("manager-1")
    world.set_adversary(None)
    quiet = await world.quiet(70, 600)
    return {
        "quiet": quiet,
        "complete": programs.complete(world),
        "hits": len(adversary.hits),
        "seen": seen,
        "fresh": fresh,
        "refused": refused,
    }


async def webhook_away(world):
    """The server does not get through to the webhooks for a while."""
    away = Fate(refuse=refusal(502, "", "bad gateway"))
    adversary = Scripted(lambda call: away if call.verb == "webhook" else None)
    world.set_adversary(adversary)
    task = asyncio.ensure_future(programs.fill(world, 2))
    await world.sleep(5)
    early = len(world.objects(JOBS))
    world.set_adversary(None)
    await task
    quiet = await world.quiet(30, 300)
    return {
        "quiet": quiet,
        "complete": programs.complete(world),
        "hits": len(adversary.hits),
        "early": early,
    }


if __name__ == "__main__":
    programs.PROGRAMS = {
        name: each for name, each in list(globals().items()) if asyncio.iscoroutinefunction(each)
    }
    programs.main(*sys.argv[1:])
