"""The version of Kubernetes that server, documents and nodes report."""

from __future__ import annotations

from typing import Final

MAJOR: Final = "1"
MINOR: Final = "33"
RELEASE: Final = f"v{MAJOR}.{MINOR}.0"
VERSION: Final = f"{RELEASE}+kueuelib"
"""The version, with a suffix by which clients can recognize this server."""
