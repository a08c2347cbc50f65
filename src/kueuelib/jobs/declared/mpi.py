"""MPIJob (kubeflow.org/v2beta1): like the training jobs, with the launcher first."""

from __future__ import annotations

from kueuelib.jobs.declared.kubeflow import replicated

MPI_JOB = replicated("MPIJob", "v2beta1", "mpiReplicaSpecs", "Launcher", "Worker")
