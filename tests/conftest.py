"""For all tests."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import HealthCheck, settings

# No example is timed: how long one takes says more about the machine than about the code.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# The gate judges a change, not the luck of a day: the same code meets the same examples.
settings.register_profile("gate", settings.get_profile("untimed"), derandomize=True)
settings.load_profile("gate" if os.environ.get("CI") else "untimed")


@pytest.fixture(scope="session", autouse=True)
def loop_of_the_main_thread() -> Iterator[None]:
    """The loop that the asyncio plug-in would otherwise make for itself and never close."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    loop.close()


@pytest.fixture(autouse=True)
def structlog_as_it_was() -> Iterator[None]:
    """Without configuration: `capture_logs` leaves one, and where lines go depends on it."""
    yield
    structlog.reset_defaults()
