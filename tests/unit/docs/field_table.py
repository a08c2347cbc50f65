"""The tables of docs/fields.md: `python tests/unit/docs/field_table.py > docs/fields.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kueuelib.api.crd import KINDS, crd
from kueuelib.api.meta import Obj

PAGE = Path(__file__).parents[3] / "docs" / "fields.md"
VERSIONS = ("v1beta1", "v1beta2")
STORED_ONLY = {
    ("ResourceFlavor", "spec.nodeTaints[].timeAdded"),
    ("WorkloadPriorityClass", "description"),
}
"""Stored fields that nothing reads."""

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
    "ResourceFlavor": [("spec.topologyName", "both", "topology-aware scheduling")],
    "Workload": [
        ("spec.podSets[].topologyRequest", "both", "topology-aware scheduling"),
        ("spec.preemptionGates", "v1beta2", "gates of preemption"),
        *(
            (f"status.admission.podSetAssignments[].{name}", "both", "topology-aware scheduling")
            for name in ("topologyAssignment", "delayedTopologyRequest")
        ),
        ("status.clusterName", "both", "MultiKueue"),
        ("status.nominatedClusterNames", "both", "MultiKueue"),
        ("status.preemptionGates", "v1beta2", "gates of preemption"),
        ("status.unhealthyNodes", "both", "topology-aware scheduling"),
    ],
}
"""Fields of today's Kueue that are not in the CRDs: path, versions, what they belong to."""
OWN: dict[tuple[str, str], tuple[str, ...]] = {
    ("AdmissionCheck", "spec.preemptionPolicy"): VERSIONS,
    ("AdmissionCheck", "spec.retryDelayMinutes"): ("v1beta2",),
    ("Workload", "status.admissionChecks[].reason"): VERSIONS,
}
"""Fields that today's Kueue does not have, with the versions in which it does not."""

HEAD = """# Fields

Every field of the queueing kinds, as the CRDs of `kueuelib install` serve them. This page is
generated.

- **honoured**: decisions depend on it.
- **written**: the manager or the controller of a check writes it, and reads back what it needs.
- **stored only**: it is stored, and nothing reads it.

Both versions are served and `v1beta2` is stored. A field that only one version has under this
name has its counterpart in the other, with the same meaning. The CRDs define the valid values:
patterns, limits, enums, defaults, and rules in CEL that name the field and the fix. The webhook
adds rules that CEL cannot express: a `lendingLimit` above the nominal quota, names that occur
twice, resources in another order than `coveredResources`, updates of unknown pod sets, amounts that
do not divide by the number of pods, and pod templates and admissions that change while quota is
held.

A pod template keeps all its fields. A field that is **not served** is not stored: `kubectl`
refuses it as an unknown field, and an API server drops it where the client does not ask for
strict validation. There are no `Topology`, `MultiKueueConfig` and `MultiKueueCluster` kinds.
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


def fate(kind: str, path: str) -> str:
    """What becomes of a field."""
    if (kind, path) in STORED_ONLY:
        return "stored only"
    word = "written" if path.startswith("status") else "honoured"
    own = OWN.get((kind, path))
    if own is None:
        return word
    where = "" if own == VERSIONS else f" in {own[0]}"
    return f"{word}; not in today's Kueue{where}"


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
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    sys.stdout.write(page())
