"""The rules of the Lease, step by step."""

from __future__ import annotations

import pytest

from kueuelib.api.meta import ObjectKey
from kueuelib.errors import Conflict, NotFound, TransportError
from kueuelib.machinery.election import (
    Cancelled,
    CreateLease,
    ElectionCore,
    ElectionOver,
    ElectionTick,
    Failed,
    Fetched,
    GetLease,
    LeaderChanged,
    Pause,
    StartedLeading,
    StoppedLeading,
    UpdateLease,
    Written,
)
from kueuelib.machinery.options import ElectionOptions

LEASE = ObjectKey("ns", "manager")
WALL = 1_700_000_000.0
AT = "2023-11-14T22:13:20.000000Z"
DOWN = Failed(TransportError("https://x", "down"))


def held_by(holder, renewed="then", transitions=3, duration=15):
    return {
        "metadata": {"namespace": "ns", "name": "manager", "resourceVersion": renewed},
        "spec": {
            "holderIdentity": holder,
            "leaseDurationSeconds": duration,
            "acquireTime": "once",
            "renewTime": renewed,
            "leaseTransitions": transitions,
        },
    }


def elect(**options):
    core = ElectionCore(ElectionOptions(LEASE, "me", **options))
    assert core.start(0.0) == (GetLease(),)
    return core


def leading(**options):
    core = elect(**options)
    (create,) = core.step(Fetched(None), 0.0, WALL, 0.0)
    core.step(Written(create.lease), 0.5, WALL, 0.0)
    assert core.leading
    return core


def test_a_missing_lease_is_created():
    core = elect()
    (create,) = core.step(Fetched(None), 0.0, WALL, 0.0)
    assert isinstance(create, CreateLease)
    assert create.lease["metadata"] == {"namespace": "ns", "name": "manager"}
    assert create.lease["spec"] == {
        "holderIdentity": "me",
        "leaseDurationSeconds": 15,
        "acquireTime": AT,
        "renewTime": AT,
        "leaseTransitions": 0,
    }
    assert core.step(Written(create.lease), 0.5, WALL, 0.0) == (
        LeaderChanged("me"),
        StartedLeading(),
        Pause(2.0),
    )
    assert core.deadline == 10.0
    assert core.is_leader(9.9)
    assert not core.is_leader(10.0)


def test_a_held_lease_is_left_alone_until_it_did_not_change_for_its_duration():
    core = elect()
    assert core.step(Fetched(held_by("other")), 100.0, WALL, 0.5) == (
        LeaderChanged("other"),
        Pause(2.0 * 0.625),
    )
    core.step(ElectionTick(), 103.0, WALL, 0.0)
    assert core.step(Fetched(held_by("other", "now")), 110.0, WALL, 0.0) == (Pause(1.0),)
    core.step(ElectionTick(), 112.0, WALL, 0.0)
    assert core.step(Fetched(held_by("other", "now")), 124.5, WALL, 0.0) == (Pause(0.5),)
    core.step(ElectionTick(), 125.0, WALL, 0.0)
    (update,) = core.step(Fetched(held_by("other", "now")), 125.0, WALL, 0.0)
    assert update.lease["spec"]["leaseTransitions"] == 4
    assert update.lease["spec"]["acquireTime"] == AT
    assert update.lease["metadata"]["resourceVersion"] == "now"


def test_a_released_lease_is_taken_at_once():
    core = elect()
    (update,) = core.step(Fetched(held_by("")), 0.0, WALL, 0.0)
    assert update.lease["spec"]["leaseTransitions"] == 4


def test_our_own_lease_is_taken_again_without_a_transition():
    core = elect()
    changed, update = core.step(Fetched(held_by("me")), 0.0, WALL, 0.0)
    assert changed == LeaderChanged("me")
    assert update.lease["spec"]["leaseTransitions"] == 3
    assert update.lease["spec"]["acquireTime"] == AT
    assert update.lease["spec"]["renewTime"] == AT
    core.step(Written(held_by("me")), 0.0, WALL, 0.0)
    (renewal,) = core.step(ElectionTick(), 2.0, WALL + 2.0, 0.0)
    assert renewal.lease["spec"]["acquireTime"] == "once"


def test_a_lost_race_waits_with_jitter():
    core = elect()
    core.step(Fetched(held_by("")), 0.0, WALL, 0.0)
    assert core.step(Failed(Conflict("changed")), 0.1, WALL, 0.5) == (Pause(1.25),)


def test_who_only_observes_does_not_take_a_free_lease():
    for free in (None, held_by(""), held_by("me")):
        core = ElectionCore(ElectionOptions(LEASE, "me"))
        core.standing = False
        core.start(0.0)
        assert core.step(Fetched(free), 0.0, WALL, 0.0)[-1] == Pause(1.0)
        core.standing = True
        core.step(ElectionTick(), 1.0, WALL, 0.0)
        assert isinstance(core.step(Fetched(free), 1.0, WALL, 0.0)[-1], CreateLease | UpdateLease)


def test_the_time_of_a_dead_leader_runs_while_we_only_observe():
    core = ElectionCore(ElectionOptions(LEASE, "me"))
    core.standing = False
    core.start(0.0)
    core.step(Fetched(held_by("other")), 0.0, WALL, 0.0)
    core.step(ElectionTick(), 16.0, WALL, 0.0)
    assert core.step(Fetched(held_by("other")), 16.0, WALL, 0.0) == (Pause(1.0),)
    core.standing = True
    core.step(ElectionTick(), 16.1, WALL, 0.0)
    (update,) = core.step(Fetched(held_by("other")), 16.1, WALL, 0.0)
    assert update.lease["spec"]["holderIdentity"] == "me"


def test_a_leader_renews_without_reading():
    core = leading()
    (update,) = core.step(ElectionTick(), 2.5, WALL + 2, 0.0)
    assert isinstance(update, UpdateLease)
    assert core.step(Written(update.lease), 2.6, WALL, 0.0) == (Pause(2.0),)
    assert core.deadline == 12.5


def test_a_refused_renewal_reads_first():
    core = leading()
    core.step(ElectionTick(), 2.5, WALL, 0.0)
    assert core.step(Failed(Conflict("changed")), 2.6, WALL, 0.0) == (GetLease(),)
    assert core.slow_paths == 1
    (update,) = core.step(Fetched(held_by("me", "x")), 2.7, WALL, 0.0)
    assert update.lease["metadata"]["resourceVersion"] == "x"
    core.step(Written(update.lease), 2.8, WALL, 0.0)
    assert core.deadline == 12.5


def test_a_leader_that_cannot_renew_in_time_is_none_any_more():
    core = leading()
    now = 0.5
    while core.leading:
        now += 2.0
        commands = core.step(ElectionTick(), now, WALL, 0.9)
        if core.leading:
            assert core.step(DOWN, now, WALL, 0.9) == (GetLease(),)
            assert core.step(DOWN, now, WALL, 0.9) == (Pause(2.0),)
    assert now == 10.5
    assert commands == (StoppedLeading("the lease could not be renewed in time"), ElectionOver())


def test_the_deadline_also_ends_a_hanging_call():
    core = leading()
    core.step(ElectionTick(), 2.5, WALL, 0.0)
    assert core.step(ElectionTick(), 9.0, WALL, 0.0) == ()
    assert core.step(ElectionTick(), 10.0, WALL, 0.0)[-1] == ElectionOver()


def test_a_leader_that_sees_another_holder_stops():
    core = leading()
    core.step(ElectionTick(), 2.5, WALL, 0.0)
    core.step(Failed(Conflict("changed")), 2.6, WALL, 0.0)
    assert core.step(Fetched(held_by("other")), 2.7, WALL, 0.0) == (
        LeaderChanged("other"),
        StoppedLeading("other holds the lease"),
        ElectionOver(),
    )


def test_a_cancelled_leader_keeps_the_lease_unless_told_to_release_it():
    assert leading().step(Cancelled(), 1.0, WALL, 0.0) == (
        StoppedLeading("cancelled"),
        ElectionOver(),
    )
    core = leading(release_on_cancel=True)
    stopped, update = core.step(Cancelled(), 1.0, WALL + 1, 0.0)
    assert stopped == StoppedLeading("cancelled")
    assert update.lease["spec"]["holderIdentity"] == ""
    assert update.lease["spec"]["leaseDurationSeconds"] == 1
    assert core.step(DOWN, 1.1, WALL, 0.0) == (ElectionOver(),)


def test_a_release_that_meets_our_own_late_renewal_is_repeated_once():
    core = leading(release_on_cancel=True)
    core.step(Cancelled(), 1.0, WALL, 0.0)
    assert core.step(Failed(Conflict("changed")), 1.1, WALL, 0.0) == (GetLease(),)
    (update,) = core.step(Fetched(held_by("me", "late")), 1.2, WALL, 0.0)
    assert update.lease["metadata"]["resourceVersion"] == "late"
    assert update.lease["spec"]["holderIdentity"] == ""
    assert core.step(Failed(Conflict("changed")), 1.3, WALL, 0.0) == (ElectionOver(),)


@pytest.mark.parametrize("answer", [DOWN, Fetched(None), Fetched(held_by("other", "now"))])
def test_a_release_is_not_repeated_when_the_lease_is_not_ours_any_more(answer):
    core = leading(release_on_cancel=True)
    core.step(Cancelled(), 1.0, WALL, 0.0)
    core.step(Failed(Conflict("changed")), 1.1, WALL, 0.0)
    assert core.step(answer, 1.2, WALL, 0.0) == (ElectionOver(),)


def test_a_claim_that_was_cancelled_under_way_is_released():
    core = elect(release_on_cancel=True)
    core.step(Fetched(None), 0.0, WALL, 0.0)
    assert core.step(Cancelled(), 0.1, WALL, 0.0) == (GetLease(),)
    (update,) = core.step(Fetched(held_by("me", "late")), 0.2, WALL, 0.0)
    assert update.lease["spec"]["holderIdentity"] == ""
    assert core.step(Written(update.lease), 0.3, WALL, 0.0) == (ElectionOver(),)


def test_a_cancelled_follower_just_stops():
    core = elect(release_on_cancel=True)
    core.step(Fetched(held_by("other")), 0.0, WALL, 0.0)
    assert core.step(Cancelled(), 1.0, WALL, 0.0) == (ElectionOver(),)


@pytest.mark.parametrize(
    "wrong",
    [
        {"lease_duration": 10.0},
        {"renew_deadline": 2.4},
        {"retry_period": 0.0},
        {"identity": ""},
    ],
)
def test_options_that_cannot_work_are_refused(wrong):
    with pytest.raises(ValueError, match="must"):
        ElectionOptions(**{"lease": LEASE, "identity": "me", **wrong})


def test_inputs_that_do_not_fit_are_refused():
    core = elect()
    with pytest.raises(ValueError, match="does not fit while fetching"):
        core.step(Written({}), 0.0, WALL, 0.0)
    with pytest.raises(ValueError, match="started only once"):
        core.start(0.0)


@pytest.mark.parametrize("holder", ["me", "another"])
def test_a_lease_that_is_older_than_before_ends_the_election(holder):
    core = elect()
    core.step(Fetched(held_by(holder, "200")), 0.0, WALL, 0.0)
    if holder == "me":
        core.step(Written(held_by("me", "201")), 0.0, WALL, 0.0)
        core.step(ElectionTick(), 2.0, WALL, 0.0)
        assert core.step(Failed(Conflict("changed")), 2.0, WALL, 0.0) == (GetLease(),)
    else:
        assert core.step(ElectionTick(), 2.0, WALL, 0.0) == (GetLease(),)
    stopped, over = core.step(Fetched(held_by(holder, "120")), 2.0, WALL, 0.0)
    assert "now 120: the server was restored from an older copy" in stopped.why
    assert (over, core.leading) == (ElectionOver(), False)


def test_a_lease_that_is_missing_in_an_older_copy_ends_the_election_when_it_is_made_again():
    core = elect()
    core.step(Fetched(None), 0.0, WALL, 0.0)
    core.step(Written(held_by("me", "200")), 0.0, WALL, 0.0)
    core.step(ElectionTick(), 2.0, WALL, 0.0)
    core.step(Failed(NotFound("gone")), 2.0, WALL, 0.0)
    (create,) = core.step(Fetched(None), 2.0, WALL, 0.0)
    assert isinstance(create, CreateLease)
    stopped, _ = core.step(Written(held_by("me", "121")), 2.0, WALL, 0.0)
    assert isinstance(stopped, StoppedLeading)
    assert not core.leading


def test_versions_of_a_lease_that_are_no_numbers_are_not_compared():
    core = elect()
    core.step(Fetched(held_by("me", "b")), 0.0, WALL, 0.0)
    core.step(Written(held_by("me", "a")), 0.0, WALL, 0.0)
    assert core.leading
