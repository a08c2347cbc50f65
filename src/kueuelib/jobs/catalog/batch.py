"""The integration of batch Jobs: the only one that is enabled by default."""

from __future__ import annotations

from kueuelib.api.batch import JobSpec
from kueuelib.api.schema import struct_schema
from kueuelib.jobs.batch.job import BatchJob, trim
from kueuelib.jobs.batch.rules import JUDGED, validate_batch_job
from kueuelib.jobs.contract.integration import Integration
from kueuelib.runtime.webhook.reviews import shape_with

BATCH_JOB = Integration(
    "batch/job",
    BatchJob,
    validate_batch_job,
    judged=JUDGED,
    plain=True,
    allows_prebuilt=True,
    transform=trim,
    shape=shape_with({"spec": struct_schema(JobSpec)}, required="spec"),
)
