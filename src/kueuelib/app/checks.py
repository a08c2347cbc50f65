"""Admission checks in the bundled manager: those of installed packages."""

from __future__ import annotations

from kueuelib.checks import setup
from kueuelib.checks.plugins import installed
from kueuelib.runtime.cache import Cache
from kueuelib.runtime.client import Client
from kueuelib.runtime.events import EventRecorder
from kueuelib.runtime.manager import Manager
from kueuelib.runtime.telemetry import Telemetry


def add_checks(
    manager: Manager,
    cache: Cache,
    client: Client,
    recorder: EventRecorder,
    version: str,
    telemetry: Telemetry,
) -> None:
    """Adds every check that an installed package offers.

    Raises:
        ConfigError: a package offers something that cannot be loaded or is no check.
    """
    setup(manager, cache, client, recorder, installed(), version=version, telemetry=telemetry)
