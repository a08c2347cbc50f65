"""The addresses of a simulated cluster, and the configuration of its managers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

SERVER_PORT: Final = 6443
WEBHOOK_PORT: Final = 9443
NAMESPACE: Final = "kueue-system"
RESPAWN_SECONDS: Final = 1.0
"""Seconds until a manager that ended by itself is restarted."""
INSTALLER: Final = "installer"
USER: Final = "user"
LEASE_SECONDS: Final = 30.0
"""Seconds after which a Lease that is not renewed may be taken."""
CONFIGURATION: Final[Mapping[str, Any]] = {
    "apiVersion": "config.kueue.x-k8s.io/v1beta1",
    "kind": "Configuration",
    "namespace": NAMESPACE,
    "health": {"healthProbeBindAddress": "0"},
    "metrics": {"bindAddress": "0"},
    "webhook": {"port": WEBHOOK_PORT},
    # Twice as patient as usual: most calls of a quiet cluster renew a Lease.
    "leaderElection": {
        "leaderElect": True,
        "leaseDuration": f"{LEASE_SECONDS:g}s",
        "renewDeadline": "20s",
        "retryPeriod": "5s",
    },
    "controller": {
        "groupKindConcurrency": {"Job.batch": 5, "Pod": 5, "Workload.kueue.x-k8s.io": 5}
    },
    "integrations": {"frameworks": ["batch/job", "pod"]},
}
