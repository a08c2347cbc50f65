"""What a check may say about a workload (KEP-993, spec/jobs 6.1)."""

from __future__ import annotations

import attrs

from kueuelib.api.kueue import PodSetUpdate


@attrs.frozen
class Pending:
    """Not decided yet: the workload keeps its quota and waits.

    Attributes:
        message: a sentence for people.
        preemption_required: the check could pass if others were preempted; only meaningful when
            the preemptions wait for a check (`preemptionPolicy: AfterCheckPassedOrOnDemand`).
        again: seconds until the check is asked again; None: the check's own interval.
    """

    message: str = ""
    preemption_required: bool = False
    again: float | None = None


@attrs.frozen
class Ready:
    """Passed. May be taken back at any time with `Retry` or `Rejected`.

    Attributes:
        message: a sentence for people.
        updates: what is added to the pods when they start. Pod sets that are not named get
            nothing. While the check stays Ready they cannot change.
    """

    message: str = ""
    updates: tuple[PodSetUpdate, ...] = ()


@attrs.frozen
class Retry:
    """Not now: the quota goes to others, a job that runs is suspended, and later it starts over.

    Attributes:
        message: a sentence for people.
        after: seconds until the check is Pending again; None: the `retryDelayMinutes` of the
            AdmissionCheck.
    """

    message: str = ""
    after: float | None = None


@attrs.frozen
class Rejected:
    """Never: the workload is deactivated, and its job learns why.

    Attributes:
        message: a sentence for people.
    """

    message: str = ""


Verdict = Pending | Ready | Retry | Rejected
