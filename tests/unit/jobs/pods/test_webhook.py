"""Which pods are gated, and which are refused (KEP-976)."""

from __future__ import annotations

import copy
from types import SimpleNamespace

import attrs
import pytest

from kueuelib.api.meta import ObjectKey
from kueuelib.api.names import GROUP_LABEL
from kueuelib.errors import Unavailable
from kueuelib.jobs.builtin import builtin_registry
from kueuelib.jobs.contract.settings import JobSettings, PodSettings
from kueuelib.jobs.lookups.owners import Owners
from kueuelib.jobs.lookups.stores import OWNER_UID, JobStores, owner_uids
from kueuelib.jobs.pods import integration
from kueuelib.jobs.pods.integration import POD, regained
from kueuelib.jobs.pods.marks import gated
from kueuelib.jobs.pods.reading import gates_of, is_selected
from kueuelib.jobs.pods.shapes import role_hash
from kueuelib.jobs.pods.webhook import PodWebhook, validate_pod
from kueuelib.jobs.webhooks.manifests import webhook_entries
from kueuelib.jobs.webhooks.rules import validate_job
from kueuelib.machinery.selectors import from_label_selector
from kueuelib.machinery.store import Store
from kueuelib.runtime.webhook.admission import AdmissionRequest

KUEUE = "kueue.x-k8s.io"
HERE = {"kubernetes.io/metadata.name": "ns"}
SETTINGS = JobSettings()
PARENTS = tuple(builtin_registry().enabled(("batch/job",)))


def test_a_gated_pod_has_gate_label_and_finalizer_each_once(pods):
    pod = pods.raw(schedulingGates=[{"name": "other"}], meta={"finalizers": ["other/one"]})
    for found in (gated(pod), gated(gated(pod))):
        assert gates_of(found) == ("other", f"{KUEUE}/admission")
        assert found["metadata"]["labels"][f"{KUEUE}/managed"] == "true"
        assert found["metadata"]["finalizers"] == ["other/one", f"{KUEUE}/managed"]
    assert "finalizers" in pod["metadata"]
    assert len(pod["metadata"]["finalizers"]) == 1


def webhook(options=SETTINGS.pods, parents=()):
    settings = JobSettings(frameworks=("pod",), pods=options)
    stores = JobStores({"pod": Store()}, Store(), Store(), Store(), Store())
    parts = SimpleNamespace(
        integration=POD,
        settings=settings,
        parents=parents,
        owners=Owners([POD], stores, settings, None),
        namespaces=SimpleNamespace(store=Store()),
        stores=stores,
    )
    return PodWebhook(parts)


JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "uid-j", "controller": True}
OWNED = {"ownerReferences": [JOB]}
OTHERS = PodSettings(
    pod_selector={"matchExpressions": [{"key": "sys", "operator": "DoesNotExist"}]}
)
MARKED = {f"{KUEUE}/managed": "true"}


def judged(hook, new, old=None):
    request = AdmissionRequest("uid", "UPDATE" if old else "CREATE", namespace="ns", object=new)
    return hook.judge(new, old, request)


@pytest.mark.parametrize(
    "fields",
    [
        {"group": "g"},
        {"total": 2},
        {"queue": None, "total": 2},
        {"queue": "Bad_Name"},
        {"labels": {f"{KUEUE}/pod-group-role": "worker"}},
        {"labels": {f"{KUEUE}/managed": "no"}},
        {"labels": {f"{KUEUE}/prebuilt-workload-name": "x"}},
        {"labels": {f"{KUEUE}/max-exec-time-seconds": "zero"}},
    ],
)
def test_pods_that_are_left_alone_are_never_refused(pods, fields):
    assert judged(webhook(), pods.raw(**fields)).errors
    owned = pods.raw(**fields, meta=OWNED)
    assert judged(webhook(), owned).errors
    assert not judged(webhook(parents=PARENTS), owned).errors
    excluded = pods.raw(**{**fields, "labels": {**fields.get("labels", {}), "sys": "yes"}})
    assert judged(webhook(), excluded).errors
    assert not judged(webhook(OTHERS), excluded).errors


@pytest.mark.parametrize(
    "fields", [{"queue": "other"}, {"labels": {}}, {"labels": MARKED, "group": "g", "total": 1}]
)
def test_only_pods_that_were_queued_before_their_owner_keep_their_marks(pods, fields):
    hook, running = webhook(parents=PARENTS), {"nodeName": "n"}
    old = pods.raw(labels=MARKED, meta=OWNED, **running)
    assert not judged(
        hook, pods.raw(**{"labels": MARKED, **fields}, meta=OWNED, **running), old
    ).errors
    ours = {**OWNED, "finalizers": [f"{KUEUE}/managed"]}
    old = pods.raw(labels=MARKED, meta=ours, **running)
    assert judged(hook, pods.raw(**{"labels": MARKED, **fields}, meta=OWNED, **running), old).errors


async def test_a_pod_is_judged_when_its_owners_are_known(pods):
    above = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "uid-r"}
    pod = pods.raw(group="g", meta={"ownerReferences": [{**above, "controller": True}]})
    request = AdmissionRequest("uid", "CREATE", namespace="ns", object=pod)
    job = pods.raw("j")
    job["metadata"]["uid"] = "uid-j"
    read = {}

    class Foreign:
        def get(self, ref):
            return read.get(ref["uid"])

        async def learn(self, ref, namespace):
            read["uid-r"] = {"metadata": {"name": "r", "uid": "uid-r", **OWNED}}
            return read["uid-r"]

    class Server(dict):
        def admit(self, path, handler, shapes, at_once):
            self[path] = (handler, at_once)

    hook, server = webhook(parents=PARENTS), Server()
    jobs = {"batch/job": Store()}
    jobs["batch/job"].put(ObjectKey("ns", "j"), job)
    stores = attrs.evolve(hook._parts.stores, jobs=jobs, workloads=Store({OWNER_UID: owner_uids}))
    hook._parts.owners = Owners([POD, *PARENTS], stores, SETTINGS, Foreign())
    hook.register(server)
    handler, at_once = server[hook.validate_path]
    assert at_once(request) is None
    assert (await handler(request))["allowed"]
    read["uid-r"]["metadata"]["ownerReferences"] = []
    assert judged(hook, pod).errors


def test_a_pod_that_is_left_alone_in_spite_of_its_mark_is_warned_of(pods):
    (text,) = judged(webhook(parents=PARENTS), pods.raw(labels=MARKED, meta=OWNED)).warnings
    assert "its owner is managed" in text
    (text,) = judged(webhook(OTHERS), pods.raw(labels={**MARKED, "sys": "yes"})).warnings
    assert "podOptions" in text
    assert not judged(webhook(), pods.raw(labels=MARKED, meta=OWNED)).warnings


def test_only_a_pod_that_is_queued_is_said_to_wait_for_missing_features(pods):
    claims = [{"name": "gpu", "resourceClaimName": "gpu"}]
    pod = pods.raw(labels=MARKED, meta=OWNED, resourceClaims=claims)
    request = AdmissionRequest("uid", "CREATE", namespace="ns", object=pod)
    alone, hook = webhook(parents=PARENTS), webhook()
    assert not [*alone.warn(alone.mutate(pod, request), request)]
    (text,) = hook.warn(hook.mutate(pod, request), request)
    assert text.startswith("it will wait")


def test_only_a_pod_that_is_queued_is_said_to_ask_for_a_topology_without_effect(pods):
    typo = f"{KUEUE}/podset-required-toplogy"
    pod = pods.raw(labels=MARKED, meta=OWNED, annotations={typo: "rack"})
    request = AdmissionRequest("uid", "CREATE", namespace="ns", object=pod)
    alone, hook = webhook(parents=PARENTS), webhook()
    assert not [*alone.warn(alone.mutate(pod, request), request)]
    (text,) = hook.warn(hook.mutate(pod, request), request)
    assert text.startswith(f"metadata.annotations[{typo}] has no effect")


def test_the_role_hash_of_a_user_is_not_believed(pods):
    pod = pods.raw(group="g", total=1, annotations={f"{KUEUE}/role-hash": "deadbeef"})
    found = gated(pod)["metadata"]["annotations"]
    assert found[f"{KUEUE}/role-hash"] == role_hash(pod["spec"])
    assert f"{KUEUE}/role-hash" not in gated(pods.raw())["metadata"]["annotations"]


@pytest.mark.parametrize(
    ("pod", "settings", "namespace", "expected"),
    [
        ({}, SETTINGS, HERE, True),
        ({"queue": None}, SETTINGS, HERE, False),
        ({"queue": None}, JobSettings(manage_jobs_without_queue_name=True), HERE, True),
        ({}, SETTINGS, {"kubernetes.io/metadata.name": "kube-system"}, False),
        ({}, JobSettings(pods=PodSettings(pod_selector={"matchLabels": {"a": "b"}})), HERE, False),
        (
            {"labels": {"a": "b"}},
            JobSettings(pods=PodSettings(pod_selector={"matchLabels": {"a": "b"}})),
            HERE,
            True,
        ),
        ({}, JobSettings(pods=PodSettings({"matchLabels": {"team": "x"}})), HERE, False),
        ({}, JobSettings(pods=PodSettings({"matchLabels": {"team": "x"}})), {"team": "x"}, True),
        ({}, SETTINGS, None, True),
    ],
)
def test_selection_by_queue_labels_and_namespace(pods, pod, settings, namespace, expected):
    assert is_selected(pods.raw(**pod), settings, "ns", namespace) is expected


def test_a_namespace_that_is_not_known_yet_delays_only_who_depends_on_its_labels(pods):
    settings = JobSettings(pods=PodSettings({"matchLabels": {"team": "x"}}))
    with pytest.raises(Unavailable):
        is_selected(pods.raw(), settings, "ns", None)


SETS = """
- {name: driver, count: 1}
- {name: worker, count: 2, template: {spec: {containers: [{name: c}]}}}
"""
ALL_FULL = "- {name: a, count: 1, template: {spec: {containers: [{name: c}]}}}"


def paths(*found):
    return [error.path.removeprefix("metadata.").replace(f"{KUEUE}/", "") for error in found]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, []),
        ({"group": "g", "total": 2}, []),
        ({"labels": {f"{KUEUE}/managed": "no"}}, ["labels[managed]"]),
        ({"group": "Bad_Name", "total": 2}, ["labels[pod-group-name]"]),
        ({"group": "g"}, ["annotations[pod-group-total-count]"]),
        ({"total": 2, "annotations": {GROUP_LABEL: "long." * 40 + "g"}}, []),
        ({"total": 2, "group": "Bad_Name", "annotations": {GROUP_LABEL: "g"}}, []),
        (
            {"total": 2, "group": "g", "annotations": {GROUP_LABEL: "Bad_Name"}},
            ["annotations[pod-group-name]"],
        ),
        ({"total": 2, "annotations": {GROUP_LABEL: ""}}, ["labels[pod-group-name]"]),
        ({"annotations": {GROUP_LABEL: "g"}}, ["annotations[pod-group-total-count]"]),
        ({"total": 2}, ["labels[pod-group-name]"]),
        ({"group": "g", "total": "0"}, ["annotations[pod-group-total-count]"]),
        ({"group": "g", "total": "-1"}, ["annotations[pod-group-total-count]"]),
        ({"group": "g", "total": "x"}, ["annotations[pod-group-total-count]"]),
        ({"labels": {f"{KUEUE}/pod-group-role": "a"}}, ["labels[pod-group-role]"]),
        ({"group": "g", "labels": {f"{KUEUE}/pod-group-role": "a"}}, []),
        ({"annotations": {f"{KUEUE}/pod-group-sets": SETS}}, ["labels[pod-group-name]"]),
        ({"group": "g", "annotations": {f"{KUEUE}/pod-group-sets": SETS}}, []),
        ({"group": "g", "total": 3, "annotations": {f"{KUEUE}/pod-group-sets": SETS}}, []),
        (
            {"group": "g", "total": 2, "annotations": {f"{KUEUE}/pod-group-sets": SETS}},
            ["annotations[pod-group-total-count]"],
        ),
        (
            {"group": "g", "annotations": {f"{KUEUE}/pod-group-sets": ALL_FULL}},
            ["labels[pod-group-role]"],
        ),
        (
            {
                "group": "g",
                "labels": {f"{KUEUE}/pod-group-role": "z"},
                "annotations": {f"{KUEUE}/pod-group-sets": SETS},
            },
            ["labels[pod-group-role]"],
        ),
        (
            {"group": "g", "annotations": {f"{KUEUE}/pod-group-sets": "- {name: a, count: 0}"}},
            ["annotations[pod-group-sets][0].count"],
        ),
    ],
)
def test_rules_of_new_pods(pods, fields, expected):
    assert paths(*validate_pod(pods.raw(**fields), None)) == expected


@pytest.mark.parametrize(
    ("before", "after", "exists", "expected"),
    [
        ({"group": "g", "total": 2}, {"group": "h", "total": 2}, False, ["labels[pod-group-name]"]),
        ({"group": "g", "total": 2}, {"group": "g", "total": 3}, False, []),
        (
            {"group": "g", "total": 2},
            {"total": 2, "annotations": {GROUP_LABEL: "g"}},
            False,
            [],
        ),
        (
            {"group": "g", "total": 2},
            {"group": "g", "total": 2, "annotations": {GROUP_LABEL: "h"}},
            False,
            ["annotations[pod-group-name]"],
        ),
        (
            {"group": "g", "total": 2},
            {"group": "g", "total": 3},
            True,
            ["annotations[pod-group-total-count]"],
        ),
        (
            {"group": "g", "annotations": {f"{KUEUE}/pod-group-sets": SETS}},
            {"group": "g", "annotations": {f"{KUEUE}/pod-group-sets": ALL_FULL},
             "labels": {f"{KUEUE}/pod-group-role": "a"}},
            False,
            ["labels[pod-group-role]", "annotations[pod-group-sets]"],
        ),
    ],
)  # fmt: skip
def test_what_of_a_pod_stays(pods, before, after, exists, expected):
    found = validate_pod(pods.raw(**after), pods.raw(**before), group_exists=exists)
    assert sorted(paths(*found)) == sorted(expected)


def test_a_group_that_was_given_up_stays_given_up(pods):
    notes = {f"{KUEUE}/retriable-in-group": "false"}
    before = pods.raw(group="g", total=2, annotations=notes)
    after = pods.raw(group="g", total=2)
    assert paths(*validate_pod(after, before)) == ["annotations[retriable-in-group]"]
    assert validate_pod(before, after) == []


def test_the_role_hash_of_our_pods_cannot_be_changed(pods):
    """But the name of the shape that a waiting pod has may be written."""
    before, other = (pods.waiting(group="g", total=2, cpu=cpu) for cpu in ("1", "9"))
    wrong = copy.deepcopy(before)
    wrong["metadata"]["annotations"] = other["metadata"]["annotations"]
    assert paths(*validate_pod(wrong, before)) == ["annotations[role-hash]"]
    assert not validate_pod(before, wrong)
    before, after = (pods.running(group="g", total=2, cpu=cpu) for cpu in ("1", "9"))
    assert paths(*validate_pod(after, before)) == ["annotations[role-hash]"]


def test_a_pod_of_ours_cannot_be_hidden_from_us(pods):
    for old in (pods.waiting(), pods.running()):
        new = copy.deepcopy(old)
        del new["metadata"]["labels"][f"{KUEUE}/managed"]
        (error,) = validate_pod(new, old)
        assert error.path == f"metadata.labels[{KUEUE}/managed]"
        free = copy.deepcopy(old)
        free["metadata"]["finalizers"] = []
        assert validate_pod(new, free), "it counts by its label alone"
    over = pods.over(phase="Succeeded")
    over["metadata"]["finalizers"] = []
    new = copy.deepcopy(over)
    del new["metadata"]["labels"][f"{KUEUE}/managed"]
    assert not validate_pod(new, over), "what was let go is of no interest any more"


def test_a_pod_that_was_hidden_all_the_same_gets_its_label_back(pods):
    pod = pods.deleted(pods.running(group="g", total=1))
    del pod["metadata"]["labels"][f"{KUEUE}/managed"]
    change, count = regained(pod)
    assert change.patch == {"metadata": {"labels": {f"{KUEUE}/managed": "true"}}}
    assert count.labels == ("Pod", "repaired")


def test_the_queue_changes_only_while_the_pod_waits_or_is_over(pods):
    def change(make):
        return validate_job(POD, make(queue="other"), make(queue="main"))

    assert change(pods.waiting) == ()
    assert change(pods.over) == ()
    assert paths(*change(pods.running)) == ["labels[queue-name]"]


def test_a_prebuilt_workload_is_not_for_pods(pods):
    pod = pods.raw(labels={f"{KUEUE}/prebuilt-workload-name": "wl"})
    assert paths(*validate_job(POD, pod, None)) == ["labels[prebuilt-workload-name]"]


# ---- the configuration of the webhook


def matching(labels, settings=SETTINGS, *, mutating):
    return [
        entry.entry["name"]
        for entry in webhook_entries([POD], settings)
        if entry.mutating is mutating
        and from_label_selector(entry.entry["objectSelector"]).matches(labels)
        and from_label_selector(entry.entry.get("namespaceSelector", {})).matches(HERE)
        and entry.entry["failurePolicy"] == "Fail"
    ]


def test_pods_without_our_labels_never_wait_for_us():
    for labels in ({}, {"app": "web"}):
        assert matching(labels, mutating=True) == []
        assert matching(labels, mutating=False) == []


def test_only_a_condition_lets_us_see_annotations_and_nothing_hangs_on_it():
    found = [each.entry for each in webhook_entries([POD], SETTINGS)]
    (entry,) = [each for each in found if each["failurePolicy"] == "Ignore"]
    assert "pod-group-total-count" in entry["matchConditions"][0]["expression"]


@pytest.mark.parametrize("label", ["queue-name", "managed", "pod-group-name", "pod-group-role"])
def test_each_of_our_labels_is_validated_by_exactly_one_entry(label):
    assert len(matching({f"{KUEUE}/{label}": "x"}, mutating=False)) == 1
    everything = {f"{KUEUE}/{each}": "x" for each in ("queue-name", "managed", label)}
    assert len(matching(everything, mutating=False)) == 1
    expected = ["mpod.kb.io"] if label == "queue-name" else []
    assert matching({f"{KUEUE}/{label}": "x"}, mutating=True) == expected


def test_without_queue_names_every_pod_of_the_namespaces_is_ours():
    settings = attrs.evolve(SETTINGS, manage_jobs_without_queue_name=True)
    assert matching({}, settings, mutating=True) == ["mpod-unnamed.kb.io"]
    assert matching({f"{KUEUE}/queue-name": "q"}, settings, mutating=True) == ["mpod.kb.io"]
    for entry in webhook_entries([POD], settings):
        assert not from_label_selector(entry.entry["namespaceSelector"]).matches(
            {"kubernetes.io/metadata.name": "kube-system"}
        )


def test_names_of_entries_are_unique():
    names = [(each.mutating, each.entry["name"]) for each in integration.entries(SETTINGS)]
    assert len(names) == len(set(names))
