from __future__ import annotations

from typing import Any

import pytest

from kueuelib.api.kueue import Workload
from kueuelib.scheduler.decide.flavors import assign
from kueuelib.scheduler.decide.offers import Proposal, mismatch_of
from kueuelib.scheduler.decide.preemption.victims import Preemptor
from kueuelib.scheduler.flavor_reasons import (
    AffinityMismatch,
    ExceedsCapacity,
    Mode,
    QuotaInUse,
    UntoleratedTaint,
)
from kueuelib.scheduler.pending.requests import NO_LIMIT_RANGES
from kueuelib.scheduler.pending.workload_info import WorkloadInfo, needs_of, workload_info
from kueuelib.scheduler.quota.amounts import FlavorResource
from kueuelib.scheduler.quota.cache import QuotaCache
from kueuelib.scheduler.quota.queue_spec import Flavor, flavor_of, queue_spec
from kueuelib.scheduler.quota.snapshot import Snapshot
from kueuelib.scheduler.reasons import NoFlavors
from kueuelib.testing.builders import (
    make_cluster_queue,
    make_flavor,
    make_pod_set,
    make_workload,
)


def info_of(workload: Workload) -> WorkloadInfo:
    return workload_info(workload, needs_of(workload, NO_LIMIT_RANGES, {}))


def flavor(**parts: Any) -> Flavor:
    return flavor_of(make_flavor("f", **parts))


def pod(**spec: Any) -> Any:
    workload = make_workload("w", "q", pod_sets=[make_pod_set({"cpu": 1}, **spec)])
    return workload.spec.pod_sets[0].template.spec


def affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    required = {"nodeSelectorTerms": list(terms)}
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    return {"affinity": {"nodeAffinity": {key: required}}}


def term(key: str, operator: str, *values: str) -> dict[str, Any]:
    expression = {"key": key, "operator": operator, "values": list(values)}
    return {"matchExpressions": [expression]}


TAINT = {"key": "spot", "value": "yes", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("taint", "tolerations", "fits"),
    [
        (TAINT, [], False),
        (TAINT, [{"key": "spot", "operator": "Exists"}], True),
        (TAINT, [{"key": "spot", "value": "yes"}], True),
        (TAINT, [{"key": "spot", "operator": "Equal", "value": "no"}], False),
        (TAINT, [{"operator": "Exists"}], True),
        (TAINT, [{"key": "spot", "operator": "Exists", "effect": "NoExecute"}], False),
        ({**TAINT, "effect": "NoExecute"}, [], False),
        ({**TAINT, "effect": "PreferNoSchedule"}, [], True),
    ],
)
def test_taints_must_be_tolerated(
    taint: dict[str, str], tolerations: list[dict[str, str]], fits: bool
) -> None:
    found = mismatch_of(flavor(taints=[taint]), pod(tolerations=tolerations))
    want = UntoleratedTaint("f", taint["key"], taint["value"], taint["effect"])
    assert found == (None if fits else want)


@pytest.mark.parametrize(
    ("own", "fits"),
    [
        ({"key": "spot", "operator": "Exists"}, True),
        ({"key": "other", "operator": "Exists"}, False),
        ({"key": "spot", "value": "yes"}, True),
        ({"key": "spot", "value": "no"}, False),
        ({"key": "spot", "operator": "Exists", "effect": "NoExecute"}, False),
    ],
)
def test_tolerations_of_the_flavor_count_like_those_of_the_pod(
    own: dict[str, str], fits: bool
) -> None:
    found = mismatch_of(flavor(taints=[TAINT], tolerations=[own]), pod())
    assert (found is None) is fits


def test_taint_is_told_in_the_words_that_clients_know() -> None:
    found = mismatch_of(flavor(taints=[TAINT]), pod())
    assert found is not None
    assert found.text == "untolerated taint {spot yes NoSchedule <nil>} in flavor f"


@pytest.mark.parametrize(
    ("spec", "fits"),
    [
        ({}, True),
        ({"nodeSelector": {"zone": "a"}}, True),
        ({"nodeSelector": {"zone": "b"}}, False),
        ({"nodeSelector": {"zone": "a", "disk": "ssd"}}, True),
        (affinity(term("zone", "In", "a", "b")), True),
        (affinity(term("zone", "In", "b")), False),
        (affinity(term("zone", "NotIn", "a")), False),
        (affinity(term("zone", "Exists")), True),
        (affinity(term("zone", "DoesNotExist")), False),
        (affinity(term("size", "Gt", "3")), True),
        (affinity(term("size", "Lt", "3")), False),
        (affinity(term("zone", "In", "b"), term("zone", "In", "a")), True),
        (affinity(term("zone", "In", "b"), term("disk", "In", "ssd")), True),
        (affinity(term("disk", "In", "ssd")), True),
        ({"nodeSelector": {"zone": "b"}, **affinity(term("zone", "In", "a"))}, False),
        (affinity({"matchFields": [{"key": "metadata.name", "operator": "In"}]}), True),
    ],
)
def test_selectors_count_in_the_labels_of_the_flavor(spec: dict[str, Any], fits: bool) -> None:
    found = mismatch_of(flavor(labels={"zone": "a", "size": "5"}), pod(**spec))
    assert isinstance(found, AffinityMismatch) is not fits


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        ({"nodeSelector": {"size": "5", "zone": "b"}}, "zone b"),
        (affinity(term("size", "Exists"), term("zone", "In", "b", "c")), None),
        (affinity(term("zone", "In", "b", "c")), "zone In b, c"),
        (affinity(term("zone", "DoesNotExist")), "zone DoesNotExist"),
    ],
)
def test_a_label_that_differs_is_named_with_both_values(
    spec: dict[str, Any], wanted: str | None
) -> None:
    found = mismatch_of(flavor(labels={"zone": "a", "size": "5"}), pod(**spec))
    if wanted is None:
        assert found is None
        return
    assert isinstance(found, AffinityMismatch)
    assert found.text == "flavor f doesn't match node affinity"
    assert found.detail == f"the pods want {wanted}, the nodes of flavor f have a"


def test_selector_on_a_label_of_another_flavor_is_left_to_the_kube_scheduler() -> None:
    assert mismatch_of(flavor(labels={"zone": "a"}), pod(nodeSelector={"gen": "2"})) is None


def assigned(found: Workload, *groups: Any, progress: Any = (), **spec: Any) -> Proposal:
    cache = QuotaCache()
    queue = queue_spec(make_cluster_queue("q", *groups, **spec))
    for name in queue.flavors:
        cache.set_flavor(flavor_of(make_flavor(name)))
    cache.set_queue(queue)
    snapshot = Snapshot(cache.freeze(["q"]))
    frozen = snapshot.queue("q")
    assert frozen is not None
    info = info_of(found)
    return assign(snapshot, Preemptor(frozen, 0, 0.0), info, progress=progress)


def test_zero_of_an_uncovered_resource_is_neither_missed_nor_listed() -> None:
    found = assigned(make_workload("w", "q", {"cpu": 1, "gpu": 0}), {"f": {"cpu": 1}})
    assert found.mode is Mode.FIT
    assert found.admission.pod_set_assignments[0].flavors == {"cpu": "f"}


def test_zero_of_a_full_resource_prevents_nothing() -> None:
    found = assigned(make_workload("w", "q", {"cpu": 0}), {"f": {"cpu": 0}})
    assert found.mode is Mode.FIT
    assert found.usage == {FlavorResource("f", "cpu"): 0}


def test_pods_without_requests_fit_without_a_flavor() -> None:
    found = assigned(make_workload("w", "q", {}), {"f": {"cpu": 1}})
    assert found.mode is Mode.FIT
    assert found.admission.pod_set_assignments[0].flavors == {}


def test_pod_sets_behind_one_that_never_fits_are_not_looked_at() -> None:
    sets = [make_pod_set({"cpu": cpu}, name) for name, cpu in (("a", 1), ("b", 9), ("c", 1))]
    found = assigned(make_workload("w", "q", pod_sets=sets), {"f": {"cpu": 4}})
    assert found.mode is Mode.NO_FIT
    (blocked,) = found.blocked
    assert blocked.pod_set == "b"
    (attempt,) = blocked.groups[0].attempts
    assert attempt.reasons == (ExceedsCapacity("f", "cpu", 1000, 9000, 4000),)


def test_search_goes_on_behind_the_flavor_that_was_tried() -> None:
    groups = {"one": {"cpu": 1}, "two": {"cpu": 1}, "three": {"cpu": 1}}
    workload = make_workload("w", "q", {"cpu": 1})
    first = assigned(workload, groups)
    assert first.admission.pod_set_assignments[0].flavors == {"cpu": "one"}
    assert first.progress == (("main", (("cpu", 0),)),)
    second = assigned(workload, groups, progress=first.progress)
    assert second.admission.pod_set_assignments[0].flavors == {"cpu": "two"}
    last = assigned(workload, groups, progress=second.progress)
    assert last.admission.pod_set_assignments[0].flavors == {"cpu": "three"}
    assert last.progress == (("main", (("cpu", -1),)),)


def test_search_begins_anew_when_the_flavors_behind_are_gone() -> None:
    progress = (("main", (("cpu", 1),)),)
    workload = make_workload("w", "q", {"cpu": 1})
    found = assigned(workload, {"one": {"cpu": 1}}, progress=progress)
    assert found.admission.pod_set_assignments[0].flavors == {"cpu": "one"}
    large = assigned(make_workload("w", "q", {"cpu": 2}), {"one": {"cpu": 1}}, progress=progress)
    assert NoFlavors(large.blocked, large.mode).text


def test_request_that_must_borrow_can_not_ask_for_preemption_without_the_policy() -> None:
    def mode(policy: str) -> Mode:
        cache = QuotaCache()
        cache.set_flavor(flavor_of(make_flavor("f")))
        preemption = {"borrowWithinCohort": {"policy": policy}}
        mine = make_cluster_queue("q", {"f": {"cpu": 1}}, cohort="c", preemption=preemption)
        other = make_cluster_queue("o", {"f": {"cpu": 3}}, cohort="c")
        cache.set_queue(queue_spec(mine))
        cache.set_queue(queue_spec(other))
        snapshot = Snapshot(cache.freeze(["q"]))
        frozen, lender = snapshot.queue("q"), snapshot.queue("o")
        assert frozen is not None
        assert lender is not None
        snapshot.add(lender, {FlavorResource("f", "cpu"): 3000})
        info = info_of(make_workload("w", "q", {"cpu": 2}))
        found = assign(snapshot, Preemptor(frozen, 0, 0.0), info)
        (reason,) = found.blocked[0].groups[0].attempts[0].reasons
        assert isinstance(reason, QuotaInUse)
        assert (reason.used, reason.nominal, reason.available, reason.lack) == (
            0,
            1000,
            1000,
            1000,
        )
        assert reason.reclaimable is (policy != "Never")
        return found.mode

    assert mode("Never") is Mode.NO_FIT
    assert mode("LowerPriority") is Mode.NO_CANDIDATES


@pytest.mark.parametrize("short", ["cpu", "memory"])
def test_every_resource_has_to_fit(short: str) -> None:
    quota = {"cpu": 4, "memory": 4, short: 1}
    found = assigned(make_workload("w", "q", {"cpu": 2, "memory": 2}), {"f": quota})
    assert found.mode is Mode.NO_FIT
    (reason,) = found.blocked[0].groups[0].attempts[0].reasons
    assert isinstance(reason, ExceedsCapacity)
    assert reason.resource == short


@pytest.mark.parametrize(
    ("fungibility", "want"),
    [
        ({}, "one"),
        ({"whenCanBorrow": "MayStopSearch"}, "one"),
        ({"whenCanBorrow": "TryNextFlavor"}, "one"),
        ({"whenCanBorrow": "TryNextFlavor", "preference": "BorrowingOverPreemption"}, "one"),
        ({"whenCanBorrow": "TryNextFlavor", "preference": "PreemptionOverBorrowing"}, "one"),
    ],
)
def test_no_preference_makes_anybody_wait_where_borrowing_helps(
    fungibility: dict[str, str], want: str
) -> None:
    cache = QuotaCache()
    for name in ("one", "two"):
        cache.set_flavor(flavor_of(make_flavor(name)))
    groups = {"one": {"cpu": 0}, "two": {"cpu": 1}}
    mine = make_cluster_queue("q", groups, cohort="c", flavorFungibility=fungibility)
    lender = make_cluster_queue("o", {"one": {"cpu": 1}, "two": {"cpu": 0}}, cohort="c")
    cache.set_queue(queue_spec(mine))
    cache.set_queue(queue_spec(lender))
    snapshot = Snapshot(cache.freeze(["q"]))
    frozen, other = snapshot.queue("q"), snapshot.queue("o")
    assert frozen is not None
    assert other is not None
    snapshot.add(other, {FlavorResource("two", "cpu"): 1000})
    info = info_of(make_workload("w", "q", {"cpu": 1}))
    found = assign(snapshot, Preemptor(frozen, 0, 0.0), info)
    assert found.admission.pod_set_assignments[0].flavors == {"cpu": want}
    assert found.mode is Mode.FIT
