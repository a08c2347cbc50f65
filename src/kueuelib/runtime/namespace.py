"""The namespace of the pod that this process runs in."""

from __future__ import annotations

from pathlib import Path

POD_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def own_namespace(default: str) -> str:
    """The pod's namespace; `default` outside a cluster."""
    if POD_NAMESPACE_FILE.exists():
        return POD_NAMESPACE_FILE.read_text().strip()
    return default
