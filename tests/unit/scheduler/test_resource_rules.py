"""Which resources of a pod count, as what, and what a ClusterQueue leaves unchecked."""

from __future__ import annotations

import pytest

from kueuelib.api.quantity import Quantity
from kueuelib.scheduler.decide.cycle import Plan, decide
from kueuelib.scheduler.engine import Engine
from kueuelib.scheduler.events import ClusterQueueSet, FlavorSet, LocalQueueSet, NamespaceSet
from kueuelib.scheduler.events import WorkloadSet as Waiting
from kueuelib.scheduler.quota.resource_rules import ResourceRules, Transformation
from kueuelib.scheduler.settings import Settings
from kueuelib.testing.builders import (
    make_cluster_queue,
    make_flavor,
    make_local_queue,
    make_pod_set,
    make_workload,
)

GI = 2**30
MIG = "nvidia.com/mig-1g.5gb"


def counted(rules: ResourceRules, **asked: str) -> dict[str, int]:
    names = {"gpu": "nvidia.com/gpu", "mig": MIG, "net": "networking.example/vpc"}
    requests = {names.get(name, name): Quantity.parse(text).nanos for name, text in asked.items()}
    return dict(rules.counted(requests))


def into(*, retain: bool = True, multiply_by: str = "", **outputs: str) -> Transformation:
    amounts = {name: Quantity.parse(text) for name, text in outputs.items()}
    return Transformation(amounts, retain, multiply_by)


def test_a_resource_counts_as_itself_without_rules() -> None:
    assert counted(ResourceRules(), memory="1Gi", cpu="500m") == {"cpu": 500, "memory": GI}


def test_a_prefix_leaves_resources_out() -> None:
    rules = ResourceRules(excluded_prefixes=("networking.example/", "mem"))
    assert counted(rules, cpu="1", memory="1Gi", net="1") == {"cpu": 1000}


@pytest.mark.parametrize(
    ("rule", "asked", "want"),
    [
        (into(credits="10"), {"cpu": "2"}, {"cpu": 2000, "credits": 20}),
        (into(credits="10", retain=False), {"cpu": "2"}, {"credits": 20}),
        (into(retain=False), {"cpu": "2", "memory": "1"}, {"memory": 1}),
        (into(memory="1Gi"), {"cpu": "2", "memory": "1Gi"}, {"cpu": 2000, "memory": 3 * GI}),
        (into(credits="1"), {"cpu": "1m"}, {"cpu": 1, "credits": 1}),  # rounded up, once
        (into(credits="-5"), {"cpu": "1"}, {"cpu": 1000, "credits": 0}),
        (into(memory="-1Gi"), {"cpu": "1", "memory": "1Gi"}, {"cpu": 1000, "memory": GI}),
        (into(credits="1"), {"memory": "1Gi"}, {"memory": GI}),
    ],
)
def test_a_transformation_adds_its_outputs(
    rule: Transformation, asked: dict[str, str], want: dict[str, int]
) -> None:
    assert counted(ResourceRules(transformations={"cpu": rule}), **asked) == want


def test_a_multiplier_scales_the_outputs_and_not_what_is_retained() -> None:
    rules = ResourceRules(transformations={"memory": into(share="1", multiply_by="nvidia.com/gpu")})
    assert counted(rules, memory="5", gpu="4") == {"memory": 5, "nvidia.com/gpu": 4, "share": 20}
    assert counted(rules, memory="5") == {"memory": 5, "share": 5}
    zero = counted(rules, memory="5", gpu="0")
    assert zero == {"memory": 5, "nvidia.com/gpu": 0, "share": 0}


def test_outputs_of_several_inputs_add_up_and_are_not_transformed_again() -> None:
    rules = ResourceRules(
        transformations={
            MIG: into(memory="5Gi", retain=False),
            "nvidia.com/gpu": into(**{"memory": "-1Gi", MIG: "7"}, retain=False),
        }
    )
    assert counted(rules, mig="2", gpu="1", memory="1Gi") == {"memory": 10 * GI, MIG: 7}


def test_exclusion_comes_before_the_transformation() -> None:
    rules = ResourceRules(("cpu",), {"cpu": into(credits="1"), "memory": into(cpu="1")})
    assert counted(rules, cpu="1", memory="2") == {"memory": 2, "cpu": 2000}


def decided(found: Engine) -> Plan:
    cycle = found.next_cycle(1.0)
    assert cycle is not None
    return decide(cycle, 1.0)


def engine(rules: ResourceRules) -> Engine:
    found = Engine(Settings(resources=rules))
    for event in (
        NamespaceSet("ns", {}),
        FlavorSet(make_flavor("f")),
        ClusterQueueSet(make_cluster_queue("q", {"f": {"cpu": 4, "pods": 3}})),
        LocalQueueSet(make_local_queue("l", "q")),
    ):
        found.observe(event, 0.0)
    return found


def test_resources_without_quota_are_checked_unless_the_strategy_ignores_them() -> None:
    requests = {"cpu": 2, "example.com/disk": 9}
    workload = make_workload("w", "l", pod_sets=[make_pod_set(requests, count=2)])
    strict = engine(ResourceRules())
    strict.observe(Waiting(workload), 0.0)
    plan = decided(strict)
    (wait,) = plan.waits
    assert "resource example.com/disk unavailable in ClusterQueue" in wait.message
    assert {name: str(amount) for name, amount in wait.resource_requests[0].resources.items()} == {
        "cpu": "4",
        "example.com/disk": "18",
    }

    loose = engine(ResourceRules(ignores_undeclared=True))
    loose.observe(Waiting(workload), 0.0)
    plan = decided(loose)
    (admit,) = plan.admissions
    (assignment,) = admit.admission.pod_set_assignments
    assert dict(assignment.flavors) == {"cpu": "f", "pods": "f"}
    assert set(assignment.resource_usage) == {"cpu", "pods"}


def test_a_workload_that_asks_only_for_what_is_ignored_needs_no_quota() -> None:
    found = engine(ResourceRules(ignores_undeclared=True))
    found.observe(ClusterQueueSet(make_cluster_queue("q", {"f": {"cpu": 0}})), 0.0)
    found.observe(Waiting(make_workload("w", "l", pod_sets=[make_pod_set({"memory": 1})])), 0.0)
    plan = decided(found)
    (admit,) = plan.admissions
    assert admit.usage == {}
