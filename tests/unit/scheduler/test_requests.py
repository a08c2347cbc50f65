from __future__ import annotations

from typing import Any

import pytest

from kueuelib.api.codec import decode
from kueuelib.api.core import LimitRange, PodTemplateSpec, RuntimeClass
from kueuelib.scheduler.pending.requests import (
    NO_LIMIT_RANGES,
    LimitSummary,
    PodRequest,
    excessive_requests,
    limit_range_violations,
    pod_request,
    summarize,
)
from kueuelib.scheduler.quota.amounts import Requests
from kueuelib.scheduler.quota.resource_rules import AS_REQUESTED
from kueuelib.testing.builders import make_workload


def container(
    requests: dict[str, str] | None = None, limits: dict[str, str] | None = None, **more: Any
) -> dict[str, Any]:
    return {"name": "c", "resources": {"requests": requests or {}, "limits": limits or {}}, **more}


def request_of(
    *containers: dict[str, Any],
    init: list[dict[str, Any]] | None = None,
    limits: LimitSummary = NO_LIMIT_RANGES,
    runtime_class: RuntimeClass | None = None,
    **pod: Any,
) -> PodRequest:
    template = {"spec": {"containers": list(containers), "initContainers": init or [], **pod}}
    raw = {"name": "main", "count": 1, "template": template}
    found = make_workload("w", "q", pod_sets=[raw]).spec.pod_sets[0].template
    assert isinstance(found, PodTemplateSpec)
    return pod_request(found.spec, limits, runtime_class)


def amounts(found: PodRequest) -> Requests:
    return AS_REQUESTED.counted(found.per_pod)


def limit_range(name: str = "lr", type: str = "Container", **bounds: Any) -> LimitRange:
    raw = {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {"limits": [{"type": type, **bounds}]},
    }
    return decode(LimitRange, raw)


def test_containers_add_up_and_init_containers_count_by_the_largest() -> None:
    found = request_of(
        container({"cpu": "300m"}),
        container({"cpu": "200m"}),
        init=[container({"cpu": "800m"}), container({"cpu": "100m"})],
        overhead={"cpu": "50m"},
    )
    assert amounts(found) == {"cpu": 850}


def test_sidecars_run_beside_what_comes_after_them() -> None:
    sidecar = {"restartPolicy": "Always"}
    found = request_of(
        container({"cpu": "250m"}),
        init=[
            container({"cpu": "100m"}, **sidecar),
            container({"cpu": "500m"}),
            container({"cpu": "200m"}, **sidecar),
        ],
    )
    assert amounts(found) == {"cpu": 600}


def test_sidecars_add_to_the_containers() -> None:
    sidecar = container({"cpu": "2"}, restartPolicy="Always")
    assert amounts(request_of(container({"cpu": "1"}), init=[sidecar])) == {"cpu": 3000}


def test_limits_stand_in_for_missing_requests() -> None:
    found = request_of(container({"cpu": "1"}, {"cpu": "2", "memory": "1Gi"}))
    assert amounts(found) == {"cpu": 1000, "memory": 2**30}


def test_default_requests_come_before_limits() -> None:
    limits = summarize(
        [limit_range(default={"memory": "512Mi"}, defaultRequest={"memory": "256Mi"})]
    )
    found = request_of(container(limits={"memory": "1Gi"}), limits=limits)
    assert amounts(found) == {"memory": 256 * 2**20}
    assert found.containers[0].limits["memory"] == 2**30 * 10**9


def test_default_limits_become_requests() -> None:
    limits = summarize([limit_range(default={"cpu": "2"})])
    assert amounts(request_of(container(), limits=limits)) == {"cpu": 2000}


def test_defaults_apply_to_init_containers_too() -> None:
    limits = summarize([limit_range(defaultRequest={"cpu": "2"})])
    found = request_of(container({"cpu": "1"}), init=[container()], limits=limits)
    assert amounts(found) == {"cpu": 2000}


def test_amounts_are_rounded_up_once_per_pod() -> None:
    assert amounts(request_of(container({"cpu": "0.0001", "memory": "1500m"}))) == {
        "cpu": 1,
        "memory": 2,
    }
    found = request_of(container({"cpu": "400u"}), container({"cpu": "400u"}))
    assert amounts(found) == {"cpu": 1}


def test_negative_requests_count_as_nothing() -> None:
    assert amounts(request_of(container({"cpu": "-1"}), container({"cpu": "2"}))) == {"cpu": 2000}


def test_runtime_class_gives_the_overhead_that_the_pod_lacks() -> None:
    raw = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": "vm"},
        "handler": "vm",
        "overhead": {"podFixed": {"cpu": "250m"}},
    }
    runtime_class = decode(RuntimeClass, raw)
    named = {"runtimeClassName": "vm", "runtime_class": runtime_class}
    assert amounts(request_of(container({"cpu": "1"}), **named)) == {"cpu": 1250}
    own = {"overhead": {"cpu": "1"}}
    assert amounts(request_of(container({"cpu": "1"}), **named, **own)) == {"cpu": 2000}
    assert amounts(request_of(container({"cpu": "1"}), runtimeClassName="gone")) == {"cpu": 1000}


def test_pod_level_requests_replace_the_sum_of_containers() -> None:
    found = request_of(
        container({"cpu": "1", "memory": "1Gi"}),
        resources={"requests": {"cpu": "3"}, "limits": {"cpu": "4", "gpu": "2"}},
    )
    assert amounts(found) == {"cpu": 3000, "gpu": 2, "memory": 2**30}


def test_bounds_of_several_limit_ranges_are_the_strictest() -> None:
    found = summarize(
        [
            limit_range("b", max={"cpu": "4"}, min={"cpu": "100m"}, default={"cpu": "1"}),
            limit_range("a", max={"cpu": "2"}, min={"cpu": "200m"}, default={"cpu": "3"}),
        ]
    ).containers
    assert found.max == {"cpu": 2 * 10**9}
    assert found.min == {"cpu": 2 * 10**8}
    assert found.default == {"cpu": 3 * 10**9}


def test_requests_above_limits_are_named() -> None:
    found = request_of(
        container({"cpu": "1"}),
        container({"memory": "2", "cpu": "3"}, {"memory": "1", "cpu": "2"}),
        init=[container({"cpu": "3"}, {"cpu": "2"})],
    )
    assert [str(one) for one in excessive_requests("w", found, NO_LIMIT_RANGES)] == [
        "podSets.w.initContainers[0][cpu] requests exceed it's limits",
        "podSets.w.containers[1][cpu, memory] requests exceed it's limits",
    ]
    fits = request_of(container({"cpu": "2"}, {"cpu": "2"}))
    assert excessive_requests("w", fits, NO_LIMIT_RANGES) == ()


@pytest.mark.parametrize(
    ("bounds", "own", "given"),
    [
        ({"default": {"cpu": "500m"}}, ({"cpu": "1"}, {}), "default[cpu] is 500m"),
        (
            {"default": {"cpu": "500m"}, "defaultRequest": {"cpu": "1"}},
            ({}, {}),
            "default[cpu] is 500m, LimitRange ns/a: spec.limits[0].defaultRequest[cpu] is 1",
        ),
        ({"defaultRequest": {"cpu": "2"}}, ({}, {"cpu": "1"}), "defaultRequest[cpu] is 2"),
    ],
)
def test_what_a_limit_range_gave_is_named(bounds: Any, own: Any, given: str) -> None:
    limits = summarize([limit_range("a", **bounds), limit_range("b", default={"cpu": "3"})])
    found = request_of(container(*own), limits=limits)
    (told,) = excessive_requests("w", found, limits)
    words = "podSets.w.containers[0][cpu] requests exceed it's limits"
    assert str(told) == f"{words} (LimitRange ns/a: spec.limits[0].{given})"


@pytest.mark.parametrize(
    ("bounds", "want"),
    [
        ({"max": {"cpu": "4"}}, ""),
        (
            {"max": {"cpu": "2"}},
            "exceeds the limits (LimitRange ns/lr: spec.limits[0].max[cpu] is 2)",
        ),
        ({"min": {"cpu": "2"}}, ""),
        (
            {"min": {"cpu": "4"}},
            "are less than the limits (LimitRange ns/lr: spec.limits[0].min[cpu] is 4)",
        ),
        ({"max": {"gpu": "1"}, "min": {"gpu": "1"}}, ""),
    ],
)
def test_container_bounds(bounds: dict[str, Any], want: str) -> None:
    limits = summarize([limit_range(**bounds)])
    found = request_of(container({"cpu": "3"}), limits=limits)
    told = [*map(str, limit_range_violations("w", found, limits))]
    assert told == ([f"the requests of podSets.w.containers[0][cpu] {want}"] if want else [])


def test_pod_bounds_look_at_the_whole_pod() -> None:
    limits = summarize([limit_range(type="Pod", max={"cpu": "4"})])
    found = request_of(container({"cpu": "3"}), container({"cpu": "2"}), limits=limits)
    above = "the requests of podSets.w[cpu] exceeds the limits"
    most = "LimitRange ns/lr: spec.limits[0].max[cpu] is 4"
    assert [*map(str, limit_range_violations("w", found, limits))] == [f"{above} ({most})"]
    pod = [container({"cpu": "3"}), container({"cpu": "1"})]
    assert limit_range_violations("w", request_of(*pod, limits=limits), limits) == ()
    overhead = {"metadata": {"name": "vm"}, "overhead": {"podFixed": {"cpu": "250m"}}}
    vm = decode(RuntimeClass, overhead)
    found = request_of(*pod, limits=limits, runtime_class=vm, runtimeClassName="vm")
    assert [*map(str, limit_range_violations("w", found, limits))] == [
        f"{above} ({most}, RuntimeClass vm: overhead.podFixed[cpu] is 250m)"
    ]
