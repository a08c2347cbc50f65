"""Workloads that wait or hold quota without a reason, and objects that are not valid."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from kueuelib.api.batch import has_ended
from kueuelib.api.meta import ObjectKey, find, key_of
from kueuelib.api.missing_features import sentence
from kueuelib.api.names import FINISHED, QUOTA_RESERVED, REASON_FAILED_TO_START, REASON_OUT_OF_SYNC
from kueuelib.api.phrases import counted, duration, some
from kueuelib.api.workload_state import has_quota, is_finished
from kueuelib.app.doctor.finding import Finding, Severity, Subject, check, subject_of
from kueuelib.app.doctor.manager import ANOTHER_WEBHOOK, REFUSED, STATUS_LOST, look, no_manager
from kueuelib.app.doctor.snapshot import ADMISSION_CHECKS, FACTS, LABELS, ClusterSnapshot
from kueuelib.app.explaining.gather import NEEDED
from kueuelib.scheduler.explain.awaited import Awaited, awaited_checks
from kueuelib.scheduler.explain.own_changes import job_of
from kueuelib.scheduler.explain.problems import correction
from kueuelib.scheduler.explain.trial import TrialResult
from kueuelib.scheduler.object_reasons import (
    FeaturesMissing,
    GivenValue,
    InvalidResources,
    LimitRangeViolated,
    ResourceProblem,
)
from kueuelib.scheduler.pending.workload_info import asked_by
from kueuelib.scheduler.reasons import (
    EXCEEDS_MAX_QUOTA,
    NO_MATCHING_FLAVOR,
    NoFlavors,
    condition_reason,
    render,
)
from kueuelib.workload import states
from kueuelib.workload.short_reasons import shorten
from kueuelib.workload.states import condition, is_deleted

# ---- admission checks that do not decide ---------------------------------------------------------

PATIENCE = 300.0
"""Seconds that a check may take before it is reported."""


@check("check-pending", "Workload", ADMISSION_CHECKS)
def pending(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Checks for which Workloads with quota have waited for more than five minutes."""
    by_check: dict[str, list[tuple[float, ObjectKey, Awaited]]] = {}
    for key, workload in snapshot.world.workloads.items():
        for one in awaited_checks(snapshot.world, workload):
            if one.since is not None and snapshot.now - one.since > PATIENCE:
                by_check.setdefault(one.name, []).append((one.since, key, one))
    for name, waits in sorted(by_check.items()):
        since, key, first = min(waits, key=lambda one: (one[0], one[1]))
        problem = (
            f"its controller {first.controller or '-'} keeps "
            f"{counted(len(waits), 'Workload')} with quota waiting, {key} for "
            f"{duration(snapshot.now - since)}"
        )
        fix = f"kubectl describe admissioncheck {name}  # then {first.next_step}"
        yield Finding(Severity.HINT, Subject("AdmissionCheck", name), problem, fix)


# ---- workloads that hold quota although no job owns them -----------------------------------------

"""Seconds that a job may take to adopt the Workload that was made for it."""


@check("quota-unowned", "Workload")
def unowned(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Workloads without owner that have held quota for more than five minutes."""
    for workload in snapshot.all("Workload"):
        meta = workload["metadata"]
        if meta.get("ownerReferences") or states.is_finished(workload) or is_deleted(workload):
            continue
        held = condition(workload, QUOTA_RESERVED).get("lastTransitionTime")
        if has_quota(workload) and snapshot.age(held) > PATIENCE:
            problem = (
                f"it has held quota for {duration(snapshot.age(held))}, and has no owner: no job "
                "will finish it"
            )
            where = f"kubectl -n {meta['namespace']} delete workload {meta['name']}"
            fix = f"{where}  # unless a controller of yours finishes it"
            yield Finding(Severity.HINT, subject_of("Workload", workload), problem, fix)


# ---- stored objects that are not valid and therefore left out of all decisions -------------------


@check("object-unreadable", *(one.kind for one in NEEDED), before_migration=True)
def unreadable(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Objects that break rules which were not enforced when they were stored."""
    for kind, key, why in snapshot.cluster.unreadable:
        where = f"-n {key.namespace} " if key.namespace else ""
        fix = f"kubectl edit {where}{kind.lower()} {key.name}"
        subject = Subject(kind, key.name, key.namespace)
        yield Finding(Severity.ERROR, subject, f"it is left out of every decision: {why}", fix)


# --------------------------------------------------------------------------------------------------

_NEVER: Final = (EXCEEDS_MAX_QUOTA, NO_MATCHING_FLAVOR)
"""The reasons that no end of another Workload changes."""
_NOT_RUN: Final = (REASON_FAILED_TO_START, REASON_OUT_OF_SYNC)


@check("fits-but-waits", FACTS, LABELS, momentary=True)
def fits(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Workloads that would get quota in the cycles that are due now."""
    for key, outcome in sorted(snapshot.outcomes.items()):
        if outcome.verdict is TrialResult.ADMITTED:
            problem = "nothing stands in its way, and no manager admits it"
            follows = (*no_manager(snapshot), ANOTHER_WEBHOOK, STATUS_LOST)
            raw = snapshot.find("Workload", key.name, key.namespace)
            if raw is not None and snapshot.refusal(raw) is not None:
                follows = (*follows, REFUSED)
            yield Finding(Severity.ERROR, _subject(key), problem, look(snapshot), follows)


@check("never-fits", FACTS, LABELS)
def never_fits(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Workloads for which no flavor matches, or that ask for more than there ever is, and those
    whose pods cannot be created with their requests and limits: by what is wrong with these. Those
    that the nodes have no room for even without other Workloads: a node may still come.
    """
    alike: dict[tuple[str, ResourceProblem | GivenValue], list[ObjectKey]] = {}
    problems: dict[ObjectKey, ResourceProblem] = {}
    for key, outcome in sorted(snapshot.outcomes.items()):
        reason = outcome.reason
        if outcome.verdict is not TrialResult.WAITS or reason is None:
            continue
        if isinstance(reason, FeaturesMissing):
            continue  # feature-missing says so
        if isinstance(reason, InvalidResources | LimitRangeViolated):
            first = problems[key] = reason.items[0]
            cause = first.values[0] if first.values else first
            alike.setdefault((key.namespace, cause), []).append(key)
        fix = f"kueuelib explain workload/{key.name} -n {key.namespace}"
        if condition_reason(reason) in _NEVER:
            problem = f"it cannot be admitted as it is: {shorten(render(reason))}"
            yield Finding(Severity.ERROR, _subject(key), problem, fix)
        elif isinstance(reason, NoFlavors) and reason.exceeds_nodes:
            problem = f"its pods do not fit on the nodes that are there: {shorten(render(reason))}"
            follows = ("topology-levels",)
            yield Finding(Severity.WARNING, _subject(key), problem, fix, follows)
    for (namespace, cause), keys in alike.items():
        wrong = problems[keys[0]]
        subject, show = _subject(keys[0]), f"get {_job(snapshot, keys[0])} -o yaml"
        if isinstance(cause, GivenValue):
            subject = Subject(cause.kind, cause.key.name, namespace)
            show = f"edit {cause.kind.lower()} {cause.key.name}"
        problem = f"no pods can be created for these Workloads: {some(keys)}: {wrong}"
        fix = f"kubectl -n {namespace} {show}  # {correction(wrong)}"
        yield Finding(Severity.ERROR, subject, problem, fix)


def _job(snapshot: ClusterSnapshot, key: ObjectKey) -> str:
    """The job of a Workload as an argument of kubectl, or the Workload if it has none."""
    job = job_of(snapshot.world.workloads[key])
    kind, _, name = job.partition(f" {key.namespace}/")
    return f"{kind.lower()} {name}" if name else f"workload {key.name}"


@check("feature-missing", "Workload", before_migration=True)
def missing(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Features that this version does not have, each with the Workloads that ask for it."""
    world = snapshot.cluster.world
    waiting: dict[str, list[tuple[ObjectKey, str]]] = {}
    running: dict[str, list[tuple[ObjectKey, str]]] = {}
    for key, workload in sorted(world.workloads.items()):
        if is_finished(workload):
            continue
        askers = running if has_quota(workload) else waiting
        asked = asked_by(workload, world.settings.resources, places_pods=world.settings.places_pods)
        for feature in dict.fromkeys(one.feature for one in asked):
            text = sentence(one for one in asked if one.feature == feature)
            askers.setdefault(feature, []).append((key, text))
    yield from _asking(Severity.ERROR, "it waits", waiting)
    yield from _asking(Severity.WARNING, "it holds quota, without what it asks for", running)


def _asking(
    severity: Severity, state: str, askers: Mapping[str, Sequence[tuple[ObjectKey, str]]]
) -> Iterator[Finding]:
    for (key, text), *others in askers.values():
        more = f"; others that ask for it: {len(others)}" if others else ""
        fix = f"kueuelib explain workload/{key.name} -n {key.namespace}"
        yield Finding(severity, _subject(key), f"{state}: {text}{more}", fix)


SETTLED = 60.0
"""Seconds in which a Job may end after its Workload."""


@check("never-ran", "Workload", "Job")
def never_ran(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Workloads that ended before their job started; the job stays suspended."""
    for job in snapshot.all("Job"):
        ended = snapshot.workload_of(job)
        finished = {} if ended is None else condition(ended, FINISHED)
        if (
            ended is None
            or finished.get("status") != "True"
            or finished.get("reason") in _NOT_RUN
            or not job["spec"].get("suspend")
            or has_ended(job)
            or snapshot.age(finished.get("lastTransitionTime", "")) < SETTLED
        ):
            continue
        key = key_of(ended)
        problem = (
            f"it is finished ({finished.get('reason')}), and Job {key_of(job)} is suspended and "
            "has not ended; an older state of the cluster may have been restored"
        )
        fix = f"kubectl -n {key.namespace} delete workload {key.name}  # its Job is queued again"
        yield Finding(Severity.ERROR, _subject(key), problem, fix)
    for key, workload in sorted(snapshot.cluster.world.workloads.items()):
        end = find(workload.status.conditions, FINISHED)
        if end is None or not end.is_true or end.reason not in _NOT_RUN:
            continue
        problem = f"it ended without having run: {end.reason}: {end.message}"
        what = _job(snapshot, key)
        fix = f"kubectl -n {key.namespace} delete {what}  # correct it, and submit it again"
        yield Finding(Severity.ERROR, _subject(key), problem, fix)


def _subject(key: ObjectKey) -> Subject:
    return Subject("Workload", key.name, key.namespace)
