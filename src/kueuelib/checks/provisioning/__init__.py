"""The check that asks the cluster autoscaler for nodes before a workload starts (KEP-993 story 1).

It speaks the ProvisioningRequest API of the autoscaler: `kueue.x-k8s.io/provisioning-request`.
"""

from __future__ import annotations

from kueuelib.checks.provisioning.check import CONTROLLER_NAME, provisioning_check

__all__ = ["CONTROLLER_NAME", "provisioning_check"]
