"""MPIJob (kubeflow.org/v2beta1): of the form of the training jobs, the launcher first."""

from __future__ import annotations

from kueuelib.jobs.declared.kubeflow import replicated

MPI_JOB = replicated("MPIJob", "v2beta1", "mpiReplicaSpecs", "Launcher", "Worker")
