"""For all tests."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
import structlog
from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent))

from spread import spread

# No example is timed: how long one takes says more about the machine than about the code.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# The gate judges a change, not the luck of a day: the same code meets the same examples.
settings.register_profile("gate", settings.get_profile("untimed"), derandomize=True)
settings.load_profile("gate" if os.environ.get("CI") else "untimed")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Workers begin with what takes long."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if workers > 1:
        items[:] = spread(items, Path(__file__).parent, workers)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """No collection of garbage goes through all tests and modules, now or later: it took seconds.

    What is collected stays until the end: looking for garbage in it meanwhile finds hardly any.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def loop_of_the_main_thread() -> Iterator[None]:
    """The loop that the asyncio plug-in would otherwise make for itself and never close."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    loop.close()


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """As a program finds it: commands and `capture_logs` change it, and the next test sees that."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)
