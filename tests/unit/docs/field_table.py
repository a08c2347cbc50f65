"""The tables of docs/fields.md: `python tests/unit/docs/field_table.py > docs/fields.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from kueuelib.api.crd import KINDS, crd
from kueuelib.api.kinds import KUEUE
from kueuelib.api.meta import Obj
from kueuelib.api.missing_features import KEYS, RECORDS

PAGE = Path(__file__).parents[3] / "docs" / "fields.md"
VERSIONS = ("v1beta1", "v1beta2")
REQUEST = "spec.podSets[].topologyRequest"
STORED_ONLY = {
    ("ResourceFlavor", "spec.nodeTaints[].timeAdded"),
    ("WorkloadPriorityClass", "description"),
}
"""Stored fields that nothing reads, each with those below it."""
UNSERVED: dict[str, list[tuple[str, str, str]]] = {
    "ClusterQueue": [
        ("spec.concurrentAdmissionPolicy", "v1beta2", "concurrent admission"),
        ("status.pendingWorkloadsStatus", "v1beta1", "`queueVisibility`"),
        ("status.fairSharing.admissionFairSharingStatus", "v1beta1", "LocalQueues have it"),
    ],
    "Cohort": [
        ("status.fairSharing.admissionFairSharingStatus", "v1beta1", "LocalQueues have it"),
    ],
    "LocalQueue": [("status.flavors", "v1beta1", "deprecated in today's Kueue")],
    "Workload": [
        ("spec.preemptionGates", "v1beta2", "gates of preemption"),
        ("status.clusterName", "both", "MultiKueue"),
        ("status.nominatedClusterNames", "both", "MultiKueue"),
        ("status.preemptionGates", "v1beta2", "gates of preemption"),
    ],
}
"""Fields of today's Kueue that are not in the CRDs: path, versions, what they belong to."""
OWN: dict[tuple[str, str], tuple[str, ...]] = {
    ("AdmissionCheck", "spec.preemptionPolicy"): VERSIONS,
    ("AdmissionCheck", "spec.retryDelayMinutes"): ("v1beta2",),
    ("Workload", "status.admissionChecks[].reason"): VERSIONS,
    **{
        ("Workload", f"{REQUEST}.podsetSliceRequiredTopologyConstraints[].{name}"): ("v1beta1",)
        for name in ("size", "topology")
    },
}
"""Fields that today's Kueue does not have, with the versions in which it does not."""

FACTS = Path(__file__).parents[2] / "upstream" / "keys.yaml"
UPSTREAM_KEYS: dict[str, dict[str, str]] = yaml.load(FACTS.read_text("utf-8"), yaml.CSafeLoader)
"""Labels and annotations of today's Kueue, with the objects that have them."""

_JOBS, _PODS = "e2e/test_scenarios_jobs.py", "unit/jobs/pods"
HONOURED = {
    **dict.fromkeys(
        (
            *(f"annotations podset-{name}-topology" for name in ("preferred", "required")),
            "annotations podset-unconstrained-topology",
            "annotations podset-slice-required-topology",
            "annotations podset-slice-required-topology-constraints",
            "annotations podset-slice-size",
            "annotations podset-group-name",
        ),
        "unit/jobs/contract/test_topology.py::test_the_first_annotation_counts",
    ),
    "labels max-exec-time-seconds": (
        "e2e/test_time.py::test_an_execution_that_takes_too_long_is_ended"
    ),
    "labels pod-group-name": (
        f"{_PODS}/test_group.py::test_a_complete_group_makes_one_workload_of_its_name"
    ),
    "labels prebuilt-workload-name": f"{_JOBS}::test_a_job_waits_for_the_workload_that_it_names",
    "annotations pod-group-name": (
        "e2e/test_following.py::test_a_pod_of_a_group_stands_for_the_group"
    ),
    "annotations prebuilt-workload-name": (
        f"{_JOBS}::test_a_job_waits_for_the_workload_that_it_names"
    ),
    "labels priority-class": (
        "unit/jobs/reconcile/test_plan.py::test_the_workload_follows_the_priority_class_label"
    ),
    "labels queue-name": f"{_JOBS}::test_a_queued_job_is_stored_suspended_and_gets_its_workload",
    **dict.fromkeys(
        ("labels pod-group-pod-index", "annotations pod-group-pod-index-label"),
        "unit/jobs/test_ranks.py::test_another_label_may_have_the_index_of_a_pod_in_its_group",
    ),
    "annotations pod-index-offset": (
        "unit/scheduler/topology/test_ungater.py"
        "::test_pods_start_where_kueue_was_seen_to_start_them"
    ),
    "annotations admission-gated-by": (
        "unit/scheduler/engine/test_queues.py::test_who_is_gated_stays_out_of_its_queue"
    ),
    "annotations job-completions-equal-parallelism": (
        f"{_JOBS}::test_completions_follow_parallelism_in_indexed_jobs_only"
    ),
    "annotations job-min-parallelism": f"{_JOBS}::test_a_job_may_run_with_fewer_pods",
    "annotations pod-group-fast-admission": (
        f"{_PODS}/test_stateful_set.py::test_a_fast_group_without_a_parent_is_admitted_early_too"
    ),
    "annotations pod-group-serving": (
        f"{_PODS}/test_stateful_set.py::test_the_template_makes_the_pods_a_group"
    ),
    "annotations pod-group-total-count": (
        "unit/app/test_explaining.py::test_an_incomplete_group_says_what_is_missing"
    ),
    "annotations pod-suspending-parent": (
        f"{_PODS}/test_looks.py::test_a_pod_that_may_be_enough_is_looked_at_at_once"
    ),
    "annotations queue-name": f"{_JOBS}::test_the_deprecated_annotation_names_the_queue_too",
    "annotations retriable-in-group": (
        f"{_PODS}/test_group.py::test_given_up_is_finished_only_when_nothing_runs"
    ),
}
"""Labels and annotations that decide something, with a test of each."""
WRITTEN = {
    "labels job-uid": f"{_JOBS}::test_a_queued_job_is_stored_suspended_and_gets_its_workload",
    "labels managed": (
        f"{_PODS}/test_webhook.py::test_a_gated_pod_has_gate_label_and_finalizer_each_once"
    ),
    **dict.fromkeys(
        (
            "labels cluster-queue-name",
            "labels local-queue-name",
            "labels podset",
            "annotations workload",
        ),
        "unit/jobs/reconcile/test_origin.py::test_a_start_writes_what_the_gates_permit",
    ),
    "annotations component-workload-index": (
        f"{_PODS}/test_leader_worker_set.py"
        "::test_the_first_pod_makes_the_workload_of_leader_and_workers"
    ),
    "annotations is-group-workload": (
        f"{_PODS}/test_group.py::test_a_complete_group_makes_one_workload_of_its_name"
    ),
    "annotations role-hash": (
        f"{_PODS}/test_webhook.py::test_the_role_hash_of_a_user_is_not_believed"
    ),
    "annotations stopping": (
        "unit/jobs/batch/test_batch_job.py::test_a_marked_job_is_restored_and_the_mark_taken_away"
    ),
}
"""Those that the manager or its webhooks write, with a test of each."""
HEAD = """# Fields

Every field of the queueing kinds, as the CRDs of `kueuelib install` serve them. This page is
generated.

- **honoured**: decisions depend on it, and a test fails if they do not.
- **written**: the manager or the controller of a check writes it, and reads back what it needs.
- **stored only**: it is stored, and nothing reads it. What another manager wrote there stays.

Both versions are served and `v1beta2` is stored. A field that only one version has under this
name has its counterpart in the other, with the same meaning. The CRDs define the valid values:
patterns, limits, enums, defaults, and rules in CEL that name the field and the fix. The webhook
adds rules that CEL cannot express: a `lendingLimit` above the nominal quota, names that occur
twice, resources in another order than `coveredResources`, updates of unknown pod sets, amounts that
do not divide by the number of pods, and pod templates and admissions that change while quota is
held.

A pod template keeps all its fields. A field that is **not served** is not stored: `kubectl`
refuses it as an unknown field, and an API server drops it where the client does not ask for
strict validation. There are no `MultiKueueConfig` and `MultiKueueCluster` kinds.
[Labels and annotations](#labels-and-annotations) are at the end.
"""


KEYS_HEAD = """
## Labels and annotations

All labels and annotations of today's Kueue; they begin with `kueue.x-k8s.io/`. Those on Pods are
also read in pod templates.

- **waits**: the Workload waits. Its condition, `explain` and `pending` name the feature that is
  missing. The webhook warns about a new Job, Pod or Workload. A Workload that holds quota keeps it.
  A Workload takes over such an annotation of its job or Pods. The webhook copies it from a
  Deployment, StatefulSet or LeaderWorkerSet into the pod template. The values `false` and `0`, and
  an empty value, ask for nothing.
  A prebuilt Workload takes over the annotations of its job and of the job's templates. If it got
  quota before its job existed, it gives that quota back. To withdraw the request, remove the
  annotation from the job and from the Workload.
- **a record**: other managers write it for themselves. It asks for nothing.

A job whose `spec.managedBy` or `spec.runPolicy.managedBy` is `kueue.x-k8s.io/multikueue` waits in
the same way: this version has no dispatch to other clusters. Any other `managedBy` names the
controller that runs the job, which is queued and started like others.

| Key | | On | |
| --- | --- | --- | --- |
"""


def leaves(schema: Obj, path: str = "") -> Iterator[str]:
    """The paths of the fields; a pod template is one."""
    for name, field in (schema.get("properties") or {}).items():
        here = f"{path}.{name}" if path else name
        if here in ("apiVersion", "kind", "metadata"):
            continue
        inner: Any = field
        while isinstance(inner.get("items"), dict):
            here, inner = f"{here}[]", inner["items"]
        if name != "template" and inner.get("properties"):
            yield from leaves(inner, here)
        else:
            yield here


def fields(kind: str) -> dict[str, list[str]]:
    """The versions that have each field of a kind."""
    versions: dict[str, list[str]] = {}
    for version in crd(kind)["spec"]["versions"]:
        for path in leaves(version["schema"]["openAPIV3Schema"]):
            versions.setdefault(path, []).append(version["name"])
    return dict(sorted(versions.items()))


def _covered(kind: str, path: str) -> Iterator[tuple[str, str]]:
    """A field and those that it is in."""
    parts = path.split(".")
    for count in range(len(parts), 0, -1):
        above = ".".join(parts[:count])
        yield from ((kind, above), (kind, above.removesuffix("[]")))


def fate(kind: str, path: str) -> str:
    """What becomes of a field."""
    if any(each in STORED_ONLY for each in _covered(kind, path)):
        return "stored only"
    word = "written" if path.startswith("status") else "honoured"
    own = OWN.get((kind, path))
    if own is None:
        return word
    where = "" if own == VERSIONS else f" in {own[0]}"
    return f"{word}; not in today's Kueue{where}"


def fate_of_key(field: str, name: str) -> str:
    """What becomes of a label or annotation."""
    row, key = f"{field} {name}", f"{KUEUE}/{name}"
    fates = [
        *(["honoured"] if row in HONOURED else []),
        *(["written"] if row in WRITTEN else []),
        *([f"waits: this version has no {KEYS[key]}"] if key in KEYS else []),
        *(["a record"] if key in RECORDS else []),
    ]
    (one,) = fates or [""]
    return one


def key_rows() -> Iterator[tuple[str, str, str, str]]:
    """The rows: key, label or annotation, objects, and what becomes of it."""
    for field, found in UPSTREAM_KEYS.items():
        for name, objects in found.items():
            yield name, field.removesuffix("s"), objects, fate_of_key(field, name)


def keys_section() -> str:
    """The part of the page about labels and annotations."""
    return KEYS_HEAD + "".join(
        f"| `{name}` | {field} | {objects} | {fate} |\n"
        for name, field, objects, fate in key_rows()
    )


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for kind in KINDS:
        parts += [f"\n## {kind}\n", "| Field | Versions | |", "| --- | --- | --- |"]
        for path, versions in fields(kind).items():
            named = "both" if len(versions) == len(VERSIONS) else versions[0]
            parts.append(f"| `{path}` | {named} | {fate(kind, path)} |")
        for path, named, about in UNSERVED.get(kind, ()):
            parts.append(f"| `{path}` | {named} | not served: {about} |")
    return "\n".join(parts) + "\n" + keys_section()


if __name__ == "__main__":
    sys.stdout.write(page())
