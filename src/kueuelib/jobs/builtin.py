"""The integrations that come with kueuelib."""

from __future__ import annotations

import functools

from kueuelib.jobs.batch import BATCH_JOB
from kueuelib.jobs.contract.integration import IntegrationRegistry
from kueuelib.jobs.declared.appwrapper import APP_WRAPPER
from kueuelib.jobs.declared.jobset import JOB_SET
from kueuelib.jobs.declared.kubeflow import MPI_JOB, TRAINING_JOBS
from kueuelib.jobs.declared.ray import RAY_CLUSTER, RAY_JOB, RAY_SERVICE
from kueuelib.jobs.declared.spark import SPARK_APPLICATION
from kueuelib.jobs.declared.trainjob import TRAIN_JOB
from kueuelib.jobs.pods.deployment import DEPLOYMENT
from kueuelib.jobs.pods.integration import POD
from kueuelib.jobs.pods.leaderworkerset import LEADERWORKERSET
from kueuelib.jobs.pods.statefulset import STATEFULSET

DECLARED = (
    JOB_SET,
    MPI_JOB,
    *TRAINING_JOBS,
    TRAIN_JOB,
    RAY_JOB,
    RAY_CLUSTER,
    RAY_SERVICE,
    SPARK_APPLICATION,
    APP_WRAPPER,
)
"""The kinds of other projects, named as in Kueue's `integrations.frameworks`.

None of them needs its CRD to be installed.
"""


def builtin_registry() -> IntegrationRegistry:
    """A registry of the bundled integrations."""
    integrations = (BATCH_JOB, POD, DEPLOYMENT, STATEFULSET, LEADERWORKERSET, *DECLARED)
    return functools.reduce(IntegrationRegistry.register, integrations, IntegrationRegistry())
