from __future__ import annotations

import pytest

from kueuelib.api.meta import ObjectKey
from kueuelib.api.missing_features import TOPOLOGY, MissingFeature, sentence
from kueuelib.scheduler import reasons
from kueuelib.scheduler.flavor_reasons import (
    AffinityMismatch,
    ExceedsCapacity,
    FlavorAttempt,
    FlavorMissing,
    FlavorReason,
    GroupReason,
    Mode,
    NoPlaces,
    PodSetReason,
    QuotaInUse,
    ResourceUncovered,
    TopologyMismatch,
    UntoleratedTaint,
)
from kueuelib.scheduler.topology.placement import NoDomain
from kueuelib.workload.short_reasons import shorten

IN_USE = QuotaInUse("on-demand", "cpu", 0, 3000, 0, 4000, 0, 1000, reclaimable=True)
SPOT = QuotaInUse("spot.v2", "memory", 0, 2**31, 0, 2**32, 0, 2**30, reclaimable=True)
SHORT: dict[FlavorReason, str] = {
    IN_USE: "cpu on on-demand: 2 more needed",
    ExceedsCapacity("spot", "cpu", 500, 2500, 2000): "cpu on spot: 2500m requested, at most 2",
    UntoleratedTaint("spot", "spot", "true", "NoSchedule"): "spot: taint spot",
    UntoleratedTaint("spot", "spot", "", "NoSchedule"): "spot: taint spot",
    AffinityMismatch("spot"): "spot: node affinity differs",
    FlavorMissing("spot"): "spot: no such flavor",
    NoPlaces(
        "a", NoDomain("racks", 8, 6, False, (), 4, {}).text
    ): "topology racks: room for 6 of 8",
    NoPlaces(
        "a", NoDomain("racks", 8, 0, True, (), 4, {}).text
    ): "topology racks: room for none of 8",
    TopologyMismatch("a", 'Flavor "a" does not support TopologyAwareScheduling'): "a: no topology",
    ResourceUncovered("nvidia.com/gpu"): "the queue has no quota for nvidia.com/gpu",
}


def blocked(*given: FlavorReason, name: str = "main") -> PodSetReason:
    attempts = tuple(FlavorAttempt("f", Mode.NO_FIT, (each,)) for each in given)
    return PodSetReason(name, (GroupReason(attempts),))


def no_flavors(*pod_sets: PodSetReason, in_vain: int = 0) -> reasons.NoFlavors:
    return reasons.NoFlavors(pod_sets, Mode.NO_FIT, in_vain=in_vain)


@pytest.mark.parametrize("reason", SHORT)
def test_every_reason_has_a_short_form(reason: FlavorReason) -> None:
    assert shorten(reasons.render(no_flavors(blocked(reason)))) == SHORT[reason]


def test_every_kind_of_reason_is_in_the_table() -> None:
    assert {type(each) for each in SHORT} == set(FlavorReason.__args__)


def test_all_flavors_are_named() -> None:
    message = reasons.render(no_flavors(blocked(IN_USE, SPOT)))
    assert shorten(message) == "cpu on on-demand: 2 more needed; memory on spot.v2: 1Gi more needed"


def test_pod_sets_are_named_if_there_are_several() -> None:
    message = reasons.render(no_flavors(blocked(IN_USE), blocked(SPOT, name="workers")))
    assert shorten(message) == (
        "main: cpu on on-demand: 2 more needed; workers: memory on spot.v2: 1Gi more needed"
    )


IN_RACKS = NoPlaces("a", NoDomain("racks", 8, 6, False, (), 4, {'taint "k:NoSchedule"': 1}).text)


@pytest.mark.parametrize(
    ("given", "room", "short"),
    [
        (
            (IN_RACKS,),
            "At best, rack r7 has room for 6 of 8 pods",
            "rack r7 has room for 6 of 8 pods",
        ),
        (
            (IN_USE,),
            "Even without other Workloads, rack r7 has room for 6 of 8 pods of pod set main",
            (
                "cpu on on-demand: 2 more needed; "
                "even without others, rack r7 has room for 6 of 8 pods of pod set main"
            ),
        ),
        (
            (IN_USE,),
            f"Even without other Workloads, {IN_RACKS.text}",
            (
                "cpu on on-demand: 2 more needed; "
                "even without others, topology racks: room for 6 of 8"
            ),
        ),
    ],
)
def test_where_the_nodes_have_most_room_is_kept(
    given: tuple[FlavorReason, ...], room: str, short: str
) -> None:
    found = reasons.NoFlavors((blocked(*given),), Mode.NO_FIT, room=room)
    assert shorten(reasons.render(found)) == short


def test_sentences_that_follow_do_not_matter() -> None:
    message = reasons.render(no_flavors(blocked(IN_USE), in_vain=5))
    assert shorten(message) == SHORT[IN_USE]


HEAD = ObjectKey("ns", "big")


@pytest.mark.parametrize(
    ("reason", "short"),
    [
        (
            reasons.Preempting(no_flavors(blocked(IN_USE)), (HEAD,)),
            "cpu on on-demand: 2 more needed; 1 to be preempted",
        ),
        (
            reasons.Preempting(
                no_flavors(blocked(UntoleratedTaint("spot.v2", "spot", "true", "NoSchedule"))),
                (HEAD,),
            ),
            "spot.v2: taint spot; 1 to be preempted",
        ),
        (reasons.NoLongerFits("team"), "lost to another Workload"),
        (reasons.FitsAfterPreemptions((HEAD,)), "waits for preempted Workloads"),
        (reasons.PodsNotReady(), "waits for pods of admitted Workloads"),
        (reasons.NotEvaluated(), "not evaluated yet"),
        (reasons.BehindHead(HEAD, "red"), "behind ns/big"),
        (reasons.BehindHead(HEAD, "red", ObjectKey("ns", "lq")), "behind ns/big"),
    ],
)
def test_other_reasons_of_a_queue_have_a_short_form(reason: reasons.Reason, short: str) -> None:
    assert shorten(reasons.render(reason)) == short


@pytest.mark.parametrize("message", ["", "LocalQueue red doesn't exist", "ClusterQueue q: stopped"])
def test_any_other_message_is_kept(message: str) -> None:
    assert shorten(message) == message


def test_a_missing_feature_is_named() -> None:
    asked = [
        MissingFeature("pod set main", "key", "magic"),
        MissingFeature("the Workload", "key", "magic"),
    ]
    assert shorten(sentence(asked)) == "no magic in this version"
    off = [MissingFeature("pod set main", "topologyRequest.required", TOPOLOGY)]
    assert shorten(sentence(off)) == "topology-aware scheduling is turned off"
    more = sentence([*asked, MissingFeature("the Workload", "other", "luck")])
    assert shorten(more) == more
