"""The page: it needs nothing else, can be heard as well as seen, and takes every name as text."""

from __future__ import annotations

import base64
import hashlib
import itertools
import re
from xml.etree import ElementTree as ET

import attrs
import pytest
from click.testing import CliRunner
from places_world import node, placed, pods
from places_world import world as places_world
from report_worlds import NOW, facts, named, waits, world

from kueuelib.api.meta import ObjectKey
from kueuelib.api.workload import AdmissionCheckState
from kueuelib.app.explaining import waiting
from kueuelib.app.explaining.waiting import Waiting, WorkloadSelection, decided
from kueuelib.app.overview.gathering import explained, overview_of
from kueuelib.app.overview.values import QuotaUse, Threat
from kueuelib.cli.report import command
from kueuelib.cli.report.board import next_to_explain, state_of, with_change
from kueuelib.cli.report.command import text_of
from kueuelib.cli.report.page import POLICY, SCRIPT, STYLE, VerifiedChange, View, explanation, page
from kueuelib.cli.report.parts import amount, markup
from kueuelib.cli.syntax import app
from kueuelib.errors import ConfigError
from kueuelib.scheduler.explain.answer import smallest_of
from kueuelib.scheduler.explain.world import World
from kueuelib.scheduler.quota.amounts import FlavorResource
from kueuelib.testing.builders import (
    make_check,
    make_cluster_queue,
    make_cohort,
    make_flavor,
    make_local_queue,
)

WIDE = 220
"""A bar, in pixels."""
HOSTILE = '"><script src="https://example.com/x.js">&amp;\'</td>'
CHECKED = {"admissionChecksStrategy": {"admissionChecks": [{"name": "budget"}]}}


def parsed(text: str) -> ET.Element:
    """The page as XML; only its script is not."""
    first, rest = text.split("\n", 1)
    assert first == "<!DOCTYPE html>"
    return ET.fromstring(rest.replace(f"<script>{SCRIPT}</script>", "<script/>"))


@pytest.fixture(scope="module")
def text() -> str:
    return text_of(facts(world(), "something was not read"), 1)


@pytest.fixture(scope="module")
def root(text: str) -> ET.Element:
    return parsed(text)


def rows(root: ET.Element, section: str) -> list[list[str]]:
    (found,) = [one for one in root.iter("section") if one.get("id") == section]
    return [["".join(cell.itertext()) for cell in row] for row in found.iter("tr")]


def test_it_refers_to_nothing_outside_of_itself(text: str, root: ET.Element) -> None:
    assert "http" not in text.replace('http-equiv="', "")
    assert not re.search(r"url\((?!#)", text)
    assert not {"link", "img", "iframe", "object"} & {one.tag for one in root.iter()}
    assert not [one for one in root.iter() for name in one.attrib if name.startswith("on")]
    assert len([one for one in root.iter() if one.tag == "script"]) == 1
    assert not [one for one in root.iter() if one.get("style") or one.get("src")]


def test_only_its_own_script_and_style_run(text: str, root: ET.Element) -> None:
    (policy,) = [one.get("content") for one in root.iter("meta") if one.get("http-equiv")]
    assert policy == POLICY
    assert "default-src 'none'" in POLICY
    for kind, body in (("script", SCRIPT), ("style", STYLE)):
        assert f"<{kind}>{body}</{kind}>" in text
        digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in POLICY
    assert "</" not in SCRIPT
    assert "</" not in STYLE


def test_everything_has_a_name_for_those_who_hear_it(root: ET.Element) -> None:
    insist_on_names(root)
    insist_on_names(parsed(text_of(facts(with_nodes()), 0)))


def insist_on_names(root: ET.Element) -> None:
    assert root.get("lang") == "en"
    names = [found for one in root.iter() if (found := one.get("id"))]
    assert len(names) == len(set(names))
    assert [one.tag for one in root.iter() if one.tag in ("header", "main", "nav", "footer")] == [
        *("header", "nav", "main", "footer"),
    ]
    for one in root.iter():
        for label in (one.get("aria-labelledby") or "").split():
            assert label in names
        if one.tag == "a":
            assert one.get("href", "")[1:] in names
        if one.tag == "svg":
            assert one.get("aria-hidden") == "true"
        if one.tag == "table":
            assert one.findtext("caption")
            heads = one.findall("thead/tr/th")
            assert {head.get("scope") for head in heads} == {"col"}
            for row in one.findall("tbody/tr"):
                assert [cell.get("scope") for cell in row.findall("th")] == ["row"]
                spans = [int(cell.get("colspan", "1")) for cell in row]
                assert sum(spans) == len(heads)
    heads = [int(one.tag[1]) for one in root.iter() if re.fullmatch("h[1-6]", one.tag)]
    assert heads[0] == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(heads))
    labels = {one.get("for") for one in root.iter("label")}
    assert {one.get("id") for one in root.iter("input")} == labels


def test_it_shows_quota_queues_holders_and_evictions(root: ET.Element) -> None:
    head, *quota = rows(root, "quota")
    assert head[4:] == ["Quota", "Own", "Borrowed", "Lent", "Free", "Waiting"]
    assert quota[0][0].startswith("cohort company, level 1")
    assert quota[0][1:] == ["f", "cpu", "", "8", "6", "0", "0", "2", "27"]
    assert quota[1][0].startswith("a, level 2")
    assert quota[1][4:] == ["4", "4", "2", "0", "0", "18"]
    assert quota[2][4:] == ["4", "0", "0", "2", "2", "9"]
    _, first, second, *_ = rows(root, "waits")
    assert first[:5] == ["1", "ns/wait-0", "a", "0", "11d"]
    assert first[5].startswith("exceeds quota")
    assert "raise nominalQuota" in first[6]
    assert second[6] == "not searched"
    _, running, *_ = rows(root, "runs")
    assert running == [
        *("ns/run-0", "a", "f: 3 cpu", "0", "60s", "admitted"),
        "a: priority above 0b: any priority (1 waiting)",
    ]
    _, left, *_ = rows(root, "left")
    assert left == ["60shas quota again", "ns/run-0", "Preempted", "-", "why"]
    assert [one.text for one in root.iter("li") if one.get("id") == "note/0"] == [
        "something was not read"
    ]
    assert "only for 1 Workload, starting with the first of each queue" in ET.tostring(
        root, "unicode"
    )


def with_nodes(sizes: tuple[int, int, int] = (1, 2, 2)) -> World:
    """Blocks of racks of nodes with 4 CPUs each, of which one is used, and one is cordoned."""
    blocks, racks, hosts = sizes
    places = [
        (f"b{block}", f"b{block}r{rack}", f"b{block}r{rack}h{host}")
        for block in range(blocks)
        for rack in range(racks)
        for host in range(hosts)
    ]
    nodes = [node(host, rack, block=block) for block, rack, host in places]
    nodes.append(node("spare", "b0r0", block="b0", unschedulable=True))
    return places_world(nodes, placed(pods("x", 3), ("b0r1h0", 3)))


def test_the_nodes_of_a_flavor_are_a_tree_with_what_is_free() -> None:
    root = parsed(text_of(facts(with_nodes()), 0))
    head, *shown = rows(root, "nodes")
    assert head[3:] == [
        *("Capacity", "Used", "Free", "Free in used domains", "Most in one domain"),
    ]
    assert [[row[0], *row[3:]] for row in shown[:3]] == [
        ["blockexample.com/topology-block: 1 domain", "16", "3", "13", "13", "13"],
        ["rackexample.com/topology-rack: 2 domains", "16", "3", "13", "5", "8"],
        ["nodekubernetes.io/hostname: 4 domains", "16", "3", "13", "1", "4"],
    ]
    (domains,) = shown[3:]
    lines = [
        *("block b0: 13 of 16 cpu free; 4 nodes", "rack b0r0: 8 of 8 cpu free; 2 nodes"),
        *("node b0r0h0: 4 of 4 cpu free", "node b0r0h1: 4 of 4 cpu free"),
        *("rack b0r1: 5 of 8 cpu free; 2 nodes", "node b0r1h0: 1 of 4 cpu free"),
        "node b0r1h1: 4 of 4 cpu free",
    ]
    assert domains == ["".join(lines)]
    (section,) = [one for one in root.iter("section") if one.get("id") == "topology/f"]
    assert section.findtext("h3") == "Topology t, flavor f"
    assert section.findtext("p") == "4 nodes; 1 more, cordoned or not ready, take no pods now"
    assert not [one for one in section.iter("details") if one.get("open") is not None]
    assert [one.get("href") for one in root.iter("a")][2] == "#nodes"
    assert "#nodes" not in [one.get("href") for one in parsed(text_of(facts(), 0)).iter("a")]


def test_levels_with_too_many_domains_are_counted() -> None:
    text = text_of(facts(with_nodes((5, 50, 20))), 0)
    assert len(text) < 200_000
    shown = rows(parsed(text), "nodes")[-5:]
    assert shown[0][0].startswith("block b0: 3997 of 4k cpu free; 1,000 nodesrack b0r0: 80 of 80")
    assert "node b" not in text
    flat = parsed(text_of(facts(with_nodes((501, 1, 1))), 0))
    (section,) = [one for one in flat.iter("section") if one.get("id") == "topology/f"]
    said = section.findtext("p") or ""
    assert said.endswith("; only 500 of 501 domains of the first level are shown")


def test_a_live_page_gets_the_domain_that_has_changed() -> None:
    found = with_nodes((3, 1, 2))
    before = state_of("1", facts(found))
    more = placed(pods("y", 1), ("b1r0h0", 1))
    change = state_of("2", facts(found.with_workload(more))).since(before)
    domains = [name for name in change.html if name.startswith("domain/")]
    assert domains == ["domain/f/b1"]


def test_queues_where_nothing_happens_share_one_row(root: ET.Element) -> None:
    _, *others = rows(root, "alone")
    assert others == [["1 queue: nothing waits, nothing runsc: f: 4 cpu"]]
    (folded,) = [one for one in root.iter("details") if "nothing runs" in (one[0].text or "")]
    assert folded.get("open") == "", "nothing else is in this table"


def test_idle_queues_and_idle_trees_are_counted_and_named() -> None:
    found = world()
    for number in range(12):
        queue = make_cluster_queue(f"idle-{number}", {"f": {"cpu": 1, "memory": "2Gi"}})
        found = found.with_cluster_queue(queue)
    for name in ("d", "e"):
        queue = make_cluster_queue(name, {"f": {"cpu": 2}}, cohort="archive")
        found = found.with_cluster_queue(queue)
    held = make_cluster_queue("held", {"f": {"cpu": 1}}, stopPolicy="Hold", cohort="archive")
    root = parsed(text_of(facts(found), 0))
    sections = [one.text for one in root.iter("h3") if (one.text or "").startswith("C")]
    assert sections == [
        "Cohort company",
        "ClusterQueues without a cohort, and idle cohorts",
        *("ClusterQueue a", "ClusterQueue b"),
    ]
    ((cell,),) = rows(root, "alone")[1:]
    assert cell.startswith("1 cohort and 15 queues: nothing waits, nothing runs")
    assert "cohort archive: f: 4 cpu" in cell
    assert "idle-11: f: 1 cpu; f: 2Gi memory" in cell
    root = parsed(text_of(facts(found.with_cluster_queue(held)), 0))
    shown = rows(root, "tree/archive")
    assert shown[1][4:] == ["5", "0", "0", "0", "5", "0"], "the cohort itself stays"
    assert shown[2][0].startswith("held, level 20 run, 0 wait⚠ ")
    assert shown[3:] == [
        ["2 more queues: nothing waits, nothing runsd: f: 2 cpue: f: 2 cpu"],
    ]


def test_an_idle_queue_that_lends_says_so_in_the_row_that_it_shares() -> None:
    root = parsed(text_of(facts(world(waiting=0)), 0))
    _, *shown = rows(root, "tree/company")
    assert [row[0].partition(",")[0] for row in shown[:-1]] == ["cohort company", "a"]
    assert shown[-1] == [
        "1 more queue: nothing waits, nothing runsb: f: 4 cpu, 2 of it lent",
    ]


def test_a_quota_of_nothing_has_no_row_of_zeros() -> None:
    queue = make_cluster_queue("a", {"f": {"cpu": 4}, "g": {"cpu": 0}}, cohort="company")
    found = world().with_flavor(make_flavor("g")).with_cluster_queue(queue)
    root = parsed(text_of(facts(found), 0))
    mine = [row for row in rows(root, "quota") if row[0].startswith("a")]
    assert [row[1:3] for row in mine] == [["f", "cpu"]]
    assert mine[0][0].endswith("no quota and no use: g/cpu")


def test_the_page_names_its_cluster() -> None:
    known = attrs.evolve(facts(), source=("prod", "https://10.0.0.1", "namespace ns"))
    root = parsed(text_of(known, 0))
    assert root.findtext("head/title") == root.findtext(".//h1") == "Queues of prod"
    assert "from https://10.0.0.1, namespace ns." in "".join(root.itertext())


@pytest.mark.parametrize(
    ("resource", "value", "text"),
    [
        ("memory", 32 * 2**30, "32Gi"),
        ("memory", 17_289_295_102, "16.1Gi"),
        ("cpu", 3166, "3166m"),
        ("cpu", 12_345_678, "12,346"),
        ("example.com/licence", 1_234_567, "1234567"),
    ],
)
def test_amounts_have_few_digits(resource: str, value: int, text: str) -> None:
    assert amount(FlavorResource("f", resource), value) == text


def test_a_narrow_page_says_what_every_amount_is(root: ET.Element) -> None:
    head, first, *_ = next(one for one in root.iter("section") if one.get("id") == "quota").iter(
        "tr"
    )
    assert [one.get("data-label") for one in first[4:]] == [one.text for one in head[4:]]
    nodes = parsed(text_of(facts(with_nodes()), 0))
    head, first, *_ = next(one for one in nodes.iter("section") if one.get("id") == "nodes").iter(
        "tr"
    )
    assert [one.get("data-label") for one in first[3:]] == [one.text for one in head[3:]]
    assert {one.get("role") for one in first} == {"rowheader", "cell"}
    narrow = STYLE.partition("(max-width:640px)")[2]
    assert ".quotas tbody tr{display:grid" in narrow
    assert "content:attr(data-label)" in narrow


def test_hostile_names_are_text() -> None:
    found = world().with_workload(named(waits("w", HOSTILE), HOSTILE, HOSTILE))
    found = found.with_cohort(attrs.evolve(make_cohort("x"), metadata=_meta()))
    queue = make_cluster_queue("q", {"f": {"cpu": 1}}, cohort=HOSTILE)
    found = found.with_cluster_queue(attrs.evolve(queue, metadata=_meta()))
    local = attrs.evolve(make_local_queue("l", HOSTILE), metadata=_meta(HOSTILE))
    found = found.with_local_queue(local).with_namespace(HOSTILE, {})
    known = facts(found, HOSTILE)
    root = parsed(text_of(known, 3))
    assert len([one for one in root.iter() if one.tag == "script"]) == 1
    assert [one.text for one in root.iter("h3") if one.text == f"Cohort {HOSTILE}"]
    assert any(cell[1] == f"{HOSTILE}/{HOSTILE}" for cell in rows(root, "waits"))
    state = state_of("v", known)
    for part in state.shown.html.values():
        assert not [one.tag for one in ET.fromstring(part).iter() if one.tag == "script"]
    keys = [row.key for row in state.overview.waiting if row.key.name == HOSTILE]
    answer = explained(known, keys[0])
    assert answer is not None
    ET.fromstring(f"<div>{explanation(answer)}</div>")


def _meta(namespace: str = "") -> object:
    found = make_local_queue("l", "q", namespace=namespace or "ns").metadata
    return attrs.evolve(found, name=HOSTILE, namespace=namespace)


def test_a_live_page_asks_for_answers_and_leaves_ages_to_its_script() -> None:
    state = state_of("v1", facts())
    root = parsed(page(state.view, NOW, "v1"))
    assert root.find("body").get("data-live") == "v1"  # type: ignore[union-attr]
    buttons = {one.get("data-explain"): one.get("aria-label") for one in root.iter("button")}
    assert buttons["/explain/ns/wait-0"] == "Explain ns/wait-0"
    assert "<time" in state.shown.html["waits/ns/wait-0"]
    assert "11d" not in state.shown.html["waits/ns/wait-0"]
    assert set(state.since(None).html) == set(state.shown.html)


def test_a_change_counts_while_its_workload_waits_as_before() -> None:
    first = state_of("v1", facts())
    key = next_to_explain(first, 10)
    assert key is not None
    answer = explained(first.facts, key)
    assert answer is not None
    second = with_change("v2", first, first, key, VerifiedChange(smallest_of(answer.changes), NOW))
    assert set(second.since(first).html) == {f"waits/ns/{key.name}"}
    assert next_to_explain(second, 1) is None
    assert next_to_explain(second, 2) not in (None, key)
    assert key in state_of("v3", attrs.evolve(first.facts, now=NOW + 5), second).verified
    assert not state_of("v3", attrs.evolve(first.facts, now=NOW + 100), second).verified
    late = with_change(
        "v3", state_of("v2", facts(world(waiting=0))), first, key, second.verified[key]
    )
    assert not late.verified
    other = facts(world().with_workload(waits("wait-0", "a", 8)))
    assert not state_of("v3", other, second).verified


def test_what_fits_needs_no_change() -> None:
    state = state_of("v", facts(world(waiting=0).with_workload(waits("w", "c", 1))))
    assert [row.verdict for row in state.overview.waiting] == ["fits now"]
    assert next_to_explain(state, 10) is None
    assert "none is needed" in state.shown.html["waits/ns/w"]


def test_a_port_is_for_a_page_that_is_served() -> None:
    done = CliRunner().invoke(app, ["report", "--port", "8002"])
    assert isinstance(done.exception, ConfigError)
    assert "add --serve" in str(done.exception)


def test_an_empty_cluster_has_a_page() -> None:
    root = parsed(text_of(facts(world(0, 0)), 10))
    assert [len(rows(root, one)) for one in ("waits", "runs", "left")] == [0, 0, 0]
    assert "0 Workloads wait, 0 hold quota" in "".join(root.itertext())


def test_without_decisions_the_page_says_whose_words_they_are() -> None:
    known = attrs.evolve(facts(), undecided="clusterqueues may not be listed")
    shown = "".join(parsed(page(View(overview_of(known), {}), NOW)).itertext())
    assert "clusterqueues may not be listed" in shown
    assert "verdicts that the manager wrote last" in shown


def test_a_bar_is_as_long_as_its_numbers_say() -> None:
    use = QuotaUse(FlavorResource("f", "cpu"), nominal=10, own=5, borrowed=0, lent=3, waiting=100)
    found = ET.fromstring(markup("bar", use))
    widths = {one.get("class"): float(one.get("width", "0")) for one in found.iter("rect")}
    assert widths["own"] == WIDE / 2
    assert widths["lent"] == pytest.approx(WIDE * 0.3)
    assert widths["free"] == pytest.approx(WIDE * 0.2)
    assert widths["waiting"] == WIDE
    over = ET.fromstring(markup("bar", attrs.evolve(use, own=10, borrowed=10, lent=0, waiting=5)))
    widths = {one.get("class"): float(one.get("width", "0")) for one in over.iter("rect")}
    assert (widths["own"], widths["borrowed"], widths["waiting"]) == (WIDE / 2, WIDE / 2, WIDE / 4)
    ET.fromstring(markup("bar", QuotaUse(FlavorResource("f", "cpu"))))


def test_threats_are_said_in_words() -> None:
    assert markup("threat", Threat("a", None, False, 0)) == "a: any priority"
    assert markup("threat", Threat("a", 3, False, 1)) == "a: priority above 3 (1 waiting)"
    text = "a: priority above 3, or equal and queued earlier (2 waiting)"
    assert markup("threat", Threat("a", 3, True, 2)) == text


def test_what_only_reserves_quota_comes_last_and_says_what_then_decides() -> None:
    found = world(waiting=0).with_check(make_check("budget", active=False))
    queue = make_cluster_queue("a", {"f": {"cpu": 12}}, **CHECKED)
    known = facts(found.with_cluster_queue(queue).with_workload(waits("w", "a", 3)))
    answer = explained(known, waits("w", "a").key)
    assert answer is not None
    serves, moves = "AdmissionCheck budget", "submit it to LocalQueue"
    root = ET.fromstring(f"<div>{explanation(answer)}</div>")
    lists = {
        head.text or "": [item.text or "" for item in items]
        for head, items in itertools.pairwise(root)
        if head.tag == "h4"
    }
    admits, reserves = [one for one in lists if one.startswith("Any one of these")]
    assert "would admit it now" in admits
    assert "would reserve quota; check budget then decides" in reserves
    assert any(moves in one for one in lists[admits])
    assert not any(serves in one for one in lists[admits])
    assert any(serves in one for one in lists[reserves])
    first, *_ = [row for row in rows(parsed(text_of(known, 1)), "waits") if row[1] == "ns/w"]
    assert first[6].startswith("AdmissionCheck budget: run the controller"), "that is what is wrong"


def test_the_only_change_says_which_check_then_decides() -> None:
    found = world(waiting=0, running=0).with_check(make_check("budget"))
    for name in "abc":
        queue = make_cluster_queue(name, {"f": {"cpu": 1}}, **CHECKED)
        found = found.with_cluster_queue(queue)
    known = facts(found.with_workload(waits("w", "a", 3)))
    first, *_ = [row for row in rows(parsed(text_of(known, 1)), "waits") if row[1] == "ns/w"]
    assert "raise nominalQuota" in first[6]
    assert "; check budget then decides" in first[6]


def test_what_waits_for_a_check_is_not_under_running() -> None:
    found = world(waiting=0, running=1).with_check(make_check("budget"))
    (holder,) = found.workloads.values()
    state = AdmissionCheckState(name="budget", state="Pending", last_transition_time=NOW - 300)
    reserved = tuple(one for one in holder.status.conditions if one.type == "QuotaReserved")
    status = attrs.evolve(holder.status, conditions=reserved, admission_checks=(state,))
    known = facts(found.with_workload(attrs.evolve(holder, status=status)))
    root = parsed(text_of(known, 1))
    _, waits = rows(root, "awaits")
    assert (waits[0], waits[5]) == (
        "ns/run-0",
        "waits for checkscheck budget (example.com/check), for 5m",
    )
    assert rows(root, "runs") == []
    (row,) = decided(known.cluster, WorkloadSelection("ns"), NOW).awaiting
    assert row.verdict == "waits for checks"
    assert row.why.startswith("check budget (example.com/check) is Pending since 1970-")
    assert decided(known.cluster, WorkloadSelection("other"), NOW).awaiting == ()


def test_a_file_has_changes_only_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[ObjectKey] = []

    def counted(found: World, row: Waiting, now: float) -> Waiting:
        searched.append(row.key)
        return with_change_of(found, row, now)

    with_change_of = waiting.with_change
    monkeypatch.setattr(command, "with_change", counted)
    root = parsed(text_of(facts(world(waiting=3)), 0))
    assert searched == []
    assert [row[6] for row in rows(root, "waits")].count("not searched") == 3
    assert "kueuelib report --changes searches for all" in ET.tostring(root, "unicode")
    text_of(facts(world(waiting=3)), 2)
    assert len(searched) == 2


def test_a_reason_of_one_short_sentence_is_shown_and_a_whole_search_is_said() -> None:
    root = parsed(text_of(facts(world(0, 0).with_workload(waits("w", "absent"))), 5))
    _, first = rows(root, "waits")
    assert first[5] == "misconfigured: LocalQueue absent doesn't exist"
    assert "The search ran for all of them." in ET.tostring(root, "unicode")
