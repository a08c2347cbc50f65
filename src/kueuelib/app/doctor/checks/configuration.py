"""The manager's configuration: whether it is valid, and whether it enables the kinds in use."""

from __future__ import annotations

from collections.abc import Iterator

from kueuelib.api.batch import COMPLETE, FAILED
from kueuelib.api.kinds import CONFIG_MAPS, JOBS
from kueuelib.api.meta import Obj, controller_of, is_true
from kueuelib.api.names import QUEUE_LABEL
from kueuelib.api.phrases import counted
from kueuelib.app.configuration import CONFIG_FILE, CONFIG_MAP
from kueuelib.app.doctor.finding import Finding, Severity, check, subject_of
from kueuelib.app.doctor.manager import DISABLED, INVALID, outside, reconfigure
from kueuelib.app.doctor.snapshot import Snapshot
from kueuelib.app.running_configuration import mounted_configuration
from kueuelib.errors import ConfigError
from kueuelib.jobs.catalog.batch import BATCH_JOB
from kueuelib.jobs.pods.reading import queue_of


@check(INVALID, CONFIG_MAPS.kind)
def invalid(snapshot: Snapshot) -> Iterator[Finding]:
    """A configuration file with which no manager starts."""
    stored = snapshot.find(CONFIG_MAPS.kind, CONFIG_MAP, snapshot.namespace)
    if stored is None or outside(snapshot):
        return
    try:
        mounted_configuration(stored)
    except ConfigError as error:
        problem = f"no manager starts with it: {' '.join(str(error).split())}"
        fix = reconfigure(snapshot, f"correct {CONFIG_FILE}")
        yield Finding(Severity.ERROR, subject_of(CONFIG_MAPS.kind, stored), problem, fix)


@check(DISABLED, JOBS.kind)
def disabled(snapshot: Snapshot) -> Iterator[Finding]:
    """Jobs with a queue name although the configuration does not enable their kind."""
    integrations = snapshot.configuration.integrations
    enabled = BATCH_JOB.name in integrations.frameworks
    if enabled or (JOBS.group, JOBS.kind) in integrations.external_kinds:
        return
    jobs = [one for one in snapshot.all(JOBS.kind) if _is_meant(one)]
    if not jobs:
        return
    suspended = any(one["spec"].get("suspend") for one in jobs)
    problem = (
        f"{counted(len(jobs), 'Job')} with a queue name ({QUEUE_LABEL}), and no manager queues "
        f"Jobs: integrations.frameworks of the configuration does not list {BATCH_JOB.name}"
    )
    fix = reconfigure(snapshot, f"add {BATCH_JOB.name} to integrations.frameworks", installs=True)
    severity = Severity.ERROR if suspended else Severity.WARNING
    yield Finding(severity, subject_of(JOBS.kind, jobs[0]), problem, fix)


def _is_meant(job: Obj) -> bool:
    """Whether a Job names a queue, has no controller and has not finished."""
    over = is_true(job, COMPLETE) or is_true(job, FAILED)
    return bool(queue_of(job)) and controller_of(job) is None and not over
