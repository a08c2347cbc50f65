"""Programs that simulate: `programs.py NAME,NAME... SEED DISORDER`, each in a copy of one world.

What they found is printed as JSON.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
from collections import Counter
from pathlib import Path

from kueuelib.api.meta import ObjectKey, parse_time
from kueuelib.embedded.cluster.simulation import SimulatedCluster
from kueuelib.errors import ServerError
from kueuelib.testing.storm.campaign import run_all
from kueuelib.testing.storm.inside.leaks import parts_in
from kueuelib.testing.storm.trial import warm_up
from kueuelib.testing.storm.world import World

QUEUE = "kueue.x-k8s.io/queue-name"
SECONDS = "kueuelib.dev/run-seconds"
KUEUE = "kueue.x-k8s.io/v1beta2"
PLURALS = ("clusterqueues", "localqueues", "resourceflavors", "workloads")


def queue(quota=2):
    """A flavor, a ClusterQueue and a LocalQueue."""
    flavor = {"name": "flavor", "resources": [{"name": "cpu", "nominalQuota": str(quota)}]}
    group = {"coveredResources": ["cpu"], "flavors": [flavor]}
    return [
        (
            "resourceflavors.kueue.x-k8s.io",
            {
                "apiVersion": KUEUE,
                "kind": "ResourceFlavor",
                "metadata": {"name": "flavor"},
                "spec": {},
            },
        ),
        (
            "clusterqueues.kueue.x-k8s.io",
            {
                "apiVersion": KUEUE,
                "kind": "ClusterQueue",
                "metadata": {"name": "cq"},
                "spec": {"namespaceSelector": {}, "resourceGroups": [group]},
            },
        ),
        (
            "localqueues.kueue.x-k8s.io",
            {
                "apiVersion": KUEUE,
                "kind": "LocalQueue",
                "metadata": {"name": "lq", "namespace": "default"},
                "spec": {"clusterQueue": "cq"},
            },
        ),
    ]


def job(name, seconds=5):
    """A Job of one pod, which runs for so long."""
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default", "labels": {QUEUE: "lq"}},
        "spec": {
            "template": {
                "metadata": {"annotations": {SECONDS: str(seconds)}},
                "spec": {"restartPolicy": "Never", "containers": [container]},
            },
        },
    }


async def fill(world, jobs=5, seconds=5):
    """Queues, and Jobs in them."""
    api = world.user()
    made = [("jobs.batch", job(f"job-{number}", seconds)) for number in range(jobs)]
    for resource, obj in [*queue(), *made]:
        while True:
            try:
                await api.create(resource, obj)
            except ServerError:  # the webhooks of a manager that is not there
                await world.sleep(0.1)
            else:
                break


def complete(world):
    """How many Jobs have ended well."""
    return sum(
        any(c["type"] == "Complete" and c["status"] == "True" for c in conditions)
        for conditions in (
            each["status"].get("conditions", ()) for each in world.objects("jobs.batch")
        )
    )


async def plain(world):
    """No fault at all."""
    await fill(world)
    quiet = await world.quiet(10, 300)
    leases = [commit for commit in world.history if commit.resource.startswith("leases")]
    return {
        "quiet": quiet,
        "complete": complete(world),
        "holder": leases[-1].new["spec"]["holderIdentity"],
        "actors": sorted({commit.actor for commit in world.history}),
    }


async def killed(world):
    """The leader dies while Jobs run; the other manager takes over; the dead one comes back."""
    await world.start_manager("manager-2")
    await world.ready("manager-2")
    await fill(world, 6)
    await world.sleep(7)
    before = len(world.history)
    world.kill("manager-1")
    quiet = await world.quiet(60, 300)
    after = {commit.actor for commit in world.history[before:]}
    await world.start_manager("manager-1")
    await world.ready("manager-1")
    return {"quiet": quiet, "complete": complete(world), "after": sorted(after)}


async def killed_anywhere(world):
    """A lonely manager dies after each few writes, and starts again."""
    deaths = []

    def watch(commit):
        if commit.actor == "manager-1" and len(deaths) < 6 and commit.revision % 7 == 0:
            deaths.append(commit.revision)
            world.loop.call_soon(dead.set)

    dead = asyncio.Event()
    world.listeners.append(watch)
    task = asyncio.ensure_future(fill(world, 6))
    for _ in range(6):
        await dead.wait()
        dead.clear()
        world.kill("manager-1")
        await world.sleep(0.2)
        await world.start_manager("manager-1")
    await task
    quiet = await world.quiet(70, 600)
    return {"quiet": quiet, "complete": complete(world), "deaths": len(deaths)}


async def paused(world):
    """The leader is held beyond its lease, then goes on."""
    await world.start_manager("manager-2")
    await world.ready("manager-2")
    await fill(world, 6)
    await world.sleep(3)
    world.pause("manager-1")
    begun = len(world.history)
    await world.sleep(60)
    meanwhile = {commit.actor for commit in world.history[begun:]}
    woken = len(world.lines)
    world.resume("manager-1")
    quiet = await world.quiet(30, 300)
    leases = [commit for commit in world.history if commit.resource.startswith("leases")]
    return {
        "quiet": quiet,
        "complete": complete(world),
        "meanwhile": sorted(meanwhile),
        "woken": [line for line in world.lines[woken:] if _writes_as_leader(line, "manager-1")],
        "holder": leases[-1].new["spec"]["holderIdentity"],
    }


def _writes_as_leader(line, name):
    """Whether a line of the trace is about a write that only a leader may send."""
    _, sent, call = line.partition(f"{name} -> server: ")
    verb, _, target = call.partition(" ")
    led = target.startswith(("workloads.", "jobs.", "clusterqueues.", "localqueues."))
    return bool(sent) and led and verb in ("create", "update", "patch", "apply", "delete")


async def skewed(world):
    """The clock of the manager is an hour ahead and runs at double speed."""
    world.skew("manager-1", 3600.0, 2.0)
    begun = world.now
    await world.sleep(30.5)
    written = [c for c in world.history if c.resource.startswith("leases")]
    renewals = [c for c in written if c.at > written[0].at + begun]
    renewed = parse_time(renewals[-1].new["spec"]["renewTime"])
    ahead = renewed - renewals[-1].at
    await fill(world, 3)
    quiet = await world.quiet(20, 300)
    return {
        "quiet": quiet,
        "complete": complete(world),
        "renewals": len(renewals),
        "ahead": ahead,
    }


async def restarted(world):
    """The server restarts twice, the second time without its history."""
    await fill(world, 6)
    for history in (True, False):
        await world.sleep(2)
        await world.restart_server(history=history)
    quiet = await world.quiet(40, 300)
    relists = [line for line in world.lines if "410" in line or "list workloads" in line]
    return {"quiet": quiet, "complete": complete(world), "relists": len(relists)}


class Copy:
    """What etcd holds at one moment: it can be restored, as from a backup."""

    def __init__(self, server):
        storage = server.service.storage
        self.revision = storage.revision
        self.states = {
            name: {state.key: state for state in table.entries()}
            for name, table in storage._tables.items()
        }

    async def restore(self, world):
        """Stop the server, put the copy back, and start the server."""
        server, storage = world.server, world.server.service.storage
        world.wire.down = True
        world.wire.reset(world._server_owner)
        await server.cluster.close()
        await world.sleep(1.0)
        storage.revision = storage.floor = self.revision
        for name, table in storage._tables.items():
            states = self.states.get(name, {})
            table.forget(0)
            table._states, table._keys = dict(states), sorted(states)
            table._compacted = self.revision
        server._cluster = SimulatedCluster(server.service, clock=server._clock)
        await world.loop.spawn(world._server_owner, server._cluster.start())
        world.wire.down = False


async def restored(world):
    """The server is restored from a copy in which no Job has ended, while the manager runs."""
    await fill(world, 6)
    await world.sleep(1.5)
    copy = Copy(world.server)
    assert complete(world) == 0
    ended = await world.quiet(5, 300) and complete(world)
    await copy.restore(world)
    wrong, most = [], 0

    def judge(commit):
        nonlocal most
        if not commit.resource.startswith("workloads") or commit.new is None:
            return
        conditions = commit.new.get("status", {}).get("conditions", ())
        job = commit.new["metadata"]["ownerReferences"][0]["name"]
        jobs = {each["metadata"]["name"]: each for each in world.objects("jobs.batch")}
        over = jobs[job]["status"].get("conditions", ())
        if any(each["type"] == "Finished" for each in conditions) and not over:
            wrong.append(job)
        held = [each for each in world.objects("workloads.kueue.x-k8s.io") if holds(each)]
        most = max(most, len(held))

    world.listeners.append(judge)
    first = len(world.lines)
    quiet = await world.quiet(40, 300)
    told = [line for line in world.lines[first:] if "restored from an older copy" in line]
    return {
        "quiet": quiet,
        "ended": ended,
        "complete": complete(world),
        "wrong": wrong,
        "most": most,
        "held": sum(map(holds, world.objects("workloads.kueue.x-k8s.io"))),
        "told": told[:1],
    }


def holds(workload):
    """Whether a Workload holds quota."""
    conditions = workload.get("status", {}).get("conditions", ())
    true = {each["type"] for each in conditions if each["status"] == "True"}
    return "QuotaReserved" in true and "Finished" not in true


async def stopped(world):
    """A manager is asked to stop: it gives the lease back."""
    ended = await world.stop_manager("manager-1")
    holder = world.objects("leases.coordination.k8s.io")
    mine = [each["spec"] for each in holder if each["metadata"]["namespace"] == "kueue-system"]
    return {"ended": ended, "holder": mine[0].get("holderIdentity") or ""}


async def warmed(world):
    """A world in which something was played and taken away again."""
    before = await _everything(world)
    await warm_up(world)
    after = await _everything(world)
    await fill(world)
    quiet = await world.quiet(10, 300)
    return {
        "quiet": quiet,
        "complete": complete(world),
        "before": before,
        "after": after,
    }


async def _everything(world):
    """Names of all objects but Events, whose names tell times."""
    kinds = ("jobs.batch", "pods", *(f"{kind}.kueue.x-k8s.io" for kind in PLURALS), "namespaces")
    return [[kind, each["metadata"]["name"]] for kind in kinds for each in world.objects(kind)]


async def inside(world):
    """Look into a manager that has run a Job, then plant a leak and a lie in it."""
    await warm_up(world)
    await world.sleep(60.0)
    parts = list(parts_in(world.managers["manager-1"].process.root))
    kinds = Counter(type(part.what).__name__ for part in parts)
    clean = [str(violation) for violation in world.inside()]
    book = next(part.what for part in parts if type(part.what).__name__ == "OrderBook")
    book.leak = {ObjectKey("default", "warm-up"): 1}
    queue = next(part.what for part in parts if type(part.what).__name__ == "Informer")
    queue.store.put(ObjectKey("", "nobody"), {"metadata": {"uid": "1", "resourceVersion": "1"}})
    planted = [violation.law for violation in world.inside()]
    return {"kinds": dict(kinds), "clean": clean, "planted": sorted(planted)}


PROGRAMS = {
    each.__name__: each
    for each in (
        *(plain, killed, killed_anywhere, paused, skewed, restarted, restored, stopped, warmed),
        inside,
    )
}


def play(world, job):
    """Run one program in a booted world; what it found, with what is true of every run."""
    name, seed, disorder = job
    world.reseed(seed, disorder)
    outcome = world.run(PROGRAMS[name](world))
    if "KEEP" in os.environ:
        Path(os.environ["KEEP"], f"{name}-{seed}.txt").write_text("\n".join(world.lines))
    digest = hashlib.sha256("\n".join(world.lines).encode()).hexdigest()
    more = {"now": world.now, "problems": world.loop.problems, "endings": world.endings}
    return {**outcome, **more, "lines": len(world.lines), "trace": digest}


def main(names, seed="0", disorder="0"):
    world = World(log=True)
    world.lines = []
    world.trace = world.lines.append
    world.run(world.boot())
    jobs = [(name, int(seed), float(disorder)) for name in names.split(",")]
    results = {}
    for outcome in run_all(world, jobs, play):
        assert not outcome.error, outcome.error
        results[outcome.job[0]] = {**outcome.value, "cpu": outcome.cpu}
    print(json.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
