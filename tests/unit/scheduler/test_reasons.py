from __future__ import annotations

import pytest

from kueuelib.scheduler.flavor_reasons import (
    AffinityMismatch,
    ExceedsCapacity,
    FlavorAttempt,
    FlavorMissing,
    GroupReason,
    Mode,
    PodSetReason,
    QuotaInUse,
    ResourceUncovered,
)
from kueuelib.scheduler.object_reasons import ClusterQueueInactive
from kueuelib.scheduler.reasons import NoFlavors, condition_reason, render

TOO_BIG = ExceedsCapacity("one", "cpu", 500, 2500, 2000)
IN_USE = QuotaInUse("two", "memory", 0, 3 * 2**30, 0, 4 * 2**30, 0, 2**30, reclaimable=True)
MISMATCH = AffinityMismatch("three")


def blocked(*groups: list[object], name: str = "main") -> PodSetReason:
    return PodSetReason(
        name,
        tuple(
            GroupReason(
                tuple(FlavorAttempt("f", Mode.NO_FIT, (reason,)) for reason in group)  # type: ignore[arg-type]
            )
            for group in groups
        ),
    )


def reason(*pod_sets: PodSetReason) -> NoFlavors:
    return NoFlavors(pod_sets, Mode.NO_FIT)


def test_amounts_are_told_as_quantities() -> None:
    assert TOO_BIG.text == (
        "insufficient quota for cpu in flavor one, previously considered podsets requests (500m) "
        "+ current podset request (2500m) > maximum capacity (2)"
    )
    assert IN_USE.text == "insufficient unused quota for memory in flavor two, 2Gi more needed"


def test_causes_are_sorted_and_pod_sets_keep_their_order() -> None:
    found = reason(blocked([MISMATCH, FlavorMissing("a")], name="z"), blocked([IN_USE], name="y"))
    assert render(found) == (
        "couldn't assign flavors to pod set z: flavor a not found, "
        "flavor three doesn't match node affinity; "
        "couldn't assign flavors to pod set y: insufficient unused quota for memory in flavor two, "
        "2Gi more needed"
    )


@pytest.mark.parametrize(
    ("found", "want"),
    [
        (reason(blocked([IN_USE])), "WaitingForQuota"),
        (reason(blocked([TOO_BIG])), "ExceedsMaxQuota"),
        (reason(blocked([MISMATCH])), "NoMatchingFlavor"),
        (reason(blocked([ResourceUncovered("gpu")])), "NoMatchingFlavor"),
        (reason(blocked([MISMATCH, TOO_BIG, IN_USE])), "WaitingForQuota"),
        (reason(blocked([MISMATCH, TOO_BIG])), "ExceedsMaxQuota"),
        (reason(blocked([IN_USE], [TOO_BIG])), "ExceedsMaxQuota"),
        (reason(blocked([IN_USE]), blocked([MISMATCH])), "NoMatchingFlavor"),
    ],
)
def test_easiest_flavor_and_worst_pod_set_make_the_reason(found: NoFlavors, want: str) -> None:
    assert condition_reason(found) == want


def test_flavor_with_several_reasons_is_as_bad_as_the_worst() -> None:
    attempt = FlavorAttempt("f", Mode.NO_FIT, (IN_USE, TOO_BIG))
    found = NoFlavors((PodSetReason("main", (GroupReason((attempt,)),)),), Mode.NO_FIT)
    assert condition_reason(found) == "ExceedsMaxQuota"


@pytest.mark.parametrize(
    ("why", "text", "want"),
    [
        ("Stopped", "ClusterQueue q is stopped", "Suspended"),
        ("Terminating", "ClusterQueue q is terminating", "Suspended"),
        ("FlavorNotFound", "ClusterQueue q is inactive", "Misconfigured"),
        ("AdmissionCheckInactive", "ClusterQueue q is inactive", "Misconfigured"),
    ],
)
def test_inactive_queue_says_whether_that_is_wanted(why: str, text: str, want: str) -> None:
    found = ClusterQueueInactive("q", why)
    assert (render(found), condition_reason(found)) == (text, want)
