"""Programs that simulate; each runs in a process of its own: `programs.py NAME SEED DISORDER`.

The last line that one prints is JSON for the test.
"""

from __future__ import annotations

import hashlib
import json
import sys

from kueuelib.testing.storm.world import World

QUEUE = "kueue.x-k8s.io/queue-name"
SECONDS = "kueuelib.dev/run-seconds"
KUEUE = "kueue.x-k8s.io/v1beta2"


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
    for resource, obj in queue():
        await api.create(resource, obj)
    for number in range(jobs):
        await api.create("jobs.batch", job(f"job-{number}", seconds))


def complete(world):
    """How many Jobs have ended well."""
    return sum(
        any(c["type"] == "Complete" and c["status"] == "True" for c in found)
        for found in (each["status"].get("conditions", ()) for each in world.objects("jobs.batch"))
    )


async def plain(world):
    """No fault at all."""
    await world.boot()
    await fill(world)
    quiet = await world.quiet(10, 300)
    leases = [commit for commit in world.history if commit.resource.startswith("leases")]
    return {
        "quiet": quiet,
        "complete": complete(world),
        "holder": leases[-1].new["spec"]["holderIdentity"],
        "actors": sorted({commit.actor for commit in world.history}),
    }


PROGRAMS = {each.__name__: each for each in (plain,)}


def main(name, seed="0", disorder="0"):
    world = World(int(seed), disorder=float(disorder), log=True)
    lines = []
    world.trace = lines.append
    found = world.run(PROGRAMS[name](world))
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    more = {"now": world.now, "problems": world.loop.problems, "endings": world.endings}
    print(json.dumps({**found, **more, "lines": len(lines), "trace": digest}))


if __name__ == "__main__":
    main(*sys.argv[1:])
