"""The pages about the KEPs cover every heading, and what they name exists."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import attrs
import pytest

from .named_tests import names_in

ROOT = Path(__file__).parents[3]
HEAD = ROOT / "docs/keps.md"
PAGES = ROOT / "docs/keps"

_FIRST = ("Summary", "Motivation", "Goals", "Non-Goals", "Proposal", "User Stories (Optional)")
_TESTS = ("Test Plan", "Prerequisite testing updates", "Unit Tests", "Integration tests")
_LAST = ("Implementation History", "Drawbacks", "Alternatives")
HEADINGS: dict[str, tuple[str, ...]] = {
    "83": (
        *(*_FIRST, "Story 1", "Notes/Contraints/Caveats (Optional)"),
        "Why no control to opt-out a ClusterQueue from preemption",
        *("Reassigning flavors after preemption", "Risks and Mitigations"),
        "Workload preemption doesn't imply immediate Pod termination",
        *("Increased admission latency", "Design Details", "ClusterQueue API changes"),
        "Changes in scheduling algorithm",
        "Detecting Workloads that might benefit from preemption",
        "Sorting Workloads that are heads of ClusterQueues",
        *("Admission", "Preemption", *_TESTS, "E2E tests", "Graduation Criteria", *_LAST),
        "Allow high priority jobs to borrow quota while preempting",
        "Inform how costly is to interrupt a Workload",
        *("Penalizing long running workloads", "Terminating Workloads on preemption"),
        "Extra knobs in ClusterQueue preemption policy",
    ),
    "369": (
        *(*_FIRST, "Story 1", "Notes/Constraints/Caveats (Optional)", "Risks and Mitigations"),
        *("Design Details", "Job Interface", "Kubernetes Job implementation details"),
        *("Working Flow in pseudo-code", *_TESTS, "Graduation Criteria", *_LAST),
    ),
    "976": (
        *(*_FIRST, "Story 1", "Story 2", "Story 3", "Notes/Constraints/Caveats (Optional)"),
        *("Skipping Pods belonging to queued objects", "Pods replaced on failure"),
        *("Controllers creating too many Pods", "Risks and Mitigations"),
        *("Increased memory usage", "Limited size for annotation values", "Design Details"),
        *("Gating Pod Scheduling", "Pods subject to queueing", "Constructing Workload objects"),
        *("Single Pods", "Groups of Pods created beforehand"),
        *("Groups of pods where driver generates workers", "Tracking admitted and finished Pods"),
        *("Retrying Failed Pods", "Dynamically reclaiming Quota", "Metrics", *_TESTS),
        *("Graduation Criteria", "Beta", "GA", *_LAST),
        "Users create a Workload object beforehand",
    ),
    "993": (
        *(*_FIRST, "Story 1", "Story 2", "Notes/Constraints/Caveats (Optional)"),
        *("Risks and Mitigations", "Design Details", *_TESTS, "Graduation Criteria", *_LAST),
    ),
    "2724": (
        "Summary",
        "Motivation",
        "Goals",
        "Non-Goals",
        "Proposal",
        "User Stories",
        "Story 1",
        "Story 2",
        "Story 3",
        "Story 4",
        "Story 5",
        "Story 6",
        "Story 7",
        "Story 8",
        "Story 9",
        "Story 10",
        "Notes/Constraints/Caveats (Optional)",
        "Integration support",
        "Job",
        "Job with multi-level scheduling",
        "JobSet",
        "JobSet with ReplicatedJob instance topology",
        "JobSet with two-level scheduling",
        "LeaderWorkerSet",
        "Co-locate Leader with Workers",
        "LeaderWorkerSet",
        "Respect Pod Index order within Workers",
        "MPIJob with runLauncherAsWorker",
        'Support for the "auto" mode',
        "PodSetAssignment is per lowest-topology level",
        "Provisioning request and required mode",
        "kueue.x-k8s.io/tas Pod label",
        "Risks and Mitigations",
        "Non-exclusive use of nodes",
        "Node topology changes",
        "Race condition when accounting for DaemonSet pods",
        "Design Details",
        "Hierarchy representation",
        "Admin-facing API",
        "User-facing API",
        "Validation",
        "PodSet Slice size validation",
        "Internal APIs",
        "Topology assignment representation",
        "Until v1beta1",
        "Since v1beta2",
        "Encoding assignments by hostname prefix",
        "Node failures",
        "Until v0.13",
        "Since v0.14",
        "Sunsetting fixed-time marking (since v0.19)",
        "Workloads owned by a single Pod",
        "Tainted nodes treatment",
        "User stories",
        "NoExecute",
        "NoSchedule",
        "Implicit defaulting of TAS annotations",
        "Computing the assignment",
        "Example",
        "Selecting the algorithm",
        "Until v0.14",
        "Since v0.15",
        "Re-computation of TAS assignments within the workload evaluation phase",
        "Two-level Topology Aware scheduling",
        "Example",
        "Multi-level Topology Aware scheduling",
        "Example",
        "Cross-PodSet Topology Aware scheduling",
        "Ensure leader and workers end up on the same flavor",
        "Enforcing the assignment",
        "Support for Elastic Workloads",
        "Balanced placement",
        "Example",
        "Support for Preferred Node Affinity",
        "Future Vision",
        "Support for ProvisioningRequests",
        "Determining the need for second pass",
        "Targeting the newly provisioned nodes",
        "Error handling",
        "Test Plan",
        "Prerequisite testing updates",
        "Unit Tests",
        "Integration tests",
        "Graduation Criteria",
        "Alpha:",
        "Beta",
        "Stable",
        "Implementation History",
        "Drawbacks",
        "Alternatives",
        "Account usage by watching DaemonSet pods",
        "Use label for workload",
        "Implement it in ClusterAutoscaler or kube-scheduler",
        "Workload API alternatives",
        "Drop the topologyAssignment.levels field",
        "Rename the topologyAssignment.domains.values field as levelValues",
        "Drop dedicated TAS label",
        "MostFreeCapacity algorithm",
        "Example",
        "TopologyAssignmentSlices as separate CRD instances",
    ),
}
"""The headings of each KEP, in its order and with its spelling."""

PARTS = ("The KEP", "Here", "Why", "Instead")
"""What is said about each difference."""

_CODE = re.compile(r"`([^`]+)`")
_MARK = re.compile(r"\*\*(Holds|Differs)\*\*")
_REASON = re.compile(r"\]\(\.\./keps\.md#([-\w]+)\)")


@attrs.frozen
class Section:
    """What a page says under one heading: its statements, and the text before them."""

    title: str
    text: str
    statements: tuple[str, ...]


@cache
def sections(page: str) -> tuple[Section, ...]:
    parts = re.split(r"^##+ (.+)$", (PAGES / f"{page}.md").read_text(), flags=re.MULTILINE)
    return tuple(
        Section(title, *_statements(text))
        for title, text in zip(parts[1::2], parts[2::2], strict=True)
    )


def _statements(text: str) -> tuple[str, tuple[str, ...]]:
    first, *items = re.split(r"^- ", text, flags=re.MULTILINE)
    return first.strip(), tuple(" ".join(item.split()) for item in items)


def statements() -> list[Any]:
    return [
        pytest.param(statement, id=f"{page}: {section.title} {number}")
        for page in HEADINGS
        for section in sections(page)
        for number, statement in enumerate(section.statements, 1)
    ]


def differences() -> dict[str, str]:
    """The text about each difference, by anchor."""
    parts = re.split(r"^#### (.+)$", HEAD.read_text(), flags=re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-"): text
        for title, text in zip(parts[1::2], parts[2::2], strict=True)
    }


def test_every_kep_has_a_page() -> None:
    assert {path.stem for path in PAGES.glob("*.md")} == set(HEADINGS)


@pytest.mark.parametrize("page", HEADINGS)
def test_a_page_has_the_headings_of_its_kep(page: str) -> None:
    assert tuple(section.title for section in sections(page)) == HEADINGS[page]


@pytest.mark.parametrize("page", HEADINGS)
def test_a_section_without_statements_says_why(page: str) -> None:
    for section in sections(page):
        assert section.statements or section.text.startswith("No rule"), section.title


@pytest.mark.parametrize("statement", statements())
def test_a_statement_names_a_module_and_a_test_that_exist(statement: str) -> None:
    _, *marks = _MARK.split(statement)
    assert len(marks) == 2, "one mark, and the evidence behind it"
    mark, evidence = marks
    names = _CODE.findall(evidence)
    modules = [name for name in names if name.endswith(".py")]
    tests = [name.split("::") for name in names if "::" in name]
    assert modules
    assert tests
    assert [name for name in modules if not (ROOT / "src/kueuelib" / name).is_file()] == []
    for path, name in tests:
        assert name in names_in(path), f"{path} has no {name}"
    assert bool(_REASON.search(evidence)) is (mark == "Differs")


def test_every_difference_is_explained_and_belongs_to_a_statement() -> None:
    named = {
        anchor
        for page in HEADINGS
        for section in sections(page)
        for statement in section.statements
        for anchor in _REASON.findall(statement)
    }
    assert named == set(differences())


def test_a_difference_is_explained_in_full() -> None:
    for anchor, text in differences().items():
        assert tuple(re.findall(r"^- \*\*(.+?)\*\*:", text, re.MULTILINE)) == PARTS, anchor
