"""What the simulated StatefulSet controller does next."""

from __future__ import annotations

from typing import Any

import pytest

from kueuelib.api.kinds import STATEFUL_SETS
from kueuelib.embedded.cluster.stateful_sets import (
    SetStep,
    new_pod,
    next_step,
    ordinal_of,
    status_of,
)

Obj = dict[str, Any]


def stateful_set(replicas: int | None = 2, policy: str = "OrderedReady", image: str = "i") -> Obj:
    template = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"image": image}]}}
    spec = {"podManagementPolicy": policy, "template": template, "serviceName": "web"}
    if replicas is not None:
        spec["replicas"] = replicas
    found = STATEFUL_SETS.new("s", "ns", spec=spec)
    found["metadata"] |= {"uid": "u", "generation": 3}
    return found


def pod(ordinal: int, state: str = "ready", image: str = "i") -> Obj:
    found = new_pod(stateful_set(image=image), ordinal)
    ready = {"type": "Ready", "status": "True" if state in ("ready", "going") else "False"}
    found["status"] = {"phase": "Failed" if state == "over" else "Running", "conditions": [ready]}
    if state == "going":
        found["metadata"]["deletionTimestamp"] = "2024-01-01T00:00:00Z"
    return found


def numbered(*pods: Obj) -> dict[int, Obj]:
    found = {ordinal_of(pod, "s"): pod for pod in pods}
    return {number: pod for number, pod in found.items() if number is not None}


def did(step: SetStep) -> tuple[list[int], list[str]]:
    return [*step.create], [each["metadata"]["name"] for each in step.delete]


@pytest.mark.parametrize(
    ("found", "pods", "create", "delete"),
    [
        (stateful_set(3), [], [0], []),
        (stateful_set(3, "Parallel"), [], [0, 1, 2], []),
        (stateful_set(None), [], [0], []),
        (stateful_set(3), [pod(0, "waiting")], [], []),
        (stateful_set(3), [pod(0)], [1], []),
        (stateful_set(2), [pod(0), pod(1)], [], []),
        (stateful_set(2), [pod(0, "going"), pod(1)], [], []),
        (stateful_set(2), [pod(0, "over"), pod(1)], [], ["s-0"]),
        (stateful_set(0), [pod(0), pod(1)], [], ["s-1"]),
        (stateful_set(0), [pod(0), pod(1, "going")], [], []),
        (stateful_set(0, "Parallel"), [pod(0), pod(1)], [], ["s-1", "s-0"]),
        (stateful_set(2, image="j"), [pod(0), pod(1)], [], ["s-1"]),
        (stateful_set(2, image="j"), [pod(0), pod(1, image="j")], [], ["s-0"]),
        (stateful_set(2, image="j"), [pod(0), pod(1, "waiting", "j")], [], []),
    ],
)
def test_one_step(found: Obj, pods: list[Obj], create: list[int], delete: list[str]) -> None:
    assert did(next_step(found, numbered(*pods))) == (create, delete)


def test_a_pod_knows_its_number_and_its_owner() -> None:
    meta = pod(1)["metadata"]
    assert meta["name"] == "s-1"
    assert meta["labels"]["app"] == "a"
    assert meta["labels"]["apps.kubernetes.io/pod-index"] == "1"
    (owner,) = meta["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("StatefulSet", "u", True)
    assert pod(1)["spec"]["subdomain"] == "web"


@pytest.mark.parametrize("name", ["s", "s-", "s-x", "t-1", "s-t-1"])
def test_a_pod_of_another_name_has_no_number(name: str) -> None:
    assert ordinal_of({"metadata": {"name": name}}, "s") is None


def test_the_status_counts_pods() -> None:
    found = stateful_set(3, image="j")
    status = status_of(found, numbered(pod(0, image="j"), pod(1), pod(2, "waiting")))
    assert status["observedGeneration"] == 3
    counts = (status["replicas"], status["readyReplicas"], status["updatedReplicas"])
    assert counts == (3, 2, 1)
