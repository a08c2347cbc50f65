"""What a rule of Kueue's own CRDs refuses, a rule of ours refuses, too.

`$KUEUE_CRDS` names the folder `config/components/crd/bases` of Kueue.
"""

from __future__ import annotations

import copy
import os
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from kueuelib.api.crd import crd
from kueuelib.embedded.schema.structural import StructuralSchema

from .queue_mutants import mutant
from .queue_objects import KINDS, condition, queue_object
from .test_crd_rules import (
    CHANGES,
    NEW,
    ONE_VERSION,
    TOLERATED,
    VERSIONS,
    broken,
    changed,
    in_version,
)

Obj = dict[str, Any]
Rule = tuple[str, str]
"""Where a rule is, and its message."""
CLUSTERS = {
    "clusterName is immutable once set",
    "clusterName and nominatedClusterNames are mutually exclusive",
}
NOT_SERVED = {
    ("Workload", "v1beta1"): CLUSTERS,
    ("Workload", "v1beta2"): CLUSTERS,
}
"""Rules about fields that are not served here."""
FOLDER = os.environ.get("KUEUE_CRDS", "")
MUTANTS = 300


@cache
def theirs(kind: str, version: str) -> Obj:
    name = f"kueue.x-k8s.io_{queue_plural(kind)}.yaml"
    versions = yaml.load((Path(FOLDER) / name).read_text(), yaml.CSafeLoader)["spec"]["versions"]
    (one,) = (one for one in versions if one["name"] == version)
    return one["schema"]["openAPIV3Schema"]


def queue_plural(kind: str) -> str:
    return f"{kind.lower()}s".replace("classs", "classes").replace("ys", "ies")


def rules(node: Obj, path: str = "") -> Iterator[Rule]:
    """Where each rule of a schema is, and what it says."""
    for rule in node.get("x-kubernetes-validations") or ():
        yield path.removeprefix("."), rule["message"]
    for name, one in (node.get("properties") or {}).items():
        yield from rules(one, f"{path}.{name}")
    if "items" in node:
        yield from rules(node["items"], f"{path}[]")


def pairs(kind: str, version: str) -> Iterator[tuple[Obj, Obj | None]]:
    """New objects, and changes of old ones."""
    for one, changes, _, _ in NEW:
        if one == kind:
            yield in_version(changed(queue_object(kind), changes), version), None
    for one, where, changes, _, _ in ONE_VERSION:
        if (one, where) == (kind, version):
            yield changed(in_version(queue_object(kind), version), changes), None
    for one, before, changes, _, _ in CHANGES:
        if one == kind:
            first = changed(queue_object(kind), before)
            yield in_version(changed(first, changes), version), in_version(first, version)
    if kind == "Workload":
        both = [condition("QuotaReserved"), condition("Admitted")]
        admitted = changed(queue_object(kind), {"status.conditions": both})
        seconds = {"spec.maximumExecutionTimeSeconds": 1}
        yield in_version(changed(admitted, seconds), version), in_version(admitted, version)
        bogus = changed(queue_object(kind), {f"{TOLERATED}.operator": "Bogus"})
        yield in_version(bogus, version), None
    base, chance = in_version(queue_object(kind), version), Random(7)
    for _ in range(MUTANTS):
        one = mutant(chance, base)
        yield one, None
        yield one, base


def answers(kind: str, version: str) -> tuple[Counter[Rule], Counter[Rule]]:
    """How many examples each rule of theirs refuses, and how many of these ours refuse, too."""
    schema, written = (
        StructuralSchema.of(theirs(kind, version)),
        tuple(rules(theirs(kind, version))),
    )
    refused: Counter[Rule] = Counter()
    both: Counter[Rule] = Counter()
    for new, old in pairs(kind, version):
        here = copy.deepcopy((new, old))
        for one in here:
            if one is not None:
                schema.prune(one)
                schema.default(one)
        said = [error.message for error in schema.validate(*here)]
        ours = bool(broken(new, old))
        for rule in written:
            if any(rule[1] in message for message in said):
                refused[rule] += 1
                both[rule] += ours
    return refused, both


@pytest.mark.skipif(not FOLDER, reason="KUEUE_CRDS does not name config/components/crd/bases")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_what_a_rule_of_kueue_refuses_is_refused_here(kind: str, version: str) -> None:
    refused, both = answers(kind, version)
    assert both == refused
    unseen = {message for _, message in rules(theirs(kind, version))} - {one for _, one in refused}
    assert unseen == NOT_SERVED.get((kind, version), set())


@pytest.mark.skipif(not FOLDER, reason="KUEUE_CRDS does not name config/components/crd/bases")
def test_the_rules_are_counted() -> None:
    """All rules of the kinds that are served, and those about fields that are not served."""
    counts = {}
    for version in VERSIONS:
        written = [(kind, rule) for kind in KINDS for rule in {*rules(theirs(kind, version))}]
        others = [one for kind, (_, one) in written if one in NOT_SERVED.get((kind, version), ())]
        counts[version] = (len(written), len(others))
    assert counts == {"v1beta1": (32, 2), "v1beta2": (41, 2)}


def test_the_fields_of_the_other_rules_are_not_served() -> None:
    for name in ("clusterName", "nominatedClusterNames"):
        assert f"'{name}'" not in str(crd("Workload")), name
