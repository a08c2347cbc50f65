"""The integrations that come with kueuelib."""

from __future__ import annotations

import functools

from kueuelib.jobs.batch_job import BatchJob
from kueuelib.jobs.batch_job_rules import JUDGED, validate_batch_job
from kueuelib.jobs.declared import DECLARED
from kueuelib.jobs.pods.deployment import DEPLOYMENT
from kueuelib.jobs.pods.integration import POD
from kueuelib.jobs.registry import Integration, Registry

BATCH_JOB = Integration(
    "batch/job", BatchJob, validate_batch_job, judged=JUDGED, allows_prebuilt=True
)


def builtin_registry() -> Registry:
    """A registry of what comes with kueuelib."""
    return functools.reduce(Registry.register, (BATCH_JOB, POD, DEPLOYMENT, *DECLARED), Registry())
