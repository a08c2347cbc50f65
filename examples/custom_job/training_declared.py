"""The same as `training.py`, declared: paths instead of methods."""

from kueuelib.jobs import Pods, declare, enough, equals
from kueuelib.runtime import Resource

integration = declare(
    Resource("ml.example.com", "v1", "trainings", "Training", namespaced=True),
    pods=[
        Pods("launcher", template="spec.launcher.template"),
        Pods("workers", template="spec.workers.template", count="spec.workers.replicas"),
    ],
    active="status.active",
    ready=enough("status.ready"),
    succeeded=equals("status.phase", "Succeeded"),
    failed=equals("status.phase", "Failed"),
    message="status.message",
)
