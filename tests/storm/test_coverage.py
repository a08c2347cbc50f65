"""Combinations of fault, call, phase and leader are counted and printed."""

from __future__ import annotations

from typing import Any

import pytest

from kueuelib.testing.storm.faults import FaultTarget, Injection
from kueuelib.testing.storm.history import Commit
from kueuelib.testing.storm.seed_plan import Cell, Coverage, tables

WORKLOADS = "workloads.kueue.x-k8s.io"


def condition(kind: str, status: str = "True") -> dict[str, str]:
    return {"type": kind, "status": status}


def workload(*conditions: dict[str, str], **spec: Any) -> dict[str, Any]:
    meta = {"name": "job-one", "ownerReferences": [{"name": "one"}]}
    return {"metadata": meta, "spec": spec, "status": {"conditions": list(conditions)}}


def written(new: dict[str, Any] | None, old: dict[str, Any] | None = None) -> Commit:
    return Commit(0.0, 1, "manager-1", WORKLOADS, "default", "job-one", old, new)


def lease(actor: str, holder: str) -> Commit:
    new = {"metadata": {"name": "lease"}, "spec": {"holderIdentity": holder}}
    return Commit(0.0, 1, actor, "leases.coordination.k8s.io", "system", "lease", None, new)


def struck(coverage: Coverage, name: str = "job-one", owner: str = "manager-1") -> Cell:
    coverage.cells.clear()
    subject = FaultTarget(owner, "patch", WORKLOADS, "default", name)
    coverage.injected(Injection("label", "409", 0.0, subject))
    (cell,) = coverage.cells
    return cell


@pytest.mark.parametrize(
    ("state", "phase"),
    [
        (workload(), "new"),
        (workload(condition("QuotaReserved", "False")), "waiting"),
        (workload(condition("QuotaReserved")), "reserved"),
        (workload(condition("QuotaReserved"), condition("Admitted")), "admitted"),
        (workload(condition("QuotaReserved"), condition("Evicted")), "evicted"),
        (workload(active=False), "inactive"),
        (workload(condition("Finished")), "ended"),
    ],
)
@pytest.mark.parametrize("name", ["job-one", "one"])
def test_a_fault_knows_the_phase_of_the_workload_and_of_its_job(
    state: dict[str, Any], phase: str, name: str
) -> None:
    coverage = Coverage()
    coverage.commit(written(state))
    assert struck(coverage, name).phase == phase


def test_a_workload_that_is_gone_has_no_phase() -> None:
    coverage = Coverage()
    coverage.commit(written(workload()))
    coverage.commit(written(None, workload()))
    assert struck(coverage).phase == "-"


def test_a_fault_knows_who_leads() -> None:
    coverage = Coverage()
    assert struck(coverage).leader == "vacant"
    coverage.commit(lease("manager-1", "one"))
    assert struck(coverage).leader == "leads"
    assert struck(coverage, owner="manager-2").leader == "follows"
    assert struck(coverage, owner="server").leader == "-"
    coverage.commit(lease("manager-1", ""))
    assert struck(coverage).leader == "vacant"


def test_tables_show_counts_and_what_was_never_met() -> None:
    lines = list(
        tables(
            {
                Cell("409", "patch", "pods", "admitted", "leads"): 3,
                Cell("500", "list", "pods", "-", "follows"): 1,
            }
        )
    )
    assert lines[0] == "2 combinations of fault, call, phase and leader"
    assert [line.split() for line in lines if line.startswith("  409")] == [
        ["409", "0", "0", "0", "0", "3", "0", "0", "0", "0"],
        ["409", "0", "3", "0", "0"],
    ]
    assert "500 never met: patch pods" in lines
    assert not any(line.startswith("409 never met") for line in lines)
