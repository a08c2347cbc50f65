"""The rules of the CRDs in CEL.

They hold even while no manager runs. Every message says what to change. Rules use the field names
of `v1beta2`; `rules_of` translates them to a version.

Two kinds of rules are left to `kueuelib.api.validation`. The API server refuses rules by an
estimate of their cost, in which a text without a maximal length counts as megabytes, so amounts of
quota are not compared here. And a rule about a whole list cannot say which item is wrong, so names
that occur twice, resources in another order and updates of unknown pod sets are found there, with
their place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import attrs

from kueuelib.api.definitions import Rule
from kueuelib.api.kinds import V1BETA1, V1BETA2
from kueuelib.api.patterns import LIST_LIMIT

# ---- the rules in CEL about fields of topology-aware scheduling (KEP-2724) -----------------------

TOPOLOGY_NAME: Final = (
    Rule(
        "spec",
        "!has(self.topologyName) || (has(self.nodeLabels) && size(self.nodeLabels) > 0)",
        "a topology orders the nodes with these labels: set nodeLabels, or remove topologyName",
        ".nodeLabels",
    ),
    Rule(
        "spec",
        "!has(oldSelf.topologyName) || "
        "(has(self.topologyName) && self.topologyName == oldSelf.topologyName)",
        "field is immutable once it is set: create another ResourceFlavor instead",
        ".topologyName",
    ),
)
"""The rules of ResourceFlavors."""

_IS_HOST: Final = "nodeLabel == 'kubernetes.io/hostname'"
LEVELS: Final = (
    Rule(
        "spec.levels",
        "self == oldSelf",
        "field is immutable in this version: create another Topology instead",
        version=V1BETA1,
    ),
    Rule(
        "spec.levels",
        f"self == oldSelf || (self[size(self) - 1].{_IS_HOST} && "
        f"oldSelf[size(oldSelf) - 1].{_IS_HOST})",
        "levels may only be changed if kubernetes.io/hostname is the last one before and after: "
        "create another Topology instead",
        version=V1BETA2,
    ),
    Rule(
        "spec.levels",
        "self.all(one, self.exists_one(other, other == one))",
        "must be unique: remove the level that occurs twice",
    ),
    Rule(
        "spec.levels",
        f"!self.exists(one, one.{_IS_HOST}) || self[size(self) - 1].{_IS_HOST}",
        "the kubernetes.io/hostname label can only be used at the lowest level of topology: "
        "move it to the end",
    ),
)
"""The rules of Topologies."""

_PLACED: Final = "status.admission.podSetAssignments[].topologyAssignment"
_SLICE: Final = f"{_PLACED}.slices[]"

PLACEMENT: Final = (
    Rule(
        _PLACED,
        "self.domains.all(d, size(d.values) == size(self.levels))",
        "every domain must have one value for each of the levels",
        ".domains",
        version=V1BETA1,
    ),
    Rule(
        _PLACED,
        "self.slices.all(s, size(s.valuesPerLevel) == size(self.levels))",
        "every slice must have one entry of valuesPerLevel for each of the levels",
        ".slices",
        version=V1BETA2,
    ),
    Rule(
        _SLICE,
        "!has(self.podCounts.individual) || size(self.podCounts.individual) == self.domainCount",
        "must have as many counts as domainCount",
        ".podCounts.individual",
        version=V1BETA2,
    ),
    Rule(
        _SLICE,
        "self.valuesPerLevel.all(v, !has(v.individual) || "
        "size(v.individual.roots) == self.domainCount)",
        "must have as many roots as domainCount",
        ".valuesPerLevel",
        version=V1BETA2,
    ),
    *(
        Rule(
            f"{_SLICE}.{field}",
            "has(self.universal) != has(self.individual)",
            "set either universal or individual",
            version=V1BETA2,
        )
        for field in ("podCounts", "valuesPerLevel[]")
    ),
)
"""The rules of Workloads."""


# --------------------------------------------------------------------------------------------------

FORBIDDEN: Final = "FieldValueForbidden"
REQUIRED: Final = "FieldValueRequired"


def rules_of(kind: str, version: str) -> Iterator[Rule]:
    """The rules of a kind in one version."""
    for rule in RULES.get(kind, ()):
        if rule.version in ("", version):
            yield rule if version == V1BETA2 else _as_v1beta1(rule)


def _as_v1beta1(rule: Rule) -> Rule:
    return attrs.evolve(
        rule,
        cel=rule.cel.replace("self.cohortName", "self.cohort"),
        message=rule.message.replace("cohortName", "cohort"),
    )


# ---- parts of expressions


def _has(path: str) -> str:
    """Whether every step of a path below `self` or `oldSelf` is there."""
    root, *steps = path.split(".")
    tests = []
    for step in steps:
        root = f"{root}.{step}"
        tests.append(f"has({root})")
    return " && ".join(tests)


def _value(path: str, default: str) -> str:
    """A field, or its default where it or a parent is absent."""
    return f"({_has(path)} ? {path} : {default})"


def _same(path: str, default: str) -> str:
    return f"{_value(f'self.{path}', default)} == {_value(f'oldSelf.{path}', default)}"


def _reserved(root: str) -> str:
    return (
        f"({_has(f'{root}.status.conditions')} && {root}.status.conditions.exists(c, "
        "c.type == 'QuotaReserved' && c.status == 'True'))"
    )


_NOT_HOLDING: Final = f"!{_reserved('self')}"
"""Comes last in a rule, because a loop over the conditions costs more than anything else."""


def _while_held(rule: str, *others: str) -> str:
    """A rule for as long as quota was reserved before a change; cheap tests come first."""
    return " || ".join(("!has(oldSelf.status)", rule, f"!{_reserved('oldSelf')}", *others))


_ADMITTED: Final = _has("self.status.admission")
_ASSIGNMENTS: Final = "self.status.admission.podSetAssignments"
_RECLAIMABLE: Final = "status.reclaimablePods"


# ---- shared


def _quotas(parent: str, *, limits: str) -> tuple[Rule, ...]:
    every = "self.resourceGroups.all(g, g.flavors.all(f, f.resources.all(r, "
    return (
        Rule(
            "spec",
            f"(has(self.{parent}) && self.{parent} != '') || !has(self.resourceGroups) || {every}"
            "!has(r.borrowingLimit) && !has(r.lendingLimit))))",
            f"borrowingLimit and lendingLimit need {limits}: set {parent}, or remove the limits",
            ".resourceGroups",
        ),
        Rule(
            "spec.resourceGroups[]",
            "self.flavors.all(f, size(f.resources) == size(self.coveredResources))",
            "every flavor must have the coveredResources, in the same order",
            ".flavors",
        ),
        Rule(
            "spec.fairSharing.weight",
            "quantity(string(self)).compareTo(quantity('1n')) != 0",
            "must be 0 or greater than 1n",
        ),
    )


_TOLERATIONS: Final = (
    (
        "(has(t.key) && t.key != '') || (has(t.operator) && t.operator == 'Exists')",
        "a toleration without a key matches every taint: set operator to Exists, or set a key",
    ),
    (
        "!has(t.tolerationSeconds) || (has(t.effect) && t.effect == 'NoExecute')",
        "tolerationSeconds needs the effect NoExecute: set it, or remove tolerationSeconds",
    ),
    (
        "!has(t.operator) || t.operator != 'Exists' || !has(t.value) || t.value == ''",
        "the operator Exists takes no value: remove the value, or set operator to Equal",
    ),
)


def _tolerations(at: str) -> tuple[Rule, ...]:
    return tuple(Rule(at, f"self.all(t, {cel})", message) for cel, message in _TOLERATIONS)


def _label_keys(at: str) -> Rule:
    """A rule for the keys of a map, which its schema cannot limit."""
    name = "^([-a-z0-9.]+/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
    return Rule(at, f"self.all(k, k.matches('{name}'))", "the keys must be label keys")


# ---- the kinds

_WEIGHT_AND_QUEUE: Final = (
    Rule(
        "spec",
        _same("clusterQueue", "''"),
        "field is immutable: create another LocalQueue instead",
        ".clusterQueue",
    ),
    Rule(
        "spec.fairSharing.weight",
        "quantity(string(self)).compareTo(quantity('1n')) != 0",
        "must be 0 or greater than 1n",
    ),
)

_CLUSTER_QUEUE: Final = (
    *_quotas("cohortName", limits="a cohort"),
    Rule(
        "spec.resourceGroups",
        f"self.map(g, size(g.flavors)).sum() <= {LIST_LIMIT}",
        f"at most {LIST_LIMIT} flavors in all groups together: the status lists no more",
    ),
    Rule(
        "spec.preemption",
        "self.reclaimWithinCohort != 'Never' || !has(self.borrowWithinCohort) || "
        "self.borrowWithinCohort.policy == 'Never'",
        "borrowWithinCohort needs reclaimWithinCohort: set it to LowerPriority or Any, or set "
        "borrowWithinCohort.policy to Never",
    ),
    Rule(
        "spec.flavorFungibility",
        "!has(self.preference) || "
        "(self.whenCanBorrow == 'TryNextFlavor' && self.whenCanPreempt == 'TryNextFlavor')",
        "preference compares all flavors: set whenCanBorrow and whenCanPreempt to TryNextFlavor, "
        "or remove preference",
        ".preference",
    ),
    Rule(
        "spec.namespaceSelector",
        "!has(self.matchExpressions) || self.matchExpressions.all(e, "
        "(e.operator in ['In', 'NotIn']) == (has(e.values) && size(e.values) > 0))",
        "In and NotIn need values, Exists and DoesNotExist take none",
        ".matchExpressions",
    ),
    Rule(
        "spec",
        "!has(self.admissionChecks) || size(self.admissionChecks) == 0 || "
        "!has(self.admissionChecksStrategy)",
        "set admissionChecks or admissionChecksStrategy, not both",
        ".admissionChecksStrategy",
        FORBIDDEN,
        V1BETA1,
    ),
    _label_keys("spec.namespaceSelector.matchLabels"),
)

_FLAVOR: Final = (
    _label_keys("spec.nodeLabels"),
    *TOPOLOGY_NAME,
    *_tolerations("spec.tolerations"),
)

_CHECK: Final = (
    Rule(
        "spec.controllerName",
        "self == oldSelf",
        "field is immutable: create another AdmissionCheck instead",
    ),
)

_POD_SETS: Final = (
    Rule(
        "spec.podSets",
        "size(self.filter(p, has(p.minCount))) <= 1",
        "at most one pod set can use minCount: remove the others",
    ),
    Rule(
        "spec.podSets[]",
        "!has(self.minCount) || self.minCount <= self.count",
        "minCount must be less than or equal to count",
        ".minCount",
        FORBIDDEN,
    ),
    *(
        Rule(
            f"spec.podSets[].template.spec.{field}[]",
            "!has(self.resources) || !has(self.resources.requests) || "
            "!('pods' in self.resources.requests)",
            "the resource pods counts the pods: remove it from the requests",
            ".resources.requests['pods']",
        )
        for field in ("initContainers", "containers")
    ),
)

_PRIORITY: Final = (
    Rule(
        "spec",
        "!has(self.priorityClassRef) || self.priorityClassRef.name == '' || has(self.priority)",
        "set priority to the value of the class",
        ".priorityClassRef",
        REQUIRED,
        V1BETA2,
    ),
    Rule(
        "spec",
        "!has(self.priorityClassName) || self.priorityClassName == '' || has(self.priority)",
        "set priority to the value of the class",
        ".priorityClassName",
        REQUIRED,
        V1BETA1,
    ),
    *(
        Rule(
            "spec.priorityClassRef",
            f"{_value('self.group', quoted)} != '{group}' || "
            f"{_value('self.kind', quoted)} == '{kind}'",
            f"must be {kind or 'empty'} for the group {group or 'that is empty'}",
            ".kind",
            version=V1BETA2,
        )
        for group, kind in (
            ("scheduling.k8s.io", "PriorityClass"),
            ("kueue.x-k8s.io", "WorkloadPriorityClass"),
            ("", ""),
        )
        for quoted in ("''",)
    ),
    *(
        Rule(
            "",
            _while_held(_same(f"spec.{path}", default)),
            "field is immutable while quota is reserved",
            ".spec",
            version=version,
        )
        for path, default, version in (
            ("priorityClassRef.group", "''", V1BETA2),
            ("priorityClassRef.kind", "''", V1BETA2),
            ("priorityClassSource", "''", V1BETA1),
        )
    ),
    *(
        Rule(
            "",
            _while_held(
                f"{_same(f'spec.{name}', quoted)} || "
                f"{_value(f'self.spec.{kind}', quoted)} == {other}"
            ),
            "the name of the class is immutable while quota is reserved, but for that of a "
            "WorkloadPriorityClass",
            ".spec",
            version=version,
        )
        for kind, other, name, version in (
            (
                "priorityClassRef.kind",
                "'WorkloadPriorityClass'",
                "priorityClassRef.name",
                V1BETA2,
            ),
            (
                "priorityClassSource",
                "'kueue.x-k8s.io/workloadpriorityclass'",
                "priorityClassName",
                V1BETA1,
            ),
        )
        for quoted in ("''",)
    ),
)

_STATUS: Final = (
    Rule(
        "",
        f"{_ADMITTED} || {_NOT_HOLDING}",
        "must be set while QuotaReserved is True: set QuotaReserved to False to release quota",
        ".status.admission",
        REQUIRED,
    ),
    Rule(
        "",
        f"!({_ADMITTED}) || {_ASSIGNMENTS}.size() == self.spec.podSets.size() || {_NOT_HOLDING}",
        "must have one entry for each pod set",
        ".status.admission.podSetAssignments",
    ),
    Rule(
        "",
        f"!({_ADMITTED}) || "
        f"{_ASSIGNMENTS}.all(a, self.spec.podSets.exists(p, p.name == a.name)) || {_NOT_HOLDING}",
        "must name pod sets of the spec",
        ".status.admission.podSetAssignments",
    ),
    Rule(
        "status.admission.clusterQueue",
        "self == oldSelf",
        "field is immutable: release the quota first, by removing admission",
    ),
    Rule(
        "",
        f"!({_has(f'self.{_RECLAIMABLE}')}) || self.{_RECLAIMABLE}.all(r, "
        "self.spec.podSets.exists(p, p.name == r.name && r.count <= p.count))",
        "must name pod sets of the spec, with a count up to that of the pod set",
        f".{_RECLAIMABLE}",
    ),
    Rule(
        "",
        _while_held(
            f"!has(oldSelf.{_RECLAIMABLE}) || "
            f"({_has(f'self.{_RECLAIMABLE}')} ? oldSelf.{_RECLAIMABLE}.all(o, "
            f"self.{_RECLAIMABLE}.exists(r, r.name == o.name && r.count >= o.count)) : "
            f"size(oldSelf.{_RECLAIMABLE}) == 0)",
            _NOT_HOLDING,
        ),
        "counts must not shrink, and entries must stay, while quota is reserved",
        f".{_RECLAIMABLE}",
    ),
    *_tolerations("status.admissionChecks[].podSetUpdates[].tolerations"),
)

_FIXED: Final = (
    *(
        Rule(
            "",
            _while_held(_same(f"spec.{field}", default), _NOT_HOLDING),
            "field is immutable while quota is reserved: deactivate the Workload first",
            f".spec.{field}",
        )
        for field, default in (("queueName", "''"), ("maximumExecutionTimeSeconds", "0"))
    ),
    *(
        Rule(
            "",
            _while_held(
                f"self.spec.podSets.map(p, {value}) == oldSelf.spec.podSets.map(p, {value})"
            ),
            f"{what} of pod sets are immutable while quota is reserved: deactivate the Workload "
            "first",
            ".spec.podSets",
        )
        for what, value in (
            ("names", "p.name"),
            ("counts", "p.count"),
            ("the minCounts", "has(p.minCount) ? p.minCount : -1"),
        )
    ),
)

RULES: Final[Mapping[str, tuple[Rule, ...]]] = {
    "ClusterQueue": _CLUSTER_QUEUE,
    "Cohort": _quotas("parentName", limits="a parent"),
    "LocalQueue": _WEIGHT_AND_QUEUE,
    "ResourceFlavor": _FLAVOR,
    "AdmissionCheck": _CHECK,
    "Topology": LEVELS,
    "Workload": (*_POD_SETS, *_PRIORITY, *_STATUS, *PLACEMENT, *_FIXED),
}
"""The rules of each kind, with the field names of `v1beta2`."""
