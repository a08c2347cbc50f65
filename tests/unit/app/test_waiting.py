"""What `kueuelib pending` lists, in which order and with which words."""

from __future__ import annotations

import sys
from typing import Any, cast

import attrs
import pytest

from kueuelib.api.kueue import Workload
from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.app.explaining.gather import ClusterData, Lists
from kueuelib.app.explaining.waiting import (
    Listing,
    WorkloadSelection,
    decided,
    reported,
    with_groups,
    with_served,
    word_of,
    word_of_condition,
)
from kueuelib.cli.pending import to_data, to_lines, with_changes
from kueuelib.errors import Forbidden, NotFound
from kueuelib.jobs.reconcile.priority import PriorityClasses
from kueuelib.runtime.client import Client
from kueuelib.scheduler.explain.answer import explain, smallest_change, smallest_of
from kueuelib.scheduler.explain.changes import Ends
from kueuelib.scheduler.explain.search import Search
from kueuelib.scheduler.explain.trial import TrialOutcome, TrialResult, Trials, TriedChange
from kueuelib.scheduler.explain.world import World
from kueuelib.scheduler.object_reasons import (
    BackingOff,
    ChecksFailed,
    ClusterQueueInactive,
    Inactive,
    LocalQueueMissing,
)
from kueuelib.scheduler.reasons import NotEvaluated, PodsNotReady, Reason
from kueuelib.testing.builders import (
    make_assignment,
    make_check,
    make_cluster_queue,
    make_condition,
    make_flavor,
    make_local_queue,
    make_workload,
)
from kueuelib.workload.phases import PODS_MISSING

NOW = 1000.0
ALL = WorkloadSelection()


def world(*workloads: Workload) -> World:
    """ClusterQueue `cq` with four CPUs, behind the LocalQueues `lq` and `other`."""
    found = World().with_namespace("ns", {}).with_flavor(make_flavor("f"))
    found = found.with_cluster_queue(make_cluster_queue("cq", {"f": {"cpu": 4}}))
    for name in ("lq", "other"):
        found = found.with_local_queue(make_local_queue(name, "cq"))
    for one in workloads:
        found = found.with_workload(one)
    return found


def cluster(*workloads: Workload, raw: tuple[Obj, ...] = ()) -> ClusterData:
    return ClusterData(world(*workloads), raw, PriorityClasses({}, {}), ())


def waits(name: str, queue: str = "lq", cpu: int = 3, **fields: Any) -> Workload:
    return make_workload(name, queue, {"cpu": cpu}, **fields)


def text(listing: Listing, *, wide: bool = False, searched: int = 0) -> str:
    rows = with_changes(listing, searched)
    return "".join(to_lines(listing, rows, wide=wide, searches=searched > 0))


def data(listing: Listing, searched: int = 0) -> Obj:
    return to_data(listing, with_changes(listing, searched))


def names(listing: Listing) -> list[tuple[str, int | None]]:
    return [(row.key.name, row.place) for row in listing.rows]


def test_workloads_come_in_the_order_of_the_queue_with_their_places() -> None:
    found = decided(
        cluster(
            waits("late", created=20),
            waits("early", "other", created=10),
            waits("urgent", created=30, priority=1),
        ),
        ALL,
        NOW,
    )
    assert names(found) == [("urgent", 1), ("early", 2), ("late", 3)]
    assert [row.verdict for row in found.rows] == ["fits now", "quota in use", "quota in use"]
    assert [row.place_in_local_queue for row in found.rows] == [1, 1, 2]
    assert [row.searched for row in found.rows] == [False] * 3


def test_a_mistake_has_the_fix_that_explain_names() -> None:
    """Also when no search is asked for, and when others wait before it."""
    for searched in (0, 10):
        listing = decided(cluster(waits("lost", "typo"), waits("good")), ALL, NOW)
        (lost,) = [row for row in listing.rows if row.key.name == "lost"]
        asked = explain(world(waits("lost", "typo"), waits("good")), lost.key, NOW)
        assert lost.problems == asked.problems
        assert [one.subject for one in lost.problems] == ["LocalQueue ns/typo"]
        fix = "create it, or set the label kueue.x-k8s.io/queue-name to one of lq, other"
        assert f"LocalQueue ns/typo: {fix}" in text(listing, searched=searched)
        told = {item["name"]: item["problems"] for item in data(listing, searched)["items"]}
        assert told["lost"][0]["fix"] == fix
        assert told["good"] == []


def test_a_selection_leaves_places_as_they_are() -> None:
    waiting = (waits("a", created=1), waits("b", "other", created=2), waits("c", created=3))
    of_queue = decided(cluster(*waiting), WorkloadSelection("ns", local_queue="lq"), NOW)
    assert names(of_queue) == [("a", 1), ("c", 3)]
    assert decided(cluster(*waiting), WorkloadSelection("another"), NOW).rows == ()
    assert len(decided(cluster(*waiting), WorkloadSelection(cluster_queue="cq"), NOW).rows) == 3
    assert decided(cluster(*waiting), WorkloadSelection(cluster_queue="b"), NOW).rows == ()


def test_the_smallest_change_is_searched_for_those_ahead() -> None:
    found = decided(cluster(waits("a", cpu=5, created=1), waits("b", cpu=5, created=2)), ALL, NOW)
    first, second = with_changes(found, 1)
    assert first.searched
    assert first.change is not None
    assert "raise nominalQuota of flavor f: cpu by 1 (to 5)" in first.change.change.text
    assert not second.searched
    assert second.change is None
    assert "ClusterQueue cq: raise nominalQuota of flavor f: cpu by 1 (to 5)\n" in text(
        found, searched=1
    )
    assert data(found, 1)["items"][0]["smallestChange"]["kind"] == "quota"


def test_a_row_is_printed_when_its_search_has_ended(searches: list[str]) -> None:
    """The default searches for nothing; the change of a row is there before the next search."""
    listing = decided(cluster(*(waits(name, cpu=5) for name in "abc")), ALL, NOW)
    assert "SMALLEST CHANGE" not in text(listing)
    assert [item["changesSearched"] for item in data(listing)["items"]] == [False] * 3
    assert searches == []
    lines = to_lines(listing, with_changes(listing, sys.maxsize), wide=False, searches=True)
    assert next(lines).endswith("SMALLEST CHANGE\n")
    assert searches == []
    for name in "abc":
        assert "ClusterQueue cq: raise nominalQuota of flavor f: cpu by " in next(lines)
        assert searches[-1] == name
    assert list(lines) == []
    assert searches == ["a", "b", "c"]


def test_what_fits_is_not_searched(searches: list[str]) -> None:
    listing = decided(cluster(waits("fits", created=1), waits("next", created=2)), ALL, NOW)
    assert [row.searched for row in with_changes(listing, 1)] == [False, True]
    assert searches == ["next"]


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the Workloads for which a search for changes ran."""
    names: list[str] = []
    begin = Search.__init__

    def counted(search: Search, facts: World, key: ObjectKey, *more: Any) -> None:
        names.append(key.name)
        begin(search, facts, key, *more)

    monkeypatch.setattr(Search, "__init__", counted)
    return names


CHECKED = {"admissionChecksStrategy": {"admissionChecks": [{"name": "budget"}]}}
PREEMPTS = {"preemption": {"withinClusterQueue": "LowerPriority"}}


@pytest.mark.parametrize(
    ("fields", "cpu", "fewer"), [({}, 3, True), (CHECKED, 5, False), (PREEMPTS, 3, True)]
)
def test_the_change_is_the_best_of_explain_without_the_rest_of_its_search(
    fields: Obj, cpu: int, fewer: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None is better than one without checks and victims; with checks, all are compared."""
    trials: list[object] = []
    within = Trials.within

    def counted(self: Trials, changed: World) -> TrialOutcome:
        trials.append(changed)
        return within(self, changed)

    monkeypatch.setattr(Trials, "within", counted)
    held = [make_condition("QuotaReserved"), make_condition("Admitted")]
    assigned = {"clusterQueue": "cq", "podSetAssignments": [make_assignment({"cpu": 3}, "f")]}
    holder = waits("holds", priority=1, conditions=held, status={"admission": assigned})
    facts = world(holder, waits("a", cpu=cpu, created=1), waits("b", cpu=2, created=2))
    facts = facts.with_check(make_check("budget"))
    facts = facts.with_cluster_queue(make_cluster_queue("cq", {"f": {"cpu": 4}}, **fields))
    for name in "ab":
        key = ObjectKey("ns", name)
        best = smallest_of(explain(facts, key, NOW).changes)
        whole, trials[:] = len(trials), []
        assert best is not None
        assert smallest_change(facts, key, NOW) == best
        assert (len(trials) < whole) is fewer
        trials.clear()


def test_what_waits_in_no_queue_is_listed_without_a_place() -> None:
    found = decided(cluster(waits("lost", "absent"), waits("off", active=False)), ALL, NOW)
    assert [(row.key.name, row.cluster_queue, row.place, row.verdict) for row in found.rows] == [
        ("lost", "", None, "misconfigured"),
        ("off", "cq", None, "deactivated"),
    ]


def test_what_is_gated_is_listed_with_its_gates() -> None:
    workload = waits("gated")
    notes = {"kueue.x-k8s.io/admission-gated-by": "example.com/a"}
    metadata = attrs.evolve(workload.metadata, annotations=notes)
    gated = attrs.evolve(workload, metadata=metadata)
    found = decided(cluster(gated, waits("next")), ALL, NOW)
    row, other = sorted(with_changes(found, 2), key=lambda row: row.key)
    message = "Admission is gated by: example.com/a"
    assert (row.verdict, row.reason, row.message) == ("gated", "AdmissionGated", message)
    assert (row.cluster_queue, row.place, other.place) == ("cq", None, 1)
    assert row.change is not None
    assert row.change.change.text.startswith("remove its gates")


def test_what_waits_for_missing_pods_is_listed_without_a_place() -> None:
    condition = make_condition("Requeued", False, PODS_MISSING) | {"message": "2 of 3 pods"}
    held = waits("held", conditions=[condition])
    found = decided(cluster(held, waits("next")), ALL, NOW)
    row, other = sorted(with_changes(found, 2), key=lambda row: row.key)
    assert (row.verdict, row.reason, row.message) == ("pods missing", PODS_MISSING, "2 of 3 pods")
    assert (row.cluster_queue, row.place, row.change) == ("cq", None, None)
    assert other.place == 1


def test_a_fix_names_the_field_and_comes_before_a_change_elsewhere() -> None:
    """Whether or not changes are searched for, and although another queue would have room."""
    facts = world(waits("a"), waits("b", "held"), waits("c", "lost"))
    facts = facts.with_local_queue(make_local_queue("held", "cq", stopPolicy="Hold"))
    facts = facts.with_local_queue(make_local_queue("lost", "absent"))
    broken = make_cluster_queue("broken", {"gone": {"cpu": 4}})
    facts = facts.with_cluster_queue(broken).with_workload(waits("d", "broken"))
    facts = facts.with_local_queue(make_local_queue("broken", "broken"))
    for searched in (0, 10):
        listing = decided(ClusterData(facts, (), PriorityClasses({}, {}), ()), ALL, NOW)
        rows = {row.key.name: row for row in listing.rows}
        assert rows["b"].first_fix == "LocalQueue ns/held: set spec.stopPolicy to None"
        create = "LocalQueue ns/lost: create ClusterQueue absent, or make another LocalQueue"
        assert rows["c"].first_fix.startswith(create)
        fix = "ResourceFlavor gone: create it, or take it out of spec.resourceGroups"
        assert rows["d"].first_fix == fix
        why = "ResourceFlavor gone is named by ClusterQueue broken and does not exist"
        assert rows["d"].why == f"ClusterQueue broken is inactive: {why}"
        assert rows["a"].first_fix == rows["a"].cause == ""
        shown = text(listing, searched=searched)
        assert all(one.first_fix in shown for one in rows.values())


def test_a_stopped_cluster_queue_says_so_once() -> None:
    facts = world(waits("a")).with_cluster_queue(
        make_cluster_queue("cq", {"f": {"cpu": 4}}, stopPolicy="Hold")
    )
    (row,) = decided(ClusterData(facts, (), PriorityClasses({}, {}), ()), ALL, NOW).rows
    assert row.why == "ClusterQueue cq is stopped: spec.stopPolicy is Hold"
    assert row.first_fix == "ClusterQueue cq: set spec.stopPolicy to None"


def test_what_is_deactivated_is_said_without_the_engine_too() -> None:
    condition = make_condition("QuotaReserved", False, "Pending")
    off = waits("off", active=False, conditions=[condition])
    (row,) = reported(cluster(off), WorkloadSelection("ns"), NOW, "some were not seen").rows
    assert row.verdict == "deactivated"


def test_a_group_without_all_its_pods_is_listed_although_it_has_no_workload() -> None:
    def pod(name: str, group: str, total: str = "3", gated: bool = True) -> Obj:
        meta = {
            "namespace": "ns",
            "name": name,
            "uid": name,
            "labels": {
                "kueue.x-k8s.io/pod-group-name": group,
                "kueue.x-k8s.io/queue-name": "lq",
                "kueue.x-k8s.io/managed": "true",
            },
            "annotations": {"kueue.x-k8s.io/pod-group-total-count": total},
            "creationTimestamp": "1970-01-01T00:10:00Z",
        }
        gates = [{"name": "kueue.x-k8s.io/admission"}] if gated else []
        return {"metadata": meta, "spec": {"schedulingGates": gates, "containers": []}}

    pods = [pod("a", "short"), pod("b", "short"), pod("c", "made"), pod("d", "runs", gated=False)]
    facts = world(waits("made"), waits("other", created=5))
    listing = decided(ClusterData(facts, (), PriorityClasses({}, {}), ()), ALL, NOW)
    found = with_groups(listing, facts, Lists({"Pod": pods}, {}), ALL)
    assert [row.key.name for row in found.rows] == ["made", "other", "short"]
    row = found.rows[-1]
    assert (row.verdict, row.cluster_queue, row.place) == ("pods missing", "cq", None)
    assert row.message == "The group has 2 of 3 pods"
    assert "6m40s   pods missing   The group has 2 of 3 pods" in text(found)
    assert with_groups(listing, facts, Lists({"Pod": pods}, {}), WorkloadSelection("no")).rows == ()
    unseen = with_groups(listing, facts, Lists({}, {"Pod": Forbidden("no")}), ALL)
    assert unseen.rows == listing.rows
    assert unseen.notes == ("pods were not read: groups without all their pods are not shown",)


def test_without_rights_the_verdicts_are_those_of_the_manager() -> None:
    condition = make_condition("QuotaReserved", False, "WaitingForQuota") | {"message": "no cpu"}
    late = waits("late", created=20, conditions=[condition])
    early = waits("early", created=10)
    found = reported(cluster(late, early), WorkloadSelection("ns"), NOW, "some were not seen")
    assert not found.decided
    assert names(found) == [("early", None), ("late", None)]
    assert [row.verdict for row in found.rows] == ["not evaluated", "quota in use"]
    assert found.rows[1].message == "no cpu"
    assert text(found).endswith("Note: some were not seen\n")


def test_nothing_that_waits_is_said() -> None:
    nothing = decided(cluster(), ALL, NOW)
    assert text(nothing) == "Nothing waits.\n"
    assert text(attrs.evolve(nothing, partial=True)) == "Nothing that waits can be seen.\n"


@pytest.mark.parametrize(
    ("reason", "word"),
    [
        (NotEvaluated(), "behind others"),
        (PodsNotReady(), "waits for pods"),
        (LocalQueueMissing("lq"), "misconfigured"),
        (ClusterQueueInactive("cq", "Stopped"), "queue stopped"),
        (ClusterQueueInactive("cq", "FlavorNotFound"), "misconfigured"),
        (Inactive(), "deactivated"),
        (BackingOff(5.0), "backs off"),
        (ChecksFailed(("budget",)), "check failed"),
        (None, "not evaluated"),
    ],
)
def test_a_reason_has_a_short_word(reason: Reason | None, word: str) -> None:
    assert word_of(TrialOutcome(TrialResult.WAITS, reason)) == word


def test_verdicts_have_short_words() -> None:
    victims = (ObjectKey("ns", "a"), ObjectKey("ns", "b"))
    assert word_of(TrialOutcome(TrialResult.ADMITTED)) == "fits now"
    assert word_of(TrialOutcome(TrialResult.PREEMPTS, None, victims=victims)) == "preempts 2"
    assert word_of_condition("NotOurs") == "NotOurs"
    assert word_of_condition("") == "not evaluated"


def test_the_smallest_change_preempts_the_fewest_and_is_the_first_of_these() -> None:
    def change(name: str, victims: int) -> TriedChange:
        keys = tuple(ObjectKey("ns", str(number)) for number in range(victims))
        return TriedChange(
            Ends(ObjectKey("ns", name)), TrialOutcome(TrialResult.PREEMPTS, victims=keys)
        )

    many, first, second = change("a", 2), change("b", 1), change("c", 1)
    assert smallest_of([many, first, second]) is first
    assert smallest_of([attrs.evolve(first, checks=("budget",)), many]) is many
    assert smallest_of([]) is None


def test_wide_cells_name_the_queue_the_owner_and_the_message() -> None:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u"}
    workload = waits("a", "absent")
    meta = attrs.evolve(workload.metadata, owner_references=_owners({**owner, "controller": True}))
    found = decided(cluster(attrs.evolve(workload, metadata=meta)), ALL, NOW)
    title, line = text(found, wide=True).splitlines()
    assert title.split()[-4:] == ["LOCALQUEUE", "OWNER", "MESSAGE", "FIX"]
    assert "absent" in line.split()
    assert "Job/train" in line.split()
    assert "   LocalQueue absent doesn't exist   LocalQueue ns/absent: create it" in line


def _owners(owner: Obj) -> Any:
    from kueuelib.api.codec import decode

    raw = {"metadata": {"name": "x", "ownerReferences": [owner]}, "spec": {"podSets": []}}
    return decode(Workload, raw).metadata.owner_references


class PlacesOf:
    """A manager that serves the places of `lq` only."""

    async def request(self, method: str, path: str, *, params: Any, verb: str) -> Any:
        del method, params, verb
        if "/localqueues/lq/" not in path or "kueuelib" not in path:
            raise NotFound("the server could not find the requested resource")
        start = {"p50": "1970-01-01T00:21:40Z", "p90": "1970-01-01T00:26:40Z"}
        first = {"metadata": {"name": "b"}, "expectedStart": start}
        second = {"metadata": {"name": "a"}, "expectedStart": {"unknown": "few"}}
        places = ((first, 4, 0), (second, 6, 1))
        return {
            "items": [
                one | {"positionInClusterQueue": place, "positionInLocalQueue": local}
                for one, place, local in places
            ]
        }


async def test_places_and_starts_are_those_that_the_manager_serves() -> None:
    found = reported(cluster(waits("a"), waits("b"), waits("c", "other")), ALL, NOW, "few rights")
    found = await with_served(cast("Client", PlacesOf()), found)
    assert names(found) == [("b", 5), ("a", 7), ("c", None)]
    assert [row.place_in_local_queue for row in found.rows] == [1, 2, None]
    lines = text(found).splitlines()
    assert lines[0].endswith("WHY   STARTS WITHIN")
    assert lines[1].endswith("5m (p50), 10m (p90)")
    assert data(found)["items"][0]["p50"] == "1970-01-01T00:21:40Z"
    note = "no places are shown for LocalQueue ns/other: the cluster serves no visibility API for "
    assert found.notes[-1] == f"{note}LocalQueue other"
