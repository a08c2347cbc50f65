"""Groups whose driver declares what it will create (KEP-976 story 3)."""

from __future__ import annotations

import json

import pytest

from kueuelib.api.kinds import PODS, WORKLOADS
from kueuelib.jobs.contract.commands import (
    Change,
    Count,
    Create,
    Delete,
    DropFinalizer,
    Emit,
    PatchStatus,
    RequeueAfter,
)
from kueuelib.jobs.pods.declaration import LONGEST, InvalidDeclaration, parse
from kueuelib.jobs.pods.facts import WARN
from kueuelib.jobs.pods.reading import is_gated

KUEUE = "kueue.x-k8s.io"
TEMPLATE = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}


def sets(workers=2, **more):
    return json.dumps(
        [
            {"name": "driver", "count": 1},
            {"name": "worker", "count": workers, "template": TEMPLATE, **more},
        ]
    )


@pytest.fixture
def driver(pods):
    def make(stage="waiting", name="driver", declared=None, **fields):
        notes = {f"{KUEUE}/pod-group-sets": declared or sets()}
        build = getattr(pods, stage)
        return build(name, group="group", cpu="2", annotations=notes, **fields)

    return make


@pytest.fixture
def worker(pods):
    def make(name, stage="waiting", role="worker", **fields):
        labels = {f"{KUEUE}/pod-group-role": role}
        return getattr(pods, stage)(name, group="group", labels=labels, **fields)

    return make


@pytest.fixture
def admitted(pods, driver):
    return pods.admitted(pods.composed(driver()))


def of(kind, commands):
    return [command for command in commands if isinstance(command, kind)]


def deleted(commands):
    return [c.obj["metadata"]["name"] for c in of(Delete, commands) if c.resource == PODS]


def started(commands):
    found = [c for c in of(Change, commands) if c.resource == PODS]
    return [c.new["metadata"]["name"] for c in found if is_gated(c.old) and not is_gated(c.new)]


def rejections(commands):
    return [each.labels[1] for each in of(Count, commands) if each.what == "rejected"]


def finished(commands):
    return [
        each.status["conditions"][0]["reason"]
        for each in of(PatchStatus, commands)
        if each.status.get("conditions", [{}])[0].get("type") == "Finished"
    ]


def test_the_driver_alone_makes_the_workload_with_its_own_spec_where_none_is_given(pods, driver):
    workload = pods.composed(driver(schedulingGates=[{"name": "other"}]))
    first, second = workload["spec"]["podSets"]
    assert (first["name"], first["count"], second["name"], second["count"]) == (
        *("driver", 1),
        *("worker", 2),
    )
    assert first["template"]["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "2"}
    assert "schedulingGates" not in first["template"]["spec"]
    assert second["template"] == TEMPLATE
    notes = workload["metadata"]["annotations"]
    assert notes[f"{KUEUE}/pod-group-sets-digest"] == parse(sets()).digest
    assert notes[f"{KUEUE}/pod-group-initial-roles"] == "driver"


def test_workers_wait_for_the_declaration(pods, worker):
    (command,) = pods.plan(worker("w"))
    assert isinstance(command, RequeueAfter)
    early = worker("w", age=60)
    (event,) = pods.plan(early)
    assert (event.reason, event.type) == ("ErrWorkloadCompose", "Warning")
    assert "waits for the pod that declares" in event.message


def test_workers_that_come_first_are_owners_of_the_workload_too(pods, driver, worker):
    refs = pods.composed(worker("w", age=5), driver())["metadata"]["ownerReferences"]
    assert [ref["name"] for ref in refs] == ["w", "driver"]


def test_no_role_hash_is_written_where_roles_have_names(driver, worker):
    for pod in (driver(), worker("w")):
        assert f"{KUEUE}/role-hash" not in pod["metadata"]["annotations"]


def test_workers_start_on_arrival_without_new_quota(pods, driver, worker, admitted):
    commands = pods.plan(driver("running"), worker("w"), workload=admitted)
    assert started(commands) == ["w"]
    assert started(pods.plan(driver(), worker("w"), workload=pods.composed(driver()))) == []


@pytest.mark.parametrize("stage", ["waiting", "running"])
def test_a_worker_too_many_is_excess_also_when_another_has_succeeded(
    pods, driver, worker, admitted, stage
):
    others = [worker("a", stage), worker("b", "over", phase="Succeeded")]
    extra = worker("x", age=-5)
    commands = pods.plan(driver("running"), *others, extra, workload=admitted)
    assert deleted(commands) == ["x"]
    assert rejections(commands) == ["excess"]


def test_a_role_that_nobody_declared_is_rejected(pods, driver, worker, admitted):
    commands = pods.plan(driver("running"), worker("s", role="stranger"), workload=admitted)
    assert deleted(commands) == ["s"]
    assert rejections(commands) == ["unknown_role"]
    (event,) = [e for e in of(Emit, commands) if e.reason == "PodRejected"]
    assert event.message == 'The Workload of the group has no role "stranger"'


def test_a_worker_that_asks_for_more_than_declared_is_rejected_or_told(
    pods, driver, worker, admitted
):
    large = worker("l", cpu="2")
    commands = pods.plan(driver("running"), large, workload=admitted)
    assert deleted(commands) == ["l"]
    assert rejections(commands) == ["shape_mismatch"]
    warned = pods.plan(driver("running"), large, workload=admitted, policy=WARN)
    assert deleted(warned) == []
    assert started(warned) == ["l"]
    assert "PodRejected" in [each.reason for each in of(Emit, warned)]


def test_a_worker_may_ask_for_less(pods, driver, worker, admitted):
    commands = pods.plan(driver("running"), worker("s", cpu="500m"), workload=admitted)
    assert started(commands) == ["s"]


def test_of_conflicting_declarations_the_oldest_wins(pods, driver, admitted):
    other = driver(name="other", declared=sets(5), age=-5)
    commands = pods.plan(driver(), other)
    assert deleted(commands) == ["other"]
    assert len(of(Create, commands)) == 1
    late = pods.plan(driver("running"), other, workload=admitted)
    assert rejections(late) == ["conflicting_sets"]


def test_without_quota_a_new_declaration_alone_rewrites_the_workload(pods, driver):
    workload = pods.composed(driver())
    commands = pods.plan(driver(name="new", declared=sets(5)), workload=workload)
    (change,) = [c for c in of(Change, commands) if c.resource == WORKLOADS]
    assert [entry["count"] for entry in change.new["spec"]["podSets"]] == [1, 5]
    digest = change.new["metadata"]["annotations"][f"{KUEUE}/pod-group-sets-digest"]
    assert digest == parse(sets(5)).digest
    assert deleted(commands) == []


def test_a_workload_is_not_rewritten_while_pods_of_the_old_declaration_leave(pods, driver, worker):
    workload = pods.composed(driver())
    new = driver(name="new", declared=sets(1))
    commands = pods.plan(new, pods.deleted(worker("w", "running")), workload=workload)
    assert [c for c in of(Change, commands) if c.new["kind"] == "Workload"] == []
    commands = pods.plan(new, pods.deleted(worker("w", "over")), workload=workload)
    assert len([c for c in of(Change, commands) if c.new["kind"] == "Workload"]) == 1


def test_the_group_is_over_when_driver_and_present_workers_have_succeeded(
    pods, driver, worker, admitted
):
    done = driver("over", phase="Succeeded")
    assert finished(pods.plan(done, worker("w", "running"), workload=admitted)) == []
    for phase in ("Succeeded", "Failed"):
        found = worker("w", "over", phase=phase)
        assert finished(pods.plan(done, found, workload=admitted)) == ["Succeeded"]


def test_workers_without_a_template_have_to_succeed_as_well(pods, driver, worker):
    declared = json.dumps([{"name": "driver", "count": 1}, {"name": "worker", "count": 1}])
    make = {"declared": declared, "labels": {f"{KUEUE}/pod-group-role": "driver"}}
    workload = pods.admitted(pods.composed(driver(**make)))
    done = driver("over", phase="Succeeded", **make)
    assert finished(pods.plan(done, workload=workload)) == []
    for phase, end in (("Failed", []), ("Succeeded", ["Succeeded"])):
        found = worker("w", "over", phase=phase)
        assert finished(pods.plan(done, found, workload=workload)) == end


def test_a_failed_driver_keeps_its_quota_until_it_is_replaced_or_given_up(
    pods, driver, worker, admitted
):
    failed = driver("over")
    assert pods.plan(failed, workload=admitted) == ()
    commands = pods.plan(failed, driver(name="again"), workload=admitted)
    assert started(commands) == ["again"]
    assert [c.obj["metadata"]["name"] for c in of(DropFinalizer, commands)] == ["driver"]
    failed["metadata"]["annotations"][f"{KUEUE}/retriable-in-group"] = "false"
    assert finished(pods.plan(failed, workload=admitted)) == ["Failed"]


def test_progress_is_told_by_role(pods, driver, worker, admitted):
    found = (driver("over", phase="Succeeded"), worker("w", "over", phase="Succeeded"))
    (finish, *_) = of(PatchStatus, pods.plan(*found, workload=admitted))
    message = finish.status["conditions"][0]["message"]
    assert message == "Pods succeeded: 2/3 (driver 1/1, worker 1/2)."


def test_absent_workers_do_not_make_the_group_unready(pods, driver, worker, admitted):
    assert pods.group(driver("running"), workload=admitted).pods_ready()
    assert not pods.group(driver("running"), worker("w"), workload=admitted).pods_ready()


def test_an_unreadable_declaration_is_told(pods, driver):
    (event,) = pods.plan(driver(declared="- {name: A, count: 0}"))
    assert event.reason == "ErrWorkloadCompose"
    assert "pod-group-sets][0].count" in event.message


# ---- the text


def test_the_corrected_form_of_the_kep_is_read():
    text = """
- name: driver
  count: 1
- name: worker
  count: 10
  template: {spec: {containers: [{name: worker, resources: {requests: {cpu: 1m}}}]}}
"""
    declared = parse(text)
    assert (declared.names, declared.empty, declared.total) == (
        ("driver", "worker"),
        ("driver",),
        11,
    )


def test_requests_belong_under_resources_other_than_in_the_sample_of_the_kep():
    container = {"name": "worker", "requests": {"cpu": "1m"}}
    text = sets(template={"spec": {"containers": [container]}})
    with pytest.raises(
        InvalidDeclaration, match=r"containers\[0\].requests.*not a field of a container"
    ):
        parse(text)


def test_equal_amounts_have_one_digest_and_other_counts_another():
    one, other = (
        json.dumps([{"name": "w", "count": 1, "template": template(cpu)}]) for cpu in ("500m", 0.5)
    )
    assert parse(one).digest == parse(other).digest
    assert parse(sets(1)).digest != parse(sets(2)).digest


def test_an_amount_beyond_64_bits_is_an_amount():
    text = json.dumps([{"name": "w", "count": 1, "template": template(10**20)}])
    (declared,) = parse(text).sets
    asked = declared.template["spec"]["containers"][0]["resources"]["requests"]
    assert asked == {"cpu": "100000000000000000000"}
    assert parse(text).digest == parse(text.replace(str(10**20), '"100E"')).digest


def template(asked, **limits):
    resources = {"requests": {"cpu": asked}, **({"limits": limits} if limits else {})}
    return {"spec": {"containers": [{"name": "c", "resources": resources}]}}


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("x" * (LONGEST + 1), ""),
        ("[" * 40 + "]" * 40, ""),
        ("[{", ""),
        ("- &a {name: a, count: 1}\n- *a", ""),
        ("- !!set {name: a}", ""),
        ("- {name: a, name: b, count: 1}", ""),
        ("- 1", "[0]"),
        (json.dumps([{"name": f"r{i}", "count": 1, "template": TEMPLATE} for i in range(9)]), ""),
        (sets().replace("worker", "driver"), "[1].name"),
        (sets(2**31 - 1), ""),
        (sets(2**31), "[1].count"),
        ("- {name: d, count: 99999999999999999999}", "[0].count"),
        ("- {name: d, count: 1_0}", "[0].count"),
        ("- {name: d, count: 1:30}", "[0].count"),
        ("- {name: 99999999999999999999, count: 1}", "[0].name"),
        ('- {name: "\\ud800", count: 1}', ""),
        (
            sets(template={"spec": {"priority": 10**20, **TEMPLATE["spec"]}}),
            "[1].template.spec.priority",
        ),
        (sets(minCount=1), "[1].minCount"),
        (json.dumps([{"name": "a", "count": True}]), "[0].count"),
        (f"- {{name: a, count: {'9' * 5000}}}", ""),
        (json.dumps([{"name": "a", "count": 1.5}]), "[0].count"),
        (
            json.dumps([{"name": "a", "count": 1, "template": template("2", cpu="1")}]),
            "[0].template.spec.containers[0].resources.requests[cpu]",
        ),
        (
            sets(template=json.loads(json.dumps(TEMPLATE).replace('"cpu"', '"Weird Resource!"'))),
            "[1].template.spec.containers[0].resources.requests[Weird Resource!]",
        ),
        (
            json.dumps([{"name": "a", "count": 1, "template": template("-1")}]),
            "[0].template.spec.containers[0].resources.requests[cpu]",
        ),
        (
            json.dumps([{"name": "a", "count": 1, "template": {"spec": {}}}]),
            "[0].template.spec.containers",
        ),
        (
            json.dumps([{"name": "a", "count": 1, "template": {**TEMPLATE, "kind": "Pod"}}]),
            "[0].template.kind",
        ),
    ],
)
def test_malformed_declarations_name_the_place(text, path):
    with pytest.raises(InvalidDeclaration) as caught:
        parse(text)
    start = f"metadata.annotations[{KUEUE}/pod-group-sets]"
    assert caught.value.errors[0].path == start + path


def test_the_text_has_at_most_128_kibibytes():
    text = f"{sets()}\n# "
    padded = text + "x" * (128 * 1024 - len(text))
    assert parse(padded).names == ("driver", "worker")
    with pytest.raises(InvalidDeclaration):
        parse(padded + "x")


def test_the_text_is_yaml_1_2():
    """Where 1.1 had octal numbers, and words that are booleans."""
    (found,) = parse("- {name: on, count: 010}").sets
    assert (found.name, found.count) == ("on", 10)
    assert [entry.count for entry in parse("[{name: a, count: 0x10}]").sets] == [16]
    assert parse('- {name: "y", count: 1, template: ~}').sets[0].template == {}


def test_a_declared_group_whose_pods_disagree_about_their_number_has_no_workload(
    pods, driver, worker
):
    several = [driver(total=3), worker("w0", total=3), worker("w1", total=7), worker("w2")]
    commands = pods.plan(*several)
    assert not of(Create, commands)
    (told,) = [each for each in of(Emit, commands) if each.reason == "ErrWorkloadCompose"]
    assert told.obj["metadata"]["name"] == "w1"
    assert told.message == (
        "The group has 7 pods according to this pod, but 3 according to pod driver"
    )
    assert of(Create, pods.plan(*several[:2], several[3]))
