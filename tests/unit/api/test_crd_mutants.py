"""What the CRDs admit without the webhooks: the webhooks agree, and it can be read and converted.

`CRD_MUTANTS=10000 pytest tests/unit/api/test_crd_mutants.py` is the long form.
"""

from __future__ import annotations

import copy
import os
import re
from collections import Counter
from random import Random
from typing import Any

from kueuelib.api import kueue
from kueuelib.api.codec import decode
from kueuelib.api.conversion import convert
from kueuelib.api.validation import RULES

from .queue_mutants import mutant
from .queue_objects import KINDS, queue_object
from .test_crd_rules import VERSIONS, Obj, in_version, schema

COUNT = int(os.environ.get("CRD_MUTANTS", "400"))
ONLY_IN_THE_WEBHOOK = (
    # amounts: Kubernetes takes a quantity for megabytes of text, and refuses rules about lists
    "ClusterQueue spec.resourceGroups[].flavors[].resources[].lendingLimit",
    "Workload status.admission.podSetAssignments[].resourceUsage[*]",
    # items of lists, which CEL cannot name: what occurs twice, what is in another order
    "ClusterQueue spec.resourceGroups[].coveredResources[]",
    "ClusterQueue spec.resourceGroups[].flavors[].name",
    "ClusterQueue spec.resourceGroups[].flavors[].resources[].name",
    "Cohort spec.resourceGroups[].coveredResources[]",
    "Cohort spec.resourceGroups[].flavors[].name",
    "Cohort spec.resourceGroups[].flavors[].resources[].name",
    "ResourceFlavor spec.nodeTaints[]",
    "Workload status.admissionChecks[].podSetUpdates[].name",
    # compared by meaning: `1` and `1000m`, absent and empty are the same
    "Workload spec.podSets",
    "Workload status.admission",
    "Workload status.admissionChecks[].podSetUpdates",
    # keys of maps of any size
    "Workload status.admissionChecks[].podSetUpdates[].labels",
    "Workload status.admissionChecks[].podSetUpdates[].nodeSelector",
    "Workload status.admissionChecks[].podSetUpdates[].annotations",
)
"""The rules that the webhook alone has."""


def drawn(seed: int) -> tuple[Obj, Obj | None]:
    """An object of one version after pruning and defaulting, and half of the time an old one."""
    chance = Random(seed)
    base = in_version(queue_object(chance.choice(KINDS)), chance.choice(VERSIONS))
    obj, old = mutant(chance, base), base if chance.random() < 0.5 else None
    return _stored(obj), old and _stored(old)


def _stored(obj: Obj) -> Obj:
    obj = copy.deepcopy(obj)
    found = schema(obj["kind"], obj["apiVersion"].partition("/")[2])
    found.prune(obj)
    found.default(obj)
    return obj


def refused_by_the_crd(obj: Obj, old: Obj | None) -> list[Any]:
    found = schema(obj["kind"], obj["apiVersion"].partition("/")[2])
    return found.validate(obj, old)


def refused_by_the_webhook(obj: Obj, old: Obj | None) -> list[str]:
    rules = RULES.get(obj["kind"])
    if rules is None:
        return []
    errors = rules.validate(obj if old is not None else rules.default(obj), old)
    return [f"{obj['kind']} {_shape(error.path)}" for error in errors]


def _shape(path: str) -> str:
    return re.sub(r"\[[^]]*[^]\d][^]]*\]", "[*]", re.sub(r"\[\d+\]", "[]", path))


def test_what_the_crd_admits_the_webhook_refuses_for_known_reasons_only() -> None:
    answers: Counter[tuple[bool, bool]] = Counter()
    for seed in range(COUNT):
        obj, old = drawn(seed)
        errors = refused_by_the_crd(obj, old)
        further = refused_by_the_webhook(obj, old)
        answers[bool(errors), bool(further)] += 1
        if not errors:
            assert set(further) <= set(ONLY_IN_THE_WEBHOOK), (seed, obj, old)
    assert answers[False, False] > COUNT / 5, "most mutants are no use"
    assert answers[True, False] > COUNT / 20, "the CRDs say nothing of their own"
    assert answers[True, True] > COUNT / 5


def test_what_the_crd_admits_can_be_read_and_converted() -> None:
    for seed in range(COUNT):
        obj, old = drawn(seed)
        if refused_by_the_crd(obj, old) or refused_by_the_crd(obj, None):
            continue
        decode(getattr(kueue, obj["kind"]), obj)
        for version in VERSIONS:
            other = _stored(convert(obj, version))
            assert refused_by_the_crd(other, None) == [], (seed, obj, version)
