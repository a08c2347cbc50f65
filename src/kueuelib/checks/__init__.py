"""Admission checks in Python: what a workload has to pass besides quota (KEP-993).

    from kueuelib.checks import Ready, Retry, check, run

    @check("example.com/office-hours")
    async def office_hours(workload, parameters):
        return Ready() if 8 <= datetime.now().hour < 18 else Retry("closed", after=3600)

    if __name__ == "__main__":
        run(office_hours)

The library lists the AdmissionChecks whose `spec.controllerName` that is, keeps their Active
condition, follows workloads and parameters objects, calls the function when something has to be
decided, and writes what it says. See docs/checks.md.
"""

from __future__ import annotations

from kueuelib.api.kueue import PodSetUpdate, Workload
from kueuelib.checks.context import Context, current, usage_of
from kueuelib.checks.definition import Check, check
from kueuelib.checks.running import run, serve
from kueuelib.checks.setup import setup
from kueuelib.checks.verdicts import Pending, Ready, Rejected, Retry, Verdict

__all__ = [
    "Check",
    "Context",
    "Pending",
    "PodSetUpdate",
    "Ready",
    "Rejected",
    "Retry",
    "Verdict",
    "Workload",
    "check",
    "current",
    "run",
    "serve",
    "setup",
    "usage_of",
]
