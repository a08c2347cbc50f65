"""A declaration that could only fail later is refused at once, and the argument is named."""

from __future__ import annotations

import re
from typing import Any

import attrs
import pytest

from kueuelib.api.meta import Resource
from kueuelib.errors import InvalidJob
from kueuelib.jobs.declared.declarative import (
    HasCondition,
    Word,
    declare,
    differs,
    enough,
    equals,
    every,
    never,
)
from kueuelib.jobs.declared.pod_shape import Pods

RESOURCE = Resource("g.example.com", "v1", "things", "Thing", namespaced=True)
NO_FIELD = "for a kind without such a field, see docs/kinds-without-suspend.md"


def word(**changed: Any) -> Word:
    return Word(**{"path": "spec.state", "suspended": "off", "running": "on", **changed})


GOOD: dict[str, Any] = {
    "pods": [Pods("p", "spec.template")],
    "active": "status.active",
    "ready": enough("status.ready"),
    "succeeded": HasCondition("Complete"),
    "failed": [equals("status.phase", "Failed"), lambda _: False],
}


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"template": "spec..x"}, "template='spec..x' is not a path"),
        ({"template": "spec. x"}, "template='spec. x' has blanks; write 'spec.x'"),
        ({"template": ""}, "template='' is not a path"),
        ({"template": None}, "template=None is not a path"),
        ({"template": "spec.*.template"}, "template='spec.*.template' leads to several fields"),
        ({"count": "spec.*.n"}, "count='spec.*.n' leads to several fields"),
        (
            {"count": "spec.*.n", "min_count": "spec.min"},
            "count='spec.*.n' leads to several fields",
        ),
        ({"count": "spec.n", "min_count": "spec.*.m"}, "min_count='spec.*.m' leads to several"),
        ({"count": "spec.n", "min_count": "spec.n"}, "min_count and count have the same path"),
        ({"count": 2, "min_count": "spec.m"}, "count has to be one path"),
        ({"count": ("spec.n", "spec..m")}, "count='spec..m' is not a path"),
        ({"count": ()}, "count has no paths"),
        ({"count": -1}, "count=-1 is neither a number of pods nor"),
        ({"count": True}, "count=True is neither a number of pods nor"),
        ({"count": 1.5}, "count=1.5 is neither a number of pods nor"),
        ({"succeeded": "status.*.done"}, "succeeded='status.*.done' leads to several fields"),
        ({"name": "Head_X"}, "name='Head_X' is not a DNS label"),
        ({"name": ""}, "name='' is not a DNS label"),
        ({"order": ("A",)}, "order has no effect without each"),
        ({"each": "spec.roles", "name": "", "order": "Master"}, "order='Master' is not a tuple"),
        ({"each": "spec.roles", "name": "", "order": 3}, "order=3 is not a tuple"),
        ({"each": "spec..roles"}, "each='spec..roles' is not a path"),
        ({"each": "spec.*"}, "each='spec.*' leads to several fields"),
        ({"each": "spec.roles", "name": "a..b"}, "name='a..b' is not a path"),
    ],
)
def test_pods_that_cannot_be_are_refused(wrong: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match="Pods") as caught:
        Pods(**{"name": "p", "template": "spec.template", **wrong})
    assert named in str(caught.value)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"pods": []}, "pods is empty"),
        ({"pods": Pods("p")}, "is not a list of Pods(...); write pods=[Pods(...)]"),
        ({"pods": ["spec.template"]}, "pods[0]='spec.template' is not Pods"),
        ({"pods": [Pods("a"), Pods("a", "spec.t")]}, "pods[1]: the name 'a' is given twice"),
        ({"suspend": "spec.*.suspend"}, "suspend='spec.*.suspend' leads to several fields"),
        ({"suspend": ""}, "suspend='' is not a path such as spec.suspend; " + NO_FIELD),
        ({"suspend": None}, "suspend=None is not a path such as spec.suspend; " + NO_FIELD),
        ({"suspend": {"path": "spec.state"}}, "is not a path such as spec.suspend, or Word("),
        ({"suspend": Word}, "is not a path such as spec.suspend, or Word("),
        ({"suspend": word(path="status.state")}, "suspend='status.state' is not in the spec"),
        ({"suspend": word(path="spec.*.state")}, "suspend='spec.*.state' leads to several fields"),
        ({"suspend": word(suspended="on")}, "suspend: suspended and running are both 'on'"),
        ({"suspend": word(suspended="")}, "suspend: suspended='' is not a word"),
        ({"suspend": word(running=" on")}, "suspend: running=' on' is not a word"),
        (
            {"suspend": word(suspended=True)},
            "suspended=True is not a word; for a boolean that suspends write suspend='spec.state'",
        ),
        ({"suspend": "spec.paused "}, "suspend='spec.paused ' has blanks; write 'spec.paused'"),
        ({"suspend": "status.paused"}, "suspend='status.paused' is not in the spec"),
        ({"suspend": "spec"}, "suspend='spec' is not in the spec"),
        ({"active": equals}, "active=equals is the function that makes a sign; call equals(...)"),
        ({"message": "status..message"}, "message='status..message' is not a path"),
        ({"failed": 3}, "failed=3 is not a sign"),
        ({"failed": HasCondition}, "is not a sign"),
        ({"failed": None}, "failed=None is not a sign"),
        ({"failed": ""}, "failed='' is not a path"),
        ({"succeeded": []}, "succeeded is empty"),
        ({"succeeded": ["status.ok", 3]}, "succeeded[1]=3 is not a sign"),
        ({"active": "status..active"}, "active='status..active' is not a path"),
        ({"ready": equals("status.phase")}, "ready: equals('status.phase', ...) needs"),
        (
            {"ready": equals("status.phase", "Up", None)},
            "equals('status.phase', None): absent fields",
        ),
        ({"ready": equals("status..phase", 1)}, "ready='status..phase' is not a path"),
        ({"ready": enough()}, "ready: enough(...) needs the paths"),
        ({"ready": enough("a..b")}, "ready='a..b' is not a path"),
        ({"ready": HasCondition("")}, "ready: HasCondition('') needs the type"),
        ({"ready": HasCondition("Ready", status="true")}, "not 'true'"),
        ({"ready": HasCondition("Ready", path="a..b")}, "ready='a..b' is not a path"),
        ({"ready": HasCondition("Ready", reasons="Fine")}, "reasons='Fine' is not a tuple"),  # type: ignore[arg-type]
        ({"suspended": "status.seen"}, "suspended='status.seen' is not HasCondition"),
        ({"suspended": HasCondition("")}, "suspended: HasCondition('') needs the type"),
        ({"suspended": HasCondition("A", "False")}, "suspended: give the type of a condition"),
        (
            {"suspended": HasCondition("A", path="spec.x")},
            "suspended: give the type of a condition",
        ),
        ({"active": never}, "active is never shown; give the sign that a pod runs or may run"),
        ({"active": [never]}, "active is never shown"),
        ({"ready": never}, "ready is never shown; give the sign that all pods are ready"),
        ({"active": "spec.suspend"}, "active: 'spec.suspend' does not show what pods do; give the"),
        ({"active": ["status.active", equals(".spec.n", 1)]}, "active: 'spec.n' does not show"),
        ({"ready": enough("status.ready", "spec.n")}, "ready: 'spec.n' does not show what pods do"),
        (
            {"active": HasCondition("Suspended"), "suspended": HasCondition("Suspended")},
            "active: 'Suspended' is also the condition that shows that a stop was seen",
        ),
        ({"failed": HasCondition("Complete")}, "is also a sign of success, which counts first"),
        ({"succeeded": "status.over", "failed": ["status.x", "status.over"]}, "sign of success"),
        ({"validate": 3}, "validate=3 is not a function"),
        ({"name": "a, b"}, "name='a, b' is not a name"),
        ({"other_versions": "v2"}, "other_versions='v2' is not a tuple"),
        ({"other_versions": ["2"]}, "other_versions: '2' is not a version"),
        ({"other_versions": ["v2", "v2"]}, "other_versions: 'v2' is given twice"),
        ({"other_versions": ["v1"]}, "other_versions: 'v1' is given twice"),
    ],
)
def test_a_declaration_that_cannot_work_is_refused(wrong: dict[str, Any], named: str) -> None:
    declare(RESOURCE, **GOOD)
    with pytest.raises(ValueError, match="Thing: ") as caught:
        declare(RESOURCE, **{**GOOD, **wrong})
    assert named in str(caught.value)


PHASE = "status.phase"


@pytest.mark.parametrize("argument", ["active", "ready", "succeeded", "failed", "skip"])
@pytest.mark.parametrize(
    "signs",
    [
        ("status.active", never),
        (equals(PHASE, "A", "B"), equals(".status.phase", "C")),
        (equals(PHASE, "A"), every("status.x", differs(PHASE, "A"))),
        (PHASE, equals(PHASE, "", 0)),
        (HasCondition("Ready"), HasCondition("Ready", "False")),
        (HasCondition("Ready", reasons=("A",)), HasCondition("Ready", reasons=("B",))),
    ],
)
def test_signs_that_exclude_each_other_are_refused(argument: str, signs: tuple[Any, ...]) -> None:
    message = f"Thing: {argument}: every(...) has signs that no object shows together; give a list"
    for given in (every(*signs), ["status.other", every(*reversed(signs))]):
        with pytest.raises(ValueError, match=re.escape(message)):
            declare(RESOURCE, **{**GOOD, argument: given})
    declare(RESOURCE, **{**GOOD, argument: list(signs)})


@pytest.mark.parametrize(
    "signs",
    [
        (equals(PHASE, "A", "B"), equals(PHASE, "B", "C")),
        (equals(PHASE, "A", "B"), differs(PHASE, "B")),
        (equals("status.*.phase", "A"), equals("status.*.phase", "B")),
        (differs(PHASE, "A"), differs(PHASE, "B")),
        (PHASE, differs(PHASE, "B")),
        (HasCondition("Ready"), HasCondition("Done", "False")),
        (HasCondition("Ready"), HasCondition("Ready", "False", path="status.others")),
        (HasCondition("Ready", reasons=("A", "B")), HasCondition("Ready", reasons=("B",))),
        (HasCondition("Ready", reasons=("A", "B")), HasCondition("Ready")),
    ],
)
def test_signs_that_may_be_shown_together_are_accepted(signs: tuple[Any, ...]) -> None:
    declare(RESOURCE, **{**GOOD, "ready": every(*signs)})


def test_a_job_may_never_end_by_itself() -> None:
    declare(RESOURCE, **{**GOOD, "succeeded": never, "failed": never})


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"namespaced": False}, "namespaced=False"),
        ({"kind": "thing"}, "kind='thing'"),
        ({"version": "1"}, "version='1'"),
        ({"plural": "Things"}, "plural='Things'"),
        ({"group": "g/v1"}, "group='g/v1'"),
    ],
)
def test_a_kind_that_cannot_be_queued_is_refused(wrong: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        declare(attrs.evolve(RESOURCE, **wrong), **GOOD)
    with pytest.raises(ValueError, match="is not a Resource"):
        declare("things", **GOOD)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "problem"),
    [({}, "a name is missing"), ({"name": 3}, "3 is no"), ({"name": "a b"}, "a b")],
)
def test_an_element_without_a_name_of_its_own_is_told_so(
    name: dict[str, Any], problem: str
) -> None:
    pods = [Pods("name", "template", each="spec.roles")]
    roles = [{**name, "template": {"spec": {"containers": []}}}]
    job = declare(RESOURCE, **{**GOOD, "pods": pods}).job_type({"spec": {"roles": roles}})
    with pytest.raises(InvalidJob, match=problem) as caught:
        job.pod_sets()
    assert caught.value.path == "spec.roles[0].name"
    assert not job.pods_ready()
