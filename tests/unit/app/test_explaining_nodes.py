"""What `explain` reads of nodes, and what it says if it may not."""

from __future__ import annotations

from typing import cast

import pytest

from kueuelib.api.meta import Obj
from kueuelib.api.names import PREFERRED_TOPOLOGY, REQUIRED_TOPOLOGY
from kueuelib.api.workload import HOST
from kueuelib.app.explaining.asking import ObjectAnswer, ask, ask_about
from kueuelib.app.explaining.subject import Document, parse_reference, would_be
from kueuelib.errors import ConfigError
from kueuelib.jobs.reconcile.priority import PriorityClasses
from kueuelib.runtime.client import Client
from kueuelib.scheduler.explain.trial import TrialResult
from kueuelib.scheduler.settings import Settings

from .test_explaining import FakeClient, Ticks, cluster, holder, job, pod_spec, small, thing


def world(cpu: str = "2") -> list[Obj]:
    """One node, of which a pod of somebody takes all, and a Workload that asks for a host."""
    objects = [each for each in cluster() if each["kind"] != "ResourceFlavor"]
    waits = small()
    waits["spec"]["podSets"][0]["topologyRequest"] = {"required": HOST}
    spec = {"topologyName": "t", "nodeLabels": {"pool": "a"}}
    labels = {"labels": {"pool": "a", HOST: "n"}}
    status = {
        "allocatable": {"cpu": "2", "memory": "8Gi", "pods": "9"},
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    bound = {**pod_spec(cpu), "nodeName": "n"}
    return [
        *objects,
        thing("ResourceFlavor", "f", spec=spec),
        thing("Topology", "t", spec={"levels": [{"nodeLabel": HOST}]}),
        thing("Node", "n", "v1", metadata=labels, spec={}, status=status),
        thing("Pod", "agent", "v1", metadata={"namespace": "other"}, spec=bound),
        waits,
    ]


async def asked(*forbidden: str, places: bool = True) -> ObjectAnswer:
    client = cast("Client", FakeClient(*world(), forbidden=forbidden))
    reference, settings = parse_reference("workload/wl"), Settings(places_pods=places)
    return await ask(client, reference, "ns", settings, clock=Ticks())


async def test_pods_that_belong_to_nobody_take_room() -> None:
    answer = await asked()
    assert answer.explanation is not None
    assert answer.explanation.verdict is TrialResult.WAITS
    (room,) = answer.explanation.places
    assert room.text == "node n has room for 0 of 1 pods: node n is used by pod other/agent"
    assert answer.notes == ()


@pytest.mark.parametrize("kind", ["nodes", "topologies"])
async def test_without_the_right_to_list_nodes_only_quota_is_examined(kind: str) -> None:
    answer = await asked(kind)
    assert answer.explanation is not None
    assert answer.explanation.verdict is TrialResult.ADMITTED
    note = f"you may not list {kind}, so only quota was examined, not whether the pods fit on nodes"
    assert any(one.startswith(note) for one in answer.notes)


async def test_a_manifest_is_examined_for_quota_only_without_the_right_to_list_nodes() -> None:
    asked = next(each for each in world() if each["kind"] == "Workload")
    asked["metadata"]["name"] = "new"
    client = cast("Client", FakeClient(*world(), forbidden=("nodes",)))
    document = Document(asked, "manifest", "Workload new")
    (answer,) = await ask_about(client, (document,), 0.0, Settings(places_pods=True))
    assert answer.explanation is not None
    assert answer.explanation.verdict is TrialResult.ADMITTED
    assert any(one.startswith("you may not list nodes, so only quota") for one in answer.notes)
    client = cast("Client", FakeClient(*world()))
    (answer,) = await ask_about(client, (document,), 0.0, Settings(places_pods=True))
    assert answer.explanation is not None
    assert answer.explanation.verdict is TrialResult.WAITS, "the pod of somebody takes the node"


async def test_without_the_right_to_list_pods_their_room_counts_as_free() -> None:
    answer = await asked("pods")
    assert answer.explanation is not None
    assert answer.explanation.verdict is TrialResult.ADMITTED
    assert any("counts as free where pods without a Workload use it" in one for one in answer.notes)


async def test_pods_that_wait_for_another_node_are_told_so() -> None:
    lost = holder(unhealthyNodes=[{"name": "n"}])
    lost["status"]["conditions"].append({**lost["status"]["conditions"][0], "type": "Admitted"})
    note = "node n has failed, and the pods there wait for another node"
    for policy, end in (
        ("None", ""),
        ("Hold", ", which none gets before ClusterQueue cq is no longer stopped"),
    ):
        objects = cluster()
        (queue,) = (one for one in objects if one["kind"] == "ClusterQueue")
        queue["spec"]["stopPolicy"] = policy
        client = cast("Client", FakeClient(*objects, lost))
        answer = await ask(client, parse_reference("workload/wl"), "ns", clock=Ticks())
        assert answer.notes == (f"{note}{end}",)


def test_annotations_that_the_webhook_refuses_are_named_before_the_job_is_submitted() -> None:
    twice, pod = job(), thing("Pod", "p", "v1", spec=pod_spec())
    notes = {REQUIRED_TOPOLOGY: "rack", PREFERRED_TOPOLOGY: "rack"}
    twice["spec"]["template"]["metadata"] = {"annotations": notes}
    pod["metadata"]["annotations"] = {REQUIRED_TOPOLOGY: "a rack"}
    for obj, text in (
        (twice, "spec.template.metadata.annotations: Invalid value: must not contain more than"),
        (pod, f'metadata.annotations[{REQUIRED_TOPOLOGY}]: Invalid value: "a rack"'),
    ):
        with pytest.raises(ConfigError) as error:
            would_be(obj, PriorityClasses(), "in.yaml", 0.0)
        assert str(error.value).startswith(f"in.yaml: {text}")
        assert str(error.value).endswith("; correct the field")
