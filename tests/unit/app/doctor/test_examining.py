"""Which checks are made, what is looked at again, and how the report is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kueuelib.api.meta import format_time
from kueuelib.app.doctor import checks
from kueuelib.app.doctor.examining import DoctorReport, examine, examine_twice
from kueuelib.app.doctor.finding import DoctorCheck, Finding, Severity, Subject, all_checks
from kueuelib.app.doctor.snapshot import ClusterSnapshot
from kueuelib.cli.doctor import EXIT_CODES, to_data, to_lines

DOCS = Path(__file__).parents[4] / "docs"


class Ticks:
    """A clock that nobody waits for."""

    def __init__(self) -> None:
        self.slept = 0.0

    def now(self) -> float:
        return self.slept

    monotonic = now

    async def sleep(self, seconds: float) -> None:
        self.slept += seconds


def finding(
    severity: Severity, name: str = "x", fix: str = "mend it", follows: tuple[str, ...] = ()
) -> Finding:
    return Finding(severity, Subject("Thing", name, "ns"), "it is wrong", fix, follows)


def test_checks_without_their_objects_are_skipped_with_the_reason(patient: Any) -> None:
    patient.unseen = {"Workload": "workloads is forbidden", "Pod": "pods is forbidden"}
    report = examine(patient.snapshot())
    assert report.skipped["queue-name"] == "workloads is forbidden"
    assert "queue-inactive" in report.checked
    assert report.unseen == ("Pod", "Workload")
    assert report.skipped["pod-gated"] == "pods is forbidden"
    assert "leader" in report.checked
    assert {*report.skipped, *report.checked} == {one.name for one in all_checks()}


OPTIONAL = {
    "AdmissionCheck": "no checks",
    "Cohort": "no cohorts",
    "Namespace": "no namespaces",
    "Node": "no nodes",
}
OF_QUEUES = {
    "assumption-orphaned",
    "fits-but-waits",
    "local-queue",
    "never-fits",
    "object-unreadable",
    "policy-idle",
    "queue-inactive",
    "queue-name",
    "queue-status",
}


def test_what_nothing_refers_to_need_not_be_seen(patient: Any) -> None:
    patient.unseen = OPTIONAL
    report = examine(patient.snapshot())
    assert {*report.checked} >= OF_QUEUES | {"check-pending", "finalizer-stuck"}
    assert report.skipped == {
        "capacity-unused": "no cohorts",
        "cohort-absent": "no cohorts",
        "cohort-cycle": "no cohorts",
        "pod-unqueued": "no namespaces",
        "quota-promised": "no cohorts",
        "namespace-stuck": "no namespaces",
    }
    assert report.findings == ()


@pytest.mark.parametrize(
    ("spec", "why", "skipped"),
    [
        (
            {"cohortName": "c"},
            "no cohorts",
            {"fits-but-waits", "never-fits", "policy-idle", "queue-status", "quota-exceeded"},
        ),
        (
            {"admissionChecksStrategy": {"admissionChecks": [{"name": "a"}]}},
            "no checks",
            {"check-pending", "fits-but-waits", "never-fits", "queue-inactive", "queue-status"},
        ),
        (
            {"namespaceSelector": {"matchLabels": {"team": "a"}}},
            "no namespaces",
            {"fits-but-waits", "local-queue", "never-fits", "pod-unqueued", "namespace-stuck"},
        ),
    ],
)
def test_what_a_queue_refers_to_has_to_be_seen(
    patient: Any, spec: dict[str, Any], why: str, skipped: set[str]
) -> None:
    patient.unseen = {kind: why for kind, why in OPTIONAL.items() if kind != "Node"}
    patient.get("ClusterQueue")["spec"] |= spec
    report = examine(patient.snapshot())
    always = {"capacity-unused", "cohort-absent", "cohort-cycle", "quota-promised"}
    got = {name for name, reason in report.skipped.items() if reason == why}
    assert got - always == skipped
    assert report.findings == ()


def test_without_the_queues_nothing_is_said_about_them(patient: Any) -> None:
    patient.unseen = {"ClusterQueue": "no queues"}
    skipped = examine(patient.snapshot()).skipped
    assert {*skipped} >= OF_QUEUES - {"queue-name"}
    assert {*skipped.values()} == {"no queues"}


def test_the_worst_findings_come_first_and_decide(patient: Any) -> None:
    made = [
        DoctorCheck(str(severity), (), lambda _, severity=severity: [finding(severity)])  # type: ignore[misc]
        for severity in (Severity.HINT, Severity.ERROR, Severity.WARNING)
    ]
    report = examine(patient.snapshot(), made)
    assert [found.severity for _, found in report.findings] == [2, 1, 0]
    assert report.worst is Severity.ERROR
    assert examine(patient.snapshot(), []).worst is None


async def test_what_stays_true_is_reported_after_further_looks(patient: Any) -> None:
    patient.get("ClusterQueue")["status"]["reservingWorkloads"] = 7
    clock = Ticks()
    report = await examine_twice(_always(patient.snapshot()), clock)
    assert [name for name, _ in report.findings] == ["assumption-orphaned"]
    assert clock.slept == 2.0


@pytest.mark.parametrize(("led", "found"), [(5, []), (29, []), (31, ["assumption-orphaned"])])
def test_statuses_are_judged_once_the_leader_has_had_time_to_write_them(
    patient: Any, led: int, found: list[str]
) -> None:
    patient.get("ClusterQueue")["status"]["reservingWorkloads"] = 7
    patient.get("Lease")["spec"]["acquireTime"] = format_time(patient.now - led)
    assert [name for name, _ in patient.found()] == found


def _always(snapshot: ClusterSnapshot) -> Any:
    async def read() -> ClusterSnapshot:
        return snapshot

    return read


async def test_a_finding_that_goes_away_is_dropped_and_lasting_ones_stay(patient: Any) -> None:
    status = patient.get("ClusterQueue")["status"]
    status["reservingWorkloads"] = 7
    patient.remove("Lease")
    patient.objects.append({"kind": "Lease", "metadata": {"name": "x", "namespace": "y"}})
    reads = []

    async def read() -> ClusterSnapshot:
        reads.append(1)
        status["reservingWorkloads"] = 7 if len(reads) == 1 else 1
        return patient.snapshot()  # type: ignore[no-any-return]

    clock = Ticks()
    report = await examine_twice(read, clock)
    assert [name for name, _ in report.findings] == ["leader"]
    assert len(reads) == 2


async def test_a_healthy_cluster_is_read_once(patient: Any) -> None:
    clock = Ticks()
    report = await examine_twice(_always(patient.snapshot()), clock)
    assert (report.findings, clock.slept) == ((), 0.0)


def test_the_report_in_lines() -> None:
    found = (("a", finding(Severity.ERROR)), ("b", finding(Severity.HINT, "y")))
    report = DoctorReport(found, ("a", "b"), {"c": "no rights", "d": "no rights"}, ("Pod",))
    assert list(to_lines(report)) == [
        "error: Thing ns/x (a)",
        "  it is wrong",
        "  -> mend it",
        "hint: Thing ns/y (b)",
        "  it is wrong",
        "  -> mend it",
        "Not seen: Pod",
        "Not checked: c, d: no rights",
        "1 error, 1 hint in 2 of 4 checks.",
    ]
    assert list(to_lines(DoctorReport((), ("a",), {}))) == ["Nothing found in 1 of 1 checks."]


def test_what_follows_is_told_under_its_cause() -> None:
    found = (
        ("late", finding(Severity.ERROR, "x", follows=("middle",))),
        ("first", finding(Severity.ERROR, "root")),
        ("middle", finding(Severity.ERROR, "y", follows=("absent", "first"))),
        ("late", finding(Severity.WARNING, "z", follows=("middle", "first"))),
        ("other", finding(Severity.HINT, "h", follows=("absent",))),
    )
    report = DoctorReport(found, ("first", "late", "middle", "other"), {})
    assert report.causes == {0: 1, 2: 1, 3: 1}
    assert list(to_lines(report)) == [
        "error: Thing ns/root (first)",
        "  it is wrong",
        "  -> mend it",
        "  so: Thing ns/x and 1 more (late)",
        "  so: Thing ns/y (middle)",
        "hint: Thing ns/h (other)",
        "  it is wrong",
        "  -> mend it",
        "1 error, 1 hint (5 findings) in 4 of 4 checks.",
    ]
    told = to_data(report)["findings"]
    assert [one["cause"] and one["cause"]["check"] for one in told] == [
        *("first", None, "first", "first", None)
    ]
    assert told[0]["cause"]["object"] == {"kind": "Thing", "namespace": "ns", "name": "root"}


def test_warnings_and_hints_explain_nothing() -> None:
    found = (
        ("soon", finding(Severity.WARNING)),
        ("broken", finding(Severity.ERROR, follows=("soon",))),
    )
    assert DoctorReport(found, (), {}).causes == {}


def test_causes_in_a_circle_leave_one_of_them() -> None:
    found = (
        ("a", finding(Severity.ERROR, follows=("b",))),
        ("b", finding(Severity.ERROR, follows=("a",))),
    )
    assert DoctorReport(found, (), {}).causes == {0: 1}


def test_findings_of_one_command_are_told_together() -> None:
    found = [("a", finding(Severity.ERROR, str(number))) for number in range(5)]
    same = Finding(Severity.ERROR, Subject("Thing", "0", "ns"), "something else", "mend it")
    lines = list(to_lines(DoctorReport((found[0], ("a", same), *found[1:]), ("a",), {})))
    assert lines == [
        "error: Thing ns/0 and 4 more (a)",
        "  it is wrong",
        "  something else",
        "  Thing ns/1: it is wrong",
        "  and 3 more like these",
        "  -> mend it",
        "1 error (6 findings) in 1 of 1 checks.",
    ]


def test_of_many_findings_of_a_check_some_are_shown() -> None:
    found = tuple(
        ("a", finding(Severity.ERROR, str(number), fix=f"mend {number}")) for number in range(23)
    )
    lines = list(to_lines(DoctorReport(found, ("a",), {})))
    assert sum(line.startswith("error: ") for line in lines) == 20
    assert lines[-2:] == [
        "And 3 more of a; -o json has all of them",
        "23 errors in 1 of 1 checks.",
    ]


def test_the_report_as_data_is_as_the_page_says() -> None:
    report = DoctorReport(
        (("a", finding(Severity.WARNING)),), ("a",), {"c": "no rights"}, ("Pod",), ("n",)
    )
    data = to_data(report)
    assert data == {
        "worst": "warning",
        "findings": [
            {
                "check": "a",
                "severity": "warning",
                "object": {"kind": "Thing", "namespace": "ns", "name": "x"},
                "problem": "it is wrong",
                "fix": "mend it",
                "cause": None,
            }
        ],
        "checked": ["a"],
        "notSeen": ["Pod"],
        "notChecked": [{"check": "c", "why": "no rights"}],
        "notes": ["n"],
    }
    text = (DOCS / "doctor.md").read_text().partition("```json\n")[2].partition("```")[0]
    page = json.loads(text)
    assert page.keys() == data.keys()
    assert page["findings"][0].keys() == data["findings"][0].keys()
    assert page["findings"][0]["object"].keys() == data["findings"][0]["object"].keys()
    assert page["notChecked"][0].keys() == data["notChecked"][0].keys()
    assert to_data(DoctorReport((), (), {}))["worst"] is None


def test_the_exit_code_tells_how_bad_it_is() -> None:
    codes = [EXIT_CODES[None], *(EXIT_CODES[severity] for severity in sorted(Severity))]
    assert codes == [0, 0, 3, 4]


def test_every_check_is_on_the_page() -> None:
    page = (DOCS / "doctor.md").read_text()
    for one in all_checks():
        assert f"| `{one.name}` |" in page
    many = len(all_checks())
    assert page.count("\n| `") == many
    assert f" in {many} of {many} checks." in page


def test_a_new_module_is_a_new_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kueuelib.app.doctor import finding as module

    known = dict(module._CHECKS)
    (tmp_path / "strange.py").write_text(
        "from kueuelib.app.doctor.finding import Finding, Severity, Subject, check\n"
        "@check('strange', 'Node')\n"
        "def strange(snapshot):\n"
        "    for node in snapshot.all('Node'):\n"
        "        subject = Subject('Node', node['metadata']['name'])\n"
        "        yield Finding(Severity.HINT, subject, 'strange', 'look at it')\n"
    )
    monkeypatch.setattr(checks, "__path__", [*checks.__path__, str(tmp_path)])
    monkeypatch.setattr(module, "_CHECKS", known)
    found = {one.name: one for one in all_checks()}
    assert found["strange"].needs == ("Node",)
    assert not found["strange"].momentary
