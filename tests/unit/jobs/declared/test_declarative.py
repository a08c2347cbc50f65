"""Kinds that are declared: where pods are, what shows how they do, and what a start changes."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kueuelib.api.meta import Resource
from kueuelib.errors import InvalidJob
from kueuelib.jobs.contract.capabilities import JobWithReclaimablePods
from kueuelib.jobs.contract.commands import Change, Emit, RequeueAfter
from kueuelib.jobs.contract.generic_job import GenericJob, JobEnd
from kueuelib.jobs.contract.paths import put, value, values
from kueuelib.jobs.contract.podset_info import PodSetInfo, infos_for_restore
from kueuelib.jobs.contract.settings import JobSettings
from kueuelib.jobs.declared.declarative import (
    AtMost,
    Done,
    HasCondition,
    declare,
    differs,
    enough,
    equals,
    every,
    never,
    outdated,
)
from kueuelib.jobs.declared.pod_shape import Pods
from kueuelib.jobs.declared.signs import shows
from kueuelib.jobs.reconcile.job_snapshot import JobSnapshot
from kueuelib.jobs.reconcile.plan import plan
from kueuelib.testing.job_world import QUEUE, JobWorld

RESOURCE = Resource("g.example.com", "v1", "things", "Thing", namespaced=True)
SIGNS: dict[str, Any] = {
    "active": "status.active",
    "ready": enough("status.ready"),
    "succeeded": HasCondition("Complete"),
    "failed": equals("status.phase", "Failed", "Lost"),
}


def template(name: str) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": name}]}}


def thing(pods: list[Pods], spec: dict[str, Any], **more: Any) -> GenericJob:
    found = declare(RESOURCE, pods=pods, **{**SIGNS, **more.pop("signs", {})})
    meta = {"name": "t", "namespace": "ns", "uid": "u"}
    return found.job_type({"metadata": meta, "spec": spec, **more})


def shapes(job: GenericJob) -> list[tuple[str, int, int | None]]:
    return [(entry.name, entry.count, entry.min_count) for entry in job.pod_sets()]


def test_a_list_gives_a_pod_set_per_element_with_the_product_of_its_counts() -> None:
    pods = Pods("name", "template.t", ("replicas", "template.parallelism"), each="spec.parts")
    parts = [
        {"name": "B", "replicas": 2, "template": {"parallelism": 3, "t": template("b")}},
        {"name": "a", "template": {"t": template("a")}},
        {"name": "none", "replicas": 4},
    ]
    assert shapes(thing([pods], {"parts": parts})) == [("b", 6, None), ("a", 1, None)]


def test_a_mapping_gives_a_pod_set_per_key_in_the_order_that_is_said() -> None:
    pods = Pods("", "template", "replicas", each="spec.roles", order=("Master", "Worker"))
    roles = {
        "Extra": {"template": template("e")},
        "Worker": {"replicas": 3, "template": template("w")},
        "Master": {"replicas": 1, "template": template("m")},
    }
    found = shapes(thing([pods], {"roles": roles}))
    assert found == [("master", 1, None), ("worker", 3, None), ("extra", 1, None)]


def test_a_start_adds_to_every_template_and_a_restore_takes_it_away() -> None:
    spec = {"suspend": True, "a": {"t": template("a")}, "b": {"t": template("b"), "n": 4, "min": 1}}
    pods = [Pods("a", "spec.a.t"), Pods("b", "spec.b.t", "spec.b.n", "spec.b.min")]
    job = thing(pods, spec)
    before = copy.deepcopy(job.object)
    remembered = {"spec": {"podSets": [entry.raw() for entry in job.pod_sets()]}}
    job.run_with_podsets_info(
        [
            PodSetInfo("a", 1, node_selector={"pool": "x"}),
            PodSetInfo("b", 2, labels={"l": "1"}),
        ]
    )
    assert not job.is_suspended()
    assert value(job.object, "spec.a.t.spec.nodeSelector.pool") == "x"
    assert value(job.object, "spec.b.n") == 2
    job.suspend()
    assert job.restore_podsets_info(infos_for_restore(remembered))
    assert job.object["spec"]["b"]["n"] == 4
    specs = [entry.template["spec"] for entry in job.pod_sets()]
    assert specs == [entry.template["spec"] for entry in type(job)(before).pod_sets()]
    assert not value(job.object, "spec.b.t.metadata.labels")
    assert not job.restore_podsets_info(infos_for_restore(remembered))


def test_pods_that_are_being_deleted_have_a_sign_of_their_own() -> None:
    pods = [Pods("p", "spec.t")]
    spec = {"t": template("t")}
    told = {"leaving": 1}
    assert thing(pods, spec, signs={"terminating": "status.leaving"}, status=told).is_terminating()
    assert not thing(pods, spec, status=told).is_terminating()


def test_signs_tell_how_a_job_does() -> None:
    def at(**status: Any) -> GenericJob:
        pods = [Pods("p", "spec.t", "spec.n")]
        return thing(pods, {"t": template("t"), "n": 2}, status=status)

    assert not at().is_active()
    assert at(active=1).is_active()
    assert not at(ready=1).pods_ready()
    assert at(ready=2).pods_ready()
    assert at().finished() is None
    assert at(phase="Lost").finished() == JobEnd(False, "Thing failed")
    done = at(conditions=[{"type": "Complete", "status": "True"}]).finished()
    assert done == JobEnd(True, "Thing finished successfully")
    assert at(conditions=[{"type": "Complete", "status": "False"}]).finished() is None


def test_several_signs_and_functions_are_alternatives() -> None:
    def strange(obj: dict[str, Any]) -> bool:
        return obj["spec"].get("strange") is True

    signs = {"active": ("status.roles.*.active", strange)}
    pods = [Pods("p", "spec.t")]
    spec = {"t": template("t")}
    roles = {"a": {"active": 0}, "b": {"active": 2}}
    assert thing(pods, spec, signs=signs, status={"roles": roles}).is_active()
    assert thing(pods, {**spec, "strange": True}, signs=signs).is_active()
    assert not thing(pods, spec, signs=signs).is_active()


def test_pods_that_are_done_can_be_reclaimed_and_only_then() -> None:
    spec = {"t": template("t"), "n": 3}
    plain = thing([Pods("p", "spec.t", "spec.n")], spec)
    assert not isinstance(plain, JobWithReclaimablePods)
    pods = [Pods("p", "spec.t", "spec.n", succeeded="status.done")]
    job = thing(pods, spec, status={"done": 7})
    assert isinstance(job, JobWithReclaimablePods)
    assert job.reclaimable_pods() == {"p": 3}


def test_contradictions_are_refused() -> None:
    with pytest.raises(ValueError, match="count has to be one path"):
        Pods("p", min_count="spec.min")
    with pytest.raises(ValueError, match="where the pod templates are"):
        declare(RESOURCE, pods=[], **SIGNS)
    with pytest.raises(ValueError, match="several fields"):
        put({}, "a.*.b", 1)
    with pytest.raises(ValueError, match="not a path"):
        values({}, "a..b")
    with pytest.raises(TypeError, match="not a mapping"):
        put({"a": 1}, "a.b", 1)


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({}, "spec.roles.*.template"),
        ({"roles": [{"name": "a"}]}, "spec.roles.*.template"),
        ({"roles": [{"name": "a", "template": "text"}]}, "template"),
        ({"roles": [{"name": "a", "template": {"spec": None}}]}, "template"),
        ({"roles": [{"name": "a", "template": {"spec": {}, "metadata": 1}}]}, "template.metadata"),
        ({"roles": [{"name": "a", "template": template("a"), "replicas": "abc"}]}, "replicas"),
        ({"roles": [{"name": "a", "template": template("a"), "replicas": True}]}, "replicas"),
        ({"roles": [{"name": "a", "template": template("a"), "replicas": -1}]}, "replicas"),
        (
            {"roles": [{"name": each, "template": template("a")} for each in "aA"]},
            "spec.roles.*.name",
        ),
    ],
)
def test_an_object_that_says_no_pods_is_told_the_field_and_waits(
    spec: dict[str, Any], path: str
) -> None:
    job = thing([Pods("name", "template", "replicas", each="spec.roles")], spec)
    with pytest.raises(InvalidJob) as caught:
        job.pod_sets()
    assert caught.value.path == path
    settings = JobSettings(manage_jobs_without_queue_name=True)
    stop, *_ = plan(JobSnapshot(job, 0.0, settings))
    assert isinstance(stop, Change)
    assert stop.new["spec"]["suspend"] is True, "it may not run meanwhile"
    told, wait = plan(JobSnapshot(type(job)(stop.new), 0.0, settings))
    assert isinstance(told, Emit)
    assert told.reason == "ErrWorkloadCompose"
    assert path in told.message
    assert isinstance(wait, RequeueAfter)


# ---- signs and counts that more than one kind needs


def test_a_number_is_limited_by_another_one() -> None:
    pods = [Pods("p", "spec.t", ("spec.n", AtMost("spec.m", "spec.limit")))]
    for numbers, count in (
        ({}, 1),
        ({"n": 2, "m": 3}, 6),
        ({"n": 2, "m": 3, "limit": 2}, 4),
        ({"n": 2, "limit": 5}, 2),
    ):
        assert thing(pods, {"t": template("t"), **numbers}).pod_sets()[0].count == count


def test_pods_that_are_done_may_be_counted_elsewhere_in_units() -> None:
    done = Done("status.parts", pods=("n",))
    pods = [Pods("name", "t", ("k", "n"), each="spec.parts", succeeded=done)]
    parts = [{"name": "A", "k": 2, "n": 3, "t": template("t")}]
    found = [{"name": "b", "succeeded": 9}, {"name": "A", "succeeded": 1}]
    job = thing(pods, {"parts": parts}, status={"parts": found})
    assert isinstance(job, JobWithReclaimablePods)
    assert job.reclaimable_pods() == {"a": 3}
    job.object["status"]["parts"][1]["succeeded"] = 7
    assert job.reclaimable_pods() == {"a": 6}, "not more than there are"
    job.object["status"] = {}
    assert job.reclaimable_pods() == {}


def test_more_signs() -> None:
    def shown(sign: Any, **status: Any) -> bool:
        obj = {"spec": {"parts": [{"k": 2}, {}]}, "status": status}
        return shows(obj, sign, 100)

    other = differs("status.phase", "Suspended")
    assert [shown(other, phase=phase) for phase in ("Suspended", "", "New")] == [False, False, True]
    assert not shown(other)
    units = enough("status.*.ready", units="spec.parts.*.k")
    assert not shown(units, a={"ready": 2})
    assert shown(units, a={"ready": 2}, b={"ready": 1})
    both = every("status.a", equals("status.b", 1))
    assert [shown(both, a=1), shown(both, b=1), shown(both, a=1, b=1)] == [False, False, True]
    assert not shown(never, a=1)


def test_some_pods_are_there_only_when_a_sign_is_shown() -> None:
    pods = [Pods("p", "spec.t"), Pods("q", "spec.q", when=equals("spec.mode", "x"))]
    spec = {"t": template("t"), "q": template("q")}
    assert [entry.name for entry in thing(pods, spec).pod_sets()] == ["p"]
    assert [entry.name for entry in thing(pods, {**spec, "mode": "x"}).pod_sets()] == ["p", "q"]


def test_a_template_that_is_made_up_goes_unless_it_was_there() -> None:
    pods = [Pods("p", "spec.t", default=lambda _: template("t"))]
    job = thing(pods, {})
    job.run_with_podsets_info([PodSetInfo("p", 1, node_selector={"pool": "x"})])
    assert value(job.object, "spec.t.spec.nodeSelector") == {"pool": "x"}
    assert job.restore_podsets_info([PodSetInfo("p", 1)])
    assert "t" not in job.object["spec"]
    assert not job.restore_podsets_info([PodSetInfo("p", 1)])


def test_containers_that_are_added_are_counted_and_not_written() -> None:
    pods = [Pods("p", "spec.t", adds=lambda _: [{"name": "more"}])]
    job = thing(pods, {"t": {"spec": {}}})
    assert job.pod_sets()[0].template["spec"]["containers"] == [{"name": "more"}]
    job.run_with_podsets_info([PodSetInfo("p", 1)])
    assert not value(job.object, "spec.t.spec.containers")


@pytest.mark.parametrize(
    ("pods", "why"),
    [
        ({"count": AtMost("a.*", "b")}, "count='a.\\*' leads to several fields"),
        ({"succeeded": Done("status.*")}, "succeeded='status.\\*' leads to several fields"),
        ({"when": ()}, "when is empty"),
        ({"default": 1}, "default=1 is not a function"),
        ({"adds": []}, "adds=\\[\\] is not a function"),
        ({"each": "spec.a", "default": dict}, "default cannot be combined with each"),
    ],
)
def test_what_cannot_be_declared_is_refused(pods: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Pods("p", **pods)


def test_a_controller_that_has_not_seen_a_stop_may_be_creating_pods() -> None:
    """Until it has seen the present generation, the job counts as active."""
    sign = outdated()
    for generation, seen, shown in (
        ({"generation": 3}, {"observedGeneration": 2}, True),
        ({"generation": 3}, {"observedGeneration": 3}, False),
        ({"generation": 1}, {}, True),
        ({}, {}, False),
    ):
        job = thing(
            [Pods("main")],
            {"suspend": True, "template": template("a")},
            signs={"active": ["status.active", sign]},
            status=seen,
        )
        job.object["metadata"] |= generation
        assert job.is_active() is shown
    with pytest.raises(ValueError, match="outdated is the function that makes a sign"):
        declare(RESOURCE, pods=[Pods("main")], **{**SIGNS, "active": outdated})


def test_quota_is_free_when_the_controller_has_seen_the_stop() -> None:
    """Its status of before the start says that no pod is active, and is not believed."""
    signs = {**SIGNS, "active": ["status.active", outdated()]}
    integration = declare(RESOURCE, pods=[Pods("main")], **signs)
    meta = {"name": "t", "uid": "u", "labels": {"kueue.x-k8s.io/queue-name": QUEUE}}
    spec = {"suspend": True, "template": template("a")}
    world = JobWorld(integration, {"metadata": meta, "spec": spec})

    def seen(generation: int, observed: int) -> None:
        job = copy.deepcopy(world.live_job)
        job["metadata"]["generation"] = generation
        world.change({**job, "status": {"observedGeneration": observed}})
        world.settle()

    seen(1, 1)
    world.admit("spot")
    world.settle()
    seen(2, 1)
    world.evict()
    world.settle()
    assert world.is_suspended()
    seen(3, 1)
    assert world.holds_quota()
    seen(3, 3)
    assert not world.holds_quota()


def test_a_job_that_its_user_suspends_is_free_when_no_pod_is_active() -> None:
    """Nobody has begun a stop, so no condition is waited for."""
    suspended = HasCondition("Suspended")
    integration = declare(RESOURCE, pods=[Pods("main")], suspended=suspended, **SIGNS)
    job = integration.job_type({"metadata": {"name": "t"}, "spec": {"suspend": True}})
    assert not job.is_active()
    stops = job.copy()
    stops.raw["metadata"]["annotations"] = {"kueue.x-k8s.io/stopping": "true"}
    assert stops.is_active()
    stops.raw["status"] = {"conditions": [{"type": "Suspended", "status": "False"}]}
    assert stops.is_active()
    stops.raw["status"] = {"conditions": [{"type": "Suspended", "status": "True"}]}
    assert not stops.is_active()
    stops.raw["spec"]["suspend"] = False
    stops.raw["status"] = {}
    assert not stops.is_active(), "another manager has started it, and left the mark"
