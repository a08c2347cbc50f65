"""The kinds of other projects that come with kueuelib, as declarations.

The names are those that `integrations.frameworks` has for them in Kueue. None of them needs
its CRD to be installed.
"""

from __future__ import annotations

from kueuelib.jobs.declared.appwrapper import APP_WRAPPER
from kueuelib.jobs.declared.jobset import JOB_SET
from kueuelib.jobs.declared.kubeflow import TRAINING_JOBS
from kueuelib.jobs.declared.mpi import MPI_JOB
from kueuelib.jobs.declared.ray import RAY_CLUSTER, RAY_JOB
from kueuelib.jobs.declared.trainjob import TRAIN_JOB

DECLARED = (JOB_SET, MPI_JOB, *TRAINING_JOBS, TRAIN_JOB, RAY_JOB, RAY_CLUSTER, APP_WRAPPER)
"""All of them, in the order in which they are registered."""
