"""More examples per law (`LAW_EXAMPLES=2000 pytest tests/properties`), and what laws share."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "oracle"))

LEAST = int(os.environ.get("LAW_EXAMPLES", "0"))
"""How many examples every property tries at least."""
SETTINGS = "_hypothesis_internal_use_settings"
"""Where `@settings` leaves them on a test."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Raises what each property says itself."""
    for item in items if LEAST else ():
        function, cls = getattr(item, "obj", None), getattr(item, "cls", None)
        if hasattr(cls, "settings"):
            cls.settings = _more(cls.settings)
        elif hasattr(function, SETTINGS):
            setattr(function, SETTINGS, _more(getattr(function, SETTINGS)))
        elif hasattr(function, "hypothesis"):
            setattr(
                function, SETTINGS, _more(settings.get_profile(settings.get_current_profile_name()))
            )


def _more(profile: settings) -> settings:
    return settings(profile, max_examples=max(profile.max_examples, LEAST))
