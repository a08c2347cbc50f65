"""Which pods of a group count (KEP-976), and the order in which pods have to go."""

from __future__ import annotations

import copy

import pytest

from kueuelib.api.meta import format_time
from kueuelib.jobs.pods.reading import trim
from kueuelib.jobs.pods.roster import EXCESS, members_of, role_by_shape, sort_out


def sorted_out(*found, count=2):
    members = members_of(found, role_by_shape)
    return sort_out(members, {members[0].role: count})


def names(members):
    return [each.name for each in members]


def rejected(roster):
    assert all(each.reason == EXCESS for each in roster.rejected)
    return [each.member.name for each in roster.rejected]


@pytest.mark.parametrize(
    ("active", "failed", "released", "excess"),
    [
        (2, 0, 0, 0),
        (1, 1, 0, 0),
        (0, 2, 0, 0),
        (1, 0, 0, 0),
        (2, 1, 1, 0),
        (1, 2, 1, 0),
        (3, 1, 1, 1),
    ],
)
def test_places_and_who_takes_them(pods, active, failed, released, excess):
    found = [pods.running(f"a{i}", group="g", total=2) for i in range(active)]
    found += [pods.over(f"f{i}", group="g", total=2, at=i) for i in range(failed)]
    roster = sorted_out(*found)
    assert (len(roster.released), len(roster.rejected)) == (released, excess)
    assert len(roster.kept) == active + failed - released - excess


def test_the_pod_that_failed_first_is_replaced_first(pods):
    late, early = pods.over("a", at=20, group="g"), pods.over("b", at=10, group="g")
    roster = sorted_out(late, early, pods.waiting("c", group="g"))
    assert names(roster.released) == ["b"]


def test_a_pod_that_was_never_ready_failed_when_its_containers_ended(pods):
    late, early = pods.over("a", at=1, group="g"), pods.over("b", at=10, group="g")
    for kind, at in (("initContainerStatuses", 20), ("containerStatuses", 15)):
        ended = {"terminated": {"exitCode": 1, "finishedAt": format_time(pods.now + at)}}
        late["status"][kind] = [{"name": "c", "state": ended}, {"name": "d"}]
    new = pods.waiting("c", group="g")
    assert names(sorted_out(late, early, new).released) == ["b"]
    assert names(sorted_out(*map(trim, (late, early, new))).released) == ["b"]


REJECTIONS = ({"startTime": 5}, {"startTime": 15, "DisruptionTarget": 5}, {"DisruptionTarget": 5})


@pytest.mark.parametrize("times", [*REJECTIONS, {}])
def test_a_pod_that_its_kubelet_rejected_failed_when_it_was_seen(pods, times):
    """It has no containers that ended, and none that were ready."""
    rejected = pods.waiting("a", age=100 if times else -8, group="g")
    rejected["spec"].update(schedulingGates=[], nodeName="node")
    rejected["status"] = status = {"phase": "Failed", "reason": "OutOfcpu", "conditions": []}
    for field, at in times.items():
        when = format_time(pods.now + at)
        if field == "startTime":
            status["startTime"] = when
        else:
            since = {"type": field, "status": "True", "lastTransitionTime": when}
            status["conditions"].append(since)
    earlier, later = pods.over("b", at=4, group="g"), pods.over("c", at=10, group="g")
    new = pods.waiting("d", group="g")
    if not times:
        assert names(sorted_out(rejected, later, new).released) == ["a"]
        return
    for found in ([rejected, later, new], [later, rejected, new]):
        assert names(sorted_out(*found).released) == ["a"]
        assert names(sorted_out(*map(trim, copy.deepcopy(found))).released) == ["a"]
    assert names(sorted_out(rejected, earlier, new).released) == ["b"]
    assert names(sorted_out(*map(trim, (rejected, earlier, new))).released) == ["b"]


def test_a_failed_pod_that_was_deleted_counts_from_whichever_came_first(pods):
    deleted = pods.deleted(pods.over("a", at=20, group="g"), at=5)
    roster = sorted_out(deleted, pods.over("b", at=10, group="g"), pods.waiting("c", group="g"))
    assert names(roster.released) == ["a"]


def test_excess_is_taken_from_those_that_wait_then_from_the_youngest(pods):
    old_waiting = pods.waiting("w", age=100, group="g")
    young, old = pods.running("y", age=10, group="g"), pods.running("o", age=20, group="g")
    assert rejected(sorted_out(old_waiting, young, old)) == ["w"]
    assert rejected(sorted_out(young, old, count=1)) == ["y"]


def test_a_pod_that_we_have_let_go_already_goes_first(pods):
    free = pods.running("free", age=100, group="g")
    free["metadata"]["finalizers"] = []
    assert rejected(sorted_out(free, pods.waiting("a", group="g"), count=1)) == ["free"]


def test_pods_of_one_second_that_the_workload_counts_already_stay(pods):
    found = [pods.waiting(name, group="g") for name in ("b", "a")]
    members = members_of(found, role_by_shape, {"uid-b"})
    assert rejected(sort_out(members, {members[0].role: 1})) == ["a"]


def test_a_leaving_pod_takes_no_place_from_its_replacement(pods):
    leaving = pods.deleted(pods.running("leaving", group="g"))
    new = pods.waiting("new", group="g")
    roster = sorted_out(pods.running("other", group="g"), leaving, new)
    assert rejected(roster) == []
    assert names(roster.released) == []


def test_a_succeeded_pod_keeps_its_place_for_ever(pods):
    done = pods.over("done", "Succeeded", group="g")
    young = pods.waiting("young", age=-5, group="g")
    assert rejected(sorted_out(done, young, count=1)) == ["young"]


def test_the_same_pods_always_lead_to_the_same_verdict(pods):
    found = [pods.waiting(f"p{i}", group="g") for i in range(4)]
    assert rejected(sorted_out(*found)) == rejected(sorted_out(*reversed(found)))
