"""What authors of kinds of jobs get wrong, and where the errors point."""

from __future__ import annotations

from functools import cached_property, partialmethod
from typing import Any

import pytest
from kubernetes_asyncio.client import V1Job

from kueuelib.api.kinds import WORKLOADS
from kueuelib.errors import ConfigError, InvalidJob
from kueuelib.jobs import (
    GenericJob,
    Integration,
    JobWithCustomStop,
    Pods,
    PodSet,
    Stop,
    declare,
    enough,
    equals,
)
from kueuelib.jobs.contract.settings import JobSettings
from kueuelib.jobs.plugins import as_integration
from kueuelib.jobs.reconcile.job_snapshot import JobSnapshot
from kueuelib.jobs.reconcile.reports import reclaimable_counts
from kueuelib.runtime import Resource
from kueuelib.testing.job_world import QUEUE, JobWorld

RESOURCE = Resource("example.com", "v1", "renders", "Render", namespaced=True)
TEMPLATE: dict[str, Any] = {"spec": {"containers": [{"name": "c", "image": "i"}]}}


def rendered(**changed: Any) -> Integration:
    arguments: dict[str, Any] = {
        "pods": [Pods("main")],
        "active": "status.active",
        "ready": enough("status.ready"),
        "succeeded": equals("status.phase", "Succeeded"),
        "failed": equals("status.phase", "Failed"),
    }
    return declare(RESOURCE, **{**arguments, **changed})


class Partly(GenericJob):
    """Not all methods are there."""

    resource = RESOURCE

    def is_suspended(self) -> bool:
        return False

    def pods_redy(self) -> bool:
        return True


class Textual(rendered().job_type):  # type: ignore[misc]
    """Its resource is a text."""

    resource = "renders"


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda: Integration.of(Partly),
            r"Integration.of\(Partly\): has no finished, is_active, pod_sets, pods_ready, ",
        ),
        (
            lambda: Integration.of(Textual),
            r"Integration.of\(Textual\): resource is 'renders'; write Resource\(\"example.com\", ",
        ),
        (lambda: PodSet("Workers", 1, TEMPLATE), r"PodSet\('Workers'\): the name is not a DNS lab"),
        (lambda: PodSet("workers", -1, TEMPLATE), r"PodSet\('workers'\): count=-1 is not a number"),
        (lambda: Pods(count=0), "count=0 is neither a number of pods nor a path of one"),
        (
            lambda: rendered(active="status/active"),
            "active='status/active': 'status/active' is not a field; write names with dots betw",
        ),
        (lambda: rendered(active="$.status.active"), r"'\$' is not a field; write names with dots"),
        (
            lambda: rendered(active="statsu.active"),
            "active='statsu.active': no object has 'statsu'; write 'status.active'",
        ),
        (
            lambda: rendered(pods=[Pods(template="psec.template")]),
            "template='psec.template': no object has 'psec'; write 'spec.template'",
        ),
        (
            lambda: rendered(pods=[Pods("a"), Pods("b")]),
            r"pods\[1\]: the template 'spec.template' is given twice",
        ),
        (
            lambda: reclaimable_counts(
                {"worker": 1}, [PodSet("workers", 2, TEMPLATE)], {"spec": {"podSets": []}}
            ),
            r"reclaimable_pods\(\): no pod set is called worker; use workers",
        ),
    ],
)
def test_a_mistake_is_named_with_its_fix(make: Any, said: str) -> None:
    with pytest.raises((ConfigError, InvalidJob, ValueError), match=said):
        make()


async def _later(_: object) -> bool:
    return True


async def _one_by_one(_: object) -> Any:
    yield True


@pytest.mark.parametrize(
    ("bases", "written", "said"),
    [
        (
            (),
            {"is_active": True},
            r"is_active is a bool, not a method; write def is_active\(self\)",
        ),
        ((), {"is_active": property(lambda _: True)}, r"is_active is a property, not a method"),
        (
            (),
            {"is_active": partialmethod(lambda _, answer: answer, True)},
            r"is_active is a partialmethod, not a method; write def is_active\(self\)",
        ),
        ((), {"is_active": _one_by_one}, r"is_active is async; write def is_active\(self\): meth"),
        ((), {"is_active": _later}, r"is_active is async; write def is_active\(self\): methods do"),
        (
            (),
            {"run_with_podsets_info": lambda _: None},
            r"takes other arguments; write def run_wit",
        ),
        ((), {"is_ending": lambda _, __: False}, r"is_ending takes other arguments; write def is_"),
        (
            (),
            {"copy": lambda self, deep: self},
            r"copy takes other arguments; write def copy\(self\)",
        ),
        (
            (),
            {"suspended_copy": lambda self, x: self},
            r"suspended_copy takes other arguments; wri",
        ),
        ((), {"copy": _later}, r"copy is async; write def copy\(self\): methods do"),
        ((), {"__init__": lambda self, obj, x: None}, r"write def __init__\(self, obj\)"),
        (
            (),
            {"admission_gates": lambda _: ()},
            r"admission_gates is not a property; write @property above def admission_gates\(self\)",
        ),
        ((), {"spec": "x"}, r"spec is not a property; write @property above def spec\(self\)"),
        ((), {"uid": 3}, r"uid is not a property; write @property above def uid\(self\)"),
        ((), {"key": "x"}, r"key is not a property; write @property above def key\(self\)"),
        ((), {"status": property(_later)}, r"status is async; write @property above def status\("),
        (
            (),
            {"resource": WORKLOADS},
            r"resource is of the group kueue.x-k8s.io, which has no jobs",
        ),
        (
            (),
            {"queue_name": property(lambda _: "q")},
            r"queue_name is overridden; set the label kueue.x-k8s.io/queue-name of new objects, in",
        ),
        (
            (),
            {"prebuilt_workload": "w"},
            r"prebuilt_workload is overridden; set the label kueue.x-k8s.io/prebuilt-workload-name",
        ),
        (
            (JobWithCustomStop,),
            {"is_stopping": lambda _: False, "stop": lambda _, infos, reason: Stop()},
            r"stop takes other arguments; write def stop\(self, infos, reason, message, now\)",
        ),
    ],
)
def test_a_method_that_cannot_be_called_is_refused(
    bases: tuple[type, ...], written: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=rf"Integration.of\(Mistaken\): .*{said}"):
        Integration.of(type("Mistaken", (rendered().job_type, *bases), written))


def test_a_method_that_changes_models_is_checked_as_it_was_written() -> None:
    class Modelled(GenericJob[V1Job]):
        is_suspended = finished = pod_sets = is_active = pods_ready = lambda _: None
        run_with_podsets_info = restore_podsets_info = lambda _, infos: None
        suspend = _later

    with pytest.raises(ConfigError, match=r"Modelled\): suspend is async"):
        Integration.of(Modelled)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Partly, r"kinds: Partly: has no finished, is_active, pod_sets, pods_ready, "),
        (
            type("Constant", (rendered().job_type,), {"is_active": True}),
            r"kinds: Constant: is_active is a bool, not a method; write def is_active\(self\)",
        ),
    ],
)
def test_an_integration_that_was_made_by_hand_is_checked_too(kind: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        as_integration(Integration("mine", kind), "kinds")


def test_methods_may_be_written_in_other_ways() -> None:
    written = {
        "is_active": staticmethod(lambda: True),
        "skip": classmethod(lambda _: False),
        "stop": lambda *_: Stop(),
        "is_stopping": lambda _, more=True: more,
        "workload_priority_class": property(lambda _: "high"),
        "spec": cached_property(lambda self: self.raw["spec"]),
    }
    kind = type("Unusual", (rendered().job_type, JobWithCustomStop), written)
    assert Integration.of(kind).job_type is kind


def test_two_shapes_with_one_template_are_fine_if_a_sign_tells_them_apart() -> None:
    both = [Pods("a", when="spec.large"), Pods("b", when="spec.small")]
    assert rendered(pods=both).resource == RESOURCE


def test_a_field_that_an_object_lacks_is_a_mistake_in_the_object() -> None:
    """An event on the object says so; the call is not repeated as if it were a bug of ours."""

    class Careless(rendered().job_type):  # type: ignore[misc]
        def pod_sets(self) -> Any:
            return [PodSet("main", self.spec["workers"], TEMPLATE)]

    situation = JobSnapshot(None, 0.0, JobSettings())
    with pytest.raises(InvalidJob, match=r"Careless.pod_sets\(\): raised KeyError\('workers'\)"):
        situation.pod_sets(Careless({"metadata": {"name": "one"}, "spec": {}}))


def test_a_kind_that_cannot_restore_its_templates_is_stopped() -> None:
    """Pods must not run without quota, whatever the author's method does."""

    class Careless(rendered().job_type):  # type: ignore[misc]
        def restore_podsets_info(self, infos: Any) -> bool:
            if "broken" in self.spec:
                raise OSError("there is no template")
            return bool(super().restore_podsets_info(infos))

    meta = {"name": "one", "uid": "u", "labels": {"kueue.x-k8s.io/queue-name": QUEUE}}
    spec = {"suspend": True, "template": TEMPLATE}
    world = JobWorld(Integration.of(Careless), {"metadata": meta, "spec": spec})
    world.settle()
    world.admit("spot")
    world.settle()
    assert not world.is_suspended()
    world.change({**world.live_job, "spec": {**world.live_job["spec"], "broken": True}})
    world.evict()
    world.settle()
    assert world.is_suspended()
    assert not world.workloads, "nothing can release its quota"
    assert "ErrWorkloadCompose" in world.events
