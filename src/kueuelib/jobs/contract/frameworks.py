"""The names of common integrations."""

from __future__ import annotations

from typing import Final

POD_FRAMEWORK = "pod"
COMMON_FRAMEWORKS: Final = frozenset({"batch/job", POD_FRAMEWORK})
"""The integrations that need not import the modules of all kinds."""
