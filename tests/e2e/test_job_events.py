"""Jobs, pods and groups say themselves why they wait."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from place import Place, shared_cluster, uid_of
from rest import Obj


def told(place: Place, *objects: Obj) -> Counter[str]:
    """The manager's Events about some objects, by reason; repeated ones count, too."""
    uids, counts = {uid_of(obj) for obj in objects}, Counter[str]()
    for event in place.rest.items(f"/api/v1/namespaces/{place.ns}/events"):
        ours = "kueue" in event["source"]["component"]
        if ours and event["involvedObject"].get("uid") in uids:
            counts[event["reason"]] += event["count"]
    return counts


def test_what_waits_says_why_with_one_more_event(tmp_path: Path) -> None:
    with shared_cluster(tmp_path) as (cluster, rest):
        place = Place(rest)
        place.queue(2, **place.preempting())
        high, low = place.priority(5, "high"), place.priority(1, "low")
        label = "kueue.x-k8s.io/priority-class"
        first = place.job("first", labels={label: low})
        place.runs(first)
        waits = place.job("waits", cpu="2", labels={label: low})
        place.event(waits, "WaitingForQuota", "Waiting for quota: cpu on ")
        place.event(waits, "WaitingForQuota", ": 1 more needed; place 1")
        pod = place.pod("pod", cpu="2", labels={label: low})
        place.event(pod, "WaitingForQuota", "more needed; place ")
        scheduled = place.get(pod)["status"]["conditions"][0]
        assert (scheduled["type"], scheduled["reason"]) == ("PodScheduled", "SchedulingGated")
        group = place.group("g", 2, labels={label: low})
        newest = place.workload(group[0])["metadata"]["ownerReferences"][-1]["uid"]
        member = next(one for one in group if uid_of(one) == newest)
        place.event(member, "WaitingForQuota", "Waiting for quota: cpu on ")
        assert told(place, *group)["WaitingForQuota"] == 1
        foreign = place.job("foreign", pod={"containers": [large()]})
        lacks = "Cannot be admitted: the queue has no quota for ephemeral-storage"
        place.event(foreign, "NoMatchingFlavor", lacks)

        # An eviction and an admission are said by the Events that a job always gets.
        urgent = place.job("urgent", cpu="2", labels={label: high})
        place.event(first, "Stopped", "Preempted to accommodate a workload")
        place.runs(urgent)
        place.event(first, "WaitingForQuota", "Waiting for quota: ")
        place.delete(pod, *group, foreign)
        place.delete(first)
        place.finish(urgent)
        place.runs(waits)
        place.event(waits, "Started")
        assert told(place, waits) == {"CreatedWorkload": 1, "WaitingForQuota": 1, "Started": 1}
        place.delete(waits)
        at_once = place.job("at-once")
        place.runs(at_once)
        place.event(at_once, "Started")
        assert told(place, at_once) == {"CreatedWorkload": 1, "Started": 1}

        cluster.processes.kill("manager")
        cluster.integrations = "reasonEvents: false"
        cluster.start_manager()
        cluster.wait_for_manager()
        quiet = place.job("quiet", cpu="2")
        place.event(place.waits(quiet), "WaitingForQuota")
        place.quiet(lambda: told(place, quiet) == {"CreatedWorkload": 1})


def large() -> Obj:
    """A container that asks for a resource that the queue does not cover."""
    requests = {"cpu": "1", "ephemeral-storage": "1Gi"}
    return {"name": "c", "image": "i", "resources": {"requests": requests}}
