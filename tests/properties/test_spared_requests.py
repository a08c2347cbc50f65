"""What the `matchConditions` of our webhooks spare, our rules would have allowed as it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kueuelib.api.meta import Obj
from kueuelib.api.names import (
    ADMISSION_GATED_BY,
    GROUP_LABEL,
    GROUP_TOTAL_COUNT,
    MANAGED,
    MIN_PARALLELISM,
    PREBUILT_LABEL,
    PRIORITY_CLASS_LABEL,
    QUEUE_LABEL,
    RETRIABLE_IN_GROUP,
    ROLE_HASH,
    SYNC_COMPLETIONS,
)
from kueuelib.api.validation import RULES
from kueuelib.controllers.webhooks import queueing_entries
from kueuelib.embedded.admission.hook_rules import compile_conditions, fulfilled
from kueuelib.jobs.batch import BATCH_JOB
from kueuelib.jobs.contract.settings import JobSettings
from kueuelib.jobs.pods.integration import POD
from kueuelib.jobs.webhooks.manifests import webhook_entries
from kueuelib.jobs.webhooks.rules import validate_job

CONDITIONS = {
    each.entry["name"]: compile_conditions(each.entry["matchConditions"])
    for each in (*queueing_entries(), *webhook_entries([BATCH_JOB, POD], JobSettings()))
    if "matchConditions" in each.entry
}
ABSENT: Any = None
Choices = Mapping[str, Sequence[Any]]
"""The values that fields may have, by their paths; `ABSENT` is for no field."""


def asks(name: str, new: Obj, old: Obj | None) -> bool:
    """Whether the API server asks this webhook about a write."""
    return fulfilled(CONDITIONS[name], new, old, {})


@st.composite
def updates(draw: st.DrawFn, choices: Choices) -> tuple[Obj, Obj]:
    """An object and what replaces it; few fields change, so that many updates are spared."""
    changed = draw(st.sets(st.sampled_from(sorted(choices)), max_size=3))
    old: Obj = {}
    new: Obj = {}
    for path, values in choices.items():
        before = draw(st.sampled_from(values))
        after = draw(st.sampled_from(values)) if path in changed else before
        for obj, value in ((old, before), (new, after)):
            parent, _, field = path.rpartition(".")
            if value is not ABSENT:
                (obj.setdefault(parent, {}) if parent else obj)[field] = value
    return old, new


def condition(type_: str, status: str) -> Obj:
    time = "2026-01-01T00:00:00Z"
    return {"type": type_, "status": status, "reason": "Test", "lastTransitionTime": time}


def pod_set(name: str, count: int, **more: Any) -> Obj:
    template = {"spec": {"containers": [{"name": "c"}]}}
    return {"name": name, "count": count, "template": template, **more}


def admission(queue: str, name: str, cpu: str) -> Obj:
    usage = {"name": name, "count": 2, "resourceUsage": {"cpu": cpu}}
    return {"clusterQueue": queue, "podSetAssignments": [usage]}


def check(state: str, *pod_set_updates: Obj) -> list[Obj]:
    return [{"name": "check", "state": state, "podSetUpdates": list(pod_set_updates)}]


GATED = [{ADMISSION_GATED_BY: gates} for gates in ("a.io/x", "a.io/x,a.io/y", "bad")]
METADATA: Choices = {"metadata.name": ["x"], "metadata.finalizers": [ABSENT, ["a/b"]]}
RESERVED = condition("QuotaReserved", "True")
WORKLOADS: Choices = {
    **METADATA,
    "metadata.annotations": [ABSENT, {"note": "x"}, *GATED],
    "apiVersion": ["kueue.x-k8s.io/v1beta2"],
    "spec.queueName": ["a", "b", "_bad", ABSENT],
    "spec.podSets": [
        [pod_set("main", 2)],
        [pod_set("main", 2, minCount=3)],
        [pod_set("main", 2), pod_set("other", 1)],
    ],
    "spec.maximumExecutionTimeSeconds": [ABSENT, 9],
    "status.conditions": [
        ABSENT,
        [RESERVED],
        [RESERVED, condition("Finished", "True")],
        [condition("QuotaReserved", "False")],
    ],
    "status.admission": [
        ABSENT,
        admission("cq", "main", "2"),
        admission("other", "main", "2"),
        admission("cq", "unknown", "2"),
        admission("cq", "main", "1m"),
    ],
    "status.reclaimablePods": [
        ABSENT,
        [],
        *([{"name": name, "count": count}] for name in ("main", "x") for count in (1, 2, 9)),
    ],
    "status.admissionChecks": [
        ABSENT,
        check("Ready"),
        check("Ready", {"name": "main", "labels": {"a": "b"}}),
        check("Ready", {"name": "unknown"}),
        check("Pending", {"name": "main"}, {"name": "main", "labels": {"_": "_"}}),
    ],
    "status.requeueState": [ABSENT, {"count": 1}],
}
OWNERS = [ABSENT, [{"apiVersion": "v1", "kind": "A", "name": "a", "uid": "u", "controller": True}]]
JOBS: Choices = {
    **METADATA,
    "metadata.labels": [
        {QUEUE_LABEL: "a"},
        {QUEUE_LABEL: "b", PRIORITY_CLASS_LABEL: "high"},
        {QUEUE_LABEL: "_bad", PREBUILT_LABEL: "wl"},
    ],
    "metadata.annotations": [
        ABSENT,
        {MIN_PARALLELISM: "2"},
        {MIN_PARALLELISM: "text"},
        {SYNC_COMPLETIONS: "true"},
        {"kueue.x-k8s.io/parent-workload": "wl"},
        *GATED,
        {PREBUILT_LABEL: "_bad"},
        {PREBUILT_LABEL: "wl"},
    ],
    "metadata.ownerReferences": OWNERS,
    "spec.suspend": [True, True, False],
    "spec.parallelism": [ABSENT, 2, 3],
    "spec.completions": [2, 3],
    "spec.completionMode": ["Indexed"],
    "spec.template": [{"spec": {}}, {"spec": {"nodeSelector": {"a": "b"}}}],
}
PODS: Choices = {
    **METADATA,
    "metadata.labels": [
        {QUEUE_LABEL: "a"},
        {QUEUE_LABEL: "a", MANAGED: "true"},
        {QUEUE_LABEL: "a", MANAGED: "true", GROUP_LABEL: "group"},
        {QUEUE_LABEL: "b", MANAGED: "false", GROUP_LABEL: "_bad"},
    ],
    "metadata.annotations": [
        ABSENT,
        {GROUP_TOTAL_COUNT: "2"},
        {GROUP_TOTAL_COUNT: "2", RETRIABLE_IN_GROUP: "false"},
        {GROUP_TOTAL_COUNT: "text"},
        *GATED,
        {GROUP_TOTAL_COUNT: "2", GROUP_LABEL: "other"},
        {GROUP_LABEL: "_bad"},
    ],
    "metadata.finalizers": [ABSENT, ["kueue.x-k8s.io/managed"]],
    "metadata.ownerReferences": OWNERS,
    "metadata.deletionTimestamp": [ABSENT, "2026-01-01T00:00:00Z"],
    "spec.schedulingGates": [ABSENT, [{"name": "kueue.x-k8s.io/admission"}]],
    "spec.nodeName": [ABSENT, "node"],
    "spec.containers": [[{"name": "c"}]],
    "status.phase": ["Pending", "Running", "Failed"],
}


@settings(max_examples=120, deadline=None)
@given(updates(WORKLOADS))
def test_no_rule_refuses_a_spared_update_of_a_workload(found: tuple[Obj, Obj]) -> None:
    old, new = found
    if not asks("vworkload.kb.io", new, old):
        assert RULES["Workload"].validate(new, old) == []


@settings(max_examples=300, deadline=None)
@given(updates(JOBS))
def test_no_rule_refuses_a_spared_job(found: tuple[Obj, Obj]) -> None:
    old, new = found
    for before in (old, None):
        if not asks("vjob.kb.io", new, before):
            assert validate_job(BATCH_JOB, new, before) == ()


@settings(max_examples=300, deadline=None)
@given(updates(PODS))
def test_no_rule_refuses_a_spared_pod(found: tuple[Obj, Obj]) -> None:
    old, new = found
    for before in (old, None):
        if not asks("vpod.kb.io", new, before):
            assert validate_job(POD, new, before) == ()


@given(
    st.lists(st.sampled_from([{}, {"name": ""}, {"name": "a"}, "text"]), max_size=3)
    | st.sampled_from(["text", None])
)
def test_a_workload_that_is_not_shown_has_no_pod_set_to_name(pod_sets: Any) -> None:
    workload = {"spec": {"podSets": pod_sets}}
    if not asks("mworkload.kb.io", workload, None):
        assert RULES["Workload"].default(workload) == workload


@pytest.mark.parametrize(
    "name",
    sorted(name for name in CONDITIONS if not name.startswith(("mworkload", "vpod", "vjob"))),
)
def test_every_new_object_is_judged(name: str) -> None:
    assert asks(name, {"metadata": {"name": "x"}}, None)


QUEUED = {QUEUE_LABEL: "a", PRIORITY_CLASS_LABEL: "high", "app": "x"}
GROUPED = {**QUEUED, MANAGED: "true", GROUP_LABEL: "group"}
COUNTED = {GROUP_TOTAL_COUNT: "10", ROLE_HASH: "12ab", "note": "x"}


@pytest.mark.parametrize(
    ("name", "labels", "annotations"),
    [
        ("vjob.kb.io", QUEUED, {}),
        ("vjob.kb.io", QUEUED, {"note": "x"}),
        ("vpod.kb.io", {**QUEUED, MANAGED: "true"}, {}),
        ("vpod.kb.io", GROUPED, COUNTED),
    ],
)
def test_an_ordinary_new_object_is_spared(name: str, labels: Obj, annotations: Obj) -> None:
    meta = {"name": "x", "labels": labels, **({"annotations": annotations} if annotations else {})}
    assert not asks(name, {"metadata": meta}, None)
    assert asks(name, {"metadata": {**meta, "labels": {**labels, QUEUE_LABEL: "_"}}}, None)
    other = {**annotations, "kueue.x-k8s.io/other": ""}
    assert asks(name, {"metadata": {**meta, "annotations": other}}, None)


def test_a_new_pod_is_judged_for_its_owner_its_group_and_its_number() -> None:
    meta = {"name": "x", "labels": GROUPED, "annotations": COUNTED}
    for change in (
        {"ownerReferences": OWNERS[1]},
        {"labels": QUEUED},
        {"annotations": {GROUP_TOTAL_COUNT: "0"}},
        {"annotations": {}},
        {"labels": {**GROUPED, MANAGED: "false"}},
    ):
        assert asks("vpod.kb.io", {"metadata": {**meta, **change}}, None)


def test_the_end_of_a_workload_and_the_release_of_its_quota_are_spared() -> None:
    held: Obj = {
        "spec": {"podSets": [pod_set("main", 2)]},
        "status": {"conditions": [RESERVED], "admission": admission("cq", "main", "2")},
    }
    ended = {**held["status"], "conditions": [RESERVED, condition("Finished", "True")]}
    released = {"conditions": [condition("QuotaReserved", "False")]}
    for status in (ended, released):
        assert not asks("vworkload.kb.io", {**held, "status": status}, held)
    assert asks("vworkload.kb.io", held, {**held, "status": {}})
