"""Admission checks in Python: what a workload has to pass in addition to quota (KEP-993).

    from kueuelib.checks import Ready, Retry, check, run

    @check("example.com/office-hours")
    async def office_hours(workload, parameters):
        return Ready() if 8 <= datetime.now().hour < 18 else Retry("closed", after=3600)

    if __name__ == "__main__":
        run(office_hours)

The library finds the AdmissionChecks with this `spec.controllerName`, maintains their Active
condition, follows workloads and parameters objects, calls the function when a decision is needed,
and writes its answer. See docs/checks.md. These names are stable, see docs/stability.md; the
modules that they come from are internal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kueuelib.api.kueue import PodSetUpdate as PodSetUpdate
    from kueuelib.api.kueue import Workload as Workload
    from kueuelib.checks.assembly import setup as setup
    from kueuelib.checks.definition import Check as Check
    from kueuelib.checks.definition import CheckContext as CheckContext
    from kueuelib.checks.definition import check as check
    from kueuelib.checks.definition import current as current
    from kueuelib.checks.definition import usage_of as usage_of
    from kueuelib.checks.process import run as run
    from kueuelib.checks.process import serve as serve
    from kueuelib.checks.verdicts import Pending as Pending
    from kueuelib.checks.verdicts import Ready as Ready
    from kueuelib.checks.verdicts import Rejected as Rejected
    from kueuelib.checks.verdicts import Retry as Retry
    from kueuelib.checks.verdicts import Verdict as Verdict
else:
    from kueuelib.lazy_exports import lazily

    __getattr__, __dir__, __all__ = lazily(
        __name__,
        {
            "kueuelib.api.kueue": "PodSetUpdate Workload",
            "kueuelib.checks.assembly": "setup",
            "kueuelib.checks.definition": "Check CheckContext check current usage_of",
            "kueuelib.checks.process": "run serve",
            "kueuelib.checks.verdicts": "Pending Ready Rejected Retry Verdict",
        },
    )
