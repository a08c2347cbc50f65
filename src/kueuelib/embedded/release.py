"""The version of Kubernetes whose behaviour is served: by server, documents and nodes alike."""

from __future__ import annotations

from typing import Final

MAJOR: Final = "1"
MINOR: Final = "33"
RELEASE: Final = f"v{MAJOR}.{MINOR}.0"
VERSION: Final = f"{RELEASE}+kueuelib"
"""With a mark by which clients can recognize it."""
