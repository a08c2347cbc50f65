"""What `explain` says of kinds that no decision depends on, and when it lists them."""

from __future__ import annotations

from typing import cast

import pytest

from kueuelib.api.meta import Obj
from kueuelib.app.explaining.asking import ObjectAnswer, ask, ask_about
from kueuelib.app.explaining.subject import parse_manifests, parse_reference
from kueuelib.runtime.client import Client

from .test_explaining import NOW, SINCE, FakeClient, Ticks, cluster, job, thing, workload

NO_NODE = "flavor f has no usable node now (pool=fast): its pods stay Pending until there is one"


class Counting(FakeClient):
    """Counts how often each kind is listed."""

    def __init__(self, *objects: Obj, forbidden: tuple[str, ...] = ()) -> None:
        super().__init__(*objects, forbidden=forbidden)
        self.listed: list[str] = []

    def list_all(self, resource, namespace="", *, label_selector=""):  # type: ignore[no-untyped-def]
        self.listed.append(resource.plural)
        return super().list_all(resource, namespace, label_selector=label_selector)


def node(name: str, *, ready: str = "True", labels: Obj | None = None, **spec: object) -> Obj:
    conditions = [{"type": "Ready", "status": ready}]
    meta = {"labels": {"pool": "fast"} if labels is None else labels}
    return thing("Node", name, "v1", metadata=meta, spec=spec, status={"conditions": conditions})


def world(*nodes: Obj, labels: Obj | None = None) -> list[Obj]:
    objects = [each for each in cluster() if each["kind"] != "ResourceFlavor"]
    return [*objects, thing("ResourceFlavor", "f", spec={"nodeLabels": labels or {}}), *nodes]


async def asked(client: Counting) -> ObjectAnswer:
    reference = parse_reference("workload/wl")
    return await ask(cast("Client", client), reference, "ns", clock=Ticks())


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ((), True),
        ((node("a"),), False),
        ((node("a", labels={"pool": "slow"}),), True),
        ((node("a", ready="False"), node("b", unschedulable=True)), True),
        ((node("a", taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}]),), True),
        ((node("a", ready="False"), node("b")), False),
    ],
)
async def test_a_flavor_without_a_usable_node_is_named(nodes: tuple[Obj, ...], said: bool) -> None:
    client = Counting(*world(*nodes, labels={"pool": "fast"}), workload(job()))
    answer = await asked(client)
    assert (NO_NODE in answer.notes) is said
    assert client.listed.count("nodes") == 1


async def test_a_flavor_that_only_a_change_leads_to_is_looked_at_too() -> None:
    quota = {"name": "cpu", "nominalQuota": "9"}
    group = {"coveredResources": ["cpu"], "flavors": [{"name": "g", "resources": [quota]}]}
    others = [
        thing("ResourceFlavor", "g", spec={"nodeLabels": {"pool": "slow"}}),
        thing("ClusterQueue", "other", spec={"namespaceSelector": {}, "resourceGroups": [group]}),
        thing("LocalQueue", "other", metadata={"namespace": "ns"}, spec={"clusterQueue": "other"}),
    ]
    answer = await asked(Counting(*world(), *others, workload(job())))
    assert answer.explanation is not None
    assert "submit it to LocalQueue other" in answer.explanation.changes[-1].change.text
    text = "flavor g has no usable node now (pool=slow): its pods stay Pending until there is one"
    assert text in answer.notes


async def test_nodes_are_not_listed_for_flavors_without_labels() -> None:
    client = Counting(*world(), workload(job()))
    answer = await asked(client)
    assert not [note for note in answer.notes if "node" in note]
    assert "nodes" not in client.listed


async def test_nodes_that_may_not_be_listed_are_said() -> None:
    client = Counting(*world(labels={"pool": "fast"}), workload(job()), forbidden=("nodes",))
    answer = await asked(client)
    assert "nodes were not read: may not list nodes" in answer.notes


async def test_manifests_get_the_remark_too() -> None:
    client = Counting(*world(labels={"pool": "fast"}))
    text = """
        apiVersion: batch/v1
        kind: Job
        metadata: {name: j, labels: {kueue.x-k8s.io/queue-name: lq}}
        spec:
          template:
            spec:
              restartPolicy: Never
              containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]
    """
    documents = parse_manifests(text, "in.yaml", "", "ns")
    (answer,) = await ask_about(cast("Client", client), documents, NOW)
    assert NO_NODE in answer.notes


async def test_a_pod_that_a_lost_node_keeps_is_named_beside_the_end_of_its_workload() -> None:
    lone = thing(
        "Pod",
        "lone",
        "v1",
        metadata={"namespace": "ns", "deletionTimestamp": "1970-01-01T00:00:00Z"},
        spec={"nodeName": "gone"},
        status={"phase": "Running"},
    )
    flavors = {"name": "main", "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "4"}, "count": 1}
    holds = [
        {"type": each, "status": "True", "reason": each, "message": "", **SINCE}
        for each in ("QuotaReserved", "Admitted")
    ]
    admission = {"clusterQueue": "cq", "podSetAssignments": [flavors]}
    holder = workload(lone, "pod-lone", admission=admission, conditions=holds)
    waits = workload(job(pods=1))
    waits["spec"]["podSets"][0]["count"] = 1
    answer = await asked(Counting(*world(), holder, waits, lone))
    assert (
        "Workload ns/pod-lone ends when node gone has ended Pod lone, which is being deleted; if "
        "that node is lost: kubectl delete -n ns pod lone --force --grace-period=0"
    ) in answer.notes


async def test_a_job_that_a_finalizer_keeps_is_not_said_to_wait_for_a_manager() -> None:
    kept = job()
    kept["metadata"] |= {"deletionTimestamp": "1970-01-01T00:00:00Z", "finalizers": ["a.b/c"]}
    why = "it is being deleted, and finalizer a.b/c of another program keeps it"
    client = cast("Client", Counting(*world(), kept))
    answer = await ask(client, parse_reference("job/train"), "ns", clock=Ticks())
    assert [one.problem for one in answer.problems] == [why]
    kept["metadata"]["annotations"] = {"kueue.x-k8s.io/stopping": "true"}
    client = cast("Client", Counting(*world(), kept, workload(kept)))
    answer = await ask(client, parse_reference("job/train"), "ns", clock=Ticks())
    (note,) = answer.notes
    assert note.startswith(f"{why}; its quota is free as soon as none of its pods runs: kubectl ")
    assert answer.ignored == ()
